//! Randomness: from the operating system for identifiers, from a seed for everything that must be replayed.

use std::fmt;
use std::sync::Mutex;

/// Where random numbers come from.
pub trait Random: Send + Sync + fmt::Debug {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The operating system's generator.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsRandom;

impl Random for OsRandom {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0u8; 8];
        // Eight bytes always come whole once the pool is ready, and getrandom waits for that.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .expect("the kernel gives randomness");
        u64::from_le_bytes(bytes)
    }
}

/// A small seeded generator (SplitMix64, Steele, Lea and Flood 2014): the same seed gives the same run.
///
/// ```
/// use cutwater_platform::SplitMix;
/// let (mut a, mut b) = (SplitMix::new(7), SplitMix::new(7));
/// assert_eq!(a.next(), b.next());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Debug, Clone)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A generator for `seed`.
    pub const fn new(seed: u64) -> SplitMix {
        SplitMix { state: seed }
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless generator is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A seeded generator behind a lock, as a [`Random`] for tests.
#[derive(Debug)]
pub struct Seeded(Mutex<SplitMix>);

impl Seeded {
    /// A source for `seed`.
    pub fn new(seed: u64) -> Seeded {
        Seeded(Mutex::new(SplitMix::new(seed)))
    }
}

impl Random for Seeded {
    fn next_u64(&self) -> u64 {
        self.0.lock().expect("no panic while drawing").next()
    }
}
