//! What stands between a new connection and its first request: how a user is proved, and why a broker isn't entered.
//!
//! This crate knows the exchange of SASL and no means to prove anything: passwords and TLS are the business of whoever gives
//! [`RemoteOptions`](super::RemoteOptions) a [`Prove`] and a network of its own (`cutwater-secure`). Nothing here holds a secret, and
//! no error repeats one.

use std::fmt;

use cutwater_platform::NetError;
use thiserror::Error;

/// Proves to a broker who connects: one exchange for each connection, so that every reconnect proves it anew.
pub trait Prove: Send + Sync + fmt::Debug {
    /// Who it is.
    fn user(&self) -> &str;

    /// SASL's name of how it is proved.
    fn mechanism(&self) -> &'static str;

    /// Begins an exchange.
    ///
    /// # Errors
    /// [`EntryError::Secret`]: what is needed for it can't be had.
    fn begin(&self) -> Result<Box<dyn Proof>, EntryError>;
}

/// One exchange, in the messages of SCRAM (RFC 5802): first, challenge, last, and the server's own proof.
pub trait Proof: Send {
    /// The first message.
    fn first(&mut self) -> Vec<u8>;

    /// The last message, in answer to the server's challenge.
    ///
    /// # Errors
    /// [`EntryError::Unproved`]: no server would ask so.
    fn last(&mut self, challenge: &[u8]) -> Result<Vec<u8>, EntryError>;

    /// Judges the server's own proof.
    ///
    /// # Errors
    /// [`EntryError::Unproved`]: the server doesn't know what follows from the password.
    fn check(self: Box<Self>, proof: &[u8]) -> Result<(), EntryError>;
}

/// Why a broker isn't entered. None of it passes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EntryError {
    /// TLS: who answers isn't trusted, doesn't trust this program, or doesn't speak it.
    #[error("{0}")]
    Net(NetError),
    /// TLS is spoken there.
    #[error("it speaks TLS, and this job doesn't: name the broker as tls://HOST:PORT, with --broker-ca FILE")]
    SpeaksTls,
    /// TLS isn't spoken there.
    #[error(
        "it speaks no TLS, as tls:// has it: name a listener that does (`cutwater broker --listen tls://...`), or the broker as \
         plain://HOST:PORT if nobody can listen in on the way"
    )]
    SpeaksPlain,
    /// It is asked who connects.
    #[error("this listener asks who connects, and no user is named: say --broker-user NAME")]
    UserWanted,
    /// Nobody asks who connects.
    #[error(
        "nobody asks there who connects, so that {user:?} would be anybody: name a listener that does (sasl-tls://), or leave out the user"
    )]
    NotAsked {
        /// Who wanted to come in.
        user: String,
    },
    /// The means to prove oneself isn't known there.
    #[error("{wanted} isn't served there, but {}: say --broker-mechanism", served.join(", "))]
    Mechanism {
        /// What was offered.
        wanted: &'static str,
        /// What the server has.
        served: Vec<String>,
    },
    /// The password can't be had.
    #[error("the password of {user:?} can't be had: {reason}")]
    Secret {
        /// Whose.
        user: String,
        /// Where it was looked for, and what was found.
        reason: String,
    },
    /// It isn't the user's password, or there is no such user; servers don't say which.
    #[error(
        "user {user:?} isn't let in: there is no such user, or its password is another (`cutwater broker user add {user} --data DIR` sets it)"
    )]
    WrongPassword {
        /// Who wanted to come in.
        user: String,
    },
    /// The server can't prove itself.
    #[error(
        "what answers hasn't proved that it knows user {user:?} ({reason}): somebody stands in the broker's place, or on the way to it"
    )]
    Unproved {
        /// Who wanted to come in.
        user: String,
        /// What was wrong.
        reason: &'static str,
    },
}
