//! Claiming an attempt: the first thing that a start does.
//!
//! The promise (I-7): of two starts one gets a number and the other a higher one; whoever holds the highest is the job, and
//! the store refuses the writes of all others. A claim that outlives its claimant costs a number and nothing else.

use cutwater_platform::Platform;

use crate::id::{Attempt, JobId};
use crate::snapshot::{CheckpointStore, Claimant, Owner, StoreError};

/// Claims the attempt after the highest that anybody has claimed.
///
/// # Errors
/// [`StoreError`].
pub fn claim_next(store: &dyn CheckpointStore, platform: &Platform) -> Result<Owner, StoreError> {
    let job: JobId = store.job();
    let mut attempt = Attempt(store.highest_attempt()?.0 + 1);
    loop {
        let claimed_ms = platform.clock.wall().0;
        let (pid, nonce) = (std::process::id(), platform.random.next_u64());
        if let Some(owner) = store.claim(&Claimant { job, attempt, pid, claimed_ms, nonce })? {
            return Ok(owner);
        }
        // Somebody was faster.
        attempt = Attempt(attempt.0 + 1);
    }
}
