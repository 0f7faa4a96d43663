//! A full disk: what the log still takes, and what becomes of what it has taken.
//!
//! ```text
//!   a write finds no room, there is a reserve   -> it is given up and the write tried again; what would grow the log is refused
//!   a write finds no room, there is none        -> what was accepted is held and tried again; whoever waits hears *unknown*
//!   ... of the write-ahead log                  -> nothing is accepted
//!   ... of segments or a base image             -> what frees room is accepted, for as long as the backlog takes it
//!   the held write succeeds, the reserve is back -> everything as before
//! ```
//!
//! Here is the decision, as a machine without I/O. The promise: what is refused has not happened; what was accepted happens in its
//! order once there is room, or the next open decides; readers never notice. A *sync* that failed for lack of room is no business
//! of this module: it stops the log as any other does.

use std::path::PathBuf;

use cutwater_platform::IoError;
use cutwater_platform::room::found_no_room;
use thiserror::Error;

/// A write that found no room.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the disk has no room: {bytes} bytes for {} couldn't be written. Nothing of this has happened; reading goes on, and the log \
     takes requests again by itself once there is room: delete records or topics, let retention keep less, or enlarge the disk",
    path.display()
)]
pub struct NoRoom {
    /// The file that was to be written.
    pub path: PathBuf,
    /// Bytes of the write, at most.
    pub bytes: u64,
}

impl NoRoom {
    /// What an error says, if that is a lack of room for a write.
    pub(crate) fn of(error: &IoError, bytes: u64) -> Option<NoRoom> {
        let is_sync = error.action.starts_with("sync");
        (!is_sync && found_no_room(&error.source)).then(|| NoRoom { path: error.path.clone(), bytes })
    }
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The write-ahead log.
    Wal,
    /// Segments, indexes, base images.
    Segments,
}

/// How short of room the log is.
#[derive(Debug, Default)]
pub(crate) struct Room {
    wal: Option<NoRoom>,
    segments: Option<NoRoom>,
    /// The write for which the reserve was given up, until there is a reserve again.
    spent: Option<NoRoom>,
    /// Whose write that was, until it has been tried again: the room isn't taken away from it.
    trying: [bool; 2],
}

impl Room {
    /// A write has found no room and is held. True if this is news.
    pub(crate) fn hold(&mut self, who: Who, what: NoRoom) -> bool {
        self.trying[who as usize] = false;
        self.held_mut(who).replace(what).is_none()
    }

    /// A write that found no room has succeeded. True if it was held.
    pub(crate) fn got_on(&mut self, who: Who) -> bool {
        self.trying[who as usize] = false;
        self.held_mut(who).take().is_some()
    }

    /// The reserve was given up for a write.
    pub(crate) fn spend(&mut self, who: Who, what: NoRoom) {
        self.trying[who as usize] = true;
        self.spent = Some(what);
    }

    /// Whether all that found no room is written.
    pub(crate) fn is_calm(&self) -> bool {
        self.wal.is_none() && self.segments.is_none() && self.trying == [false; 2]
    }

    /// There is a reserve again. True if it had been given up.
    pub(crate) fn restore(&mut self) -> bool {
        self.spent.take().is_some()
    }

    pub(crate) fn is_held(&self, who: Who) -> bool {
        match who {
            Who::Wal => self.wal.is_some(),
            Who::Segments => self.segments.is_some(),
        }
    }

    /// Whether there is a write to try again.
    pub(crate) fn is_pending(&self, who: Who) -> bool {
        self.is_held(who) || self.trying[who as usize]
    }

    /// Whether what makes the log larger is taken.
    pub(crate) fn for_growth(&self) -> Result<(), NoRoom> {
        self.lack().cloned().map_or(Ok(()), Err)
    }

    /// Whether anything is taken, such as what ends transactions or deletes. `backlog_full`: the write-ahead log waits for segments.
    pub(crate) fn for_anything(&self, backlog_full: bool) -> Result<(), NoRoom> {
        let blocked = self.segments.as_ref().filter(|_| backlog_full);
        self.wal.as_ref().or(blocked).cloned().map_or(Ok(()), Err)
    }

    /// What there was no room for, if the log is short of it.
    pub(crate) fn lack(&self) -> Option<&NoRoom> {
        self.wal.as_ref().or(self.segments.as_ref()).or(self.spent.as_ref())
    }

    fn held_mut(&mut self, who: Who) -> &mut Option<NoRoom> {
        match who {
            Who::Wal => &mut self.wal,
            Who::Segments => &mut self.segments,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::path::Path;

    use cutwater_platform::IoContext;
    use cutwater_platform::room::sync_failed;

    use super::*;

    fn lack(path: &str) -> NoRoom {
        NoRoom { path: path.into(), bytes: 1 }
    }

    /// Every state, and what is taken in it.
    #[test]
    fn growth_needs_a_reserve_and_nothing_held_and_what_frees_room_needs_the_write_ahead_log() {
        for state in 0..8 {
            let mut room = Room::default();
            let (wal, segments, spent) = (state & 1 != 0, state & 2 != 0, state & 4 != 0);
            if spent {
                room.spend(Who::Wal, lack("spent"));
                assert!(!room.is_calm());
                assert!(!room.got_on(Who::Wal), "it was never held");
            }
            if segments {
                assert!(room.hold(Who::Segments, lack("first")) && !room.hold(Who::Segments, lack("segments")));
            }
            if wal {
                assert!(room.hold(Who::Wal, lack("wal")));
            }
            assert_eq!(room.is_calm(), !wal && !segments, "state {state}");
            assert_eq!((room.is_held(Who::Wal), room.is_held(Who::Segments)), (wal, segments));
            assert_eq!(room.for_growth().is_ok(), !wal && !segments && !spent, "state {state}");
            assert_eq!(room.for_anything(false).is_ok(), !wal, "state {state}");
            assert_eq!(room.for_anything(true).is_ok(), !wal && !segments, "state {state}");
            assert_eq!((room.got_on(Who::Wal), room.got_on(Who::Segments), room.restore()), (wal, segments, spent));
            assert_eq!((room.for_growth(), room.lack()), (Ok(()), None), "state {state}: all is well again");
        }
    }

    #[test]
    fn only_a_write_without_room_is_one_and_never_a_sync() {
        let of = |action, error: Error| {
            NoRoom::of(&Err::<(), _>(error).at(action, Path::new("f")).expect_err("an error"), 7)
        };
        let full = || Error::from(ErrorKind::StorageFull);
        assert_eq!(of("write", full()), Some(NoRoom { path: "f".into(), bytes: 7 }));
        assert!(of("extend", ErrorKind::FileTooLarge.into()).is_some());
        assert_eq!(of("sync", full()), None);
        assert_eq!(of("sync the directory", full()), None);
        assert_eq!(of("write", sync_failed(full())), None);
        assert_eq!(of("write", ErrorKind::PermissionDenied.into()), None);
    }
}
