//! Bytes of the wire: sizes of frames, the table of what is served, the guard, and the way to `kafka-protocol` and back.

pub mod apis;
pub mod codec;
pub mod cost;
pub(crate) mod fetched;
pub mod guard;
pub mod made_up;
pub(crate) mod samples;

#[cfg(test)]
mod tests;
