//! Visits every state of a model, nearest first, and answers the shortest way to a violation.
//!
//! * A state is remembered as the 128-bit digest of all that it is, and as the step that led to it; only states whose steps have not
//!   been tried yet are kept whole. A trace is made by walking that way again from the start.
//! * Steps are numbered by the order in which the model names them, so the same search gives the same numbers everywhere.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::shared::digest;

/// Something whose states can be visited.
pub trait Model {
    /// Everything that decides what can happen next.
    type State: Clone + Hash;
    /// What happens between two states.
    type Step;

    /// The first state.
    fn start(&self) -> Self::State;

    /// All steps that are possible in a state, in a fixed order.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;

    /// The state after a step.
    ///
    /// # Errors
    /// The step breaks a promise.
    fn after(&self, state: &Self::State, step: &Self::Step) -> Result<Self::State, Violation>;

    /// A step in words, for people who read a trace.
    fn tell(&self, state: &Self::State, step: &Self::Step) -> String;

    /// Judges a state by itself: what must hold in every state, and what must hold where nothing more can happen.
    ///
    /// # Errors
    /// It doesn't.
    fn judge(&self, state: &Self::State, steps: &[Self::Step]) -> Result<Kind, Violation>;
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise, in the words of `docs/invariants.md` where it has a number there.
    pub promise: &'static str,
    /// What was found.
    pub found: String,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something is still to be done.
    Open,
    /// Everything is done.
    Final,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Different states.
    pub states: usize,
    /// Steps tried, those that led to known states included.
    pub steps: usize,
    /// States in which everything was done.
    pub finals: usize,
    /// Steps on the way to the farthest state.
    pub depth: usize,
    /// The first violation, if there is one.
    pub broken: Option<Broken>,
    /// False if the limit of states was reached first: then nothing is shown.
    pub exhausted: bool,
}

/// A violation and the shortest way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What was broken.
    pub violation: Violation,
    /// The steps from the start, the last one being the one that broke it.
    pub trace: Vec<String>,
}

/// How a state was first reached.
#[derive(Clone, Copy)]
struct Origin {
    from: u32,
    step: u32,
}

/// A digest is as good as random: no need to hash it again.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only digests are hashed here")
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Visits at most `limit` states.
pub fn search<M: Model>(model: &M, limit: usize) -> Visited {
    let start = model.start();
    let mut seen: HashSet<u128, BuildHasherDefault<Identity>> = HashSet::default();
    seen.insert(digest(&start));
    let mut origins: Vec<Origin> = vec![];
    // Of each open state its number, 0 being the start, and its distance.
    let mut open: VecDeque<(u32, usize, M::State)> = VecDeque::from([(0, 0, start)]);
    let mut visited = Visited { states: 1, steps: 0, finals: 0, depth: 0, broken: None, exhausted: true };
    while let Some((number, depth, state)) = open.pop_front() {
        visited.depth = depth;
        let steps = model.steps(&state);
        match model.judge(&state, &steps) {
            Ok(Kind::Final) => visited.finals += 1,
            Ok(Kind::Open) => {}
            Err(violation) => {
                visited.broken = Some(Broken { violation, trace: trace(model, &origins, number, None) });
                return visited;
            }
        }
        for (index, step) in steps.iter().enumerate() {
            visited.steps += 1;
            let after = match model.after(&state, step) {
                Ok(after) => after,
                Err(violation) => {
                    visited.broken = Some(Broken { violation, trace: trace(model, &origins, number, Some(index)) });
                    return visited;
                }
            };
            if !seen.insert(digest(&after)) {
                continue;
            }
            if visited.states == limit {
                visited.exhausted = false;
                return visited;
            }
            visited.states += 1;
            origins.push(Origin { from: number, step: u32::try_from(index).expect("fewer than 2^32 steps") });
            let after_number = u32::try_from(origins.len()).expect("fewer than 2^32 states");
            open.push_back((after_number, depth + 1, after));
        }
    }
    visited
}

/// The steps to state `number`, and one more.
fn trace<M: Model>(model: &M, origins: &[Origin], mut number: u32, last: Option<usize>) -> Vec<String> {
    let mut indices: Vec<usize> = last.into_iter().collect();
    while number > 0 {
        let origin = origins[number as usize - 1];
        indices.push(origin.step as usize);
        number = origin.from;
    }
    let mut state = model.start();
    let mut told = vec![];
    for (place, index) in indices.iter().rev().enumerate() {
        let steps = model.steps(&state);
        told.push(model.tell(&state, &steps[*index]));
        if place + 1 < indices.len() || last.is_none() {
            state = model.after(&state, &steps[*index]).expect("this way was gone before");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters up to 3; the sum 5 is forbidden if `trap`.
    struct Counters {
        trap: bool,
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Step = &'static str;

        fn start(&self) -> (u8, u8) {
            (0, 0)
        }

        fn steps(&self, state: &(u8, u8)) -> Vec<&'static str> {
            let mut steps = vec![];
            if state.0 < 3 {
                steps.push("left");
            }
            if state.1 < 3 {
                steps.push("right");
            }
            steps
        }

        fn after(&self, state: &(u8, u8), step: &&'static str) -> Result<(u8, u8), Violation> {
            let after = if *step == "left" { (state.0 + 1, state.1) } else { (state.0, state.1 + 1) };
            match self.trap && after.0 + after.1 == 5 {
                true => Err(Violation { promise: "not five", found: format!("{after:?}") }),
                false => Ok(after),
            }
        }

        fn tell(&self, _state: &(u8, u8), step: &&'static str) -> String {
            (*step).to_string()
        }

        fn judge(&self, _state: &(u8, u8), steps: &[&'static str]) -> Result<Kind, Violation> {
            Ok(if steps.is_empty() { Kind::Final } else { Kind::Open })
        }
    }

    #[test]
    fn every_state_is_visited_once() {
        let visited = search(&Counters { trap: false }, 1_000);
        assert_eq!((visited.states, visited.steps, visited.finals, visited.depth), (16, 24, 1, 6));
        assert!(visited.exhausted && visited.broken.is_none());
    }

    #[test]
    fn the_shortest_way_to_a_violation_is_told() {
        let broken = search(&Counters { trap: true }, 1_000).broken.expect("five is reached");
        assert_eq!(broken.trace, ["left", "left", "left", "right", "right"]);
        assert_eq!(broken.violation.found, "(3, 2)");
    }

    #[test]
    fn a_search_that_was_cut_short_says_so() {
        let visited = search(&Counters { trap: false }, 7);
        assert_eq!((visited.states, visited.exhausted), (7, false));
    }
}
