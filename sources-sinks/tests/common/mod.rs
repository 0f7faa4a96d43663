//! What the tests of connectors share.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt::Debug;
use std::path::Path;

use cutwater_engine::config::Options;
use cutwater_engine::error::SourceError;
use cutwater_engine::graph::{Environment, Job};
use cutwater_engine::source::{Read, Reader, Source, Waker};
use cutwater_platform::{Files, Open, OsFiles};

/// A job in `dir`.
pub(crate) fn job(dir: &Path) -> Job {
    Job::new(Environment::new(&Options::new("test", dir)))
}

/// Creates a file.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) {
    let file = OsFiles.open(path, Open::Create).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

pub(crate) fn open<S: Source>(source: &S, split: &str, position: Option<&[u8]>) -> Box<dyn Reader<Item = S::Item>> {
    source.open(split, position, Waker::noop()).unwrap()
}

/// Reads until nothing comes, at most `max` records at once.
pub(crate) fn drain<T>(reader: &mut dyn Reader<Item = T>, max: usize) -> Result<(Vec<T>, Read), SourceError> {
    let mut all = vec![];
    loop {
        let before = all.len();
        let read = reader.read(&mut all, max)?;
        assert!(all.len() - before <= max, "asked for {max} records, got {}", all.len() - before);
        if read != Read::More {
            return Ok((all, read));
        }
    }
}

/// Checks what exactly-once asks of positions: for every k, read k records, take the position, open again there: exactly the
/// others follow, in order; and the position itself is the same again. Returns all records of the split.
pub(crate) fn check_positions<S: Source>(source: &S, split: &str) -> Vec<S::Item>
where
    S::Item: PartialEq + Debug,
{
    let (all, end) = drain(open(source, split, None).as_mut(), 1000).unwrap();
    for max in [1, 2, 7] {
        let (again, _) = drain(open(source, split, None).as_mut(), max).unwrap();
        assert_eq!(again, all, "read {max} at a time");
    }
    for k in 0..=all.len() {
        let mut reader = open(source, split, None);
        let mut head = vec![];
        while head.len() < k {
            reader.read(&mut head, 1).unwrap();
        }
        let position = reader.position();
        drop(reader);
        let mut resumed = open(source, split, Some(&position));
        assert_eq!(resumed.position(), position, "a position is stable (after {k} records)");
        let (rest, resumed_end) = drain(resumed.as_mut(), 3).unwrap();
        assert_eq!(head, all[..k]);
        assert_eq!(rest, all[k..], "after {k} records");
        assert_eq!(resumed_end, end);
        // Once more from the very end.
        let (nothing, _) = drain(open(source, split, Some(&resumed.position())).as_mut(), 3).unwrap();
        assert_eq!(nothing, [], "after the end");
    }
    all
}
