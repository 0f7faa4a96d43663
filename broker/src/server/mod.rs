//! Sockets and threads: who may connect, and what a connection's two threads do.
//!
//! `listener` accepts, `connection` reads and answers.

mod connection;
mod listener;

pub use listener::{Broker, BrokerError};
