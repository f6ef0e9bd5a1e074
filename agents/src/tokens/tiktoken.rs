//! Exact counts by the published byte-pair encodings.

use larder_kernel::check;
use tiktoken_rs::CoreBPE;

use super::{Encoding, TokenCounter, encoding_of};

/// Longest text that the encoder is given at a time. Its expression looks for the longest match from every place, so
/// that a run of millions of spaces would take very long or exceed its limit.
const PIECE_BYTES: usize = 64 * 1024;

/// Counts tokens as the models of OpenAI do.
///
/// The first count of a process reads the vocabulary, some tenths of a second; all counters of an encoding share it.
///
/// ```
/// use larder_agents::tokens::{TiktokenCounter, TokenCounter};
///
/// let counter = TiktokenCounter::for_model("gpt-4o-mini").unwrap();
/// assert_eq!(counter.count("Hello world, how are you?"), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TiktokenCounter {
    encoding: Encoding,
}

impl TiktokenCounter {
    /// Counts in this encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding }
    }

    /// Counts as this model does; `None` where its encoding is not known.
    #[must_use]
    pub fn for_model(model: &str) -> Option<Self> {
        encoding_of(model).map(Self::new)
    }

    fn vocabulary(self) -> &'static CoreBPE {
        match self.encoding {
            Encoding::O200k => tiktoken_rs::o200k_base_singleton(),
            Encoding::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        }
    }
}

impl TokenCounter for TiktokenCounter {
    fn name(&self) -> &str {
        self.encoding.as_str()
    }

    /// The names of special tokens in the text are text.
    fn count(&self, text: &str) -> u64 {
        let vocabulary = self.vocabulary();
        pieces(text).map(|piece| check::size(vocabulary.count_ordinary(piece))).sum()
    }
}

/// Cuts a long text where both encodings begin a new token whatever follows: between a letter or a digit and a space
/// with a letter behind it. Only where a piece has no such place is it cut anywhere, which may cost a token more.
fn pieces(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(if rest.len() <= PIECE_BYTES { rest.len() } else { cut(rest) });
        rest = after;
        Some(piece)
    })
}

fn cut(text: &str) -> usize {
    let window = &text.as_bytes()[..PIECE_BYTES];
    let begins = |at: &usize| {
        window[*at] == b' ' && window[at - 1].is_ascii_alphanumeric() && window[at + 1].is_ascii_alphabetic()
    };
    (1..PIECE_BYTES - 1).rev().find(begins).unwrap_or_else(|| text.floor_char_boundary(PIECE_BYTES))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::tokens::EstimatedTokenCounter;

    fn counter() -> TiktokenCounter {
        TiktokenCounter::new(Encoding::O200k)
    }

    #[test]
    fn counts_are_those_of_the_encodings() {
        let text = "Antidisestablishmentarianism: 12345 🦀 <|endoftext|>";
        for (encoding, tokens) in [
            (Encoding::O200k, tiktoken_rs::o200k_base().unwrap().encode_ordinary(text).len()),
            (Encoding::Cl100k, tiktoken_rs::cl100k_base().unwrap().encode_ordinary(text).len()),
        ] {
            assert_eq!(TiktokenCounter::new(encoding).count(text), check::size(tokens));
        }
        assert_eq!(TiktokenCounter::for_model("gpt-4").unwrap().name(), "cl100k_base");
        assert_eq!(TiktokenCounter::for_model("claude-3-opus"), None);
    }

    #[test]
    fn a_text_of_many_pieces_counts_as_one() {
        let text = include_str!("estimate.rs").repeat(20);
        assert!(pieces(&text).count() > 1);
        let whole = tiktoken_rs::o200k_base_singleton().count_ordinary(&text);
        assert_eq!(counter().count(&text), check::size(whole));
    }

    #[test]
    fn no_text_is_too_odd_to_count() {
        for unit in [" ", "a", "-", "\n", "7", " \n", "é", "🦀"] {
            assert!(counter().count(&unit.repeat(300_000 / unit.len())) > 0, "{unit:?}");
        }
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// The estimate stays within a tenth of the encoding over source code and over a conversation.
    #[test]
    fn the_estimate_is_within_a_tenth_of_the_exact_count() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut paths = Vec::new();
        sources(&root.join("agents/src"), &mut paths);
        sources(&root.join("kernel/src"), &mut paths);
        let (mut exact, mut estimated) = (0, 0);
        for path in paths {
            let text = std::fs::read_to_string(&path).unwrap();
            let one = (counter().count(&text), EstimatedTokenCounter.count(&text));
            assert!(one.0 < 500 || one.1.abs_diff(one.0) * 100 <= one.0 * 15, "{}: {one:?}", path.display());
            (exact, estimated) = (exact + one.0, estimated + one.1);
        }
        assert!(estimated.abs_diff(exact) * 20 <= exact, "sources: {estimated} for {exact}");

        let chat = include_str!("sample.txt");
        let (exact, estimated) = (counter().count(chat), EstimatedTokenCounter.count(chat));
        assert!(exact > 300);
        assert!(estimated.abs_diff(exact) * 10 <= exact, "chat: {estimated} for {exact}");
    }
}
