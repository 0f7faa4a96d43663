//! What came of rounds: kept between them, and as a page at the end.

use std::path::Path;
use std::process::Command;

use crate::round::{Counts, Outcomes};
use crate::{Failed, Run};

/// All rounds so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) rounds: u64,
    pub(crate) counts: Counts,
}

impl Total {
    pub(crate) fn add(&mut self, outcomes: &Outcomes) {
        self.rounds += 1;
        let mut counts = outcomes.counts;
        for (mine, its) in self.counts.all().into_iter().zip(counts.all()) {
            *mine += *its;
        }
    }

    /// What a file holds of a run with this seed; nothing if there is none.
    #[expect(clippy::disallowed_methods, reason = "a file of the user's")]
    pub(crate) fn read(state: Option<&Path>, seed: u64) -> Result<Total, Failed> {
        let Some(path) = state.filter(|path| path.exists()) else { return Ok(Total::default()) };
        let text = std::fs::read(path).map_err(|e| Failed::of("read the state", e))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let wrong = || Failed::new(format!("{} is no state of a run with seed {seed}; remove it", path.display()));
        let numbers: Option<Vec<u64>> = text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.ok_or_else(wrong)?;
        let [its_seed, rounds, kept @ ..] = &numbers[..] else { return Err(wrong()) };
        let mut total = Total { rounds: *rounds, counts: Counts::default() };
        let all = total.counts.all();
        if *its_seed != seed || kept.len() != all.len() {
            return Err(wrong());
        }
        all.into_iter().zip(kept).for_each(|(mine, its)| *mine = *its);
        Ok(total)
    }

    pub(crate) fn write(&self, state: Option<&Path>, seed: u64) -> Result<(), Failed> {
        let Some(path) = state else { return Ok(()) };
        let mut counts = self.counts;
        let numbers = [seed, self.rounds].into_iter().chain(counts.all().into_iter().map(|count| *count));
        let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
        put(path, &numbers.join(" "))
    }

    pub(crate) fn page(&self, run: &Run) -> String {
        let Total { rounds, counts } = self;
        let seeds = format!("{} to {}", run.seed, run.seed + rounds.saturating_sub(1));
        // The scripts' names; where they and their programs lie is this machine's business.
        let scripts: Vec<&str> = run.foreign.iter().filter_map(|line| line.rsplit(['/', ' ']).next()).collect();
        let foreign = if scripts.is_empty() { "none".to_string() } else { scripts.join(", ") };
        let Counts { operations, foreign: calls, acknowledged, read, unjudged, kills, stops, full_disks, cuts, .. } =
            counts;
        let Counts { aborts, kept_written, kept_scans, kept_gone, deaths, reborn_written, .. } = counts;
        format!(
            "The broker under chaos: anomalies found: 0\n\n\
             {operations} operations in {rounds} rounds (seeds {seeds}), commit {}, {}\n\
             {acknowledged} values acknowledged, {read} read, {unjudged} that no reader got to\n\
             {kills} kills, {stops} stops, {full_disks} full disks, {cuts} connections cut\n\
             {aborts} transactions aborted by an administrator\n\
             clients beside our own: {foreign} ({calls} of the operations)\n\n\
             Beside these operations:\n\
             {kept_written} records into compacted topics and one with retention, {kept_scans} times read from beginning to end, {kept_gone} gone\n\
             {reborn_written} values acknowledged by a topic that was deleted and made again {deaths} times\n\n\
             cargo run --release -p cutwater-chaos -- run --operations {} --seed {} --round {} --result FILE\n",
            said_by("git", &["rev-parse", "--short", "HEAD"]),
            said_by("date", &["-u", "+%F"]),
            run.operations,
            run.seed,
            run.round,
        )
    }
}

/// One round in a line.
pub(crate) fn line(seed: u64, outcomes: &Outcomes) -> String {
    let Counts { operations, foreign, acknowledged, read, unjudged, kills, stops, full_disks, cuts, .. } =
        outcomes.counts;
    let Counts { aborts, kept_written, kept_gone, deaths, reborn_written, .. } = outcomes.counts;
    format!(
        "seed {seed}: {operations} operations ({foreign} of others), {acknowledged} acknowledged, {read} read, {unjudged} unjudged; {kills} kills, \
         {stops} stops, {full_disks} full disks, {cuts} cuts, {aborts} aborts; {kept_gone} of {kept_written} cleaned away; {reborn_written} in {deaths} \
         deaths: {} wrong",
        outcomes.wrong.len()
    )
}

/// What a program says in a line, or that it says nothing.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    said.map_or("unknown".to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Writes a file of the user's.
#[expect(clippy::disallowed_methods, reason = "a file of the user's")]
pub(crate) fn put(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text).map_err(|e| Failed::of(&format!("write {}", path.display()), e))
}
