//! How many checkpoints may come to nothing before the attempt must end, as pure logic.
//!
//! * A declined checkpoint loses nothing, but a job that can't take checkpoints any more runs towards an ever longer replay. So
//!   after a number of them in a row the attempt ends and says why.
//! * One that nobody can finish (an instance is stuck) stays in flight for ever, and nothing new starts beside it: each further
//!   time-out that passes over it counts as one more.
//! * A complete checkpoint forgives all before it.

use std::collections::BTreeMap;

use crate::id::CheckpointId;

/// Counts checkpoints that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Patience {
    max: u32,
    in_a_row: u32,
    /// How often each one in flight has been counted for being late.
    late: BTreeMap<CheckpointId, u32>,
}

/// Too many checkpoints came to nothing: the attempt must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{in_a_row} checkpoints in a row were declined, the last one because: {reason}")]
pub struct OutOfPatience {
    /// How many.
    pub in_a_row: u32,
    /// Why the last one did.
    pub reason: String,
}

impl Patience {
    /// The `max`th in a row is one too many; 0 counts as 1.
    pub fn new(max: u32) -> Patience {
        Patience { max: max.max(1), in_a_row: 0, late: BTreeMap::new() }
    }

    /// Whether it hasn't been counted that a checkpoint in flight is `times` time-outs old.
    pub fn is_news(&self, checkpoint: CheckpointId, times: u32) -> bool {
        times > self.late.get(&checkpoint).copied().unwrap_or(0)
    }

    /// A checkpoint in flight is `times` time-outs old: counts that, unless it has been counted.
    ///
    /// # Errors
    ///
    /// [`OutOfPatience`].
    pub fn late(&mut self, checkpoint: CheckpointId, times: u32, reason: &str) -> Result<(), OutOfPatience> {
        if !self.is_news(checkpoint, times) {
            return Ok(());
        }
        self.late.insert(checkpoint, times);
        self.count(reason)
    }

    /// A checkpoint is settled and was declined. If it was counted for being late, that was it.
    ///
    /// # Errors
    ///
    /// [`OutOfPatience`].
    pub fn declined(&mut self, checkpoint: CheckpointId, reason: &str) -> Result<(), OutOfPatience> {
        match self.late.remove(&checkpoint) {
            Some(_) => Ok(()),
            None => self.count(reason),
        }
    }

    /// A manifest was published.
    pub fn complete(&mut self, checkpoint: CheckpointId) {
        self.in_a_row = 0;
        self.late.retain(|late, _| *late > checkpoint);
    }

    fn count(&mut self, reason: &str) -> Result<(), OutOfPatience> {
        self.in_a_row += 1;
        if self.in_a_row < self.max {
            return Ok(());
        }
        Err(OutOfPatience { in_a_row: self.in_a_row, reason: reason.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: [CheckpointId; 4] = [CheckpointId(1), CheckpointId(2), CheckpointId(3), CheckpointId(4)];

    #[test]
    fn the_last_one_tolerated_is_the_one_before_the_limit_and_a_complete_one_forgives() {
        let mut patience = Patience::new(3);
        assert_eq!(patience.declined(N[0], "a"), Ok(()));
        assert_eq!(patience.declined(N[1], "b"), Ok(()));
        patience.complete(N[2]);
        for n in [4, 5] {
            assert_eq!(patience.declined(CheckpointId(n), "c"), Ok(()));
        }
        let out = patience.declined(CheckpointId(6), "the disk is full").expect_err("three in a row");
        assert_eq!(out.to_string(), "3 checkpoints in a row were declined, the last one because: the disk is full");
        assert!(Patience::new(1).declined(N[0], "a").is_err() && Patience::new(0).declined(N[0], "a").is_err());
    }

    #[test]
    fn a_stuck_checkpoint_counts_once_for_each_time_out_and_not_again_when_it_is_settled() {
        let mut patience = Patience::new(3);
        assert_eq!(patience.late(N[0], 1, "stuck"), Ok(()));
        assert!(!patience.is_news(N[0], 1) && patience.is_news(N[0], 2));
        assert_eq!(patience.late(N[0], 1, "stuck"), Ok(()), "it was counted");
        assert_eq!(patience.late(N[0], 2, "stuck"), Ok(()));
        assert_eq!(patience.declined(N[0], "stuck"), Ok(()), "it was counted");
        assert!(patience.late(N[1], 1, "stuck").is_err(), "the third");
    }
}
