//! The way to a broker: its address with all that it takes to be let in, TLS and SCRAM for whoever connects.
//!
//! ```text
//!   BrokerPlace ("tls://alice@log.example.org:9093?ca=ca.pem")  --options()-->  RemoteOptions { net: TlsNet, user: Scram }
//!     address, names of files and of a variable, never a secret                  what the log's client asks, for each connection
//! ```
//!
//! Reading order: [`place`] (what a person says), `scram` (proofs; the broker's side uses its primitives), `tls`, `pem` (files).
//!
//! What it promises:
//! * A place holds no secret: it can be printed, kept and sent. Passwords, certificates and keys are read when a connection is
//!   made, so that a renewed one is taken up by the next connection.
//! * A password is neither sent nor kept; it is wiped from memory behind each exchange, and stands in no error and no `Debug`.
//! * The server proves itself, too: by its certificate and, after SCRAM, by knowing what follows from the password.
//! * There is no way to leave the checks of a certificate out.
//!
//! It deliberately has no roots of trust of its own: which authority vouches for a broker is said by a file.
//!
//! ```
//! use cutwater_partition_log::remote::RemoteLog;
//! use cutwater_platform::Platform;
//! use cutwater_secure::BrokerPlace;
//! # use std::time::Duration;
//! let platform = Platform::real();
//! let place: BrokerPlace = "tls://alice@127.0.0.1:9?ca=ca.pem&password-file=alice.txt".parse()?;
//! let options = place.options(&platform, "my program")?;
//! let connected = RemoteLog::connect(&platform, options, Duration::ZERO);
//! assert!(connected.is_err(), "there is no ca.pem, and nobody at port 9");
//! # Ok::<(), cutwater_secure::PlaceError>(())
//! ```

#![forbid(unsafe_code)]

pub mod place;
pub mod scram;

#[cfg(feature = "tls")]
pub mod pem;
#[cfg(feature = "tls")]
pub mod tls;

pub use place::{BrokerPlace, PasswordFrom, PlaceError, TlsPlace, UserPlace};
