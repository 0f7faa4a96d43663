//! Consumer groups by the newer protocol (KIP-848): the server assigns, members follow it one heartbeat at a time.
//!
//! [`machine`] decides and is pure: no clock, no threads, no log. [`assign`] divides partitions among members, [`stored`] is what
//! is kept of a group. The edge is the same as for classic groups ([`super::coordinator`]).

pub(crate) mod assign;
pub(crate) mod machine;
pub(crate) mod stored;

#[cfg(test)]
mod tests;
