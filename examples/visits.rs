//! The visits in a click log: who came when, for how long, and to how many pages.
//!
//! `cargo run --release --example visits -- clicks.txt`, where each line is `second user page`. A visit ends when its user has
//! been silent for half an hour. Clicks may come a minute out of order; what comes later still is said, and not counted.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cutwater::connectors::print::print_with;
use cutwater::connectors::text;
use cutwater::prelude::*;

#[derive(Parser)]
struct Args {
    /// The click log
    file: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let Args { file, mut flags } = Args::parse();
    // Nobody can take back what a terminal shows. Write to `job.log()` instead of printing, and leave this out.
    flags.guarantee.get_or_insert(Promise::AtMostOnce);
    flags.run("visits", move |job| {
        let (clicks, bad) = job.source("lines", text::lines(job, &file)).try_map(|line| click(&line.to_string()));
        let (visits, late) = clicks
            .timestamps(|(time, _)| *time, Bounded::minutes(1))
            .key_value(|(_, user)| (user, ()))
            .window(Sessions::minutes(30))
            .aggregate("visits", || 0u64, |pages, ()| *pages += 1, |pages, more| *pages += more, said)
            .with_late_keyed();
        visits.sink("visits-out", print_with(String::clone));
        late.sink("late-out", print_with(|(user, ())| format!("late: a click of {user}")));
        bad.map(|bad| bad.reason).sink("bad-out", print_with(|reason| format!("not a click: {reason}")));
        Ok(())
    })
}

/// `second user page`.
fn click(line: &str) -> Result<(EventTime, String), String> {
    let mut fields = line.split_whitespace();
    let (Some(second), Some(user)) = (fields.next(), fields.next()) else { return Err(format!("{line:?}")) };
    let second: i64 = second.parse().map_err(|e| format!("{line:?}, {e}"))?;
    Ok((EventTime(second.saturating_mul(1000)), user.to_string()))
}

fn said(user: &String, visit: Window, pages: u64) -> String {
    format!("{user} from {} to {}: {pages} pages", visit.start.0 / 1000, visit.end.0 / 1000 - 1800)
}
