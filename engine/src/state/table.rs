//! A flat open-addressing table that can be frozen without stopping.
//!
//! The promise: [`Table::freeze`] marks the moment of a barrier, costs a few microseconds, and what [`Table::sweep`] and
//! [`Table::end_freeze`] later give is exactly the table (or what changed in it) at that moment, whatever was written in
//! between (I-4).
//!
//! How: a *dirty* bitmap beside the slots says what was written since the last freeze. A freeze makes it the *pending*
//! bitmap and puts a clean spare in its place. From then on a paced [sweep](Table::sweep) hands out pending slots, and a
//! write to a slot that is still pending copies the old entry first.
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
//! Not here: hashing (the caller has the hash already), encoding, and limits on memory ([`super::handle`]). The slots
//! themselves, with the project's only unsafe code, are in `table/slots.rs`.

use std::borrow::Borrow;
use std::fmt;

use freeze::Sweep;
use slots::{Slots, live_control};

mod freeze;
#[cfg(test)]
mod model_tests;
mod slots;

pub use freeze::Copied;

/// Odd, with well mixed bits: 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Slots of a new table; one word of each bitmap.
const SLOTS_MIN: usize = 64;

/// How many records ahead [`Table::visit`] asks for memory. Between 4 and 32 it hardly matters.
const AHEAD: usize = 16;

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
/// assert!(table.sweep(usize::MAX, |_, _| panic!("it was copied ahead of the write")));
/// assert_eq!(table.end_freeze().copied, [(1, Some(5))], "as it was at the freeze");
/// ```
pub struct Table<K, V> {
    slots: Slots<K, V>,
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
    hash_of: fn(&K) -> u64,
    salt: u64,
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} live, {} dead in {} slots)", self.live, self.dead, self.slots.len())
    }
}

impl<K, V> Table<K, V> {
    /// An empty table for keys hashed by `hash_of`. Tables with different salts have different orders; the same state must
    /// get the same salt in every attempt, or loading it is slow.
    pub fn new(hash_of: fn(&K) -> u64, salt: u64) -> Table<K, V> {
        Table {
            slots: Slots::new(SLOTS_MIN),
            shift: shift_for(SLOTS_MIN),
            live: 0,
            dead: 0,
            dirty: vec![0; SLOTS_MIN / 64],
            spare: vec![0; SLOTS_MIN / 64],
            sweep: None,
            base_next: true,
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
        (0..self.slots.len() / 64).flat_map(|word| self.live_in(word))
    }

    /// The entries from about slot `start` on, then those before it: a cheap way to look at a few without bias.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = (&K, &V)> {
        let (words, first) = (self.slots.len() / 64, start & (self.slots.len() / 64 - 1));
        (first..words).chain(0..first).flat_map(|word| self.live_in(word))
    }

    fn live_in(&self, word: usize) -> impl Iterator<Item = (&K, &V)> {
        ones(self.slots.live_bits(word)).filter_map(move |bit| {
            let (key, value) = self.slots.get(word * 64 + bit)?;
            Some((key, value?))
        })
    }

    /// Bytes of slots, bitmaps and frozen copies. What keys and values own on the heap is not in it.
    pub fn bytes_estimate(&self) -> usize {
        let frozen = self
            .sweep
            .as_ref()
            .map_or(0, |sweep| sweep.pending.len() * 8 + sweep.out.copied.len() * size_of::<(K, Option<V>)>());
        self.slots.len() * Slots::<K, V>::bytes_per_slot() + (self.dirty.len() + self.spare.len()) * 8 + frozen
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (position(hash, self.salt) >> self.shift) as usize
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
        let (_, value) = self.slots.get(self.find(hash, is).ok()?)?;
        value
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
        Some(self.slots.value_mut(i))
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
            Ok(i) if self.slots.is_live(i) => {
                self.touch(i);
                i
            }
            found => self.put(hash, found.ok(), make(), init()),
        };
        self.slots.value_mut(i)
    }

    /// Changes the value of `key`, which is made by `V::default` when there is none.
    #[inline]
    pub fn update<R>(&mut self, hash: u64, key: &K, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        change(self.entry(hash, key, V::default))
    }

    /// Calls `each` with every record and the value of its key, in their order; as one [`Table::entry`] after the other, and
    /// twice as fast on a table larger than the processor's caches: the memory of the keys to come is asked for ahead.
    ///
    /// ```
    /// use cutwater_engine::state::Table;
    ///
    /// let mut table: Table<u64, u64> = Table::new(|key| *key, 7);
    /// table.visit(&["ab", "c", "de"], |word| word.len() as u64, |key| *key, || 0, |_, count| *count += 1);
    /// assert_eq!((table.get(1, &1), table.get(2, &2)), (Some(&1), Some(&2)));
    /// ```
    pub fn visit<'r, R, Q: Borrow<K>>(
        &mut self,
        records: &'r [R],
        key: impl Fn(&'r R) -> Q,
        hash: impl Fn(&K) -> u64,
        init: impl Fn() -> V,
        mut each: impl FnMut(&'r R, &mut V),
    ) {
        let mut hashes = [0; AHEAD];
        for (slot, record) in hashes.iter_mut().zip(records) {
            *slot = hash(key(record).borrow());
            self.slots.prefetch(self.home(*slot));
        }
        for (i, record) in records.iter().enumerate() {
            let at = i % AHEAD;
            let own = hashes[at];
            if let Some(later) = records.get(i + AHEAD) {
                hashes[at] = hash(key(later).borrow());
                self.slots.prefetch(self.home(hashes[at]));
            }
            each(record, self.entry(own, key(record).borrow(), &init));
        }
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, hash: u64, key: K, value: V) -> Option<V> {
        match self.find(hash, |k| *k == key) {
            Ok(i) if self.slots.is_live(i) => {
                self.touch(i);
                Some(std::mem::replace(self.slots.value_mut(i), value))
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
        self.live -= 1;
        self.dead += 1;
        Some(self.slots.bury(i))
    }

    /// Removes every entry and gives it back, in slot order. The next freeze is a base.
    pub fn drain(&mut self) -> Vec<(K, V)> {
        let mut drained = Vec::with_capacity(self.live);
        let mut old = self.replace_slots(SLOTS_MIN);
        for word in 0..old.len() / 64 {
            for bit in ones(old.live_bits(word)) {
                drained.extend(old.take(word * 64 + bit).and_then(|(key, value)| Some((key, value?))));
            }
        }
        (self.live, self.dead, self.base_next) = (0, 0, true);
        drained
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
        let control = live_control(position(hash, self.salt));
        match (self.find(hash, |k| *k == key), value) {
            (Ok(i), value) => {
                let was_live = self.slots.is_live(i);
                self.live = self.live + usize::from(value.is_some()) - usize::from(was_live);
                self.dead = self.dead + usize::from(value.is_none()) - usize::from(!was_live);
                match value {
                    Some(value) => self.slots.put(i, control, key, value),
                    None => self.slots.put_dead(i, control, key),
                }
            }
            (Err(_), Some(value)) if only_known => return Some((key, value)),
            (Err(mut i), Some(value)) => {
                if self.is_full() {
                    self.grow();
                    i = self.find(hash, |k| *k == key).expect_err("the key was not there a moment ago");
                }
                self.slots.put(i, control, key, value);
                self.live += 1;
            }
            (Err(_), None) => {}
        }
        None
    }

    /// The slot of the key that `is` recognises, live or dead; or the empty slot at the end of its probe.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(&K) -> bool) -> Result<usize, usize> {
        let place = position(hash, self.salt);
        self.slots.find((place >> self.shift) as usize, live_control(place), is)
    }

    #[inline]
    fn find_live(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<usize> {
        self.find(hash, is).ok().filter(|&i| self.slots.is_live(i))
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
        self.slots.put(i, live_control(position(hash, self.salt)), key, value);
        self.live += 1;
        i
    }

    /// A slot on the probe of `hash` whose removed key nobody needs any more.
    fn reusable(&self, hash: u64) -> Option<usize> {
        if self.dead == 0 {
            return None;
        }
        let (mask, mut i) = (self.slots.len() - 1, self.home(hash));
        loop {
            if self.slots.is_empty(i) {
                return None;
            }
            if self.slots.is_dead(i) && !self.is_needed(i) {
                return Some(i);
            }
            i = (i + 1) & mask;
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
        self.finish_sweep();
        let dead = |i: usize| self.slots.is_dead(i) && self.is_needed(i);
        let needed_dead = if self.dead == 0 { 0 } else { (0..self.slots.len()).filter(|&i| dead(i)).count() };
        // Twice what is needed now, so that the next rehash is a table's length of inserts away.
        let wanted = slots_for(2 * (self.live + needed_dead));
        self.rehash(wanted.clamp(self.slots.len() / 2, self.slots.len() * 2).max(SLOTS_MIN));
    }

    /// Puts `count` empty slots in place of those that there are, nothing dirty among them. The sweep is finished first.
    fn replace_slots(&mut self, count: usize) -> Slots<K, V> {
        self.finish_sweep();
        self.dirty = vec![0; count / 64];
        match &mut self.sweep {
            Some(sweep) => (sweep.pending, sweep.next_word) = (vec![0; count / 64], count / 64),
            None => self.spare = vec![0; count / 64],
        }
        self.shift = shift_for(count);
        std::mem::replace(&mut self.slots, Slots::new(count))
    }

    /// Moves everything that is needed into a table of `count` slots.
    fn rehash(&mut self, count: usize) {
        let was_dirty = std::mem::take(&mut self.dirty);
        let mut old = self.replace_slots(count);
        self.dead = 0;
        for (word, was_dirty) in was_dirty.into_iter().enumerate() {
            for bit in ones(old.used_bits(word)) {
                let Some((key, value)) = old.take(word * 64 + bit) else { continue };
                let dirty = was_dirty >> bit & 1;
                // The sweep is complete, so only the next delta can still need a removed key.
                if value.is_none() && (dirty == 0 || self.base_next) {
                    continue;
                }
                let hash = (self.hash_of)(&key);
                let to = self.find(hash, |_| false).expect_err("no key is recognised");
                let control = live_control(position(hash, self.salt));
                match value {
                    Some(value) => self.slots.put(to, control, key, value),
                    None => {
                        self.slots.put_dead(to, control, key);
                        self.dead += 1;
                    }
                }
                self.dirty[to >> 6] |= dirty << (to & 63);
            }
        }
    }
}

/// The positions of the ones in `bits`, from the lowest.
#[inline]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
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
