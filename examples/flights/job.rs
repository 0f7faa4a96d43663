//! The job: flights by origin and day, with what is broken and what is late beside it.

use std::path::Path;
use std::time::Duration;

use cutwater::prelude::*;

use crate::flight::{DayRow, DayStats, Flight};
use crate::metered::{Metered, OnRead};

/// What a run may set.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Worker threads.
    pub(crate) workers: usize,
    /// From one checkpoint to the next.
    pub(crate) interval: Duration,
    /// Records per second, at most.
    pub(crate) rate: Option<u64>,
    /// Kill whoever holds the directory.
    pub(crate) take_over: bool,
}

/// The options of the job in a directory.
pub(crate) fn options(dir: &Path, settings: &Settings) -> Options {
    Options {
        workers: settings.workers,
        take_over: settings.take_over,
        guarantee: Guarantee::ExactlyOnce(Snapshots::every(settings.interval)),
        ..Options::new("flights", dir)
    }
}

/// Describes the job.
pub(crate) fn build(job: &Job, rate: Option<u64>, on_read: Option<OnRead>) -> Result<(), BuildError> {
    let log = job.log();
    let clock = job.environment().platform.clock;
    let rows = job.source("flights", Metered { inner: log.read("flights").until_latest(), rate, on_read, clock });
    let (flights, bad) = rows.try_map(|row| Flight::parse(row.as_ref()));
    bad.sink("dead", log.write("flights.dead-letter"));
    let (days, late) = flights
        .timestamps(|f| f.scheduled, Bounded::hours(24))
        .key_by(|f| f.origin)
        .window(Tumbling::days(1))
        .aggregate("by-day", DayStats::default, DayStats::add, DayRow::new)
        .with_late();
    late.sink("late", log.write("flights.late").value(Json));
    days.sink("delays", log.write("delays").key(|row: &DayRow| row.origin.bytes()).value(Json));
    Ok(())
}
