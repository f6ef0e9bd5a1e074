//! Exact token counts from a model's own tokenizer.

use std::fmt;

use larder_kernel::{Error, Result, check};
use tokenizers::Tokenizer;

use super::{EstimatedTokenCounter, TokenCounter};

/// Counts tokens with a `tokenizer.json` file, as published with models on Hugging Face.
///
/// ```no_run
/// use larder_agents::tokens::{HuggingFaceCounter, TokenCounter};
///
/// let json = std::fs::read("models/Qwen3-8B/tokenizer.json").expect("a tokenizer");
/// let counter = HuggingFaceCounter::from_json("qwen3", &json)?;
/// assert!(counter.count("Hello") > 0);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone)]
pub struct HuggingFaceCounter {
    name: String,
    tokenizer: Tokenizer,
}

impl HuggingFaceCounter {
    /// Reads the JSON of a tokenizer. `name` is used in logs and explanations.
    ///
    /// # Errors
    /// `InvalidInput` with `tokenizer` if the JSON is not a tokenizer.
    pub fn from_json(name: impl Into<String>, json: &[u8]) -> Result<Self> {
        let tokenizer = Tokenizer::from_bytes(json)
            .map_err(|_| Error::invalid("tokens.huggingface", "tokenizer", "not a tokenizer.json"))?;
        Ok(Self { name: name.into(), tokenizer })
    }
}

impl fmt::Debug for HuggingFaceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HuggingFaceCounter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TokenCounter for HuggingFaceCounter {
    fn name(&self) -> &str {
        &self.name
    }

    /// Counts without special tokens. If the tokenizer rejects a text, the count is an estimate. An example
    /// is an unknown character, for a vocabulary without a token for it.
    fn count(&self, text: &str) -> u64 {
        let encoded = self.tokenizer.encode_fast(text, false);
        encoded.map_or_else(|_| EstimatedTokenCounter.count(text), |encoded| check::size(encoded.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"{
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {
            "type": "WordLevel", "vocab": {"[UNK]": 0, "hello": 1, "world": 2, "!": 3}, "unk_token": "[UNK]"
        }
    }"#;

    #[test]
    fn a_tokenizer_of_words_counts_words() {
        let counter = HuggingFaceCounter::from_json("words", WORDS.as_bytes()).unwrap();
        assert_eq!((counter.count("hello world!"), counter.count("hello you"), counter.count("")), (3, 2, 0));
        assert_eq!(counter.name(), "words");
        let error = HuggingFaceCounter::from_json("broken", b"{").unwrap_err();
        assert_eq!(error.field(), Some("tokenizer"));
    }
}
