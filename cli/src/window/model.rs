//! The models that summarize and embed, or an error if none is configured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use larder::compaction::OnFailure;
#[cfg(feature = "model")]
use larder::model::{OpenAiConfig, OpenAiEmbedder, OpenAiModel};
use larder_kernel::{ChatMessage, Embedder, Error, ErrorKind, LanguageModel, LanguageModelRequest, Result};

use super::Failure;

/// The environment variables for the key, in order of precedence.
#[cfg(feature = "model")]
const KEY_VARIABLES: [&str; 2] = ["LARDER_MODEL_KEY", "OPENAI_API_KEY"];

/// The arguments for the model.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Model whose tokenizer counts tokens; without it, tokens are estimated. With `--model-url`, the model
    /// also writes summaries.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// OpenAI-compatible server that writes summaries, such as `http://127.0.0.1:11434/v1`. Put the key into
    /// LARDER_MODEL_KEY or OPENAI_API_KEY if the server needs one.
    #[arg(long, value_name = "URL", requires = "model")]
    model_url: Option<String>,
    /// Model of the same server whose embeddings search the `knowledge_base` of a profile.
    #[arg(long, value_name = "NAME", requires = "model_url")]
    embedding_model: Option<String>,
    /// Time limit for one response of the model, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=3600),
    )]
    model_timeout: u64,
    /// Behavior if the model fails, gives an unusable response or exceeds the time limit.
    #[arg(long, value_enum, default_value_t = Failure::Keep)]
    on_model_failure: Failure,
}

impl ModelArgs {
    /// Returns the model's name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

#[cfg(feature = "model")]
fn openai(url: &str, name: &str, timeout: Duration) -> OpenAiConfig {
    let mut config = OpenAiConfig::new(url, name).with_timeout(timeout);
    config.api_key = KEY_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    config
}

#[cfg(feature = "model")]
fn connect(url: &str, name: &str, timeout: Duration) -> std::result::Result<Arc<dyn LanguageModel>, String> {
    let model = OpenAiModel::new(openai(url, name, timeout)).map_err(|error| error.to_string())?;
    Ok(Arc::new(model))
}

/// The embedded build has no HTTP client.
#[cfg(not(feature = "model"))]
fn connect(_: &str, _: &str, _: Duration) -> std::result::Result<Arc<dyn LanguageModel>, String> {
    let message = "this build cannot reach a language model \
                   (use `cargo larder-full`, or build with the feature `full`)";
    Err(message.to_owned())
}

fn no_embedder() -> Error {
    Error::invalid("window", "knowledge_base", "needs an embedding model (add --embedding-model)")
}

/// The models that summarize and embed.
pub(crate) struct Models {
    model: Option<Arc<Watched>>,
    /// The server and the name of the embedding model.
    embeds: Option<(String, String)>,
    pub(crate) timeout_ms: u64,
    failure: Failure,
}

impl Models {
    pub(crate) fn new(args: &ModelArgs) -> std::result::Result<Self, String> {
        let timeout = Duration::from_secs(args.model_timeout);
        let model = match (&args.model_url, &args.model) {
            (Some(url), Some(name)) => {
                let model = connect(url, name, timeout).map_err(|reason| format!("--model-url: {reason}"))?;
                Some(Arc::new(Watched {
                    model,
                    asked: AtomicBool::new(false),
                    given_up: AtomicBool::new(false),
                }))
            }
            _ => None,
        };
        let embeds = args.model_url.clone().zip(args.embedding_model.clone());
        Ok(Self { model, embeds, timeout_ms: args.model_timeout * 1_000, failure: args.on_model_failure })
    }

    /// Returns whether an embedding model is configured.
    pub(super) fn embeds(&self) -> bool {
        self.embeds.is_some()
    }

    /// Returns the configured embedding model, for embeddings with `dimensions`.
    #[cfg(feature = "model")]
    pub(super) fn embedder(&self, dimensions: usize) -> Result<Arc<dyn Embedder>> {
        let Some((url, name)) = &self.embeds else { return Err(no_embedder()) };
        let config = openai(url, name, Duration::from_millis(self.timeout_ms));
        Ok(Arc::new(OpenAiEmbedder::new(config, dimensions)?))
    }

    /// Returns an error: this build has no HTTP client.
    #[cfg(not(feature = "model"))]
    pub(super) fn embedder(&self, _: usize) -> Result<Arc<dyn Embedder>> {
        Err(no_embedder())
    }

    /// Returns the model, or one that always fails with an error about the profile's field.
    pub(crate) fn model(&self, field: &'static str) -> Arc<dyn LanguageModel> {
        match &self.model {
            Some(model) => model.clone(),
            None => Arc::new(NoModel { field }),
        }
    }

    /// Returns the configured model.
    pub(crate) fn real_model(&self) -> Option<Arc<dyn LanguageModel>> {
        self.model.clone().map(|model| -> Arc<dyn LanguageModel> { model })
    }

    /// Returns the failure mode. A required summary that cannot be made fails the window until the model is
    /// no longer used.
    pub(crate) fn on_failure(&self) -> OnFailure {
        let given_up = self.model.as_ref().is_some_and(|model| model.given_up.load(Ordering::Relaxed));
        if given_up { OnFailure::Keep } else { OnFailure::Fail }
    }

    /// Returns whether the window should be made without the model, after the model was called and gave no
    /// summary.
    pub(crate) fn give_up(&self) -> bool {
        let Some(model) = &self.model else { return false };
        self.failure == Failure::Keep
            && model.asked.load(Ordering::Relaxed)
            && !model.given_up.swap(true, Ordering::Relaxed)
    }
}

/// The model. After repeated failures it is no longer called.
#[derive(Debug)]
struct Watched {
    model: Arc<dyn LanguageModel>,
    asked: AtomicBool,
    given_up: AtomicBool,
}

#[async_trait]
impl LanguageModel for Watched {
    fn name(&self) -> &str {
        self.model.name()
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "window",
                "the request to the model was cancelled",
            ));
        }
        self.asked.store(true, Ordering::Relaxed);
        self.model.generate(request).await
    }
}

/// The model that returns an error if a summary is required and no model is configured.
#[derive(Debug)]
struct NoModel {
    field: &'static str,
}

#[async_trait]
impl LanguageModel for NoModel {
    fn name(&self) -> &str {
        "none"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        let message = "a summary is due, the thread has no usable summary, and no model is configured \
                       (add --model-url and --model)";
        Err(Error::invalid("window", self.field, message))
    }
}
