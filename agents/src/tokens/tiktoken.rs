//! Exact token counts from the published byte-pair encodings.

use std::collections::HashSet;
use std::sync::LazyLock;

use bpe_openai::Tokenizer;
use larder_kernel::check;
use rustc_hash::FxBuildHasher;

use super::{Encoding, TokenCounter, encoding_of};

/// Counts tokens as OpenAI models do.
///
/// The time is linear in the length of the text, for any content. The first count in a process loads the
/// vocabulary, which takes some tenths of a second. All counters of an encoding share it.
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
    /// Creates a counter for this encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding }
    }

    /// Creates a counter for this model. Returns `None` if its encoding is unknown.
    #[must_use]
    pub fn for_model(model: &str) -> Option<Self> {
        encoding_of(model).map(Self::new)
    }

    fn vocabulary(self) -> &'static Vocabulary {
        static O200K: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::of(bpe_openai::o200k_base()));
        static CL100K: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::of(bpe_openai::cl100k_base()));
        match self.encoding {
            Encoding::O200k => &O200K,
            Encoding::Cl100k => &CL100K,
        }
    }
}

/// An encoding, and the bytes of each of its tokens.
///
/// About 95% of the pieces of prose and source code are single tokens. One lookup finds them; searching for
/// the tokens of a piece takes five times as long.
struct Vocabulary {
    tokenizer: &'static Tokenizer,
    tokens: HashSet<&'static [u8], FxBuildHasher>,
}

impl Vocabulary {
    fn of(tokenizer: &'static Tokenizer) -> Self {
        let numbers = 0..u32::try_from(tokenizer.bpe.num_tokens()).unwrap_or(u32::MAX);
        Self { tokenizer, tokens: numbers.map(|number| tokenizer.bpe.token_bytes(number)).collect() }
    }

    /// Counts each piece separately. A piece that is a token needs no search.
    fn count(&self, text: &str) -> usize {
        let pieces = self.tokenizer.split(text).map(str::as_bytes);
        pieces
            .map(|piece| if self.tokens.contains(piece) { 1 } else { self.tokenizer.bpe.count(piece) })
            .sum()
    }
}

impl TokenCounter for TiktokenCounter {
    fn name(&self) -> &str {
        self.encoding.as_str()
    }

    /// Counts the names of special tokens as ordinary text.
    fn count(&self, text: &str) -> u64 {
        check::size(self.vocabulary().count(text))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::tokens::EstimatedTokenCounter;

    fn counter() -> TiktokenCounter {
        TiktokenCounter::new(Encoding::O200k)
    }

    /// Compares both encodings with the reference algorithm.
    fn same_as_the_reference(text: &str) {
        for (encoding, reference) in [
            (Encoding::O200k, tiktoken_rs::o200k_base_singleton()),
            (Encoding::Cl100k, tiktoken_rs::cl100k_base_singleton()),
        ] {
            let tokens = reference.encode_ordinary(text).len();
            assert_eq!(TiktokenCounter::new(encoding).count(text), check::size(tokens), "{text:?}");
        }
    }

    #[test]
    fn counts_are_those_of_the_encodings() {
        for text in [
            "",
            " ",
            "\n",
            "Antidisestablishmentarianism: 12345 🦀 <|endoftext|>",
            "it's IT'S they'LL  we'd\u{2019}ve  CamelCaseWORDs ÉCOLE 1234567",
            "  two  spaces\r\n\r\n\ttabs\u{a0}\u{3000}and\u{2028}lines \n \n  ",
            "Привет, как дела? 你好，世界！ こんにちは นี่คือข้อความ हिन्दी में पाठ العربية עברית",
            "e\u{301}e\u{300} 👩‍👩‍👧‍👦🇩🇪 ǅ ʼn ß ﬁ Ⅻ ½ ٣٤٥",
            "https://example.org/a?b=c&d=%20#e {\"key\": [1, 2.5e-10, null]} //--==>>",
        ] {
            same_as_the_reference(text);
            same_as_the_reference(&format!("{text} {text}\n{text}"));
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in
            ["src/tokens/tiktoken.rs", "src/tokens/sample.txt", "README.md", "Cargo.toml", "../CONTRACT.md"]
        {
            same_as_the_reference(&std::fs::read_to_string(root.join(file)).unwrap());
        }
        for unit in [" ", "a", "-", "\n", "7", " \n", "é", "🦀"] {
            same_as_the_reference(&unit.repeat(1_000));
        }
        assert_eq!(TiktokenCounter::for_model("gpt-4").unwrap().name(), "cl100k_base");
        assert_eq!(TiktokenCounter::for_model("claude-3-opus"), None);
    }

    #[test]
    fn every_text_can_be_counted() {
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
