//! A flat open-addressing table that can be frozen without stopping.
//!
//! The promise: [`Table::freeze`] marks the moment of a barrier, costs less than a microsecond for a delta, and what
//! [`Table::take_frozen`] later gives is exactly the table (or what changed in it) at that moment, whatever was written
//! in between (I-4).
//!
//! How: a *dirty* bitmap beside the slots says what was written since the last freeze. A freeze makes it the *pending*
//! bitmap and puts a clean spare in its place. From then on a paced [sweep](Table::sweep) copies pending slots out, and a
//! write to a slot that is still pending copies the old entry out first.
//!
//! Invariants:
//! * A slot is found by linear probing from its home; no `Empty` slot lies between a key and its home.
//! * `live + dead <= 5/8` of the slots, so probing ends.
//! * A removed key stays as `Dead` at least until its removal has been copied out into a delta, unless the next freeze is a
//!   base: a base says by silence that a key is gone.
//! * A pending bit is set only while a sweep runs, and only for slots not yet copied out.
//!
//! The home is taken from the *upper* bits of a second mix of the hash. So the order of the slots is the order of the
//! mixed hash whatever the size: rehashing, and loading a file written in slot order, walk memory forwards. The mix is
//! salted per table; otherwise, feeding one table in the order of another one would pile keys up at its beginning.
//!
//! Not here: hashing (the caller has the hash already), encoding, and limits on memory ([`super::handle`]).

use crate::checkpoint::StateFileKind;

#[cfg(test)]
mod model_tests;

/// Odd, with well mixed bits: 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Slots of a new table; one word of each bitmap.
const SLOTS_MIN: usize = 64;

/// One place of the table.
#[derive(Clone, Debug)]
enum Slot<K, V> {
    /// Never used since the last rehash: ends a probe.
    Empty,
    /// An entry.
    Live(K, V),
    /// Removed; the key stays until its removal has been written.
    Dead(K),
}

/// A map from `K` to `V` that knows what changed. See the head of the module.
///
/// Every access takes the 64-bit hash of its key, which must be what `hash_of` computes.
///
/// ```
/// use cutwater_engine::checkpoint::StateFileKind;
/// use cutwater_engine::state::Table;
///
/// let mut table: Table<u64, u64> = Table::new(|key| *key, 7);
/// *table.entry(1, &1, || 0) += 5;
/// assert_eq!(table.freeze(StateFileKind::Delta), StateFileKind::Base, "the first one is always a base");
/// *table.entry(1, &1, || 0) += 1;
/// assert!(table.sweep(usize::MAX));
/// assert_eq!(table.take_frozen().into_entries(), [(1, Some(5))], "as it was at the freeze");
/// ```
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    slots: Vec<Slot<K, V>>,
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
    live: usize,
    dead: usize,
    /// Written since the last freeze, one bit per slot.
    dirty: Vec<u64>,
    /// All zero, as long as `dirty`; empty while a sweep uses it.
    spare: Vec<u64>,
    sweep: Option<Sweep<K, V>>,
    /// The next freeze writes everything: the first one, and any after a frozen set was lost.
    base_next: bool,
    /// Length of the last frozen set, to allocate the next one at once.
    last_frozen: usize,
    hash_of: fn(&K) -> u64,
    salt: u64,
}

/// A frozen set that is being collected.
#[derive(Clone, Debug)]
struct Sweep<K, V> {
    /// Slots that belong to the frozen set and are not copied out yet.
    pending: Vec<u64>,
    /// The first word of `pending` not yet swept.
    next_word: usize,
    out: Frozen<K, V>,
}

/// What a table was at a freeze: every live entry (base), or every key written since the freeze before (delta), a removed
/// one without a value. Owned, so another thread can encode it.
#[derive(Clone, Debug)]
pub struct Frozen<K, V> {
    kind: StateFileKind,
    /// Copied by the sweep, in slot order.
    swept: Vec<(K, Option<V>)>,
    /// Copied ahead of a write, in the order of the writes.
    copied: Vec<(K, Option<V>)>,
    hash_of: fn(&K) -> u64,
    salt: u64,
}

impl<K, V> Table<K, V> {
    /// An empty table for keys hashed by `hash_of`. Tables with different salts have different orders; the same state must
    /// get the same salt in every attempt, or loading it is slow.
    pub fn new(hash_of: fn(&K) -> u64, salt: u64) -> Table<K, V> {
        Table {
            slots: empty_slots(SLOTS_MIN),
            shift: shift_for(SLOTS_MIN),
            live: 0,
            dead: 0,
            dirty: vec![0; SLOTS_MIN / 64],
            spare: vec![0; SLOTS_MIN / 64],
            sweep: None,
            base_next: true,
            last_frozen: 0,
            hash_of,
            salt,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The entries, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Live(key, value) => Some((key, value)),
            _ => None,
        })
    }

    /// The entries from slot `start` on, then those before it: a cheap way to look at a few without bias.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = (&K, &V)> {
        let (before, after) = self.slots.split_at(start & (self.slots.len() - 1));
        after.iter().chain(before).filter_map(|slot| match slot {
            Slot::Live(key, value) => Some((key, value)),
            _ => None,
        })
    }

    /// Bytes of slots, bitmaps and frozen copies. What keys and values own on the heap is not in it.
    pub fn bytes_estimate(&self) -> usize {
        let frozen = self.sweep.as_ref().map_or(0, |sweep| {
            sweep.pending.len() * 8 + (sweep.out.swept.len() + sweep.out.copied.len()) * size_of::<(K, Option<V>)>()
        });
        self.slots.len() * size_of::<Slot<K, V>>() + (self.dirty.len() + self.spare.len()) * 8 + frozen
    }

    /// True from a freeze until its frozen set has been taken.
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

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (position(hash, self.salt) >> self.shift) as usize
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }
}

impl<K: Eq + Clone, V: Clone> Table<K, V> {
    /// The value of `key`.
    #[inline]
    pub fn get(&self, hash: u64, key: &K) -> Option<&V> {
        self.get_by(hash, |k| k == key)
    }

    /// The value of the key that `is` recognises: for keys that can be compared without being built.
    #[inline]
    pub fn get_by(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<&V> {
        match &self.slots[self.find(hash, is).ok()?] {
            Slot::Live(_, value) => Some(value),
            _ => None,
        }
    }

    /// The value of `key`, to be changed; `None` when there is no such key. It counts as changed at once.
    #[inline]
    pub fn get_mut(&mut self, hash: u64, key: &K) -> Option<&mut V> {
        self.get_mut_by(hash, |k| k == key)
    }

    /// As [`Table::get_mut`] for the key that `is` recognises.
    #[inline]
    pub fn get_mut_by(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<&mut V> {
        let i = self.find_live(hash, is)?;
        self.touch(i);
        Some(self.value_mut(i))
    }

    /// The value of `key`, to be changed; made by `init` when there is none. It counts as changed at once.
    #[inline]
    pub fn entry(&mut self, hash: u64, key: &K, init: impl FnOnce() -> V) -> &mut V {
        self.entry_by(hash, |k| k == key, || key.clone(), init)
    }

    /// As [`Table::entry`] for the key that `is` recognises; `make` builds it when it is new.
    #[inline]
    pub fn entry_by(
        &mut self,
        hash: u64,
        is: impl Fn(&K) -> bool,
        make: impl FnOnce() -> K,
        init: impl FnOnce() -> V,
    ) -> &mut V {
        let i = match self.find(hash, &is) {
            Ok(i) if matches!(self.slots[i], Slot::Live(..)) => {
                self.touch(i);
                i
            }
            found => self.put(hash, found.ok(), make(), init()),
        };
        self.value_mut(i)
    }

    /// Changes the value of `key`, which is made by `V::default` when there is none.
    #[inline]
    pub fn update<R>(&mut self, hash: u64, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        change(self.entry(hash, key, V::default))
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, hash: u64, key: K, value: V) -> Option<V> {
        match self.find(hash, |k| *k == key) {
            Ok(i) if matches!(self.slots[i], Slot::Live(..)) => {
                self.touch(i);
                Some(std::mem::replace(self.value_mut(i), value))
            }
            found => {
                self.put(hash, found.ok(), key, value);
                None
            }
        }
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, hash: u64, key: &K) -> Option<V> {
        self.remove_by(hash, |k| k == key)
    }

    /// As [`Table::remove`] for the key that `is` recognises.
    pub fn remove_by(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<V> {
        let i = self.find_live(hash, is)?;
        self.touch(i);
        match std::mem::replace(&mut self.slots[i], Slot::Empty) {
            Slot::Live(key, value) => {
                self.slots[i] = Slot::Dead(key);
                self.live -= 1;
                self.dead += 1;
                Some(value)
            }
            _ => unreachable!("the slot was found live"),
        }
    }

    /// Makes room for `additional` more keys at once. Do this before loading: keys that come in slot order pile up at the
    /// beginning of a table that is too small for them.
    pub fn reserve(&mut self, additional: usize) {
        let wanted = slots_for(self.live + self.dead + additional);
        if wanted > self.slots.len() {
            self.rehash(wanted);
        }
    }

    /// Puts an entry read from a state file (`None`: its removal); it doesn't count as changed. Gives back an entry whose
    /// key is new when `only_known`: the caller collects those, reserves room, and comes again.
    ///
    /// # Panics
    /// If the table is frozen: state is loaded before the first barrier.
    pub fn load(&mut self, hash: u64, key: K, value: Option<V>, only_known: bool) -> Option<(K, V)> {
        assert!(self.sweep.is_none(), "state is loaded before the first barrier");
        match (self.find(hash, |k| *k == key), value) {
            (Ok(i), value) => {
                let was_live = matches!(self.slots[i], Slot::Live(..));
                self.live = self.live + usize::from(value.is_some()) - usize::from(was_live);
                self.dead = self.dead + usize::from(value.is_none()) - usize::from(!was_live);
                self.slots[i] = match value {
                    Some(value) => Slot::Live(key, value),
                    None => Slot::Dead(key),
                };
            }
            (Err(_), Some(value)) if only_known => return Some((key, value)),
            (Err(_), Some(value)) => {
                if self.is_full() {
                    self.grow();
                }
                let i = self.find(hash, |k| *k == key).expect_err("the key was not there a moment ago");
                self.slots[i] = Slot::Live(key, value);
                self.live += 1;
            }
            (Err(_), None) => {}
        }
        None
    }

    /// Freezes the table as it is now, and says whether as a base or as a delta: a delta is a base when the deltas before
    /// it are missing (see [`Table::mark_all_dirty`]). Less than a microsecond for a delta; a base clears two bitmaps of
    /// one bit per slot, some 20 us for a million keys.
    ///
    /// # Panics
    /// If the frozen set of the freeze before hasn't been taken.
    pub fn freeze(&mut self, kind: StateFileKind) -> StateFileKind {
        assert!(self.sweep.is_none(), "the frozen set of the freeze before must be taken first");
        let kind = if self.base_next { StateFileKind::Base } else { kind };
        let mut pending = std::mem::take(&mut self.spare);
        match kind {
            StateFileKind::Delta => std::mem::swap(&mut self.dirty, &mut pending),
            StateFileKind::Base => {
                pending.fill(u64::MAX);
                self.dirty.fill(0);
            }
        }
        let out = Frozen { kind, swept: Vec::new(), copied: Vec::new(), hash_of: self.hash_of, salt: self.salt };
        self.sweep = Some(Sweep { pending, next_word: 0, out });
        self.base_next = false;
        kind
    }

    /// Copies out the pending entries of the next `words` bitmap words (64 slots each). True when the frozen set is
    /// complete, or when nothing is frozen.
    pub fn sweep(&mut self, words: usize) -> bool {
        let Some(sweep) = &mut self.sweep else { return true };
        let Sweep { pending, next_word, out } = sweep;
        if *next_word == 0 {
            // Not in the freeze: asking the system for memory may take longer than a barrier should.
            out.swept.reserve(self.last_frozen.min(self.live + self.dead));
        }
        let end = next_word.saturating_add(words).min(pending.len());
        let from = std::mem::replace(next_word, end);
        for (word, slots) in pending[from..end].iter_mut().zip(self.slots[from * 64..].chunks_exact(64)) {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                out.swept.extend(copy_out(&slots[bits.trailing_zeros() as usize], out.kind));
                bits &= bits - 1;
            }
        }
        end == pending.len()
    }

    /// Takes the frozen set.
    ///
    /// # Panics
    /// If nothing is frozen, or the sweep isn't complete.
    pub fn take_frozen(&mut self) -> Frozen<K, V> {
        let sweep = self.sweep.take().expect("a frozen set is taken after a freeze");
        assert_eq!(sweep.next_word, sweep.pending.len(), "a frozen set is taken when its sweep is complete");
        self.spare = sweep.pending;
        self.last_frozen = sweep.out.swept.len();
        sweep.out
    }

    /// The slot of the key that `is` recognises, live or dead; or the empty slot at the end of its probe.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Result<usize, usize> {
        let (mask, mut i) = (self.mask(), self.home(hash));
        loop {
            match &self.slots[i] {
                Slot::Live(key, _) | Slot::Dead(key) if is(key) => return Ok(i),
                Slot::Empty => return Err(i),
                _ => i = (i + 1) & mask,
            }
        }
    }

    #[inline]
    fn find_live(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<usize> {
        self.find(hash, is).ok().filter(|&i| matches!(self.slots[i], Slot::Live(..)))
    }

    #[inline]
    fn value_mut(&mut self, i: usize) -> &mut V {
        match &mut self.slots[i] {
            Slot::Live(_, value) => value,
            _ => unreachable!("the slot is live"),
        }
    }

    /// To be called before slot `i` changes: saves what a frozen set still needs, and marks the slot dirty.
    #[inline]
    fn touch(&mut self, i: usize) {
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
            sweep.out.copied.extend(copy_out(&self.slots[i], sweep.out.kind));
        }
    }

    /// Makes a key live that isn't; `own` is its dead slot, if it has one.
    #[cold]
    #[inline(never)]
    fn put(&mut self, hash: u64, own: Option<usize>, key: K, value: V) -> usize {
        let i = match own.or_else(|| self.reusable(hash)) {
            Some(dead) => {
                self.dead -= 1;
                dead
            }
            None => {
                if self.is_full() {
                    self.grow();
                }
                self.find(hash, |k| *k == key).expect_err("the key is in no slot")
            }
        };
        self.touch(i);
        self.slots[i] = Slot::Live(key, value);
        self.live += 1;
        i
    }

    /// A slot on the probe of `hash` whose removed key nobody needs any more.
    fn reusable(&self, hash: u64) -> Option<usize> {
        if self.dead == 0 {
            return None;
        }
        let (mask, mut i) = (self.mask(), self.home(hash));
        loop {
            match &self.slots[i] {
                Slot::Empty => return None,
                Slot::Dead(_) if !self.is_needed(i) => return Some(i),
                _ => i = (i + 1) & mask,
            }
        }
    }

    /// True when the next frozen set still has to hold the removed key in slot `i`. The running one needs no asking: a write
    /// to a slot that is pending in it copies the removal out first.
    fn is_needed(&self, i: usize) -> bool {
        !self.base_next && self.dirty[i >> 6] >> (i & 63) & 1 == 1
    }

    #[inline]
    fn is_full(&self) -> bool {
        (self.live + self.dead + 1) * 8 > self.slots.len() * 5
    }

    /// Makes room for at least one more key: by dropping removed ones where enough of them are free, else by doubling.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.sweep(usize::MAX);
        let dead = |i: usize| matches!(self.slots[i], Slot::Dead(_)) && self.is_needed(i);
        let needed_dead = if self.dead == 0 { 0 } else { (0..self.slots.len()).filter(|&i| dead(i)).count() };
        // Twice what is needed now, so that the next rehash is a table's length of inserts away.
        let wanted = slots_for(2 * (self.live + needed_dead));
        self.rehash(wanted.clamp(self.slots.len() / 2, self.slots.len() * 2).max(SLOTS_MIN));
    }

    /// Moves everything that is needed into a table of `count` slots. The sweep is finished first.
    fn rehash(&mut self, count: usize) {
        self.sweep(usize::MAX);
        let old = std::mem::replace(&mut self.slots, empty_slots(count));
        let was_dirty = std::mem::replace(&mut self.dirty, vec![0; count / 64]);
        match &mut self.sweep {
            Some(sweep) => (sweep.pending, sweep.next_word) = (vec![0; count / 64], count / 64),
            None => self.spare = vec![0; count / 64],
        }
        self.shift = shift_for(count);
        self.dead = 0;
        let mask = self.mask();
        for (from, slot) in old.into_iter().enumerate() {
            let dirty = was_dirty[from >> 6] >> (from & 63) & 1;
            let key = match &slot {
                Slot::Live(key, _) => key,
                // The sweep is complete, so only the next delta can still need it.
                Slot::Dead(key) if dirty == 1 && !self.base_next => {
                    self.dead += 1;
                    key
                }
                Slot::Empty | Slot::Dead(_) => continue,
            };
            let mut to = self.home((self.hash_of)(key));
            while !matches!(self.slots[to], Slot::Empty) {
                to = (to + 1) & mask;
            }
            self.slots[to] = slot;
            self.dirty[to >> 6] |= dirty << (to & 63);
        }
    }
}

/// What a frozen set of this kind holds of a slot.
#[inline]
fn copy_out<K: Clone, V: Clone>(slot: &Slot<K, V>, kind: StateFileKind) -> Option<(K, Option<V>)> {
    match slot {
        Slot::Live(key, value) => Some((key.clone(), Some(value.clone()))),
        Slot::Dead(key) if kind == StateFileKind::Delta => Some((key.clone(), None)),
        Slot::Dead(_) | Slot::Empty => None,
    }
}

impl<K, V> Frozen<K, V> {
    /// Base or delta.
    pub fn kind(&self) -> StateFileKind {
        self.kind
    }

    /// Number of entries, removals included.
    pub fn len(&self) -> usize {
        self.swept.len() + self.copied.len()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` for every entry in slot order, give or take the few that were displaced while probing: good enough
    /// for loading forwards, and nothing else depends on the order. Ends at the first error.
    ///
    /// # Errors
    /// That of `each`.
    pub fn for_each<E>(&mut self, mut each: impl FnMut(&K, Option<&V>) -> Result<(), E>) -> Result<(), E> {
        let (hash_of, salt) = (self.hash_of, self.salt);
        let place = |(key, _): &(K, Option<V>)| position(hash_of(key), salt);
        self.copied.sort_by_cached_key(place);
        let mut copied = self.copied.iter().map(|entry| (place(entry), entry)).peekable();
        for entry in &self.swept {
            if copied.peek().is_some() {
                let here = place(entry);
                while let Some((_, (key, value))) = copied.next_if(|(at, _)| *at <= here) {
                    each(key, value.as_ref())?;
                }
            }
            each(&entry.0, entry.1.as_ref())?;
        }
        for (_, (key, value)) in copied {
            each(key, value.as_ref())?;
        }
        Ok(())
    }

    /// The entries, in no particular order.
    pub fn into_entries(self) -> Vec<(K, Option<V>)> {
        let mut entries = self.swept;
        entries.extend(self.copied);
        entries
    }
}

/// Where a hash belongs on the line from 0 to 2^64; a table's slots are equal stretches of it.
#[inline]
fn position(hash: u64, salt: u64) -> u64 {
    (hash ^ salt).wrapping_mul(MIX)
}

fn shift_for(slots: usize) -> u32 {
    64 - slots.trailing_zeros()
}

/// The smallest table in which `keys` keys fill at most 5/8.
#[inline]
fn slots_for(keys: usize) -> usize {
    let wanted = keys + keys.div_ceil(5) * 3;
    wanted.next_power_of_two().max(SLOTS_MIN)
}

fn empty_slots<K, V>(count: usize) -> Vec<Slot<K, V>> {
    let mut slots = Vec::new();
    slots.resize_with(count, || Slot::Empty);
    slots
}
