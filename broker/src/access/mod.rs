//! Who somebody is, and what they may do.
//!
//! `scram` proves a user, `acl` judges what it may do, `book` is what both judge by and how it is written, `store` keeps it on the
//! disk, `failures` counts, `certificate` reads a
//! name, `session` is one connection's way to being known, `rights` asks for the handlers, `users` is the command line's hand on it.
//! All but `store` is pure.
//!
//! What it promises:
//! * Before a connection has proved who it is, it gets nothing but the list of APIs and the means to prove it.
//! * A password is neither kept nor sent nor logged; neither an answer nor its time says whether a user exists.
//! * Where rights are asked for, what no rule allows is denied, and every API asks (a test goes through all of them).
//! * A change is durable before it is acknowledged, and survives or is lost whole.

pub(crate) mod acl;
pub(crate) mod book;
pub(crate) mod certificate;
pub(crate) mod failures;
pub(crate) mod rights;
pub(crate) mod scram;
pub(crate) mod session;
pub(crate) mod store;
mod users;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cutwater_platform::Platform;

pub use book::BookError;
pub use certificate::CertificateName;
pub use store::AccessError;
pub use users::Users;

use crate::options::Security;
use crate::service::Caller;
use acl::{Kind, Operation, Who};
use book::Book;
use failures::Failures;
use scram::{Credential, ITERATIONS_MAX, Mechanism, ScramError};
use store::Store;

/// What a connection is called that hasn't proved who it is.
pub(crate) const ANONYMOUS: &str = "ANONYMOUS";
/// Salts of our own making.
pub(super) const SALT_BYTES: usize = 32;

/// Users, rights, and what is counted about them.
#[derive(Debug)]
pub(crate) struct Access {
    store: Option<Store>,
    authorize: bool,
    super_users: BTreeSet<String>,
    pub(crate) failures: Failures,
}

impl Access {
    pub(crate) fn open(platform: &Platform, security: &Security) -> Result<Access, AccessError> {
        let store = match &security.data {
            Some(data) => Some(Store::open(platform, data)?),
            None => None,
        };
        let super_users = security.super_users.iter();
        let super_users = super_users.map(|user| user.strip_prefix("User:").unwrap_or(user).to_string()).collect();
        Ok(Access { store, authorize: security.authorize, super_users, failures: Failures::default() })
    }

    /// Where users and rights are kept, if they are.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Whether rights are asked for at all.
    pub(crate) fn authorizes(&self) -> bool {
        self.authorize
    }

    /// What is in force now.
    pub(crate) fn book(&self) -> Arc<Book> {
        self.store.as_ref().map(Store::book).unwrap_or_default()
    }

    /// Rises with each change of users or rights.
    pub(crate) fn version(&self) -> u64 {
        self.store.as_ref().map_or(0, Store::number)
    }

    /// Whether somebody may do something: the one question that all handlers ask.
    pub(crate) fn allowed(&self, who: &Who<'_>, operation: Operation, kind: Kind, name: &str) -> bool {
        !self.authorize
            || self.super_users.contains(who.user)
            || self.store.as_ref().is_some_and(|store| store.book().rules.allows(who, operation, kind, name))
    }

    /// Whether somebody may do something to whatever thing of this kind.
    pub(crate) fn allowed_somewhere(&self, who: &Who<'_>, operation: Operation, kind: Kind) -> bool {
        !self.authorize
            || self.super_users.contains(who.user)
            || self.store.as_ref().is_some_and(|store| store.book().rules.allows_somewhere(who, operation, kind))
    }

    /// Takes over what the command line or another process has changed.
    pub(crate) fn refresh(&self) {
        match self.store.as_ref().map(Store::refresh) {
            Some(Ok(true)) => tracing::info!("users and rights were changed from outside and are in force"),
            Some(Err(error)) => {
                tracing::error!(%error, "changes of users and rights can't be read; what was known stays in force")
            }
            _ => {}
        }
    }

    /// Counts somebody who couldn't prove to be who they say, and tells the log. The name is what a stranger sent.
    pub(crate) fn failed(&self, caller: &Caller, mechanism: &'static str, user: &str, why: ScramError) {
        let cause = match why {
            ScramError::Malformed(_) => "message",
            // There is no such user, or another password: it isn't told, and not counted apart.
            ScramError::WrongPassword => "password",
        };
        self.failures.count(&caller.listener, mechanism, cause);
        let (address, why, failures) = (&caller.address, why.to_string(), self.failures.by_scram());
        tracing::warn!(address, listener = &*caller.listener, mechanism, ?user, why, failures, "authentication failed");
    }
}

/// How long an answer to a failed proof waits: guessing is slow, and no time is to be read from it.
pub(crate) const FAILURE_DELAY: Duration = Duration::from_millis(250);

/// The credential of a user, or, at the same price, a decoy that looks like one and that no password fits. The same user gets the
/// same decoy each time, with a salt and a number of rounds as others have.
pub(crate) fn credential(book: &Book, mechanism: Mechanism, user: &str) -> Credential {
    let made = |what: &str| mechanism.hmac(&book.secret, format!("{what} {} {user}", mechanism.name()).as_bytes());
    let pick = made("pick");
    let kept = || book.users.values().filter_map(|credentials| credentials.get(&mechanism));
    let pick = u64::from_le_bytes([pick[0], pick[1], pick[2], pick[3], pick[4], pick[5], pick[6], pick[7]]);
    let like = kept().nth((pick % (kept().count().max(1) as u64)) as usize);
    let (salt_bytes, iterations) = like.map_or((SALT_BYTES, ITERATIONS_MAX), |like| (like.salt.len(), like.iterations));
    let salt: Vec<u8> =
        (0..salt_bytes.div_ceil(mechanism.hash_bytes())).flat_map(|n| made(&format!("salt {n}"))).collect();
    let decoy = Credential {
        salt: salt[..salt_bytes].to_vec(),
        iterations,
        stored_key: made("stored"),
        server_key: made("server"),
    };
    let known = book.users.get(user).and_then(|credentials| credentials.get(&mechanism));
    known.cloned().unwrap_or(decoy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_gets_a_decoy_that_stays_the_same_and_looks_like_a_users() {
        let book = book::tests::some();
        for mechanism in scram::MECHANISMS {
            let decoy = credential(&book, mechanism, "mallory");
            assert_eq!(decoy, credential(&book, mechanism, "mallory"));
            assert_ne!(decoy.salt, credential(&book, mechanism, "trudy").salt);
            let known = credential(&book, mechanism, "alice");
            assert_eq!(&known, &book.users["alice"][&mechanism]);
            assert_eq!((decoy.salt.len(), decoy.iterations), (known.salt.len(), known.iterations));
        }
        // Without a credential of this kind a user is as good as unknown.
        assert_ne!(credential(&book, Mechanism::Sha256, "bob,=").salt, b"salt");
        assert_eq!(credential(&Book::default(), Mechanism::Sha512, "x").salt.len(), SALT_BYTES);
    }
}
