//! Models and embedders with the OpenAI HTTP API.

mod config;
mod transport;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use larder_kernel::{
    ChatMessage, Embedder, Embedding, ErrorKind, LanguageModel, LanguageModelRequest, Result, check, limits,
};

pub use config::{OpenAiConfig, OutputLimitField};

use transport::{Transport, failure};
use wire::{ChatResponse, EmbeddingRequest, EmbeddingResponse};

const GENERATE: &str = "model.generate";
const EMBED: &str = "embedder.embed";

/// The token counts that a server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// The tokens of the conversation.
    pub input_tokens: u64,
    /// The tokens of the answer.
    pub output_tokens: u64,
}

/// The reason that a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The answer was cut off at the token limit.
    Length,
    /// The model requests tool calls.
    ToolCalls,
    /// A filter withheld the answer.
    Refused,
    /// The server reported no reason, or another one.
    Other,
}

impl FinishReason {
    fn parse(word: Option<&str>) -> Self {
        match word {
            Some("stop") => Self::Stop,
            Some("length") => Self::Length,
            Some("tool_calls" | "function_call") => Self::ToolCalls,
            Some("content_filter") => Self::Refused,
            _ => Self::Other,
        }
    }
}

/// A model's answer with the data that the server reports about it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Completion {
    /// The answer.
    pub message: ChatMessage,
    /// The reason that the model stopped.
    pub finish: FinishReason,
    /// The token counts; 0 if the server does not report them.
    pub usage: Usage,
}

/// A language model on an OpenAI-compatible server.
///
/// If the server is busy or unavailable (429, 5xx, a broken connection), the call is retried after a pause.
/// The server may request the length of the pause. An answer that was cut off has
/// [`FINISH_REASON`](crate::model::FINISH_REASON) in its metadata.
///
/// ```
/// use larder_agents::model::{OpenAiConfig, OpenAiModel};
/// use larder_kernel::LanguageModel;
///
/// let config = OpenAiConfig::new("https://api.example.com/v1", "small").with_api_key("secret");
/// let model = OpenAiModel::new(config)?;
/// assert_eq!(model.name(), "small");
/// # Ok::<(), larder_kernel::Error>(())
/// ```
pub struct OpenAiModel {
    config: OpenAiConfig,
    transport: Transport,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
}

impl fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl OpenAiModel {
    /// Creates a client. It connects at the first call.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting.
    pub fn new(config: OpenAiConfig) -> Result<Self> {
        let transport = Transport::new(&config, "chat/completions")?;
        Ok(Self { config, transport, input_tokens: AtomicU64::new(0), output_tokens: AtomicU64::new(0) })
    }

    /// Returns the model's answer to a conversation, with its token counts.
    ///
    /// # Errors
    /// `InvalidInput`, `NotFound` or `PermissionDenied` if the server rejects the request.
    /// `ResourceExhausted`, `Timeout` or `Unavailable` when all attempts have failed. `Unexpected` for an
    /// invalid answer.
    ///
    /// # Cancellation
    /// Nothing is stored. The model's work may be lost.
    pub async fn complete(&self, request: &LanguageModelRequest) -> Result<Completion> {
        check::at_least(GENERATE, "messages", request.messages.len(), 1)?;
        let body = wire::chat_request(&self.config, request);
        let response: ChatResponse = self.transport.call(GENERATE, &body).await?;
        let completion = response.into_completion()?;
        self.input_tokens.fetch_add(completion.usage.input_tokens, Ordering::Relaxed);
        self.output_tokens.fetch_add(completion.usage.output_tokens, Ordering::Relaxed);
        Ok(completion)
    }

    /// Returns the sum of the token counts of all calls of this client.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.load(Ordering::Relaxed),
            output_tokens: self.output_tokens.load(Ordering::Relaxed),
        }
    }
}

#[async_trait]
impl LanguageModel for OpenAiModel {
    fn name(&self) -> &str {
        &self.config.model
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        Ok(self.complete(&request).await?.message)
    }
}

/// An embedder on an OpenAI-compatible server.
///
/// ```
/// use larder_agents::model::{OpenAiConfig, OpenAiEmbedder};
/// use larder_kernel::Embedder;
///
/// let config = OpenAiConfig::new("http://localhost:11434/v1", "embed-small");
/// let embedder = OpenAiEmbedder::new(config, 768)?;
/// assert_eq!(embedder.dimensions(), 768);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
pub struct OpenAiEmbedder {
    config: OpenAiConfig,
    transport: Transport,
    dimensions: usize,
}

impl fmt::Debug for OpenAiEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiEmbedder")
            .field("config", &self.config)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

impl OpenAiEmbedder {
    /// Creates a client for a model whose embeddings have `dimensions`. It connects at the first call.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting.
    pub fn new(config: OpenAiConfig, dimensions: usize) -> Result<Self> {
        check::batch("openai.config", "dimensions", dimensions, limits::DIMENSIONS_MAX)?;
        let transport = Transport::new(&config, "embeddings")?;
        Ok(Self { config, transport, dimensions })
    }

    async fn embed_batch(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        let request = EmbeddingRequest { model: &self.config.model, input: texts, encoding_format: "float" };
        let mut response: EmbeddingResponse = self.transport.call(EMBED, &request).await?;
        let wrong = |message| failure(ErrorKind::Unexpected, EMBED, message);
        response.data.sort_by_key(|item| item.index);
        let in_order = response.data.iter().enumerate().all(|(place, item)| item.index == place);
        if response.data.len() != texts.len() || !in_order {
            return Err(wrong(
                "the server returned another number of embeddings than texts; check the URL \
                and the model's name",
            )
            .with_context("texts", check::size(texts.len()))
            .with_context("embeddings", check::size(response.data.len())));
        }
        let embedding = |item: wire::WireEmbedding| {
            if item.embedding.len() != self.dimensions {
                return Err(wrong(
                    "the server returned embeddings of another dimension; check the model's \
                                  name",
                )
                .with_context("expected", check::size(self.dimensions))
                .with_context("dimensions", check::size(item.embedding.len())));
            }
            Embedding::new(item.embedding).map_err(|_| {
                wrong("the server returned an embedding of length 0; check the text and the model's name")
            })
        };
        response.data.into_iter().map(embedding).collect()
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        let mut embeddings = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.config.batch_texts_max) {
            embeddings.extend(self.embed_batch(batch).await?);
        }
        Ok(embeddings)
    }
}
