//! The names of a segment's files: its first offset in 20 digits, and what the file is.

use std::path::{Path, PathBuf};

/// The files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The batches.
    Log,
    /// Where offsets lie in it.
    Index,
    /// Where to look for times in it.
    Times,
    /// Which transactions were aborted in it.
    Aborts,
    /// The partition's producers up to its first offset.
    Producers,
    /// What vouches for the aborted transactions.
    AbortSums,
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Log, Kind::Index, Kind::Times, Kind::Aborts, Kind::Producers, Kind::AbortSums];

    fn suffix(self) -> &'static str {
        match self {
            Kind::Log => "log",
            Kind::Index => "index",
            Kind::Times => "timeindex",
            Kind::Aborts => "txnindex",
            Kind::Producers => "snapshot",
            Kind::AbortSums => "txnsum",
        }
    }
}

/// The name under which a rebuilt index is prepared ends like this.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

const DIGITS: usize = 20;

/// The path of one of a segment's files.
pub(crate) fn path_of(dir: &Path, base: i64, kind: Kind) -> PathBuf {
    dir.join(format!("{base:0DIGITS$}.{}", kind.suffix()))
}

/// What a name in a partition's directory stands for; `None` for names that aren't ours.
pub(crate) fn parse(name: &str) -> Option<(i64, Kind)> {
    let (digits, suffix) = name.split_once('.')?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
    let all_digits = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    Some((if all_digits { digits.parse().ok()? } else { return None }, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_foreign_names_are_left_alone() {
        for base in [0, 7, 1_234_567, i64::MAX] {
            for kind in Kind::ALL {
                let path = path_of(Path::new("p"), base, kind);
                let name = path.file_name().and_then(|n| n.to_str()).expect("plain");
                assert_eq!(parse(name), Some((base, kind)));
            }
        }
        assert_eq!(path_of(Path::new("p"), 42, Kind::Log), Path::new("p/00000000000000000042.log"));
        for foreign in ["42.log", "00000000000000000042.times", "0000000000000000004x.log", "99999999999999999999.log"]
        {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
        assert_eq!(parse("+0000000000000000042.log"), None);
        assert_eq!(parse("00000000000000000042.index.tmp"), None);
    }
}
