//! Consumer groups: who is in a group, and who reads what. By the classic protocol here, by the newer one in [`consumer`].
//!
//! [`machine`] decides and is pure: no clock, no threads, no log. [`member`] has its words, [`stored`] what is kept of a
//! group, [`coordinator`] is the edge: it holds the groups, keeps what must survive in the log, and lets requests wait;
//! [`expiry`] has old offsets forgotten.

pub(crate) mod consumer;
pub(crate) mod coordinator;
mod expiry;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod stored;
mod subscriptions;

#[cfg(test)]
mod tests;
