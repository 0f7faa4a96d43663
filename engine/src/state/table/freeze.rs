//! Freezing a table, and handing out what was frozen while it is written to.
//!
//! A freeze swaps the bitmap of dirty slots for a clean one and calls it *pending*. A pending slot belongs to the frozen set
//! as it was; the sweep comes to it, or a write does ([`Table::touch`]), whichever is first.

use super::{Table, ones};
use crate::checkpoint::StateFileKind;

/// With at least this many entries a table is looked at before a delta: see [`Table::freeze`].
pub(super) const LOOK_AT: usize = 4096;
/// How many words ahead the sweep asks for the memory of pending slots. Two are about as many lines as a processor can wait for, and
/// encoding one takes about as long as memory does.
const AHEAD_WORDS: usize = 2;
/// Bitmap words that are looked at, spread over the table.
const WORDS_LOOKED_AT: usize = 256;

/// A frozen set that is being collected.
pub(super) struct Sweep<K, V> {
    /// Slots that belong to the frozen set and are not handed out yet.
    pub(super) pending: Vec<u64>,
    /// The first word of `pending` not yet swept.
    pub(super) next_word: usize,
    pub(super) out: Copied<K, V>,
}

/// What of a frozen set the sweep did not hand out, because it had to be copied earlier. Keys that were removed have no
/// value.
#[derive(Debug)]
pub struct Copied<K, V> {
    /// Whether the frozen set is everything (base), or what was written since the freeze before (delta).
    pub kind: StateFileKind,
    /// The entries, in no particular order.
    pub copied: Vec<(K, Option<V>)>,
}

impl<K, V> Table<K, V> {
    /// True from a freeze until its [end](Table::end_freeze).
    pub fn is_frozen(&self) -> bool {
        self.sweep.is_some()
    }

    /// The next freeze writes everything. For when a frozen set, or its file, has been lost: the chain of deltas ends
    /// here and begins anew (I-4).
    pub fn mark_all_dirty(&mut self) {
        self.base_next = true;
    }

    /// The entries were loaded from a chain of files that the next delta may continue.
    pub fn continue_chain(&mut self) {
        self.base_next = false;
        self.dirty.fill(0);
    }

    /// About how many slots are dirty; exact for small tables.
    fn dirty_estimate(&self) -> usize {
        let step = (self.dirty.len() / WORDS_LOOKED_AT).max(1);
        self.dirty.iter().step_by(step).map(|word| word.count_ones() as usize).sum::<usize>() * step
    }
}

impl<K: Eq + Clone, V: Clone> Table<K, V> {
    /// Freezes the table as it is now, and says whether as a base or as a delta. A delta becomes a base when the deltas
    /// before it are missing (see [`Table::mark_all_dirty`]), and when about three quarters of a larger table have changed:
    /// a base costs hardly more then, and a restore reads one file instead of two. Some microseconds for a delta; a base
    /// clears two bitmaps of one bit per slot, some 20 us for a million keys.
    ///
    /// # Panics
    /// If the freeze before hasn't ended.
    pub fn freeze(&mut self, kind: StateFileKind) -> StateFileKind {
        assert!(self.sweep.is_none(), "the freeze before must be ended first");
        let nearly_all = || self.live >= LOOK_AT && self.dirty_estimate() * 4 >= self.live * 3;
        let kind = if self.base_next || nearly_all() { StateFileKind::Base } else { kind };
        let mut pending = std::mem::take(&mut self.spare);
        match kind {
            StateFileKind::Delta => std::mem::swap(&mut self.dirty, &mut pending),
            StateFileKind::Base => {
                pending.fill(u64::MAX);
                self.dirty.fill(0);
            }
        }
        self.sweep = Some(Sweep { pending, next_word: 0, out: Copied { kind, copied: Vec::new() } });
        self.base_next = false;
        kind
    }

    /// Hands the pending entries of the next `words` bitmap words (64 slots each) to `each`, in slot order; a removed key
    /// has no value. True when the sweep is complete, or when nothing is frozen.
    pub fn sweep(&mut self, words: usize, mut each: impl FnMut(&K, Option<&V>)) -> bool {
        let Some(sweep) = &mut self.sweep else { return true };
        let Sweep { pending, next_word, out } = sweep;
        let end = next_word.saturating_add(words).min(pending.len());
        let from = std::mem::replace(next_word, end);
        for word in from..end {
            if let Some(later) = pending.get(word + AHEAD_WORDS) {
                self.slots.prefetch_word(word + AHEAD_WORDS, *later);
            }
            let pending = &mut pending[word];
            let there = match out.kind {
                StateFileKind::Base => self.slots.live_bits(word),
                StateFileKind::Delta => self.slots.used_bits(word),
            };
            for bit in ones(std::mem::take(pending) & there) {
                if let Some((key, value)) = self.slots.get(word * 64 + bit) {
                    each(key, value);
                }
            }
        }
        end == pending.len()
    }

    /// Ends a freeze whose sweep is complete; gives what had to be copied ahead of the sweep.
    ///
    /// # Panics
    /// If nothing is frozen, or the sweep isn't complete.
    pub fn end_freeze(&mut self) -> Copied<K, V> {
        let sweep = self.sweep.take().expect("a freeze ends after it began");
        assert_eq!(sweep.next_word, sweep.pending.len(), "a freeze ends when its sweep is complete");
        self.spare = sweep.pending;
        sweep.out
    }

    /// Completes the sweep into the copies, because the slots are about to move.
    pub(super) fn finish_sweep(&mut self) {
        if let Some(mut copied) = self.sweep.as_mut().map(|sweep| std::mem::take(&mut sweep.out.copied)) {
            self.sweep(usize::MAX, |key, value| copied.push((key.clone(), value.cloned())));
            self.sweep.as_mut().expect("the sweep isn't over").out.copied = copied;
        }
    }

    /// To be called before slot `i` changes: saves what a frozen set still needs, and marks the slot dirty.
    #[inline]
    pub(super) fn touch(&mut self, i: usize) {
        if self.sweep.is_some() {
            self.save(i);
        }
        self.dirty[i >> 6] |= 1 << (i & 63);
    }

    /// Copies slot `i` out if the running sweep hasn't come to it.
    #[inline(never)]
    fn save(&mut self, i: usize) {
        let Some(sweep) = &mut self.sweep else { return };
        let (word, bit) = (&mut sweep.pending[i >> 6], 1 << (i & 63));
        if *word & bit != 0 {
            *word &= !bit;
            match (self.slots.get(i), sweep.out.kind) {
                (Some((_, None)), StateFileKind::Base) | (None, _) => {}
                (Some((key, value)), _) => sweep.out.copied.push((key.clone(), value.cloned())),
            }
        }
    }
}
