//! The model and the embedder, from a server or from a script.

use std::fmt;
use std::sync::Arc;

use larder::model::{OpenAiConfig, OpenAiEmbedder, OpenAiModel, ScriptedModelServer};
use larder::{Embedder, LanguageModel, Result};

use super::script;
use super::tools;

/// The models for conversations, summaries and embeddings.
pub(crate) struct Models {
    /// Continues the conversation, with tools.
    pub(super) chat: Arc<dyn LanguageModel>,
    /// Writes summaries, without tools.
    pub(super) summaries: Arc<dyn LanguageModel>,
    /// Embeds notes and search texts.
    pub(super) embedder: Arc<dyn Embedder>,
    server: Option<ScriptedModelServer>,
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models").field("offline", &self.server.is_some()).finish_non_exhaustive()
    }
}

impl Models {
    /// Returns scripted models, behind a server on the loopback interface.
    pub(crate) async fn offline() -> Result<Self> {
        let server = ScriptedModelServer::start_with([], script::reply).await?;
        let models =
            Self::served(&server.base_url(), None, ("scripted", "scripted-embeddings"), script::DIMENSIONS)?;
        Ok(Self { server: Some(server), ..models })
    }

    /// Returns the chat model and the embedding model of an OpenAI-compatible server.
    pub(crate) fn served(
        url: &str,
        key: Option<&str>,
        (model, embedding_model): (&str, &str),
        dimensions: usize,
    ) -> Result<Self> {
        let config = |name: &str| {
            let config = OpenAiConfig::new(url, name);
            match key {
                Some(key) => config.with_api_key(key),
                None => config,
            }
        };
        Ok(Self {
            chat: Arc::new(OpenAiModel::new(config(model).with_tools(tools::descriptions()))?),
            summaries: Arc::new(OpenAiModel::new(config(model))?),
            embedder: Arc::new(OpenAiEmbedder::new(config(embedding_model), dimensions)?),
            server: None,
        })
    }
}
