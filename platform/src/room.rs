//! A disk without room, told apart from a disk that has failed.
//!
//! A *write* that found no room has changed nothing that a repetition at the same place wouldn't change the same way: it may be
//! tried again. A *sync* that failed, for whatever reason, leaves it unknown what is on the disk, and the system may have called the
//! lost pages clean: it must not be tried again. Where one call does both ([`File::write_synced_at`](crate::File::write_synced_at)) the
//! error says which it was.

use std::fmt;
use std::io::{self, ErrorKind};

/// What a sync said, inside of an error of another kind.
#[derive(Debug)]
struct SyncFailed(io::Error);

impl fmt::Display for SyncFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "written, but the sync failed: {}", self.0)
    }
}

impl std::error::Error for SyncFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The error of a sync that was part of a larger operation: never taken for a write without room.
///
/// ```
/// use cutwater_platform::room::{found_no_room, is_lack_of_room, sync_failed};
/// use std::io::{Error, ErrorKind};
///
/// let full = || Error::from(ErrorKind::StorageFull);
/// assert!(found_no_room(&full()) && is_lack_of_room(&full()));
/// assert!(!found_no_room(&sync_failed(full())) && is_lack_of_room(&sync_failed(full())));
/// assert!(!is_lack_of_room(&ErrorKind::NotFound.into()));
/// ```
pub fn sync_failed(error: io::Error) -> io::Error {
    io::Error::other(SyncFailed(error))
}

/// True if a write, or the making of a name, was refused because there is no room for it: on the disk, in a quota, or below the
/// largest size that a file may have. It may be tried again. Not to be asked of what a sync on its own has answered.
pub fn found_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// True if something failed for lack of room, a sync included.
pub fn is_lack_of_room(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<SyncFailed>());
    found_no_room(inner.map_or(error, |failed| &failed.0))
}
