//! The job under `kill -9`: a plan drawn from the seed, a parent that strikes and starts again, and what they tell each other.

pub(crate) mod child;
pub(crate) mod parent;
pub(crate) mod plan;
pub(crate) mod result;
pub(crate) mod status;
