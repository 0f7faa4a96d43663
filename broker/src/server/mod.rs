//! Sockets and threads: who may connect, and what a connection's two threads do.
//!
//! `listen` says where and how protected, `listener` accepts, `tls` reads certificates, `certificates` reads them again when
//! they have changed, `stream` hides whether there is TLS, `connection` reads and answers, `arrival` takes a frame in, `pace`
//! judges who is too slow.

mod arrival;
pub(crate) mod certificates;
mod connection;
mod listen;
mod listener;
mod pace;
pub(crate) mod peer;
mod stream;
mod tls;

pub use listen::{Listen, ListenError, ListenParseError};
pub use listener::{Broker, BrokerError};
pub use tls::TlsError;
