//! Segment files.
