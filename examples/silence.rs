//! An operator of your own: says which sensors have fallen silent, and passes on each reading that differs much from the one before.
//!
//! `cargo run --release --example silence -- readings.txt`, where each line is `second sensor degrees`. `process` calls a function of
//! yours for each record and for each timer that it sets; what it keeps, it keeps in states, which are in every checkpoint.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use cutwater::connectors::print::print_with;
use cutwater::connectors::text;
use cutwater::prelude::*;

/// A sensor is silent when it has said nothing for so long.
const SILENCE_MS: i64 = 60_000;
/// A reading jumps when it differs by more degrees from the one before.
const JUMP: f64 = 10.0;
/// The second output: readings that jump.
const JUMPS: Side<String> = Side::new("jumps");

#[derive(Parser)]
struct Args {
    /// The readings
    file: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    let Args { file, mut flags } = Args::parse();
    // Nobody can take back what a terminal shows. Write to `job.log()` instead of printing, and leave this out.
    flags.guarantee.get_or_insert(Promise::AtMostOnce);
    flags.run("silence", move |job| {
        let (readings, bad) = job.source("lines", text::lines(job, &file)).try_map(|line| reading(&line.to_string()));
        let watched = readings
            .timestamps(|(time, _, _)| *time, Bounded::seconds(10))
            .key_value(|(_, sensor, degrees)| (sensor, degrees))
            .process("watch", |has| Watch { latest: has.value("latest"), jumps: has.side(JUMPS) });
        watched.main().sink("silent-out", print_with(String::clone));
        watched.side(JUMPS).sink("jumps-out", print_with(String::clone));
        bad.map(|bad| bad.reason).sink("bad-out", print_with(|reason| format!("not a reading: {reason}")));
        Ok(())
    })
}

/// `second sensor degrees`.
fn reading(line: &str) -> Result<(EventTime, String, f64), String> {
    let mut fields = line.split_whitespace();
    let (Some(second), Some(sensor), Some(degrees)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(format!("{line:?}"));
    };
    let second: i64 = second.parse().map_err(|e| format!("{line:?}, {e}"))?;
    let degrees: f64 = degrees.parse().map_err(|e| format!("{line:?}, {e}"))?;
    Ok((EventTime(second.saturating_mul(1000)), sensor.to_string(), degrees))
}

/// What is known of each sensor, and where jumps go. Nothing else is kept here: fields are in no checkpoint.
struct Watch {
    latest: ValueOf<String, (EventTime, f64)>,
    jumps: SideOut<String, Timed>,
}

impl KeyedProcess<String, f64, Timed> for Watch {
    type Out = String;

    fn on_record(&mut self, degrees: f64, cx: &mut Scope<'_, String, String, Timed>) {
        let (at, before) = self.latest.get(cx).unwrap_or((cx.time(), degrees));
        if (degrees - before).abs() > JUMP {
            self.jumps.emit(cx, format!("{} jumps from {before} to {degrees}", cx.key()));
        }
        let at = at.max(cx.time());
        self.latest.set(cx, (at, degrees));
        cx.set_timer(at.saturating_add_ms(SILENCE_MS));
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Scope<'_, String, String, Timed>) {
        let Some((at, _)) = self.latest.get(cx) else { return };
        // Readings that came since have timers of their own; and when the input ends nobody is silent yet.
        if timer == Timer::Event(at.saturating_add_ms(SILENCE_MS)) && !cx.input_ended() {
            cx.emit(format!("{} is silent since {}", cx.key(), at.0 / 1000));
        }
    }
}
