//! Sockets and threads: who may connect, and what a connection's two threads do.
//!
//! `listener` accepts, `connection` reads and answers, `pool` bounds what all requests together hold in memory.

mod connection;
mod listener;
mod pool;

pub use listener::{Broker, BrokerError};
