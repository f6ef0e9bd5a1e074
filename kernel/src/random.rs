//! Pseudorandom numbers that a seed reproduces: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
//!
//! They choose the inputs of tests and the samples of an index. They are not for secrets.

/// The distance between two states.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a state into the number that the generator returns for it.
#[must_use]
pub const fn mix(state: u64) -> u64 {
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the number at an index of the sequence of a seed.
#[must_use]
pub const fn at(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(index.wrapping_mul(GAMMA)))
}

/// Returns a seed for a name: FNV-1a, started from another seed.
#[must_use]
pub fn seed_of(seed: u64, name: &[u8]) -> u64 {
    name.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A generator of pseudorandom numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.draw() % bound).unwrap_or_default()
    }

    /// Returns `true` with a probability of 1 in `count`.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns one of the items.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
