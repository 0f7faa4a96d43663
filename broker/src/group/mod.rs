//! Consumer groups by the classic protocol: who is in a group, who leads it, and who reads what.
//!
//! [`machine`] decides and is pure: no clock, no threads, no log. [`member`] has its words, [`stored`] what is kept of a
//! group, [`coordinator`] is the edge: it holds the groups, keeps what must survive in the log, and lets requests wait.

pub(crate) mod coordinator;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod stored;

#[cfg(test)]
mod tests;
