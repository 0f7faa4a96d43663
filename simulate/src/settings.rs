//! What the seed decides about a life before it begins: its options, what strikes it, and the state file that can't be made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutwater_engine::config::{Alignment, Guarantee, Options, Snapshots};
use cutwater_platform::SplitMix;
use cutwater_testkit::{CrashAction, RefusingFiles, SimPlatform};

use crate::DATA_DIR;
use crate::case::{End, Strike};
use crate::life::Setup;

/// Arms what strikes a life.
pub(crate) fn arm(machine: &SimPlatform, strike: Option<&Strike>) {
    machine.crashes().disarm();
    match strike {
        None => {}
        Some(Strike { point, nth, .. }) if point == Strike::DISK => {
            // Processes beside each other share the steps of their disk.
            machine.disk().crash_at_step(machine.disk().steps() + *nth);
        }
        Some(Strike { point, nth, end: End::Panic }) => machine.crashes().arm(point, *nth, CrashAction::Panic),
        Some(Strike { end: End::Stop | End::Full, .. }) => unreachable!("no end of a life that is alone"),
        Some(Strike { point, nth, .. }) => machine.power_off_at(point, *nth),
    }
}

/// In some lives one state file can't be made, so that a checkpoint is declined and the next one must cover its output.
pub(crate) fn decline(machine: &SimPlatform, random: &mut SplitMix, options: &mut Options) {
    let (happens, published) = (random.below(3) == 0, 1 + random.below(3));
    if !happens {
        return;
    }
    let is_state = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("checkpoints/state"));
    let files = RefusingFiles::new(machine.disk().clone(), is_state);
    options.platform.files = Arc::new(files.clone());
    machine.crashes().arm("coordinator.published", published, CrashAction::Call(Box::new(move || files.refuse(1))));
}

/// Little stands before a barrier, and checkpoints come fast, so that a short run meets everything. How little and how fast is
/// the seed's.
pub(crate) fn options(setup: &Setup, machine: &SimPlatform, random: &mut SplitMix, strike: Option<&Strike>) -> Options {
    let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
    let mut options = Options::new("simulated", PathBuf::from(DATA_DIR));
    let workers: Vec<u64> = setup.workers.iter().map(|w| *w as u64).collect();
    options.workers = pick(&workers) as usize;
    options.pin = false;
    // In-process restarts only where a panic asks for one: everything else that fails is to be seen.
    options.restarts_max = u32::from(strike.is_some_and(|s| s.end == End::Panic));
    options.leave_within = Duration::from_secs(3_600);
    options.platform = machine.platform();
    let uncommitted_max = pick(&[1, 2, 3]);
    let alignment = match pick(&[0, 0, 1, 2]) {
        0 => Alignment::Aligned,
        1 => Alignment::Unaligned,
        _ => Alignment::AlignedFor(Duration::from_micros(pick(&[50, 500]))),
    };
    options.guarantee = Guarantee::ExactlyOnce(Snapshots {
        alignment,
        in_flight_max: pick(&[1, 2, 3]).min(uncommitted_max),
        retained: pick(&[1, 2, 3]) as usize,
        deltas_max: pick(&[1, 2, 4]) as usize,
        uncommitted_max,
        declined_max: 3,
        timeout: Duration::from_secs(20),
        ..Snapshots::every(Duration::from_micros(pick(&[200, 500, 2_000, 10_000])))
    });
    options.limits.batch_records = pick(&[1, 4, 16]) as usize;
    options.limits.channel_records = options.limits.batch_records * pick(&[2, 4]) as usize;
    options.limits.batches_per_step = pick(&[1, 2, 4]) as usize;
    options.bytes_between_workers = pick(&[0, 0, 0, 1]) == 1;
    (setup.options)(&mut options);
    options
}
