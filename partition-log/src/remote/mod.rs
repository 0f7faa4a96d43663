//! The log as a program in another process uses it, through a server that speaks Kafka's protocol and one API of ours.
//!
//! ```text
//!   job, its own process                                          server
//!   claim, begin, append, prepare, commit, abort, list, forget --> API 17237   one request each, asked again if the answer is missed
//!   records of topics                                          <-- Fetch       Kafka's own, read-committed
//! ```
//!
//! Kafka's protocol can't say what a job needs said: one prepared transaction per transactional id can't be ended with others in one
//! write, nor fenced by one record for all of an owner's writers. `docs/decisions/0053-an-api-of-our-own.md` has the reasons.
//!
//! Reading order: [`request`], [`answer`] (the bytes, and what a refusal says), [`error`]; [`log`] (connections, topics, claims),
//! [`owner`] (transactions, commits), [`fetcher`] (records), `committed` (which of them count), [`entry`] and `opening` (how a connection
//! is let in), `link`, `kafka` (frames).

pub mod answer;
pub mod entry;
pub mod error;
pub mod fetcher;
pub mod log;
pub mod owner;
pub mod request;

mod committed;
mod kafka;
mod link;
mod opening;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Refusal, RemoteTopic, Why};
pub use entry::{EntryError, Proof, Prove};
pub use error::RemoteError;
pub use fetcher::RemoteReader;
pub use log::{RemoteLog, RemoteOptions};
pub use owner::{RemoteOwner, RemoteProducer, RemoteTxn};
pub use request::{API_KEY, API_VERSION, API_VERSION_MIN, Ask, AttemptOf, NotOwners, PAGE, Request, SOFTWARE};
