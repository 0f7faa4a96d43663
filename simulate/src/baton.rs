//! The baton: several processes of one simulated machine, of which one at a time goes on.
//!
//! ```text
//!   driver --start--> life 0 ...yield...yield...stop            (stopped at its point, in the middle of whatever it does)
//!      ^                                          |
//!      +------------------------------------------+
//!      +--start--> life 1 ...yield --> life 0 comes back --yield--> life 1 ...over --> driver
//! ```
//!
//! Within a life one thread at a time has the turn already (the scheduler of that life). So a life is a thread of control, whichever of
//! its threads that is, and handing the baton over means: block the thread that runs, wake the one that was blocked in the other life.
//! It is handed over where a life yields: at its crash points and between its turns. Who goes on is drawn from the seed.
//!
//! It deliberately knows nothing of jobs, and never takes the baton from a life between two yields: what a life does there is one step.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cutwater_platform::SplitMix;

/// Who has the baton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Driver,
    Life(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It can go on.
    Ready,
    /// Nothing of it moves until so many yields of others have passed.
    Stopped {
        until: u64,
    },
    Over,
}

struct State {
    random: SplitMix,
    holder: Holder,
    lives: Vec<Standing>,
    /// Yields so far, of all lives.
    yields: u64,
    /// Of 256: how often the baton is handed over at a yield.
    hand_over: u64,
    trace: u64,
    /// The life that gave the baton back to the driver, and how it stood then.
    last: Option<(usize, Standing)>,
}

impl State {
    fn mix(&mut self, word: u64) {
        let word = word ^ self.yields.rotate_left(8);
        self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }

    fn ready(&self) -> impl Iterator<Item = usize> {
        (0..).zip(&self.lives).filter(|(_, standing)| **standing == Standing::Ready).map(|(life, _)| life)
    }

    /// Those whose time has come go on; or all.
    fn thaw(&mut self, all: bool) {
        let yields = self.yields;
        for standing in &mut self.lives {
            if matches!(standing, Standing::Stopped { until } if all || *until <= yields) {
                *standing = Standing::Ready;
            }
        }
    }

    fn stand(&mut self, life: usize, standing: Standing) {
        self.lives[life] = standing;
        self.last = Some((life, standing));
    }
}

/// What the driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This life has been stopped.
    Stopped(usize),
    /// This life is over.
    Over(usize),
}

/// Hands the turn from life to life. Shared by all of them and their driver.
pub(crate) struct Baton {
    state: Mutex<State>,
    /// One for each life, the driver's first.
    wake: Vec<Condvar>,
}

impl Baton {
    /// For at most so many lives, all to come; the driver has it.
    pub(crate) fn new(lives_max: usize, seed: u64) -> Arc<Baton> {
        let mut random = SplitMix::new(seed);
        let hand_over = [2, 16, 64, 160][random.below(4) as usize];
        let state = State { random, holder: Holder::Driver, lives: vec![], yields: 0, hand_over, trace: 0, last: None };
        Arc::new(Baton { state: Mutex::new(state), wake: (0..=lives_max).map(|_| Condvar::new()).collect() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, mut state: MutexGuard<'_, State>, to: Holder) {
        state.holder = to;
        state.mix(match to {
            Holder::Driver => 0,
            Holder::Life(life) => life as u64 + 1,
        });
        drop(state);
        self.wake_of(to).notify_one();
    }

    fn wake_of(&self, holder: Holder) -> &Condvar {
        match holder {
            Holder::Driver => &self.wake[0],
            Holder::Life(life) => &self.wake[life + 1],
        }
    }

    fn wait(&self, me: Holder) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.holder != me {
            state = self.wake_of(me).wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// A hash of every hand-over so far.
    pub(crate) fn trace(&self) -> u64 {
        self.state().trace
    }

    // For the lives.

    /// Waits until this life has the baton: before it does anything.
    pub(crate) fn begin(&self, me: usize) {
        drop(self.wait(Holder::Life(me)));
    }

    /// Lets another life go on, if the seed says so. Called by the one thread of life `me` that runs.
    pub(crate) fn yield_now(&self, me: usize) {
        let mut state = self.state();
        state.yields += 1;
        state.thaw(false);
        let others: Vec<usize> = state.ready().filter(|life| *life != me).collect();
        if others.is_empty() || state.random.below(256) >= state.hand_over {
            return;
        }
        let next = others[state.random.below(others.len() as u64) as usize];
        self.give(state, Holder::Life(next));
        drop(self.wait(Holder::Life(me)));
    }

    /// Stops this life where it stands, until it comes back at a moment that the seed draws. Called as [`Baton::yield_now`] is.
    pub(crate) fn stop(&self, me: usize) {
        let mut state = self.state();
        // At once, after a little, somewhere in the middle of the next life, and when that is over.
        let after = [1, 40, 400, 4_000, u64::MAX][state.random.below(5) as usize];
        let after = if after == u64::MAX { after } else { 1 + state.random.below(after) };
        let until = state.yields.saturating_add(after);
        state.stand(me, Standing::Stopped { until });
        self.give(state, Holder::Driver);
        drop(self.wait(Holder::Life(me)));
    }

    /// This life is over; it never has the baton again.
    pub(crate) fn over(&self, me: usize) {
        let mut state = self.state();
        state.stand(me, Standing::Over);
        self.give(state, Holder::Driver);
    }

    // For the driver.

    /// Makes room for one more life and answers its number; it is yet to [begin](Baton::begin).
    pub(crate) fn add(&self) -> usize {
        let mut state = self.state();
        assert!(state.lives.len() + 1 < self.wake.len(), "more lives than it was made for");
        state.lives.push(Standing::Ready);
        state.lives.len() - 1
    }

    /// Lets this life go on and waits for what there is to tell.
    pub(crate) fn run(&self, life: usize) -> Event {
        self.give(self.state(), Holder::Life(life));
        let state = self.wait(Holder::Driver);
        let (at, standing) = state.last.expect("a life gives it back with a reason");
        match standing {
            Standing::Over => Event::Over(at),
            Standing::Ready | Standing::Stopped { .. } => Event::Stopped(at),
        }
    }

    /// Some life that can go on; those that are stopped come back if there is no other. `None` if all are over.
    pub(crate) fn next(&self) -> Option<usize> {
        let mut state = self.state();
        if state.ready().next().is_none() {
            state.thaw(true);
        }
        let ready: Vec<usize> = state.ready().collect();
        if ready.is_empty() {
            return None;
        }
        let drawn = state.random.below(ready.len() as u64) as usize;
        Some(ready[drawn])
    }
}
