//! A campaign: as many seeds as one likes, by one command that can be stopped and goes on where it was.
//!
//! ```text
//! cargo run --release -p cutwater-simulate -- --seeds 1000000 [--from N] [--result FILE]
//! ```
//!
//! Each seed is a [`Case`] of the campaign's job: up to four strikes, numbers of workers, sizes, losses and order all from
//! the seed. What readers see afterwards is compared with what plain Rust computes from the input. Every thousand seeds the
//! sums are written down, so that a campaign may take many sittings; at its end the result page is generated from them.

pub mod job;

mod page;
mod progress;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutwater_platform::SplitMix;

use crate::case::Case;
use crate::life::{Setup, live, machine_to_read};
use crate::output::Output;
use crate::schedule::{Reached, drawn, with_full, with_stops};
use crate::{DATA_DIR, SimulationError};

pub use page::page;
pub use progress::{ProgressError, Sums};

/// Different inputs; a seed has input `seed % INPUTS`.
const INPUTS: u64 = 16;
/// Numbers of workers that lives choose from.
const WORKERS: [usize; 4] = [1, 2, 3, 5];

/// What seeds are made into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "campaign", derive(clap::ValueEnum))]
pub enum Kind {
    /// Everything: lives that are struck; in every fourth case or so some that are stopped and overtaken, too, and in every fourth a disk that
    /// is full for a while.
    #[default]
    All,
    /// Cases with lives that are stopped and overtaken, alone.
    Stopped,
    /// Cases in which the disk is full for a while, alone.
    Full,
}

/// One input of the campaign's job on a disk, and what must come out of it.
struct Prepared {
    setup: Setup,
    expected: job::Expected,
    known: Reached,
    steps: u64,
}

/// The inputs, loaded, and the points that a life of each reaches.
pub struct Campaign {
    inputs: Vec<Prepared>,
    topics: Vec<String>,
    kind: Kind,
}

/// What one seed came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct One {
    /// Lives, the last one included.
    pub lives: u64,
    /// Turns of workers and steps of tasks.
    pub turns: u64,
    /// Checkpoints that were declined.
    pub declined: u64,
    /// Lives that were overtaken and told so.
    pub fenced: u64,
    /// How often a job waited for room on its disk.
    pub pauses: u64,
    /// A hash of everything that happened.
    pub trace: u64,
    /// How often each point was reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// Where lives ended.
    pub struck: Vec<String>,
}

impl Campaign {
    /// Loads the inputs.
    ///
    /// # Errors
    /// An input can't be loaded, or the job doesn't run without a crash.
    pub fn new() -> Result<Campaign, SimulationError> {
        let mut inputs = vec![];
        for seed in 0..INPUTS {
            let (input, expected) = job::input(seed);
            let setup = Setup {
                build: Arc::new(job::build),
                disk: input.disk(Path::new(DATA_DIR))?,
                workers: WORKERS.to_vec(),
                options: Arc::new(|_| {}),
                mistakes: vec![],
            };
            let mut prepared = Prepared { setup, expected, known: Reached::new(), steps: 0 };
            // One life that isn't struck, and one after a crash: their points are what is drawn from.
            let straight = Case::of(seed);
            for case in [straight.clone(), straight.and("coordinator.published", 2, crate::End::Kill)] {
                let lived = live(&prepared.setup, &case).map_err(|story| SimulationError::NotEvenStraight { story })?;
                prepared.steps = prepared.steps.max(lived.machine.disk().steps());
                for (point, count) in lived.reached.iter().flatten() {
                    let most = prepared.known.entry(*point).or_default();
                    *most = (*most).max(*count);
                }
            }
            inputs.push(prepared);
        }
        Ok(Campaign { inputs, topics: vec!["clicks".to_string(), "events".to_string()], kind: Kind::All })
    }

    /// From now on the code makes this mistake, or these with a `+` between them, wherever it asks
    /// [`CrashPoints::is_planted`](cutwater_platform::CrashPoints::is_planted); in debug builds only. A campaign that finds nothing is worth
    /// as much as what it would find.
    pub fn plant(&mut self, mistake: &'static str) {
        self.inputs.iter_mut().for_each(|input| input.setup.mistakes = mistake.split('+').collect());
    }

    /// The same with cases of one kind alone.
    #[must_use]
    pub fn of(self, kind: Kind) -> Campaign {
        Campaign { kind, ..self }
    }

    fn prepared(&self, seed: u64) -> &Prepared {
        &self.inputs[(seed % INPUTS) as usize]
    }

    /// The case of a seed.
    pub fn case(&self, seed: u64) -> Case {
        let prepared = self.prepared(seed);
        let case = drawn(seed, &prepared.known, prepared.steps);
        // Another stream again: what a seed was before there were kinds, two of four still are.
        let drawn = SplitMix::new(seed ^ 0xA110_F7E3).below(4);
        match self.kind {
            Kind::All if drawn > 1 => case,
            Kind::All if drawn == 1 => with_full(case, &prepared.known),
            Kind::All | Kind::Stopped => with_stops(case, &prepared.known),
            Kind::Full => with_full(case, &prepared.known),
        }
    }

    /// Lives a case and judges what readers see.
    ///
    /// # Errors
    /// The story of what is wrong.
    pub fn one(&self, case: &Case) -> Result<One, String> {
        let prepared = self.prepared(case.seed);
        let lived = live(&prepared.setup, case)?;
        let machine = machine_to_read(&lived.machine);
        let seen = Output::of_log(&machine.platform(), Path::new(DATA_DIR), &self.topics);
        machine.scheduler().inspect(|scheduler| scheduler.forget_tasks());
        let seen = seen.map_err(|e| format!("{}{e}", lived.story))?;
        if let Some(wrong) = prepared.expected.wrong(&seen) {
            return Err(format!("{}{wrong}", lived.story));
        }
        let mut reached = BTreeMap::new();
        for (point, count) in lived.reached.iter().flatten() {
            *reached.entry(*point).or_default() += count;
        }
        Ok(One {
            lives: lived.reached.len() as u64,
            turns: lived.turns,
            declined: lived.declined,
            fenced: lived.fenced,
            pauses: lived.pauses,
            trace: lived.trace,
            reached,
            struck: lived.struck.into_iter().map(|strike| strike.point).collect(),
        })
    }

    /// Runs these seeds on so many threads and sums up.
    pub fn range(&self, seeds: std::ops::Range<u64>, threads: usize) -> Sums {
        let next = AtomicU64::new(seeds.start);
        let share = || {
            let mut sums = Sums::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return sums;
                }
                let case = self.case(seed);
                match self.one(&case) {
                    Ok(one) => sums.add(&one),
                    Err(story) => sums.fail(&case, &story),
                }
            }
        };
        let mut total = Sums { next: seeds.end, ..Sums::default() };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(share)).collect();
            for thread in threads {
                // A panic here is a mistake of the campaign's own: cases catch theirs.
                total.merge(thread.join().expect("a case catches its panics"));
            }
        });
        total
    }
}
