//! What was asked of a log and what it answered, from outside: the material of the [`checker`](crate::checker).
//!
//! A history knows nothing of engine or log. Every value sent is unique and names its writer, so a value read anywhere
//! tells which call it came from. Stamps are logical: a call that ended before another started happened before it;
//! calls that overlap may have happened in any order.
//!
//! Rules for the recording test:
//! * One process sends its values to a partition in ascending order of [`Value`].
//! * A transaction exists if its [`Call::Begin`] is recorded; values with any other number were sent on their own.
//! * A poll is read-committed, and lists all that it saw between `from` and `next`.
//! * [`Outcome::Fail`] means surely not done. Whatever may or may not have been done is [`Outcome::Unknown`].

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A value sent once in a history: process (16 bits), transaction or batch number (32), index in it (16).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u64);

impl Value {
    /// The `index`-th value of the `number`-th transaction (or batch) of `process`.
    pub fn new(process: u16, number: u32, index: u16) -> Value {
        Value(u64::from(process) << 48 | u64::from(number) << 16 | u64::from(index))
    }

    /// Who sent it.
    pub fn process(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// In which transaction, if that has begun.
    pub fn txn(self) -> TxnId {
        TxnId { process: self.process(), number: (self.0 >> 16) as u32 }
    }

    /// At which place in it.
    pub fn index(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.txn(), self.index())
    }
}

/// A transaction: the process that began it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// Who began it.
    pub process: u16,
    /// Its number there.
    pub number: u32,
}

impl fmt::Display for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.process, self.number)
    }
}

/// A checkpoint of a job, whose transactions must appear together and in the order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checkpoint {
    /// The job.
    pub owner: u16,
    /// The checkpoint's number.
    pub number: u64,
}

/// In whose name a call was made, for fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The job.
    pub owner: u16,
    /// Its attempt.
    pub number: u32,
}

/// What a caller knows of a call's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ok,
    /// Surely not done, now or later.
    Fail,
    /// Perhaps done, perhaps later: a time-out, a crash.
    Unknown,
}

/// A call on the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A record was sent.
    Send {
        /// To where.
        partition: u32,
        /// What.
        value: Value,
        /// Where it came to stand, if the answer said so.
        offset: Option<u64>,
    },
    /// A reader was served.
    Poll {
        /// Of which partition.
        partition: u32,
        /// The first offset asked for.
        from: u64,
        /// The offset to ask for next: everything visible before it has been seen.
        next: u64,
        /// True when nothing visible stood at `next` or behind it.
        at_end: bool,
        /// Offsets and values.
        records: Vec<(u64, Value)>,
    },
    /// A transaction was begun.
    Begin {
        /// Which.
        txn: TxnId,
    },
    /// A transaction was prepared.
    Prepare {
        /// Which.
        txn: TxnId,
        /// For which checkpoint.
        checkpoint: Option<Checkpoint>,
    },
    /// Transactions were committed, all of them or none.
    Commit {
        /// Which.
        txns: Vec<TxnId>,
        /// As which checkpoint; this overrides what [`Call::Prepare`] said (a declined checkpoint's are carried over).
        checkpoint: Option<Checkpoint>,
    },
    /// A transaction was aborted.
    Abort {
        /// Which.
        txn: TxnId,
    },
    /// A group's position was stored.
    CommitOffset {
        /// The group.
        group: u32,
        /// The partition.
        partition: u32,
        /// The position.
        offset: u64,
    },
    /// A group's position was asked for.
    FetchOffset {
        /// The group.
        group: u32,
        /// The partition.
        partition: u32,
        /// The answer.
        offset: u64,
    },
    /// Attempts of a job below a number were shut out.
    Fence {
        /// The job.
        owner: u16,
        /// The first attempt that may go on.
        below: u32,
    },
    /// The log or the machine went down.
    Crash,
}

/// A call with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Who called.
    pub process: u16,
    /// In whose name, where fencing matters.
    pub by: Option<Attempt>,
    /// What.
    pub call: Call,
    /// What the caller knows.
    pub outcome: Outcome,
    /// When it was called.
    pub start: u64,
    /// When it was answered.
    pub end: u64,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}..{}] process {}", self.start, self.end, self.process)?;
        if let Some(by) = self.by {
            write!(f, " (job {} attempt {})", by.owner, by.number)?;
        }
        write!(f, " {:?}: {:?}", self.outcome, self.call)
    }
}

/// The calls of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The calls, in the order of their answers.
    pub ops: Vec<Op>,
    now: u64,
}

/// When a call was made, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl History {
    /// Nothing has happened.
    pub fn new() -> History {
        History::default()
    }

    /// A history made of calls with stamps of their own.
    pub fn from_ops(mut ops: Vec<Op>) -> History {
        ops.sort_by_key(|op| op.end);
        let now = ops.last().map_or(0, |op| op.end);
        History { ops, now }
    }

    /// A call is about to be made.
    pub fn start(&mut self) -> Stamp {
        self.now += 1;
        Stamp(self.now)
    }

    /// The call made at `started` has been answered (or given up).
    pub fn finish(&mut self, started: Stamp, process: u16, by: Option<Attempt>, call: Call, outcome: Outcome) {
        self.now += 1;
        self.ops.push(Op { process, by, call, outcome, start: started.0, end: self.now });
    }

    /// A call that no other overlaps.
    pub fn record(&mut self, process: u16, by: Option<Attempt>, call: Call, outcome: Outcome) {
        let started = self.start();
        self.finish(started, process, by, call, outcome);
    }

    /// The calls as text, one a line, for the story of a failure.
    pub fn text(&self) -> String {
        self.ops.iter().map(|op| format!("{op}\n")).collect()
    }
}

/// A history that many threads write. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// Nothing has happened.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Makes a call and records it: `call` does the work and says what was called, and what came of it.
    pub fn record(&self, process: u16, by: Option<Attempt>, call: impl FnOnce() -> (Call, Outcome)) {
        let started = self.lock().start();
        let (call, outcome) = call();
        self.lock().finish(started, process, by, call, outcome);
    }

    /// What has been answered so far.
    pub fn history(&self) -> History {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_writer() {
        let value = Value::new(3, u32::MAX, 65_535);
        assert_eq!((value.process(), value.txn().number, value.index()), (3, u32::MAX, 65_535));
        assert_eq!(format!("{value:?}"), "3.4294967295.65535");
        assert!(Value::new(3, 1, 9) < Value::new(3, 2, 0), "the order of sending");
    }

    #[test]
    fn nested_calls_overlap_and_are_listed_in_the_order_of_their_answers() {
        let recorder = Recorder::new();
        recorder.record(1, None, || {
            recorder.record(2, None, || (Call::Crash, Outcome::Ok));
            (Call::Begin { txn: Value::new(1, 1, 0).txn() }, Outcome::Unknown)
        });
        let ops = recorder.history().ops;
        assert_eq!(ops.iter().map(|op| (op.process, op.start, op.end)).collect::<Vec<_>>(), [(2, 2, 3), (1, 1, 4)]);
        assert_eq!(ops[1].to_string(), "[1..4] process 1 Unknown: Begin { txn: TxnId { process: 1, number: 1 } }");
    }
}
