//! The book on disk: read at the start and whenever somebody else has changed it, changed by whole new versions.
//!
//! Each version is one file `access/<20 digits>` in the log's directory, published whole under a number that wasn't there before
//! (`Files::publish_bytes` never replaces). So there is no lock between a running broker and the command line: of two that change
//! the same version one finds the number taken, reads again and does its change anew. A change says `Ok` only when it is durable.
//! Older versions are removed behind that.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use cutwater_platform::{IoContext, IoError, Platform};
use thiserror::Error;

use super::book::{Book, BookError, SECRET_BYTES};

/// The directory's name in the log's.
pub(crate) const DIR: &str = "access";
/// No book is larger: ten thousand of everything at its longest.
const BYTES_MAX: u64 = 64 << 20;
/// A change that is overtaken more often than this is given up.
const ATTEMPTS: usize = 100;

/// Users and rights can't be read or changed.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The disk's own answer. A change may or may not have happened.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A version isn't one.
    #[error("{} holds users and rights, and {source}: restore it from a backup, or move it away and add users and rights anew", path.display())]
    Book {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: BookError,
    },
    /// What was asked for isn't possible.
    #[error("{0}")]
    Refused(String),
    /// Others change it all the time.
    #[error("users and rights are being changed by somebody else all the time: try again")]
    Overtaken,
}

/// Users and rights, as they are on the disk.
#[derive(Debug)]
pub(crate) struct Store {
    platform: Platform,
    dir: PathBuf,
    /// The version that is in force, and its number; 0 if there is none yet.
    now: RwLock<(u64, Arc<Book>)>,
    /// That number once more, to be looked at with each request.
    number: AtomicU64,
    /// One change at a time in this process.
    changing: Mutex<()>,
}

fn random_secret(platform: &Platform) -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    for bytes in secret.chunks_mut(8) {
        bytes.copy_from_slice(&platform.random.next_u64().to_le_bytes());
    }
    secret
}

impl Store {
    /// What the log's directory `data` holds; nothing is written.
    pub(crate) fn open(platform: &Platform, data: &Path) -> Result<Store, AccessError> {
        let store = Store {
            platform: platform.clone(),
            dir: data.join(DIR),
            now: RwLock::default(),
            number: AtomicU64::new(0),
            changing: Mutex::default(),
        };
        let empty = Book { secret: random_secret(platform), ..Book::default() };
        let found = store.newest()?.unwrap_or((0, empty));
        store.put(found.0, found.1);
        Ok(store)
    }

    fn put(&self, number: u64, book: Book) {
        *self.now.write().expect("no panic under this lock") = (number, Arc::new(book));
        self.number.store(number, Ordering::Release);
    }

    /// What is in force.
    pub(crate) fn book(&self) -> Arc<Book> {
        self.now.read().expect("no panic under this lock").1.clone()
    }

    /// The number of the version in force: it rises with each change.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:020}"))
    }

    /// The numbers of all versions, rising.
    fn numbers(&self) -> Result<Vec<u64>, AccessError> {
        let entries = match self.platform.files.read_dir(&self.dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            entries => entries.at("list", &self.dir)?,
        };
        let number = |name: &str| name.parse().ok().filter(|n: &u64| name.len() == 20 && *n > 0);
        let mut numbers: Vec<u64> = entries.iter().filter_map(|entry| number(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn newest(&self) -> Result<Option<(u64, Book)>, AccessError> {
        for _ in 0..ATTEMPTS {
            let Some(number) = self.numbers()?.pop() else { return Ok(None) };
            let path = self.path(number);
            match self.platform.files.read(&path, BYTES_MAX) {
                // A newer one was published meanwhile.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                bytes => {
                    // Whoever published it may have been cut off before it was durable, and it is about to be acted on.
                    self.platform.files.sync_dir(&self.dir).at("sync", &self.dir)?;
                    let book = Book::decode(&bytes.at("read", &path)?);
                    return Ok(Some((number, book.map_err(|source| AccessError::Book { path, source })?)));
                }
            }
        }
        Err(AccessError::Overtaken)
    }

    /// Reads again if somebody else has changed it; whether that was so.
    pub(crate) fn refresh(&self) -> Result<bool, AccessError> {
        let _alone = self.changing.lock().expect("no panic while changing");
        let known = self.now.read().expect("no panic under this lock").0;
        if self.numbers()?.last().is_none_or(|newest| *newest <= known) {
            return Ok(false);
        }
        if let Some((number, book)) = self.newest()? {
            self.put(number, book);
        }
        Ok(true)
    }

    /// Changes it. `change` may be done several times, each time to the newest version; if it refuses, nothing has changed.
    pub(crate) fn change<T, E: From<AccessError>>(
        &self,
        mut change: impl FnMut(&mut Book) -> Result<T, E>,
    ) -> Result<T, E> {
        let _alone = self.changing.lock().expect("no panic while changing");
        let Platform { files, crash, .. } = &self.platform;
        for _ in 0..ATTEMPTS {
            let (old, mut book) = match self.newest()? {
                Some(newest) => newest,
                None => (0, (*self.book()).clone()),
            };
            let done = change(&mut book)?;
            files.create_dir_all(&self.dir).at("create", &self.dir).map_err(AccessError::from)?;
            let path = self.path(old + 1);
            match files.publish_bytes(&path, &book.encode()) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                published => published.at("write users and rights to", &path).map_err(AccessError::from)?,
            }
            crash.reach("access.published");
            let numbers = self.numbers()?;
            if numbers.last().is_some_and(|newest| *newest > old + 1) {
                // Somebody went on from a version that this one came too late for.
                continue;
            }
            self.put(old + 1, book);
            for number in numbers.into_iter().filter(|number| *number <= old) {
                // It goes with the next change if it doesn't now.
                let _ = files.remove_file(&self.path(number));
            }
            crash.reach("access.retired");
            return Ok(done);
        }
        Err(AccessError::Overtaken.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::acl::{Acl, Kind, Operation, Pattern, Permission};
    use cutwater_testkit::{LossPolicy, SimPlatform};

    fn acl(name: &str) -> Acl {
        Acl {
            kind: Kind::Topic,
            pattern: Pattern::Literal,
            name: name.to_string(),
            principal: "User:alice".to_string(),
            host: "*".to_string(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }
    }

    fn add(store: &Store, name: &str) -> Result<(), AccessError> {
        store.change(|book| {
            book.rules = book.rules.all().iter().cloned().chain([acl(name)]).collect();
            Ok(())
        })
    }

    fn names(store: &Store) -> Vec<String> {
        store.book().rules.all().iter().map(|acl| acl.name.clone()).collect()
    }

    fn open(sim: &SimPlatform) -> Store {
        Store::open(&sim.platform(), Path::new("log")).expect("it is read, whatever happened")
    }

    /// A machine with two rules kept.
    fn machine(seed: u64) -> SimPlatform {
        let sim = SimPlatform::new(seed);
        sim.platform().files.create_dir_all(Path::new("log")).expect("a directory");
        let store = open(&sim);
        add(&store, "a").and_then(|()| add(&store, "b")).expect("kept");
        sim
    }

    const POLICIES: [LossPolicy; 4] =
        [LossPolicy::AllLost, LossPolicy::NoneLost, LossPolicy::Random, LossPolicy::LastTorn512];

    /// The power goes at every step of the disk and at every crash point: what was acknowledged is there, what wasn't is there whole
    /// or not at all, and the next change works.
    #[test]
    fn a_change_that_is_cut_off_anywhere_happens_whole_or_not_at_all() {
        let steps = {
            let sim = machine(1);
            let before = sim.disk().steps();
            add(&open(&sim), "c").expect("kept");
            sim.disk().steps() - before
        };
        assert!(steps > 5, "a change takes several steps of the disk");
        let mut both = [false; 2];
        let points = ["access.published", "access.retired"].map(Some);
        for policy in POLICIES {
            for strike in (1..=steps).map(Err).chain(points.map(Ok)) {
                let sim = machine(7);
                match strike {
                    Err(step) => sim.disk().crash_at_step(sim.disk().steps() + step),
                    Ok(point) => sim.power_off_at(point.expect("a point"), 1),
                }
                let done = Store::open(&sim.platform(), Path::new("log")).and_then(|store| add(&store, "c"));
                let next = sim.restart(policy);
                let store = open(&next);
                let found = names(&store);
                let there = found == ["a", "b", "c"];
                assert!(there || found == ["a", "b"], "{strike:?} {policy:?}: {found:?}");
                assert!(there || done.is_err(), "{strike:?} {policy:?}: acknowledged and lost");
                both[usize::from(there)] = true;
                add(&store, "d").expect("life goes on");
                assert_eq!(names(&open(&next)).last().map(String::as_str), Some("d"));
                let left = next.platform().files.read_dir(Path::new("log/access")).expect("there");
                let versions = left.iter().filter(|entry| !entry.name.ends_with(".tmp")).count();
                assert_eq!(versions, 1, "older versions are gone: {left:?}");
            }
        }
        assert_eq!(both, [true, true], "some strikes come too early and some too late");
    }

    #[test]
    fn two_that_change_at_the_same_time_both_have_their_way() {
        let sim = machine(3);
        let (one, two) = (open(&sim), open(&sim));
        add(&one, "c").expect("kept");
        // The second one knows of the older version alone.
        add(&two, "d").expect("kept");
        assert_eq!(names(&two), ["a", "b", "c", "d"]);
        assert_eq!(names(&one), ["a", "b", "c"]);
        assert!(one.refresh().expect("read") && !one.refresh().expect("read"));
        assert_eq!(names(&one), ["a", "b", "c", "d"]);
        let refused: Result<(), AccessError> = one.change(|_| Err(AccessError::Refused("no".to_string())));
        assert!(refused.is_err());
        assert_eq!(names(&open(&sim)), ["a", "b", "c", "d"], "a refusal changes nothing");
    }

    #[test]
    fn threads_that_change_through_stores_of_their_own_lose_nothing() {
        let sim = SimPlatform::new(5);
        sim.platform().files.create_dir_all(Path::new("log")).expect("a directory");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = open(&sim);
                scope.spawn(move || (0..10).for_each(|n| add(&store, &format!("{thread}-{n}")).expect("kept")));
            }
        });
        assert_eq!(names(&open(&sim)).len(), 40);
    }

    #[test]
    fn a_damaged_version_is_refused_by_its_name_and_not_skipped() {
        let sim = machine(9);
        let path = Path::new("log/access/00000000000000000002");
        let len = sim.platform().files.read(path, BYTES_MAX).expect("there").len() as u64;
        for at in 0..len {
            sim.disk().flip_bit(path, at, at as u8 % 8);
            let refused = Store::open(&sim.platform(), Path::new("log")).expect_err("damaged");
            assert!(matches!(&refused, AccessError::Book { path: named, .. } if named == path), "byte {at}: {refused}");
            sim.disk().flip_bit(path, at, at as u8 % 8);
        }
        sim.disk().fail_reads_at(path, len / 2);
        Store::open(&sim.platform(), Path::new("log")).expect_err("unreadable");
        sim.disk().heal();
        Store::open(&sim.platform(), Path::new("log")).expect("whole again");
    }
}
