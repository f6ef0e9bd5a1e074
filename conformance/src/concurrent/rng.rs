//! The random choices of the clients.

use larder_kernel::random::{Random, seed_of};

/// A random number generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(Random);

impl Rng {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// Returns the seed of one trial, derived from the run's seed, the subject, and the trial's number.
    pub(crate) fn seed_of(seed: u64, subject: &str, trial: u64) -> u64 {
        let name = [subject.as_bytes(), &trial.to_le_bytes()].concat();
        Random::new(seed_of(seed, &name)).draw()
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
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
