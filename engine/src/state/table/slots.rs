//! The slots of a table: a control byte each, and entries that may not be there. The one place of Cutwater with unsafe code.
//!
//! Why: an entry of a counter takes 16 bytes here and 24 as a safe enum, so an access touches one cache line, not one and a
//! half; and an empty slot is nothing at all, so a table for a million keys is ready when its control bytes are zero, not
//! when 48 MB have been written. `docs/decisions/0012` has the figures. What is unsafe is small enough to be read at one
//! sitting, has a model test, and runs under Miri.
//!
//! The invariant that everything rests on: **the control byte of a slot says what of its entry is initialised.**
//!
//! | control | key | value |
//! |---|---|---|
//! | 0: empty | no | no |
//! | `10tttttt`: dead | yes | no |
//! | `11tttttt`: live | yes | yes |
//!
//! `tttttt` are six bits of the hash, so a probe compares few keys that are not the right one. The byte is changed only
//! after what it says has become true, or before it stops being true: a panic in a `drop` leaks and does no harm.
//!
//! Not here: probing limits, dirty bits, growth. All functions are safe to call with any index below [`Slots::len`]; a
//! larger one panics.

#![allow(unsafe_code)]

use std::mem::{MaybeUninit, needs_drop};

const EMPTY: u8 = 0;
const USED: u8 = 0x80;
const LIVE: u8 = 0xC0;
const TAG: u8 = 0x3F;

struct Entry<K, V> {
    key: MaybeUninit<K>,
    value: MaybeUninit<V>,
}

/// How many slots of this size lie in one line of the processor's cache, rounded down to a power of two.
const fn run_in_a_line(bytes: usize) -> usize {
    const LINE_BYTES: usize = 64;
    match bytes {
        0 => LINE_BYTES,
        LINE_BYTES.. => 1,
        _ => 1 << (LINE_BYTES / bytes).ilog2(),
    }
}

/// Every so manieth of 64 bits, from the lowest.
const fn every(step: usize) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while at < 64 {
        bits |= 1 << at;
        at += step;
    }
    bits
}

/// A power of two of slots.
pub(super) struct Slots<K, V> {
    controls: Box<[u8]>,
    /// As many as `controls`.
    entries: Box<[Entry<K, V>]>,
}

/// The control byte of a live entry with this hash.
#[inline]
pub(super) fn live_control(hash: u64) -> u8 {
    LIVE | (hash as u8 & TAG)
}

impl<K, V> Slots<K, V> {
    /// `count` empty slots, a power of two and at least 64.
    pub(super) fn new(count: usize) -> Slots<K, V> {
        assert!(count.is_power_of_two() && count >= 64, "{count} slots: not a power of two of at least 64");
        let entries = Box::<[Entry<K, V>]>::new_uninit_slice(count);
        // SAFETY: an `Entry` is two `MaybeUninit`, for which any bytes will do.
        let entries = unsafe { entries.assume_init() };
        Slots { controls: vec![EMPTY; count].into_boxed_slice(), entries }
    }

    /// Number of slots.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.controls.len()
    }

    /// Bytes per slot.
    pub(super) const fn bytes_per_slot() -> usize {
        1 + size_of::<Entry<K, V>>()
    }

    /// From slot `home` on: the slot, live or dead, with the tag of `control` and a key that `is` recognises; or the first
    /// empty one.
    #[inline]
    pub(super) fn find(&self, home: usize, control: u8, is: impl Fn(&K) -> bool) -> Result<usize, usize> {
        let mask = self.controls.len() - 1;
        let mut i = home & mask;
        loop {
            // SAFETY: `i` is below the length, a power of two, because of the mask; there are as many entries as controls.
            let found = unsafe { *self.controls.get_unchecked(i) };
            // A dead slot differs from a live one in one bit only.
            if found | LIVE == control && found != EMPTY {
                // SAFETY: as above; a slot that isn't empty has its key.
                let key = unsafe { self.entries.get_unchecked(i).key.assume_init_ref() };
                if is(key) {
                    return Ok(i);
                }
            }
            if found == EMPTY {
                return Err(i);
            }
            i = (i + 1) & mask;
        }
    }

    /// Asks for the memory of slot `i`, which will be needed soon. Changes nothing.
    #[inline]
    pub(super) fn prefetch(&self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let i = i & (self.controls.len() - 1);
            // SAFETY: a prefetch reads nothing and never faults; the mask keeps the pointers within their arrays.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(self.controls.as_ptr().add(i).cast());
                _mm_prefetch::<_MM_HINT_T0>(self.entries.as_ptr().add(i).cast());
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = i;
    }

    /// Asks for the memory of those of the 64 slots from `64 * word` on whose bit is set: once for each run of slots that lie in one
    /// line of the processor's cache. Changes nothing.
    #[inline]
    pub(super) fn prefetch_word(&self, word: usize, bits: u64) {
        let run = const { run_in_a_line(size_of::<Entry<K, V>>()) };
        let (mut runs, mut width) = (bits, 1);
        while width < run {
            runs |= runs >> width;
            width *= 2;
        }
        runs &= const { every(run_in_a_line(size_of::<Entry<K, V>>())) };
        while runs != 0 {
            self.prefetch(word * 64 + runs.trailing_zeros() as usize);
            runs &= runs - 1;
        }
    }

    #[inline]
    pub(super) fn is_empty(&self, i: usize) -> bool {
        self.controls[i] == EMPTY
    }

    #[inline]
    pub(super) fn is_live(&self, i: usize) -> bool {
        self.controls[i] >= LIVE
    }

    #[inline]
    pub(super) fn is_dead(&self, i: usize) -> bool {
        !self.is_empty(i) && !self.is_live(i)
    }

    /// Key and value; no value in a dead slot.
    #[inline]
    pub(super) fn get(&self, i: usize) -> Option<(&K, Option<&V>)> {
        let control = self.controls[i];
        if control == EMPTY {
            return None;
        }
        let entry = &self.entries[i];
        // SAFETY: not empty, so the key is there; live, so the value is.
        unsafe { Some((entry.key.assume_init_ref(), (control >= LIVE).then(|| entry.value.assume_init_ref()))) }
    }

    /// The value in slot `i`, to be changed.
    ///
    /// # Panics
    /// If it isn't live.
    #[inline]
    pub(super) fn value_mut(&mut self, i: usize) -> &mut V {
        assert!(self.controls[i] >= LIVE, "a value is asked for where there is none");
        // SAFETY: live, so the value is there; there are as many entries as controls.
        unsafe { self.entries.get_unchecked_mut(i).value.assume_init_mut() }
    }

    /// Puts a live entry into slot `i`, whatever was there. `control` is its [`live_control`].
    pub(super) fn put(&mut self, i: usize, control: u8, key: K, value: V) {
        self.clear(i);
        self.entries[i] = Entry { key: MaybeUninit::new(key), value: MaybeUninit::new(value) };
        self.controls[i] = control | LIVE;
    }

    /// Puts a removed key into slot `i`, whatever was there.
    pub(super) fn put_dead(&mut self, i: usize, control: u8, key: K) {
        self.clear(i);
        self.entries[i] = Entry { key: MaybeUninit::new(key), value: MaybeUninit::uninit() };
        self.controls[i] = USED | (control & TAG);
    }

    /// Makes the live slot `i` dead: keeps the key, gives the value back.
    ///
    /// # Panics
    /// If it isn't live.
    pub(super) fn bury(&mut self, i: usize) -> V {
        assert!(self.controls[i] >= LIVE, "only a live slot can die");
        self.controls[i] = USED | (self.controls[i] & TAG);
        // SAFETY: it was live, so the value was there; the control byte no longer says so.
        unsafe { self.entries[i].value.assume_init_read() }
    }

    /// Empties slot `i` and gives back what was there.
    pub(super) fn take(&mut self, i: usize) -> Option<(K, Option<V>)> {
        let was = std::mem::replace(&mut self.controls[i], EMPTY);
        if was == EMPTY {
            return None;
        }
        let entry = &self.entries[i];
        // SAFETY: as the control byte said; it now says that neither is there.
        unsafe { Some((entry.key.assume_init_read(), (was >= LIVE).then(|| entry.value.assume_init_read()))) }
    }

    fn clear(&mut self, i: usize) {
        if needs_drop::<K>() || needs_drop::<V>() {
            drop(self.take(i));
        }
        self.controls[i] = EMPTY;
    }

    /// One bit for each of the 64 slots from `64 * word` on: 1 where there is a live entry.
    #[inline]
    pub(super) fn live_bits(&self, word: usize) -> u64 {
        self.bits(word, 0x40)
    }

    /// One bit for each of the 64 slots from `64 * word` on: 1 where there is a live or a dead one.
    #[inline]
    pub(super) fn used_bits(&self, word: usize) -> u64 {
        self.bits(word, USED)
    }

    /// Gathers one bit of 64 control bytes, eight at a time.
    #[inline]
    fn bits(&self, word: usize, bit: u8) -> u64 {
        // With one bit in each byte, this product collects the eight of them in its highest byte, the first one lowest.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let (eights, _) = self.controls[word * 64..][..64].as_chunks::<8>();
        eights.iter().enumerate().fold(0, |bits, (eighth, controls)| {
            let ones = (u64::from_le_bytes(*controls) >> bit.trailing_zeros()) & 0x0101_0101_0101_0101;
            bits | (ones.wrapping_mul(GATHER) >> 56) << (8 * eighth)
        })
    }
}

impl<K, V> Drop for Slots<K, V> {
    fn drop(&mut self) {
        if needs_drop::<K>() || needs_drop::<V>() {
            for i in 0..self.len() {
                drop(self.take(i));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use cutwater_platform::SplitMix;

    /// Every operation on few slots against a map, with keys and values whose drops are counted: nothing is dropped twice
    /// or forgotten. Under Miri this also shows that nothing uninitialised is read.
    #[test]
    fn slots_hold_exactly_what_was_put_and_drop_it_once() {
        let (keys, values) = (Rc::new(()), Rc::new(()));
        let mut slots: Slots<(u64, Rc<()>), (String, Rc<()>)> = Slots::new(64);
        let mut model: BTreeMap<usize, (u64, Option<String>)> = BTreeMap::new();
        let mut random = SplitMix::new(1);
        for step in 0..if cfg!(miri) { 300 } else { 20_000u64 } {
            let i = random.below(64) as usize;
            match random.below(5) {
                0 | 1 => {
                    let value = format!("value {step}");
                    slots.put(i, live_control(step), (step, keys.clone()), (value.clone(), values.clone()));
                    model.insert(i, (step, Some(value)));
                }
                2 => {
                    slots.put_dead(i, live_control(step), (step, keys.clone()));
                    model.insert(i, (step, None));
                }
                3 if slots.is_live(i) => {
                    let buried = slots.bury(i).0;
                    assert_eq!(model.get_mut(&i).and_then(|entry| entry.1.take()), Some(buried));
                }
                _ => {
                    let taken = slots.take(i).map(|(key, value)| (key.0, value.map(|v| v.0)));
                    assert_eq!(taken, model.remove(&i));
                }
            }
            let live = model.iter().filter(|(_, entry)| entry.1.is_some());
            assert_eq!(slots.live_bits(0), live.clone().fold(0, |bits, (i, _)| bits | 1 << i));
            assert_eq!(slots.used_bits(0), model.keys().fold(0, |bits, i| bits | 1 << i));
            assert_eq!((Rc::strong_count(&keys), Rc::strong_count(&values)), (1 + model.len(), 1 + live.count()));
            if let Some((&i, (key, value))) = model.iter().next() {
                let got = slots.get(i).map(|(k, v)| (k.0, v.map(|v| v.0.clone())));
                assert_eq!(got, Some((*key, value.clone())));
                assert_eq!(
                    (slots.is_live(i), slots.is_dead(i), slots.is_empty(i)),
                    (value.is_some(), value.is_none(), false)
                );
                if let Some(value) = value {
                    assert_eq!(&slots.value_mut(i).0, value);
                }
            }
        }
        drop(slots);
        assert_eq!((Rc::strong_count(&keys), Rc::strong_count(&values)), (1, 1));
    }

    #[test]
    fn a_probe_finds_live_and_dead_keys_and_else_the_first_empty_slot() {
        let mut slots: Slots<u64, u64> = Slots::new(64);
        for (i, key) in [(62, 1), (63, 2), (0, 3)] {
            slots.put(i, live_control(key), key, key * 10);
        }
        slots.bury(63);
        let find = |key: u64| slots.find(62, live_control(key), |k| *k == key);
        assert_eq!((find(1), find(2), find(3)), (Ok(62), Ok(63), Ok(0)));
        assert_eq!((find(4), find(1 + 64)), (Err(1), Err(1)), "another tag; the same tag and another key");
    }

    #[test]
    fn slots_that_share_a_line_are_asked_for_once() {
        assert_eq!([0, 1, 16, 24, 32, 48, 64, 100].map(run_in_a_line), [64, 64, 4, 2, 2, 1, 1, 1]);
        assert_eq!([1, 2, 4, 64].map(every), [u64::MAX, 0x5555_5555_5555_5555, 0x1111_1111_1111_1111, 1]);
        let slots: Slots<u64, u64> = Slots::new(64);
        for bits in [0, 1, u64::MAX, 1 << 63, 0x8000_0000_0001_0000] {
            // Nothing to be seen but that it ends and touches nothing it may not.
            slots.prefetch_word(0, bits);
        }
    }

    #[test]
    #[should_panic(expected = "where there is none")]
    fn a_dead_slot_has_no_value() {
        let mut slots: Slots<u64, u64> = Slots::new(64);
        slots.put_dead(5, live_control(1), 1);
        slots.value_mut(5);
    }
}
