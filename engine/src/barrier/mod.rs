//! The cut: what lies before a barrier and what after, and how far event time has come, over many channels.

mod align;
mod watermark;

pub use align::{AlignError, Aligner, Alignment};
pub use watermark::{Merged, WatermarkMerger};
