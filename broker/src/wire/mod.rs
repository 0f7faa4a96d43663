//! Bytes of the wire: sizes of frames, the table of what is served, the guard, and the way to `kafka-protocol` and back.

pub mod apis;
pub mod codec;
pub mod guard;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
