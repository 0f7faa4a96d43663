//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::delivery::Draw;
use crate::talk::Talk;

/// The flights of January 2013, in the repository.
pub(crate) const JANUARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/flights/data/flights-2013-01.csv.gz");

const AFTER: &str = "\
Topics in the log of the data directory:
  flights              what is read: the file's rows in order of days, broken rows and stragglers among them
  delays               one row per origin and day: flights, departures, cancellations, sum and maximum of delay
  flights.late         flights that came after their day had been closed
  flights.dead-letter  rows that are no flight, byte for byte

Exit codes:
  0  the three topics are, row for row, what plain Rust computes from the file
  1  the run failed, or a file is damaged; what was committed is kept: with --dir the same command goes on
  2  wrong usage
  3  the data file is missing, or is no file of flights
  4  the directory can't be used: something else's, in use, or with other flights
  7  a topic differs from what it must be, or the kills did not happen as asked
  8  the directory was written by another program, or another version of this one
 70  after a failure a worker was stuck; as 1

Examples:
  cargo run --release --example flights
  cargo run --release --example flights -- --kills 20
  cargo run --release --example flights -- --kills 20 --zombies
  cargo run --release --example flights -- --data flights.csv.gz --dir /var/tmp/flights --kills 50";

/// Counts the delays of all flights that left New York, exactly once, and proves it: through broken rows, late rows and,
/// with --kills, through as many real `kill -9`.
#[derive(Clone, Debug, Parser)]
#[command(name = "flights", after_help = AFTER)]
pub(crate) struct Args {
    /// File of flights (nycflights13), plain or gzipped [default: January 2013, which is in the repository]
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Data directory: log and checkpoints. A second run resumes there [default: a temporary one, kept on failure]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Kill the running job this many times with SIGKILL: half at named crash points, half at record counts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) kills: usize,
    /// Of those kills, the ones at record counts stop the job instead (SIGSTOP): the next start finds the log held, and must kill the
    /// stopped process before it takes its place
    #[arg(long, requires = "kills")]
    pub(crate) zombies: bool,
    /// Write what came of the kills to this file: counts, seed, commit, date
    #[arg(long, value_name = "FILE", requires = "kills")]
    pub(crate) result: Option<PathBuf>,
    /// Broken rows to mix in
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) mangled: usize,
    /// Copies of rows to deliver at least 7 days too late
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) stragglers: usize,
    /// Where broken rows, stragglers and kills are drawn from
    #[arg(long, value_name = "N", default_value_t = 2013)]
    pub(crate) seed: u64,
    /// Rows per second that the job reads, at most [default: no limit; with --kills, so that there is time for all of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: Option<u64>,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// Milliseconds from one checkpoint to the next [default: 1000; with --kills 50]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Say nothing but what is wrong
    #[arg(long)]
    pub(crate) quiet: bool,
    /// If another process holds the directory, kill exactly that process and take its place.
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
    /// Run as the child of this process and die with it.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) child_of: Option<u32>,
}

/// Kills take this long each, on average: the job must get past a few checkpoints between two of them.
const MILLIS_PER_KILL: u64 = 350;

impl Args {
    pub(crate) fn data(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from(JANUARY))
    }

    pub(crate) fn talk(&self) -> Talk {
        Talk { quiet: self.quiet }
    }

    pub(crate) fn draw(&self) -> Draw {
        Draw { seed: self.seed, mangled: self.mangled, stragglers: self.stragglers }
    }

    pub(crate) fn checkpoint_interval(&self) -> Duration {
        Duration::from_millis(self.checkpoint_every.unwrap_or(if self.kills > 0 { 50 } else { 1000 }))
    }

    /// Rows per second for a stream of this many records; `None` for as fast as it goes.
    pub(crate) fn pace(&self, records: usize) -> Option<u64> {
        let for_kills = || {
            let millis = MILLIS_PER_KILL * self.kills as u64;
            (records as u64 * 1000).checked_div(millis).map(|rate| rate.max(1))
        };
        self.rate.or_else(for_kills)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn kills_set_a_pace_and_a_short_interval_unless_told_otherwise() {
        assert_eq!(args("flights").pace(1000), None);
        assert_eq!(args("flights --kills 10").pace(35_000), Some(10_000));
        assert_eq!(args("flights --kills 10 --rate 7").pace(35_000), Some(7));
        assert_eq!(args("flights --kills 1").checkpoint_interval(), Duration::from_millis(50));
        assert_eq!(args("flights --kills 1 --checkpoint-every 9").checkpoint_interval(), Duration::from_millis(9));
    }

    #[test]
    fn the_help_text_names_every_exit_code_and_the_flags_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let help = Args::command().render_long_help().to_string();
        for code in ["\n  0  ", "\n  1  ", "\n  2  ", "\n  3  ", "\n  4  ", "\n  7  ", "\n  8  ", "\n 70  "] {
            assert!(help.contains(code), "{help}");
        }
        assert!(!help.contains("child-of") && !help.contains("take-over"));
    }
}
