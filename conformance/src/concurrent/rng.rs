//! Pseudorandom numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014).

/// A random number generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the seed of one trial, derived from the run's seed, the subject, and the trial's number.
    pub(crate) fn seed_of(seed: u64, subject: &str, trial: u64) -> u64 {
        let start = seed ^ 0xcbf2_9ce4_8422_2325;
        let hash = subject.bytes().chain(trial.to_le_bytes()).fold(start, |hash, byte| {
            // FNV-1a.
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash).next()
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u8) -> u8 {
        u8::try_from(self.next() % u64::from(bound)).unwrap_or(0)
    }

    /// Returns `true` with this probability in percent.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < percent
    }

    /// Returns one of several items.
    pub(crate) fn of<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let index = self.next() % u64::try_from(items.len().max(1)).unwrap_or(1);
        items.get(usize::try_from(index).unwrap_or(0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_have_separate_and_stable_seeds() {
        let seeds: std::collections::BTreeSet<u64> = ["history", "blobs"]
            .into_iter()
            .flat_map(|subject| (0..500).map(move |trial| Rng::seed_of(1, subject, trial)))
            .collect();
        assert_eq!(seeds.len(), 1_000);
        assert_eq!(Rng::seed_of(1, "history", 7), Rng::seed_of(1, "history", 7));
        let mut rng = Rng::new(1);
        assert!((0..1_000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.of::<u8>(&[]), None);
    }
}
