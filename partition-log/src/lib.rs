//! The transactional partition log.

pub mod batch;
pub mod segment;
