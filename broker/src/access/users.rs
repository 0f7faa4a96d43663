//! Users by hand: what `cutwater broker user` does. Works beside a running broker, which takes changes over within a second.

use std::path::Path;

use cutwater_platform::Platform;

use super::SALT_BYTES;
use super::book::{USERS_MAX, check_name};
use super::scram::{Credential, ITERATIONS_MAX, MECHANISMS};
use super::store::{AccessError, Store};

/// The users that are kept in a log's directory.
///
/// ```
/// use cutwater_broker::Users;
/// use cutwater_platform::Platform;
/// # let dir = tempfile::tempdir()?;
/// let users = Users::open(&Platform::real(), dir.path())?;
/// users.set_password("alice", b"a long secret")?;
/// assert_eq!(users.names(), ["alice"]);
/// assert!(users.remove("alice")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Users {
    platform: Platform,
    store: Store,
}

impl Users {
    /// The users of the log in `data`; the log itself isn't opened.
    ///
    /// # Errors
    /// They can't be read.
    pub fn open(platform: &Platform, data: &Path) -> Result<Users, AccessError> {
        Ok(Users { platform: platform.clone(), store: Store::open(platform, data)? })
    }

    /// Adds a user, or gives one another password, for all mechanisms. Durable when it returns. What is kept is salted, and hashed in
    /// 16,384 rounds; the password isn't.
    ///
    /// # Errors
    /// The name isn't one, the password is empty, there are too many users, or it can't be written.
    pub fn set_password(&self, name: &str, password: &[u8]) -> Result<(), AccessError> {
        check_name(name).map_err(|why| AccessError::Refused(why.to_string()))?;
        if password.is_empty() {
            return Err(AccessError::Refused("the password is empty".to_string()));
        }
        let credentials = MECHANISMS.map(|mechanism| {
            let salt = (0..SALT_BYTES / 8).flat_map(|_| self.platform.random.next_u64().to_le_bytes()).collect();
            (mechanism, Credential::of_password(mechanism, password, salt, ITERATIONS_MAX))
        });
        self.store.change(|book| {
            if book.users.len() >= USERS_MAX && !book.users.contains_key(name) {
                return Err(AccessError::Refused(format!(
                    "there are {USERS_MAX} users already, which is the most there can be"
                )));
            }
            book.users.insert(name.to_string(), credentials.clone().into_iter().collect());
            Ok(())
        })
    }

    /// Removes a user; whether there was one. Connections that are open stay so.
    ///
    /// # Errors
    /// It can't be written.
    pub fn remove(&self, name: &str) -> Result<bool, AccessError> {
        if !self.store.book().users.contains_key(name) && !self.store.refresh()? {
            return Ok(false);
        }
        self.store.change(|book| Ok(book.users.remove(name).is_some()))
    }

    /// All names, in order.
    pub fn names(&self) -> Vec<String> {
        self.store.book().users.keys().cloned().collect()
    }
}
