//! Summaries that can be searched (ALQ-4).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    CollectionName, Document, DocumentId, Metadata, PendingWrite, PutMode, Result, Thread, VectorStore,
};
use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// When what is stored is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SearchMode {
    /// With each question.
    #[default]
    Always,
}

/// Where summaries go to be searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeBaseConfig {
    /// The collection.
    pub collection_id: CollectionName,
    /// When it is searched, for whoever puts hits beside the conversation.
    #[serde(default)]
    pub search_mode: SearchMode,
}

/// A collection that takes each summary, embedded by the store's embedder.
#[derive(Clone)]
pub struct KnowledgeBase {
    store: Arc<dyn VectorStore>,
    collection: CollectionName,
}

impl fmt::Debug for KnowledgeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeBase").field("store", &self.store).finish_non_exhaustive()
    }
}

impl KnowledgeBase {
    /// Puts summaries into `collection` of a store that has an embedder.
    #[must_use]
    pub fn new(store: Arc<dyn VectorStore>, collection: CollectionName) -> Self {
        Self { store, collection }
    }

    /// A summary to put, where `digest` stands for the thread.
    pub(super) fn entry(&self, digest: String, thread: Thread, summary: Summary) -> KnowledgeEntry {
        KnowledgeEntry { base: self.clone(), digest, thread, summary }
    }
}

/// A summary that waits to be put into a knowledge base.
pub(super) struct KnowledgeEntry {
    base: KnowledgeBase,
    digest: String,
    thread: Thread,
    summary: Summary,
}

impl fmt::Debug for KnowledgeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeEntry").field("base", &self.base).finish_non_exhaustive()
    }
}

#[async_trait]
impl PendingWrite for KnowledgeEntry {
    /// Puts the summary. The document's id follows from the thread and the place, so that a repeated attempt replaces it.
    async fn commit(&self) -> Result<()> {
        let Self { base, digest, thread, summary } = self;
        let id = DocumentId::new(format!("{digest}/{}", summary.up_to))?;
        let metadata = Metadata::new()
            .with("agent", thread.agent.as_str())
            .with("session", thread.session.as_str())
            .with("up_to", summary.up_to.get())
            .with("strategy", summary.strategy.as_str());
        let document = Document::new(id, summary.text.clone()).with_metadata(metadata);
        base.store.put(&base.collection, vec![document], PutMode::Upsert).await?;
        Ok(())
    }
}
