//! Model names, with the context size and the encoding of each known model.

/// A published byte-pair encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// `o200k_base`: OpenAI models since GPT-4o.
    O200k,
    /// `cl100k_base`: GPT-4, GPT-3.5 and the embedding models of OpenAI.
    Cl100k,
}

impl Encoding {
    /// Returns the encoding's published name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
        }
    }
}

struct Family {
    /// The prefix of the family's names. It must end at a word boundary of the name.
    name: &'static str,
    context_tokens: u64,
    encoding: Option<Encoding>,
}

const fn o200k(name: &'static str, context_tokens: u64) -> Family {
    Family { name, context_tokens, encoding: Some(Encoding::O200k) }
}

const fn cl100k(name: &'static str, context_tokens: u64) -> Family {
    Family { name, context_tokens, encoding: Some(Encoding::Cl100k) }
}

const fn other(name: &'static str, context_tokens: u64) -> Family {
    Family { name, context_tokens, encoding: None }
}

/// The longest matching name applies. The number is the published size of the whole context, including the
/// output. If a family has several sizes, the smallest is listed.
const FAMILIES: &[Family] = &[
    // OpenAI
    o200k("gpt-5", 400_000),
    o200k("gpt-5-chat", 128_000),
    o200k("gpt-5.1", 400_000),
    o200k("gpt-5.1-chat", 128_000),
    o200k("gpt-5.2", 400_000),
    o200k("gpt-5.2-chat", 128_000),
    o200k("gpt-4.5", 128_000),
    o200k("gpt-4.1", 1_047_576),
    o200k("gpt-4o", 128_000),
    o200k("chatgpt-4o", 128_000),
    o200k("gpt-oss", 131_072),
    o200k("o1", 200_000),
    o200k("o1-mini", 128_000),
    o200k("o1-preview", 128_000),
    o200k("o3", 200_000),
    o200k("o4-mini", 200_000),
    cl100k("gpt-4", 8_192),
    cl100k("gpt-4-32k", 32_768),
    cl100k("gpt-4-turbo", 128_000),
    cl100k("gpt-4-1106", 128_000),
    cl100k("gpt-4-0125", 128_000),
    cl100k("gpt-4-vision", 128_000),
    cl100k("gpt-3.5-turbo", 16_385),
    cl100k("gpt-35-turbo", 16_385),
    cl100k("gpt-3.5-turbo-0613", 4_096),
    cl100k("gpt-3.5-turbo-instruct", 4_096),
    cl100k("text-embedding-3", 8_191),
    cl100k("text-embedding-ada-002", 8_191),
    // Anthropic
    other("claude", 200_000),
    other("claude-2", 100_000),
    other("claude-2.0", 100_000),
    other("claude-2.1", 200_000),
    other("claude-instant", 100_000),
    // Google
    other("gemini-1.0-pro", 32_760),
    other("gemini-1.5-flash", 1_048_576),
    other("gemini-1.5-pro", 2_097_152),
    other("gemini-2.0-flash", 1_048_576),
    other("gemini-2.5-flash", 1_048_576),
    other("gemini-2.5-pro", 1_048_576),
    other("gemini-3-pro", 1_048_576),
    other("gemma-2", 8_192),
    other("gemma2", 8_192),
    other("gemma-3", 131_072),
    other("gemma3", 131_072),
    other("gemma-3-1b", 32_768),
    other("gemma3:1b", 32_768),
    // Meta
    other("llama-2", 4_096),
    other("llama2", 4_096),
    other("llama-3", 8_192),
    other("meta-llama-3", 8_192),
    other("llama3", 8_192),
    other("llama-3.1", 131_072),
    other("meta-llama-3.1", 131_072),
    other("llama3.1", 131_072),
    other("llama-3.2", 131_072),
    other("llama3.2", 131_072),
    other("llama-3.3", 131_072),
    other("llama3.3", 131_072),
    other("llama-4-maverick", 1_048_576),
    other("llama-4-scout", 10_485_760),
    // Mistral
    other("mistral", 32_768),
    other("mistral-7b", 32_768),
    other("mistral-large", 131_072),
    other("mistral-medium", 131_072),
    other("mistral-nemo", 131_072),
    other("ministral", 131_072),
    other("mixtral-8x7b", 32_768),
    other("mixtral-8x22b", 65_536),
    other("codestral", 32_768),
    other("devstral", 131_072),
    // Alibaba, DeepSeek, Cohere, xAI, Microsoft
    other("qwen2", 32_768),
    other("qwen2.5", 32_768),
    other("qwen3", 32_768),
    other("deepseek-chat", 131_072),
    other("deepseek-reasoner", 131_072),
    other("deepseek-v3", 131_072),
    other("deepseek-v3.1", 131_072),
    other("deepseek-v3.2", 131_072),
    other("deepseek-r1", 131_072),
    other("command-r", 128_000),
    other("command-r-plus", 128_000),
    other("command-r7b", 128_000),
    other("command-a", 256_000),
    other("grok-2", 131_072),
    other("grok-3", 131_072),
    other("grok-4", 256_000),
    other("phi-4", 16_384),
    other("phi4", 16_384),
];

/// Returns the context size of a model, input and output together, if the model is known.
///
/// Names may have the forms that providers and routers use. They match in any case, with a vendor prefix
/// (`openai/gpt-4o`, `us.anthropic.claude-sonnet-4-5`) and with a date, size or tag suffix
/// (`gpt-4o-2024-08-06`, `llama3.1:8b`). Names of fine-tuned models (`ft:gpt-4o-mini:team`) match too. An
/// unknown name returns `None`, never a guess.
///
/// ```
/// use larder_agents::tokens::context_tokens_of;
///
/// assert_eq!(context_tokens_of("gpt-4o-mini"), Some(128_000));
/// assert_eq!(context_tokens_of("anthropic/claude-sonnet-4.5"), Some(200_000));
/// assert_eq!(context_tokens_of("a-model-of-our-own"), None);
/// ```
#[must_use]
pub fn context_tokens_of(model: &str) -> Option<u64> {
    family_of(model).map(|family| family.context_tokens)
}

/// Returns the encoding of a model, if it is known and published as a byte-pair encoding.
#[must_use]
pub fn encoding_of(model: &str) -> Option<Encoding> {
    family_of(model)?.encoding
}

fn family_of(model: &str) -> Option<&'static Family> {
    let model = model.trim().to_ascii_lowercase();
    let name = model.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix("ft:").unwrap_or(name);
    // Cloud routers add a region and the vendor as a prefix, with dots. Versions have dots too, but between
    // digits.
    let name = ["anthropic.", "meta.", "mistral.", "cohere.", "deepseek.", "openai."]
        .iter()
        .find_map(|maker| name.find(maker).map(|at| &name[at + maker.len()..]))
        .unwrap_or(name);
    FAMILIES.iter().filter(|family| belongs(name, family.name)).max_by_key(|family| family.name.len())
}

/// Returns `true` if `name` begins with the family's name and the word ends there, so that `gpt-4` does not
/// match `gpt-4.9`.
fn belongs(name: &str, family: &str) -> bool {
    name.strip_prefix(family)
        .is_some_and(|rest| matches!(rest.chars().next(), None | Some('-' | ':' | '@' | '_')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: RAVI-11
    #[test]
    fn a_models_context_is_found_by_its_provider_names() {
        for (name, tokens) in [
            ("gpt-4", Some(8_192)),
            ("gpt-4-0613", Some(8_192)),
            ("gpt-4-turbo-2024-04-09", Some(128_000)),
            ("GPT-4o", Some(128_000)),
            ("openai/gpt-4.1-nano", Some(1_047_576)),
            ("ft:gpt-4o-mini-2024-07-18:team::id", Some(128_000)),
            ("o1-mini", Some(128_000)),
            ("o3", Some(200_000)),
            ("claude-3-5-sonnet-20241022", Some(200_000)),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Some(200_000)),
            ("claude-2.0", Some(100_000)),
            ("models/gemini-2.5-pro", Some(1_048_576)),
            ("meta-llama/Llama-3.1-8B-Instruct", Some(131_072)),
            ("meta-llama/Meta-Llama-3-8B", Some(8_192)),
            ("llama3.2:1b", Some(131_072)),
            ("gpt-4.9", None),
            ("gpt-40", None),
            ("o3000", None),
            ("", None),
            ("my-own-model", None),
        ] {
            assert_eq!(context_tokens_of(name), tokens, "{name}");
        }
    }

    #[test]
    fn only_published_encodings_are_named() {
        assert_eq!(encoding_of("gpt-4o-mini"), Some(Encoding::O200k));
        assert_eq!(encoding_of("gpt-5.1"), Some(Encoding::O200k));
        assert_eq!(encoding_of("gpt-4-turbo"), Some(Encoding::Cl100k));
        assert_eq!(encoding_of("text-embedding-3-small"), Some(Encoding::Cl100k));
        assert_eq!(encoding_of("claude-3-opus"), None);
    }

    #[test]
    fn every_family_is_in_the_table_once() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
