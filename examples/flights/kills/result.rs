//! What came of a run with kills, as a file: the figures are written by the program that counted them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::args::Args;
use crate::problem::{Kind, Problem};

/// What a run counted.
#[derive(Debug)]
pub(crate) struct Summary {
    /// Kills that landed.
    pub(crate) kills: usize,
    /// Of those, the ones between prepare and commit.
    pub(crate) between_prepare_and_commit: usize,
    /// Processes that were stopped, and killed by the one that took their place before they could go on.
    pub(crate) zombies: usize,
    /// From the first start to the last end.
    pub(crate) elapsed: Duration,
}

/// Writes the file, after the topics were found equal.
pub(crate) fn write(path: &Path, args: &Args, rows: usize, summary: &Summary) -> Result<(), Problem> {
    let Summary { kills, between_prepare_and_commit, zombies, elapsed } = summary;
    let git =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let commit =
        git.ok().filter(|out| out.status.success()).map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    let commit = commit.unwrap_or_else(|| "unknown".to_string());
    let (date, cores) =
        (jiff::Timestamp::now().strftime("%Y-%m-%d"), std::thread::available_parallelism().map_or(1, usize::from));
    let workers = args.workers;
    let text = format!(
        "commit {commit}, {date}, {cores} cores\n\
         flights --kills {} --seed {}{}, {workers} workers, a checkpoint every {:?}\n\n\
         rows read                        {rows:>8}\n\
         kills landed                     {kills:>8}\n\
         between prepare and commit       {between_prepare_and_commit:>8}\n\
         stopped, killed by successor     {zombies:>8}\n\
         rows lost, repeated or changed   {:>8}\n\
         seconds                          {:>8.1}\n",
        args.kills,
        args.seed,
        if args.zombies { " --zombies" } else { "" },
        args.checkpoint_interval(),
        0,
        elapsed.as_secs_f64(),
    );
    std::fs::write(path, text)
        .map_err(|e| Problem::new(Kind::Failed, format!("{}: {e}", path.display()), "give another file with --result"))
}
