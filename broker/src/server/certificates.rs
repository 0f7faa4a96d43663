//! Certificate, key and the clients' authorities as they are on the disk now, so that renewed ones need no restart.
//!
//! * The files are looked at once a second, whole: what counts is what is in them, not when they were written. New connections get what
//!   is in force; those that are open keep what they began with.
//! * Files that can't be used change nothing: what was in force stays, and it is said, once, in the broker's log and as long as it lasts in
//!   its metrics. Because two files aren't replaced at once, that is said only of what is found twice in a row.
//! * No key is kept but in rustls: contents are compared by a hash.
//!
//! It deliberately doesn't look at the dates in certificates: clients do.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use cutwater_platform::{Files, Platform};
use cutwater_secure::pem::FILE_BYTES_MAX;
use rustls::ServerConfig;
use xxhash_rust::xxh3::xxh3_128;

use super::tls::{self, TlsError};
use crate::options::TlsFiles;

/// Hashes of the files' contents; none for one that can't be read.
type Print = Vec<Option<u128>>;

/// What TLS connections begin with.
#[derive(Debug)]
pub(crate) struct Certificates {
    platform: Platform,
    from: TlsFiles,
    in_force: RwLock<Arc<ServerConfig>>,
    seen: Mutex<Seen>,
    taken: AtomicU64,
    unusable: AtomicBool,
}

/// What the files held.
#[derive(Debug)]
struct Seen {
    /// When what is in force was read.
    in_force: Print,
    /// At the last look, if that couldn't be used.
    refused: Option<Print>,
    /// It was said of this that it can't be used.
    told: Option<Print>,
}

impl Certificates {
    /// What the files hold now.
    ///
    /// # Errors
    /// It can't be used.
    pub(crate) fn load(platform: &Platform, from: &TlsFiles) -> Result<Certificates, TlsError> {
        let in_force = print(&*platform.files, from);
        let config = tls::load(&*platform.files, from)?;
        Ok(Certificates {
            platform: platform.clone(),
            from: from.clone(),
            in_force: RwLock::new(config),
            seen: Mutex::new(Seen { in_force, refused: None, told: None }),
            taken: AtomicU64::new(0),
            unusable: AtomicBool::new(false),
        })
    }

    /// For the next connection.
    pub(crate) fn in_force(&self) -> Arc<ServerConfig> {
        self.in_force.read().expect("no panic under this lock").clone()
    }

    /// How often others were taken over.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the files hold what can't be used.
    pub(crate) fn is_unusable(&self) -> bool {
        self.unusable.load(Ordering::Relaxed)
    }

    /// Looks at the files, and takes over what is new in them.
    pub(crate) fn look(&self) {
        let files = &*self.platform.files;
        let mut seen = self.seen.lock().expect("no panic while looking");
        let found = print(files, &self.from);
        if found == seen.in_force {
            (seen.refused, seen.told) = (None, None);
            if self.unusable.swap(false, Ordering::Relaxed) {
                tracing::info!("the files of certificate and key hold again what is in force");
            }
            return;
        }
        if seen.told.as_ref() == Some(&found) {
            return;
        }
        match tls::load(files, &self.from) {
            // They may be changing at this moment: the next look decides.
            Ok(_) if print(files, &self.from) != found => {}
            Ok(config) => {
                *self.in_force.write().expect("no panic under this lock") = config;
                *seen = Seen { in_force: found, refused: None, told: None };
                self.taken.fetch_add(1, Ordering::Relaxed);
                self.unusable.store(false, Ordering::Relaxed);
                tracing::info!(
                    certificate = %self.from.certificate.display(),
                    "certificate and key have changed: new connections get the new ones"
                );
            }
            Err(error) if seen.refused.as_ref() == Some(&found) => {
                self.unusable.store(true, Ordering::Relaxed);
                tracing::error!(%error, "the files of certificate and key have changed and can't be used; what was in force stays");
                seen.told = Some(found);
            }
            Err(_) => seen.refused = Some(found),
        }
    }
}

fn print(files: &dyn Files, from: &TlsFiles) -> Print {
    let of = |path: &Path| files.read(path, FILE_BYTES_MAX).ok().map(|bytes| xxh3_128(&bytes));
    [Some(&from.certificate), Some(&from.key), from.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| of(path))
        .collect()
}
