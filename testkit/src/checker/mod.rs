//! Judges a [`History`]: was everything acknowledged read once, in order, whole, and nothing else?
//!
//! ```text
//!   History ─> Index (who sent what, who saw it first, what was decided)
//!                 │
//!                 ├─ offsets   Duplicated, InconsistentOffset
//!                 ├─ writers   AbortedRead, UncommittedRead, Invented
//!                 ├─ atomic    TornTransaction, TornCheckpoint, CheckpointOrder          I-1, I-6
//!                 ├─ lost      Lost, Unseen
//!                 ├─ stable    Phantom, Skipped                                          I-2
//!                 ├─ order     Reordered
//!                 ├─ fencing   ZombieWrite                                               I-7
//!                 └─ groups    OffsetRegress
//! ```
//!
//! Each pass is near linear and finds kinds of its own; one fault gives one kind, wherever evidence allows: a value that
//! is missing is *torn* if its transaction was seen, *lost* if nothing of it was. A call that overlaps another never
//! counts against it. A transaction of unknown outcome counts as committed once a part of it was read.
//!
//! The checker is itself under test: valid histories from thousands of seeds raise no alarm, every kind is planted
//! hundreds of times and found alone, and with a kind's pass left out it is not found.
//!
//! Not judged: liveness (a log that answers nothing passes; [`Report::unjudged`] counts what no reader got to), and
//! cycles between transactions that read.

mod atomic;
mod fencing;
#[cfg(test)]
mod generate;
mod groups;
mod index;
mod lost;
mod offsets;
mod order;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod planting;
mod stable;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::history::{History, Value};
use index::Index;

/// What can be wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyKind {
    /// Acknowledged, passed by a reader, and read by nobody.
    Lost,
    /// Acknowledged, and not there when the partition was last read to its end.
    Unseen,
    /// One value at two offsets.
    Duplicated,
    /// Two values at one offset.
    InconsistentOffset,
    /// Values of one process in one partition, or records of one poll, out of order.
    Reordered,
    /// A value was read whose transaction was aborted or whose sending had failed (Adya's G1a).
    AbortedRead,
    /// A value was read before anybody asked to commit it.
    UncommittedRead,
    /// A value was read that nobody had sent.
    Invented,
    /// A part of a transaction was visible while another part was not.
    TornTransaction,
    /// A transaction of a checkpoint was visible while another one of it was not.
    TornCheckpoint,
    /// A checkpoint was visible while an earlier one of the same job was not.
    CheckpointOrder,
    /// A fenced attempt was answered Ok, or what it sent after the fence was read.
    ZombieWrite,
    /// Read once, and later gone.
    Phantom,
    /// A reader passed an offset and did not see what others read there.
    Skipped,
    /// A group's position moved back.
    OffsetRegress,
}

impl AnomalyKind {
    /// Every kind.
    pub const ALL: [AnomalyKind; 15] = [
        AnomalyKind::Lost,
        AnomalyKind::Unseen,
        AnomalyKind::Duplicated,
        AnomalyKind::InconsistentOffset,
        AnomalyKind::Reordered,
        AnomalyKind::AbortedRead,
        AnomalyKind::UncommittedRead,
        AnomalyKind::Invented,
        AnomalyKind::TornTransaction,
        AnomalyKind::TornCheckpoint,
        AnomalyKind::CheckpointOrder,
        AnomalyKind::ZombieWrite,
        AnomalyKind::Phantom,
        AnomalyKind::Skipped,
        AnomalyKind::OffsetRegress,
    ];
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What sort of thing.
    pub kind: AnomalyKind,
    /// The value it is about, if it is about one.
    pub value: Option<Value>,
    /// The evidence in words.
    pub story: String,
}

/// The judgement.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong; at most a hundred of each kind.
    pub anomalies: Vec<Anomaly>,
    /// How many there are of each kind, those left out included.
    pub counts: BTreeMap<AnomalyKind, u64>,
    /// Calls looked at.
    pub operations: usize,
    /// Values that must be visible: acknowledged on their own, or in a transaction acknowledged as committed.
    pub acknowledged: usize,
    /// Different values that were read.
    pub read: usize,
    /// Acknowledged values that no reader got far enough to see or miss. A run in which this isn't small proves little.
    pub unjudged: usize,
}

/// Stories kept of each kind.
const STORIES_MAX: u64 = 100;

impl Report {
    /// True when nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// The kinds of things that are wrong.
    pub fn kinds(&self) -> BTreeSet<AnomalyKind> {
        self.counts.keys().copied().collect()
    }

    fn add(&mut self, kind: AnomalyKind, value: Option<Value>, story: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= STORIES_MAX {
            self.anomalies.push(Anomaly { kind, value, story: story() });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operations, acknowledged, read, unjudged, .. } = self;
        writeln!(f, "{operations} calls, {acknowledged} values acknowledged, {read} read, {unjudged} unjudged")?;
        for (kind, count) in &self.counts {
            writeln!(f, "{kind:?}: {count}")?;
            for anomaly in self.anomalies.iter().filter(|a| a.kind == *kind).take(3) {
                writeln!(f, "  {}", anomaly.story)?;
            }
        }
        if self.is_clean() { writeln!(f, "nothing is wrong") } else { Ok(()) }
    }
}

type Pass = fn(&Index<'_>, &mut Report);

const PASSES: [(&str, Pass); 8] = [
    ("offsets", offsets::pass),
    ("writers", writers::pass),
    ("atomic", atomic::pass),
    ("lost", lost::pass),
    ("stable", stable::pass),
    ("order", order::pass),
    ("fencing", fencing::pass),
    ("groups", groups::pass),
];

/// Judges a history.
///
/// ```
/// use cutwater_testkit::history::{Call, History, Outcome, Value};
/// use cutwater_testkit::checker::{AnomalyKind, check};
///
/// let mut history = History::new();
/// let value = Value::new(1, 1, 0);
/// history.record(1, None, Call::Send { partition: 0, value, offset: Some(0) }, Outcome::Ok);
/// let poll = Call::Poll { partition: 0, from: 0, next: 1, at_end: true, records: vec![] };
/// history.record(2, None, poll, Outcome::Ok);
/// assert_eq!(check(&history).kinds().first(), Some(&AnomalyKind::Lost));
/// ```
pub fn check(history: &History) -> Report {
    check_without(history, "")
}

fn check_without(history: &History, left_out: &str) -> Report {
    let index = Index::new(history);
    let mut report = Report { operations: history.ops.len(), ..Report::default() };
    for (_, pass) in PASSES.iter().filter(|(name, _)| *name != left_out) {
        pass(&index, &mut report);
    }
    (report.acknowledged, report.read, report.unjudged) = lost::count(&index);
    report
}

/// Judges a history and panics with the report and the calls if anything is wrong.
///
/// # Panics
/// If anything is wrong.
pub fn assert_clean(history: &History) {
    let report = check(history);
    assert!(report.is_clean(), "{report}\nthe calls:\n{}", history.text());
}
