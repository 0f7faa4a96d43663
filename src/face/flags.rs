//! Command line and environment -> options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cutwater_engine::config::{Alignment, Compression, Guarantee, Options, RestoreFrom, Snapshots};
use cutwater_engine::error::RunError;

use super::broker_flags::BrokerFlags;
use super::orders::place_of;

/// What stands below the flags in `--help`.
pub(super) const AFTER_HELP: &str = "\
Standard output carries the job's data, standard error everything about the run.
RUST_LOG chooses what is traced there, for example RUST_LOG=cutwater_engine=debug.

Ctrl-C takes a last checkpoint and ends; a second Ctrl-C ends at once. Neither loses anything that is committed,
and the same command with the same --dir goes on.

Exit codes:
    0  finished, or whoever read standard output has seen enough (| head)
    1  failed; what was committed is kept, run it again with the same --dir to go on
    2  wrong usage, or a guarantee that the job's connectors can't honour
    4  the data directory is in use (see --take-over), or belongs to another job
    8  this program can't go on from what is in the data directory
   70  after a failure a worker was stuck in a function of the job, and the process ended itself; as 1
  130  interrupted";

/// The flags that every job understands, for programs with flags of their own: `#[command(flatten)]` them.
///
/// Each has a twin in the environment: `--dir` is `CUTWATER_DIR`, and so on. The command line wins.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Data directory: log and checkpoints. A second run goes on there [default: a temporary one, kept on failure]
    #[arg(long, value_name = "DIR", env = "CUTWATER_DIR", hide_env_values = true)]
    pub dir: Option<PathBuf>,
    /// Worker threads [default: one per core, at most 2]
    #[arg(long, value_name = "N", env = "CUTWATER_WORKERS", hide_env_values = true)]
    pub workers: Option<usize>,
    /// What is promised about the output [default: exactly-once]
    #[arg(long, value_name = "PROMISE", env = "CUTWATER_GUARANTEE", hide_env_values = true)]
    pub guarantee: Option<Promise>,
    /// Time from one checkpoint to the next, such as 500ms, 2s or 1m [default: 1s]
    #[arg(long, value_name = "TIME", env = "CUTWATER_INTERVAL", hide_env_values = true, value_parser = duration)]
    pub interval: Option<Duration>,
    /// Barriers of an exactly-once job overtake the records that have held them up for so long; 0s at once [default: never]
    #[arg(long, value_name = "TIME", env = "CUTWATER_UNALIGNED_AFTER", hide_env_values = true, value_parser = duration)]
    pub unaligned_after: Option<Duration>,
    /// Committed checkpoints to keep [default: 3]
    #[arg(long, value_name = "N", env = "CUTWATER_RETAIN", hide_env_values = true)]
    pub retain: Option<usize>,
    /// Time from the end of one checkpoint to the start of the next, at least [default: 0ms]
    #[arg(long, value_name = "TIME", env = "CUTWATER_PAUSE", hide_env_values = true, value_parser = duration)]
    pub pause: Option<Duration>,
    /// Checkpoints that may be under way at a time [default: 1]
    #[arg(long, value_name = "N", env = "CUTWATER_IN_FLIGHT", hide_env_values = true)]
    pub in_flight: Option<u64>,
    /// A checkpoint that takes longer is declined; nothing is lost [default: 10m]
    #[arg(long, value_name = "TIME", env = "CUTWATER_TIMEOUT", hide_env_values = true, value_parser = duration)]
    pub timeout: Option<Duration>,
    /// So many declined checkpoints in a row end the attempt [default: 10]
    #[arg(long, value_name = "N", env = "CUTWATER_DECLINED", hide_env_values = true)]
    pub declined: Option<u32>,
    /// Time for which each committed checkpoint is kept at least, whatever --retain says, such as 30m or 24h [default: none]
    #[arg(long, value_name = "TIME", env = "CUTWATER_RETAIN_FOR", hide_env_values = true, value_parser = duration)]
    pub retain_for: Option<Duration>,
    /// Say nothing but errors
    #[arg(long, env = "CUTWATER_QUIET", hide_env_values = true)]
    pub quiet: bool,
    /// Show what would run, with which guarantee, and end
    #[arg(long)]
    pub explain: bool,
    /// List the checkpoints in the data directory, check every byte of them, and end
    #[arg(long, requires = "dir")]
    pub checkpoints: bool,
    /// Show a state in the newest checkpoint: an operator that has one, or operator/state
    #[arg(long, value_name = "NAME", requires = "dir")]
    pub state: Option<String>,
    /// Show how two checkpoints differ, key by key
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], requires = "dir")]
    pub compare: Vec<u64>,
    /// With --state: in this checkpoint
    #[arg(long, value_name = "NUMBER", requires = "state")]
    pub at: Option<u64>,
    /// With --state: only this key, in JSON
    #[arg(long, value_name = "KEY", requires = "state")]
    pub key: Option<String>,
    /// With --state or --compare: entries or differences to tell [default: 10]
    #[arg(long, value_name = "N")]
    pub first: Option<usize>,
    /// How state files are packed [default: none]
    #[arg(long, value_name = "CODEC", env = "CUTWATER_COMPRESSION", hide_env_values = true)]
    pub compression: Option<Packing>,
    /// Show what would become of the checkpoint's state in this program (kept, migrated, new, dropped), and end
    #[arg(long, requires = "dir")]
    pub check_upgrade: bool,
    /// What this program doesn't have any more and may be dropped from the checkpoint: an operator's name, operator/state,
    /// or source/split; may be said several times
    #[arg(long, value_name = "NAME")]
    pub allow_dropped: Vec<String>,
    /// Have the job that runs in the data directory take a savepoint, below DIR/savepoints or at a path, and end when it is there
    #[arg(long, value_name = "NAME", requires = "dir")]
    pub savepoint: Option<PathBuf>,
    /// Have that job stop after a last checkpoint, with --savepoint if that is given
    #[arg(long, requires = "dir")]
    pub stop: bool,
    /// Have that job end as if its input had ended: windows fire, the job has finished
    #[arg(long, requires = "dir", conflicts_with = "stop")]
    pub drain: bool,
    /// Begin from a savepoint: a name below DIR/savepoints, or a path
    #[arg(long, value_name = "NAME", env = "CUTWATER_RESTORE", hide_env_values = true, requires = "dir")]
    pub restore: Option<PathBuf>,
    /// With --restore: even if output beyond the savepoint is committed; it will be written again
    #[arg(long, requires = "restore")]
    pub fork: bool,
    /// Where the job's topics are.
    #[command(flatten)]
    pub broker: BrokerFlags,
    /// If another process holds the data directory, kill exactly that process and take its place
    #[arg(long, env = "CUTWATER_TAKE_OVER", hide_env_values = true)]
    pub take_over: bool,
}

/// A guarantee, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Promise {
    /// No checkpoints; a job that failed can't be resumed
    AtMostOnce,
    /// Checkpoints; nothing is lost by a crash, what came after the last checkpoint is there twice
    AtLeastOnce,
    /// Checkpoints; output that is committed is there once, after any crash
    ExactlyOnce,
}

/// How state files are packed, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Packing {
    /// As they are
    None,
    /// Little CPU
    Lz4,
    /// More CPU, fewer bytes
    Zstd,
}

impl Flags {
    /// The options of a run of the job of this name. Without `--dir` their directory is empty, to be chosen.
    ///
    /// # Errors
    /// [`RunError::Options`]: the flags contradict each other.
    pub fn options(&self, name: &str) -> Result<Options, RunError> {
        let mut options = Options::new(name, self.dir.clone().unwrap_or_default());
        options.workers = self.workers.unwrap_or(options.workers);
        options.take_over = self.take_over;
        self.broker.place()?.choose(&mut options);
        if let Some(name) = &self.restore {
            let savepoint = place_of(&options.dir, name)?;
            options.restore = Some(RestoreFrom { savepoint, fork: self.fork });
        }
        options.allow_dropped = self.allow_dropped.iter().cloned().collect();
        options.guarantee = match self.guarantee.unwrap_or(Promise::ExactlyOnce) {
            Promise::AtMostOnce => match self.about_checkpoints() {
                None => Guarantee::AtMostOnce,
                Some(flag) => {
                    return Err(RunError::Options(format!(
                        "an at-most-once job takes no checkpoints: leave out {flag}, or say --guarantee exactly-once"
                    )));
                }
            },
            Promise::AtLeastOnce if self.unaligned_after.is_some() => {
                let text = "an at-least-once job holds no record back, so there is nothing to overtake: leave out --unaligned-after";
                return Err(RunError::Options(text.to_string()));
            }
            Promise::AtLeastOnce => Guarantee::AtLeastOnce(self.snapshots()),
            Promise::ExactlyOnce => Guarantee::ExactlyOnce(self.snapshots()),
        };
        Ok(options)
    }

    /// A flag that is about checkpoints, if one is given.
    fn about_checkpoints(&self) -> Option<&'static str> {
        let given = [
            ("--interval", self.interval.is_some()),
            ("--retain", self.retain.is_some()),
            ("--retain-for", self.retain_for.is_some()),
            ("--compression", self.compression.is_some()),
            ("--pause", self.pause.is_some()),
            ("--in-flight", self.in_flight.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--declined", self.declined.is_some()),
            ("--unaligned-after", self.unaligned_after.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    fn snapshots(&self) -> Snapshots {
        let default = Snapshots::default();
        let in_flight_max = self.in_flight.unwrap_or(default.in_flight_max);
        Snapshots {
            interval: self.interval.unwrap_or(default.interval),
            retained: self.retain.unwrap_or(default.retained),
            retained_for: self.retain_for.unwrap_or(default.retained_for),
            compression: match self.compression {
                None | Some(Packing::None) => Compression::None,
                Some(Packing::Lz4) => Compression::Lz4,
                Some(Packing::Zstd) => Compression::Zstd,
            },
            pause: self.pause.unwrap_or(default.pause),
            in_flight_max,
            uncommitted_max: default.uncommitted_max.max(in_flight_max.saturating_add(1)),
            timeout: self.timeout.unwrap_or(default.timeout),
            declined_max: self.declined.unwrap_or(default.declined_max),
            alignment: match self.unaligned_after {
                None => default.alignment,
                Some(Duration::ZERO) => Alignment::Unaligned,
                Some(patience) => Alignment::AlignedFor(patience),
            },
            ..default
        }
    }
}

/// Reads a number with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number =
        text[..digits].parse::<u64>().map_err(|_| "it must begin with a whole number, as in 500ms".to_string())?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("of what? say {number}ms or {number}s")),
        unit => return Err(format!("{unit:?} is no unit of time; use ms, s, m or h")),
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "that is longer than can be counted".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, ms) in
            [("0ms", 0), ("500ms", 500), ("2s", 2_000), ("1m", 60_000), ("3min", 180_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn flags_that_are_not_given_leave_the_defaults() {
        let options = Flags::default().options("job").expect("defaults");
        let default = Options::new("job", "");
        assert_eq!((options.workers, options.guarantee), (default.workers, default.guarantee));
        let flags = Flags { interval: Some(Duration::from_millis(7)), retain: Some(1), ..Flags::default() };
        let snapshots = Snapshots { retained: 1, ..Snapshots::every(Duration::from_millis(7)) };
        assert_eq!(flags.options("job").expect("fits").guarantee, Guarantee::ExactlyOnce(snapshots));
    }

    #[test]
    fn patience_with_barriers_is_for_exactly_once() {
        for (patience, alignment) in [
            (Duration::ZERO, Alignment::Unaligned),
            (Duration::from_secs(2), Alignment::AlignedFor(Duration::from_secs(2))),
        ] {
            let flags = Flags { unaligned_after: Some(patience), ..Flags::default() };
            let expected = Guarantee::ExactlyOnce(Snapshots { alignment, ..Snapshots::default() });
            assert_eq!(flags.options("job").expect("fits").guarantee, expected);
            for promise in [Promise::AtLeastOnce, Promise::AtMostOnce] {
                let contradiction = Flags { guarantee: Some(promise), ..flags.clone() };
                assert!(matches!(contradiction.options("job"), Err(RunError::Options(_))), "{promise:?}");
            }
        }
    }

    #[test]
    fn at_most_once_with_checkpoints_is_a_contradiction() {
        let at_most_once = Flags { guarantee: Some(Promise::AtMostOnce), ..Flags::default() };
        assert_eq!(at_most_once.options("job").expect("fits").guarantee, Guarantee::AtMostOnce);
        let some = Some(Duration::from_secs(1));
        let of = |flags: Flags| Flags { guarantee: Some(Promise::AtMostOnce), ..flags };
        let contradictions = [
            ("--interval", of(Flags { interval: some, ..Flags::default() })),
            ("--retain", of(Flags { retain: Some(2), ..Flags::default() })),
            ("--retain-for", of(Flags { retain_for: some, ..Flags::default() })),
            ("--compression", of(Flags { compression: Some(Packing::None), ..Flags::default() })),
            ("--pause", of(Flags { pause: some, ..Flags::default() })),
            ("--in-flight", of(Flags { in_flight: Some(2), ..Flags::default() })),
            ("--timeout", of(Flags { timeout: some, ..Flags::default() })),
            ("--declined", of(Flags { declined: Some(3), ..Flags::default() })),
            ("--unaligned-after", of(Flags { unaligned_after: some, ..Flags::default() })),
        ];
        for (name, flags) in contradictions {
            match flags.options("job") {
                Err(RunError::Options(told)) => assert!(told.contains(&format!("leave out {name},")), "{name}: {told}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
