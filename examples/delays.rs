//! The README's first program: departures and delays per airport and day. `cargo run --release --example delays -- --dir data`
//! reads `flights.csv` in the current directory; `cutwater read delays --dir data` shows what came of it.

use cutwater::connectors::csv;
use cutwater::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Flight {
    origin: String,
    scheduled_ms: i64,
    delay_min: i64,
}

#[derive(Serialize)]
struct Day {
    origin: String,
    start_ms: i64,
    flights: u64,
    delay_min: i64,
}

fn main() -> std::process::ExitCode {
    cutwater::main(build) // flags, --explain, run: the same face for every job
}

fn build(job: &Job) -> Result<(), BuildError> {
    let log = job.log(); // embedded, transactional, in the data directory
    let (flights, bad) = job.source("flights", csv::rows(job, "flights.csv")).try_map(|row| row.decode::<Flight>());
    let (days, late) = flights
        .timestamps(|flight| EventTime(flight.scheduled_ms), Bounded::hours(24))
        .key_by(|flight| flight.origin.clone())
        .window(Tumbling::days(1))
        .aggregate(
            "by-day",
            || (0, 0),
            |sum: &mut (u64, i64), flight| *sum = (sum.0 + 1, sum.1 + flight.delay_min),
            |origin, day, sum| Day { origin: origin.clone(), start_ms: day.start.0, flights: sum.0, delay_min: sum.1 },
        )
        .with_late();
    days.sink("delays", log.write("delays").value(Json));
    late.sink("late", log.write("flights.late").value(Json));
    bad.sink("dead", log.write("flights.dead-letter"));
    Ok(())
}
