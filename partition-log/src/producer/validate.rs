//! Judges a batch by what the partition remembers of its producer. Pure.

use thiserror::Error;

use super::state::ProducerState;

/// What to do with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Append it.
    Accept,
    /// It is there already; answer with the offsets it got then.
    Duplicate { base_offset: u64, last_offset: u64 },
}

/// A batch that doesn't continue what its producer sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// A newer incarnation of the producer has written here (Kafka's `INVALID_PRODUCER_EPOCH`).
    #[error(
        "producer epoch {found} is older than {known}: a newer incarnation of this producer has written here; stop"
    )]
    OldEpoch {
        /// The epoch of the batch.
        found: i16,
        /// The newest known epoch.
        known: i16,
    },
    /// Nobody was ever given this epoch (Kafka's `INVALID_PRODUCER_EPOCH` as well).
    #[error("producer epoch {found} was given to nobody: {known} is the newest; initialise the producer anew")]
    EpochToCome {
        /// The epoch of the batch.
        found: i16,
        /// The newest known epoch.
        known: i16,
    },
    /// A batch is missing before this one (Kafka's `OUT_OF_ORDER_SEQUENCE_NUMBER`).
    #[error("sequence {found} doesn't follow: {expected} was expected; an earlier batch is missing or was lost")]
    OutOfOrder {
        /// The batch's first sequence.
        found: i32,
        /// The sequence that would continue.
        expected: i32,
    },
}

/// The sequence after `sequence`: 0 follows the largest.
pub(crate) fn next_sequence(sequence: i32) -> i32 {
    if sequence == i32::MAX { 0 } else { sequence + 1 }
}

/// The last sequence of a batch of `last_delta + 1` records that begins at `first`; it may straddle the wrap.
pub(crate) fn last_sequence(first: i32, last_delta: i32) -> i32 {
    if first > i32::MAX - last_delta { last_delta - (i32::MAX - first) - 1 } else { first + last_delta }
}

/// Judges a batch with `epoch` and sequences `first..=last`; `known` is what the partition remembers of its producer.
///
/// The order of the checks is Kafka's: duplicate, epoch, sequence. Of a producer nothing is known about, any sequence is
/// accepted (KIP-360).
///
/// # Errors
/// [`SequenceError`]; nothing may be appended then.
pub(crate) fn validate(
    known: Option<&ProducerState>,
    epoch: i16,
    first: i32,
    last: i32,
) -> Result<Verdict, SequenceError> {
    let Some(known) = known else { return Ok(Verdict::Accept) };
    if epoch == known.epoch
        && let Some(same) = known.window.iter().find(|b| b.first_sequence == first && b.last_sequence == last)
    {
        return Ok(Verdict::Duplicate { base_offset: same.base_offset, last_offset: same.last_offset });
    }
    if epoch < known.epoch {
        return Err(SequenceError::OldEpoch { found: epoch, known: known.epoch });
    }
    let expected = match known.window.back() {
        Some(batch) if epoch == known.epoch => next_sequence(batch.last_sequence),
        // Of the same epoch only a marker is known: any sequence, as if nothing were known.
        None if epoch == known.epoch => return Ok(Verdict::Accept),
        _ => 0,
    };
    if first == expected { Ok(Verdict::Accept) } else { Err(SequenceError::OutOfOrder { found: first, expected }) }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Appended, WINDOW};
    use super::*;

    /// The rule in the plainest words: a list of all batches ever, searched from behind.
    fn model(all: &[(i16, i32, i32, u64)], epoch: i16, first: i32, last: i32) -> Result<Verdict, SequenceError> {
        let Some(&(newest, _, newest_last, _)) = all.last() else { return Ok(Verdict::Accept) };
        for &(e, f, l, base) in all.iter().rev().take_while(|b| b.0 == newest).take(WINDOW) {
            if (e, f, l) == (epoch, first, last) {
                return Ok(Verdict::Duplicate { base_offset: base, last_offset: base + (l - f) as u64 });
            }
        }
        let expected = if epoch == newest { newest_last + 1 } else { 0 };
        match epoch {
            _ if epoch < newest => Err(SequenceError::OldEpoch { found: epoch, known: newest }),
            _ if first == expected => Ok(Verdict::Accept),
            _ => Err(SequenceError::OutOfOrder { found: first, expected }),
        }
    }

    #[test]
    fn every_short_history_is_judged_as_the_plain_model_judges_it() {
        // Batches of one or two records, two epochs, all histories of up to seven attempts.
        fn go(all: &mut Vec<(i16, i32, i32, u64)>, state: Option<ProducerState>, left: u32, seen: &mut u64) {
            for epoch in 0..2i16 {
                let top = all.last().map_or(0, |b| b.2);
                for first in (0..=(top + 2)).rev().take(if left > 3 { 3 } else { 12 }) {
                    for last in first..=first + 1 {
                        let got = validate(state.as_ref(), epoch, first, last);
                        assert_eq!(got, model(all, epoch, first, last), "{all:?} then {epoch} {first}..={last}");
                        *seen += 1;
                        if left > 0 && got == Ok(Verdict::Accept) {
                            let base = all.last().map_or(0, |b| b.3 + 2);
                            let mut next = state.clone().unwrap_or_default();
                            next.append(
                                epoch,
                                Appended {
                                    first_sequence: first,
                                    last_sequence: last,
                                    base_offset: base,
                                    last_offset: base + (last - first) as u64,
                                },
                                0,
                            );
                            all.push((epoch, first, last, base));
                            go(all, Some(next), left - 1, seen);
                            all.pop();
                        }
                    }
                }
            }
        }
        let mut seen = 0;
        go(&mut Vec::new(), None, 7, &mut seen);
        assert!(seen > 10_000, "{seen} cases");
    }

    #[test]
    fn sequences_wrap_to_zero_after_the_largest() {
        assert_eq!(next_sequence(i32::MAX), 0);
        assert_eq!(last_sequence(i32::MAX - 1, 1), i32::MAX);
        assert_eq!(last_sequence(i32::MAX - 1, 3), 1);
        assert_eq!(last_sequence(0, i32::MAX), i32::MAX);
        let mut state = ProducerState::default();
        state.append(0, Appended { first_sequence: i32::MAX - 1, last_sequence: 1, base_offset: 0, last_offset: 3 }, 0);
        assert_eq!(validate(Some(&state), 0, 2, 2), Ok(Verdict::Accept));
        let duplicate = Verdict::Duplicate { base_offset: 0, last_offset: 3 };
        assert_eq!(validate(Some(&state), 0, i32::MAX - 1, 1), Ok(duplicate));
    }

    #[test]
    fn a_marker_of_a_new_epoch_empties_the_window_and_one_of_the_same_keeps_it() {
        let mut state = ProducerState::default();
        state.append(0, Appended { first_sequence: 0, last_sequence: 0, base_offset: 0, last_offset: 0 }, 0);
        state.mark(0, 1);
        assert_eq!(state.window.len(), 1);
        state.mark(1, 2);
        assert!(state.window.is_empty());
        assert_eq!(validate(Some(&state), 0, 0, 0), Err(SequenceError::OldEpoch { found: 0, known: 1 }));
    }
}
