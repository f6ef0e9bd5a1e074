//! The random numbers that a script is drawn from, and the ids that it uses.

use std::sync::{Arc, LazyLock};

use larder_kernel::random;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The maximum number of operations of a script.
const OPERATIONS_MAX: usize = 100;
/// The number of draws for an operation.
const DRAWS: usize = 16;

/// The numbers of one operation.
pub(super) type Draws = [u16; DRAWS];

/// A script: its family of ids, and the numbers of its operations.
///
/// An operation depends only on its numbers, and small numbers make simple operations. So proptest can shrink
/// a script of any contract: it removes operations and reduces numbers.
#[derive(Debug, Clone)]
pub(super) struct DrawnScript {
    pub(super) family: u16,
    pub(super) draws: Vec<Draws>,
}

/// Returns the strategy for all scripts.
pub(super) fn draws() -> impl Strategy<Value = DrawnScript> {
    (any::<u16>(), vec(any::<Draws>(), 1..=OPERATIONS_MAX))
        .prop_map(|(family, draws)| DrawnScript { family, draws })
}

/// Returns the test runner that draws the script of a seed.
pub(super) fn runner(seed: u64, config: Config) -> TestRunner {
    let mut bytes = [0; 32];
    for (place, chunk) in (0_u64..).zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&mixed(&[seed, place]).to_le_bytes());
    }
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Returns the script of a seed.
pub(super) fn draw(seed: u64) -> DrawnScript {
    let config = Config { failure_persistence: None, ..Config::default() };
    match draws().new_tree(&mut runner(seed, config)) {
        Ok(tree) => tree.current(),
        // Unreachable: the strategy rejects no value.
        Err(_) => DrawnScript { family: 0, draws: Vec::new() },
    }
}

/// Mixes several numbers into one.
pub(super) fn mixed(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| random::at(state ^ number, 1))
}

/// Hashes a text by FNV-1a.
pub(super) fn of_text(text: &str) -> u64 {
    random::seed_of(0, text.as_bytes())
}

/// The numbers of an operation, consumed one after another.
#[derive(Debug)]
pub(super) struct Rng<'a> {
    draws: &'a [u16],
    next: usize,
    /// The ids of the script.
    pub(super) ids: &'a Palette,
}

impl<'a> Rng<'a> {
    pub(super) fn new(draws: &'a Draws, ids: &'a Palette) -> Self {
        Self { draws, next: 0, ids }
    }

    /// Returns a number below `count`; smaller draws give smaller numbers.
    pub(super) fn below(&mut self, count: usize) -> usize {
        let drawn = self.draws.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        (usize::from(drawn) * count) >> 16
    }

    /// Returns one of the choices; the first is the simplest.
    pub(super) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// Returns `true` with a probability of 1 in `count`.
    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) + 1 == count && count > 1
    }

    /// Returns the last number as a boolean.
    pub(super) fn last(&self) -> bool {
        self.draws.last().is_some_and(|drawn| *drawn >= 1 << 15)
    }

    /// Returns one of the script's ids.
    pub(super) fn id(&mut self) -> Arc<str> {
        let index = self.below(self.ids.0.len());
        Arc::clone(&self.ids.0[index])
    }

    /// Draws an operation by weight and returns the index of the choice.
    pub(super) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}

/// Unwraps a value that a draw makes from valid parts.
pub(super) fn valid<T>(made: larder_kernel::Result<T>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => unreachable!("the draw made something that the kernel refuses: {error}"),
    }
}

/// The four ids that a script uses.
#[derive(Debug, Clone)]
pub(super) struct Palette(pub(super) [Arc<str>; 4]);

/// Ids that some backend might confuse or misinterpret; the first are the simplest.
const FAMILIES: &[[&str; 4]] = &[
    ["a", "b", "c", "d"],
    ["a", "A", "aA", "AA"],
    ["a", "ab", "abc", "b"],
    ["a", "a:b", "b", "b:a"],
    ["a", "a/b", "b", "b/a"],
    ["a/b", "a%2Fb", "a%2fb", "a\\b"],
    ["a", "a/b/c", "a/bc", "a/b c"],
    ["a", "a.meta", "a.tmp", ".a"],
    ["é", "e\u{301}", "É", "e"],
    ["ﬁ", "fi", "ß", "ss"],
    ["%", "%25", "a%", "a%41"],
    ["*", "a*", "?", "[a]"],
    ["_", "a_", "ab", "%"],
    ["{a}", "a{b}", "{}", "{{a}}"],
    ["'", "\"", "`", "''"],
    ["\\", "\\\\", "a\\b", "\\n"],
    [" ", "  ", "a ", "a"],
    ["\n", "\r\n", "\t", "\u{1}"],
    ["$$", "$1", ":a", "@a"],
    // Their order in UTF-8 differs from their order in UTF-16.
    ["\u{1f980}", "\u{fffd}", "\u{10ffff}", "\u{7f}"],
    ["1", "01", "1.0", "-1"],
    ["a.b", "a,b", "a;b", "a|b"],
    ["null", "NULL", "true", "0"],
    ["\u{200b}", "\u{feff}", "\u{feff}a", "a"],
    ["a#b", "a?b", "a&b", "a=b"],
    ["default", "__proto__", "id", "$id"],
];

static ALL: LazyLock<Vec<Palette>> = LazyLock::new(|| {
    let short = FAMILIES.iter().map(|family| family.map(Arc::from)).map(Palette);
    let long = [
        [format!("{}a", "x".repeat(511)), format!("{}A", "x".repeat(511)), "x".repeat(511), "x".repeat(512)],
        // The longest keys that every blob store keeps.
        [format!("{}a", "x".repeat(47)), format!("{}A", "x".repeat(47)), "x".repeat(47), "x".repeat(48)],
        [format!("{}é", "é".repeat(255)), "é".repeat(255), format!("{}e", "é".repeat(255)), "é".to_owned()],
        ["/a".repeat(255), "a/".repeat(255) + "a", "a/".repeat(255) + "b", "a".to_owned()],
    ];
    short.chain(long.map(|family| Palette(family.map(Arc::from)))).collect()
});

impl Palette {
    /// Returns the ids of a script. Plain ids replace the ids that the contract rejects.
    pub(super) fn of(family: u16, allowed: impl Fn(&str) -> bool) -> Self {
        let chosen = &ALL[(usize::from(family) * ALL.len()) >> 16];
        let mut index = 0;
        Self(chosen.0.clone().map(|id| {
            index += 1;
            if allowed(&id) { id } else { Arc::clone(&ALL[0].0[index - 1]) }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_script_again_and_another_seed_another() {
        let one = draw(7);
        assert_eq!((one.family, one.draws.clone()), (draw(7).family, draw(7).draws));
        assert_ne!(one.draws, draw(8).draws);
        assert!((1..=OPERATIONS_MAX).contains(&one.draws.len()));
    }

    #[test]
    fn the_ids_of_a_script_are_four_different_ones() {
        for palette in ALL.iter() {
            let mut ids = palette.0.to_vec();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 4, "{palette:?}");
            for id in ids {
                assert!(larder_kernel::Key::new(&id).is_ok(), "{id:?}");
            }
        }
    }
}
