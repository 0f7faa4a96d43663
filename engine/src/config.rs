//! Every limit and interval of the engine, with units, and the relations between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cutwater_platform::Platform;
use serde::{Deserialize, Serialize};

/// What a job promises about its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// No checkpoints. Each record is processed at most once; after a failure the job ends and can't be resumed.
    AtMostOnce,
    /// Checkpoints by barriers that hold nothing back, and output that is visible as it comes. After a crash the job goes back
    /// to the last complete checkpoint: nothing is lost, and what was processed since then is processed, counted and written
    /// again.
    AtLeastOnce(Snapshots),
    /// Checkpoints by barriers: after any crash the job goes back to the last complete checkpoint, and what it writes
    /// through transactional sinks is visible exactly once.
    ExactlyOnce(Snapshots),
}

impl Guarantee {
    /// Exactly-once with the default interval of one second.
    pub fn exactly_once() -> Guarantee {
        Guarantee::ExactlyOnce(Snapshots::default())
    }

    /// The checkpoint settings, if there are checkpoints.
    pub fn snapshots(&self) -> Option<&Snapshots> {
        match self {
            Guarantee::AtMostOnce => None,
            Guarantee::AtLeastOnce(snapshots) | Guarantee::ExactlyOnce(snapshots) => Some(snapshots),
        }
    }

    /// The promise without its settings.
    pub fn kind(&self) -> GuaranteeKind {
        match self {
            Guarantee::AtMostOnce => GuaranteeKind::AtMostOnce,
            Guarantee::AtLeastOnce(_) => GuaranteeKind::AtLeastOnce,
            Guarantee::ExactlyOnce(_) => GuaranteeKind::ExactlyOnce,
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guarantee::AtMostOnce => f.write_str("at-most-once (no checkpoints)"),
            Guarantee::AtLeastOnce(s) => {
                write!(f, "at-least-once (snapshots every {:?}, nothing held back, output visible at once)", s.interval)
            }
            Guarantee::ExactlyOnce(s) => write!(f, "exactly-once ({} snapshots every {:?})", s.alignment, s.interval),
        }
    }
}

/// A promise without its settings: what connectors say they honour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuaranteeKind {
    /// See [`Guarantee::AtMostOnce`].
    AtMostOnce,
    /// See [`Guarantee::AtLeastOnce`].
    AtLeastOnce,
    /// See [`Guarantee::ExactlyOnce`].
    ExactlyOnce,
}

impl fmt::Display for GuaranteeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GuaranteeKind::AtMostOnce => "at-most-once",
            GuaranteeKind::AtLeastOnce => "at-least-once",
            GuaranteeKind::ExactlyOnce => "exactly-once",
        })
    }
}

/// What becomes of the records that stand before a barrier when another channel's barrier has come, in an exactly-once job.
/// (At-least-once nothing is held back, so there is nothing to choose.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// They are processed first; channels whose barrier has come are held meanwhile. Snapshots hold state only. Under
    /// back-pressure a checkpoint takes as long as everything that is under way.
    #[default]
    Aligned,
    /// The barrier overtakes them, and they join the snapshot as channel state. A checkpoint takes about as long without
    /// back-pressure as with it; snapshots grow by what is under way, at most [`Limits::channel_records`] per channel.
    ///
    /// Records between operators on one worker are overtaken only where
    /// [`Stream::overtakable`](crate::graph::Stream::overtakable) says that they may be; elsewhere few of them wait, and the
    /// barrier waits for those. So it does for the rest of what one record or one watermark made.
    ///
    /// Source: Flink's FLIP-76.
    Unaligned,
    /// Aligned, until an instance has waited so long since the first barrier came; then unaligned. Each instance on the way has
    /// this time for itself.
    AlignedFor(Duration),
}

impl Alignment {
    /// How long an instance waits before a barrier overtakes records; `None` if it never does.
    pub(crate) fn patience(self) -> Option<Duration> {
        match self {
            Alignment::Aligned => None,
            Alignment::Unaligned => Some(Duration::ZERO),
            Alignment::AlignedFor(limit) => Some(limit),
        }
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alignment::Aligned => f.write_str("aligned"),
            Alignment::Unaligned => f.write_str("unaligned"),
            Alignment::AlignedFor(limit) => write!(f, "aligned for {limit:?}, then unaligned"),
        }
    }
}

/// How checkpoints are taken and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// From the start of one checkpoint to the start of the next.
    pub interval: Duration,
    /// From the end of one checkpoint (published or declined) to the start of the next, at least: time for records alone. Only with
    /// one checkpoint in flight.
    pub pause: Duration,
    /// At most this many checkpoints may be under way at a time, triggered and not yet published. With more than one, a barrier
    /// follows the one before it while state of that is still being written; at each instance the earlier snapshot is encoded to
    /// its end before the next cut, in one go.
    pub in_flight_max: u64,
    /// Whether barriers wait for the records before them.
    pub alignment: Alignment,
    /// At most this many checkpoints may be triggered and not yet committed.
    pub uncommitted_max: u64,
    /// How many committed checkpoints are kept, the newest included.
    pub retained: usize,
    /// Each committed checkpoint is kept for at least this long, however many there are. After a restart that time begins anew
    /// for those that were found, since no checkpoint says when it was taken.
    pub retained_for: Duration,
    /// A chain of state files with this many deltas is replaced by a fresh base; earlier if the deltas outgrow the base.
    pub deltas_max: usize,
    /// A chain with this many deltas is merged into a new base on a thread of its own, so that a restore reads little and the
    /// worker seldom has to write everything; 0 to leave that out. Useful below `deltas_max`.
    pub merge_after: usize,
    /// How state files are packed.
    pub compression: Compression,
    /// Where checkpoints come more often than this, large state files are written past the system's cache, which costs the least CPU.
    /// Otherwise they go through it and stay there for as long as it has room, so that a restore after a panic or a `kill -9`
    /// doesn't wait for the disk. `Duration::MAX` for always past it, zero for never (decision 0092).
    pub past_cache_below: Duration,
    /// A checkpoint that isn't complete after this time is declined: nothing is lost, and the next one covers its output. What it
    /// waited for is said, and kept in the history.
    pub timeout: Duration,
    /// After this many declined checkpoints in a row the attempt ends: a job that can't take checkpoints any more must say so
    /// instead of running on towards a very long replay. One that nobody can finish counts again after each further time-out.
    pub declined_max: u32,
    /// How many checkpoints of a run are remembered with their phases; see [`Control::checkpoints`](crate::observe::Control::checkpoints).
    pub history: usize,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            interval: Duration::from_secs(1),
            pause: Duration::ZERO,
            in_flight_max: 1,
            alignment: Alignment::default(),
            uncommitted_max: 2,
            retained: 3,
            retained_for: Duration::ZERO,
            deltas_max: 16,
            merge_after: 8,
            compression: Compression::None,
            past_cache_below: Duration::from_millis(150),
            timeout: Duration::from_secs(600),
            declined_max: 10,
            history: 64,
        }
    }
}

impl Snapshots {
    /// Checkpoints every `interval`, the rest as by default.
    pub fn every(interval: Duration) -> Snapshots {
        Snapshots { interval, ..Snapshots::default() }
    }

    /// What contradicts what, and what to say instead.
    ///
    /// # Errors
    /// The first contradiction, in words.
    ///
    /// ```
    /// use cutwater_engine::config::Snapshots;
    /// assert_eq!(Snapshots::default().check(), Ok(()));
    /// let impatient = Snapshots { in_flight_max: 3, ..Snapshots::default() };
    /// assert!(impatient.check().unwrap_err().starts_with("3 checkpoints may be in flight, but only 2 uncommitted"));
    /// ```
    pub fn check(&self) -> Result<(), String> {
        let text = match self {
            s if s.interval.is_zero() => "the checkpoint interval must be above 0",
            s if s.timeout.is_zero() => "the time-out of checkpoints must be above 0",
            s if s.retained == 0 => "at least one committed checkpoint must be kept",
            s if s.uncommitted_max == 0 => "at least one checkpoint may be uncommitted",
            s if s.in_flight_max == 0 => "at least one checkpoint may be in flight",
            s if s.declined_max == 0 => {
                "declined_max must be 1 or more; 1 means that the first declined checkpoint ends the attempt"
            }
            s if s.in_flight_max > s.uncommitted_max => {
                return Err(format!(
                    "{} checkpoints may be in flight, but only {} uncommitted, and one in flight isn't committed; raise \
                     uncommitted_max, or lower in_flight_max",
                    s.in_flight_max, s.uncommitted_max
                ));
            }
            s if s.in_flight_max > 1 && !s.pause.is_zero() => {
                "a pause between checkpoints means one at a time; leave out the pause, or set in_flight_max to 1"
            }
            _ => return Ok(()),
        };
        Err(text.to_string())
    }
}

/// How the blocks of state files are packed, on the I/O threads. What it costs and saves stands in
/// `docs/decisions/0032-packed-state-files.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Compression {
    /// As they are: no CPU, the most bytes.
    #[default]
    None,
    /// LZ4: little CPU.
    Lz4,
    /// Zstandard at its fastest level: more CPU than LZ4, fewer bytes.
    Zstd,
}

/// The exit code of a process that ended itself because a worker was stuck; see [`Options::leave_within`]. `EX_SOFTWARE` of
/// `sysexits.h`. What was committed is kept.
pub const STUCK_EXIT_CODE: i32 = 70;

/// Where a run begins instead of its newest checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreFrom {
    /// The savepoint's folder.
    pub savepoint: PathBuf,
    /// Even if output beyond it is committed in this directory: that output will be written again.
    pub fork: bool,
}

/// Everything a run needs besides the graph.
#[derive(Clone, Debug)]
pub struct Options {
    /// The job's name, for people.
    pub name: String,
    /// Where checkpoints and the embedded log live.
    pub dir: PathBuf,
    /// Number of worker threads, at least 1.
    pub workers: usize,
    /// The promise.
    pub guarantee: Guarantee,
    /// Restarts after a panic or an error in the attempt that are made within [`Options::restarts_within`]; with one more the run gives
    /// up.
    pub restarts_max: u32,
    /// Failures that are older than this don't count against [`Options::restarts_max`]: an hour unless told otherwise, so that a job
    /// that fails in a loop ends soon and one that fails once a week goes on for years. `Duration::MAX`: the whole run.
    pub restarts_within: Duration,
    /// Pause before the first restart; doubles with each further one up to a second.
    pub restart_backoff: Duration,
    /// How long a job with checkpoints waits for room on a full disk: it is paused meanwhile, and goes on when there is room. Counted
    /// from the last committed checkpoint; 24 hours unless told otherwise. Zero: a full disk is a failure like any other.
    pub wait_for_space: Duration,
    /// How long the workers may take to leave an attempt that has failed. One that is stuck in your code can't be interrupted, and
    /// going on without it would let two attempts write: after this time the process says so and ends with exit code
    /// [`STUCK_EXIT_CODE`]. Raise it if your functions may block for longer.
    pub leave_within: Duration,
    /// Pin worker i to core i if there are at least as many cores as workers.
    pub pin: bool,
    /// Kill the process that holds the data directory, if there is one, and take its place.
    pub take_over: bool,
    /// What the program doesn't have any more and may be dropped from a checkpoint it goes on from: an operator's name, or
    /// `operator/state`, or `source/split`. Anything else that would be lost ends the start.
    pub allow_dropped: BTreeSet<String>,
    /// Let frames between workers travel as bytes, as they would between processes. Slower; shows a type whose `Serialize` and
    /// `Deserialize` don't agree before several machines are involved.
    pub bytes_between_workers: bool,
    /// Begin from a savepoint; see `docs/savepoints.md`.
    pub restore: Option<RestoreFrom>,
    /// Where connectors find what they connect to, by their names and in their words; what isn't named is where it is by default.
    pub places: BTreeMap<String, String>,
    /// Limits inside the dataflow.
    pub limits: Limits,
    /// The world.
    pub platform: Platform,
}

impl Options {
    /// Exactly-once in `dir`, with one worker per core up to two.
    pub fn new(name: impl Into<String>, dir: impl Into<PathBuf>) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            name: name.into(),
            dir: dir.into(),
            workers: cores.min(2),
            guarantee: Guarantee::exactly_once(),
            restarts_max: 10,
            restarts_within: Duration::from_secs(3600),
            restart_backoff: Duration::from_millis(5),
            wait_for_space: Duration::from_secs(24 * 60 * 60),
            leave_within: Duration::from_secs(30),
            pin: true,
            take_over: false,
            allow_dropped: BTreeSet::new(),
            bytes_between_workers: false,
            restore: None,
            places: BTreeMap::new(),
            limits: Limits::default(),
            platform: Platform::real(),
        }
    }
}

/// Limits inside the dataflow (I-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records in a batch that a source or a router makes.
    pub batch_records: usize,
    /// Records that may be under way on one channel before its sender waits.
    pub channel_records: usize,
    /// Batches that an operator handles before it lets others run.
    pub batches_per_step: usize,
    /// Bitmap words (64 slots each) that a state sweeps per batch while a snapshot is being taken.
    pub sweep_words: usize,
    /// Estimated bytes of keyed state per operator instance; beyond it the attempt ends with a clear error.
    pub state_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let limits = Limits {
            batch_records: 1024,
            channel_records: 64 * 1024,
            batches_per_step: 16,
            sweep_words: 512,
            state_bytes: 8 << 30,
        };
        assert_eq!(limits.check(), Ok(()));
        limits
    }
}

impl Limits {
    /// What contradicts what, and what to say instead.
    ///
    /// # Errors
    /// The first contradiction, in words.
    ///
    /// ```
    /// use cutwater_engine::config::Limits;
    /// assert_eq!(Limits::default().check(), Ok(()));
    /// let narrow = Limits { batch_records: 1_000, channel_records: 1_500, ..Limits::default() };
    /// assert!(narrow.check().unwrap_err().starts_with("a channel takes 1500 records, but must take two batches of 1000"));
    /// ```
    pub fn check(&self) -> Result<(), String> {
        let Limits { batch_records, channel_records, batches_per_step, sweep_words, state_bytes } = *self;
        let above_0 = [
            ("batch_records", batch_records),
            ("batches_per_step", batches_per_step),
            ("sweep_words", sweep_words),
            ("state_bytes", state_bytes),
        ];
        if let Some((name, _)) = above_0.into_iter().find(|(_, value)| *value == 0) {
            return Err(format!("the limit {name} must be above 0"));
        }
        // A sender must be able to have a batch under way while the next one is filled, or it would stop after each.
        if channel_records / 2 < batch_records {
            return Err(format!(
                "a channel takes {channel_records} records, but must take two batches of {batch_records}; raise \
                 channel_records, or lower batch_records"
            ));
        }
        Ok(())
    }
}
