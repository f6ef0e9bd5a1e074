//! A searchable collection of summaries.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    ChatMessage, CollectionName, Document, DocumentId, Embedder, Filter, Metadata, PendingWrite, PutMode,
    Result, SearchHit, SearchRequest, Seq, Thread, Timestamp, VectorStore, WindowMessage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::summary::Summary;

/// The occasions on which stored summaries are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SearchMode {
    /// A search for each question.
    #[default]
    Always,
}

/// The collection that receives summaries for search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct KnowledgeBaseConfig {
    /// The collection.
    pub collection_id: CollectionName,
    /// The occasions on which it is searched.
    #[serde(default)]
    pub search_mode: SearchMode,
}

impl KnowledgeBaseConfig {
    /// Creates a search in this collection.
    #[must_use]
    pub fn new(collection_id: CollectionName, search_mode: SearchMode) -> Self {
        Self { collection_id, search_mode }
    }
}

/// The largest number of summaries to add to a window.
const HITS_MAX: usize = 5;
const HEADING: &str = "Earlier summaries of the conversation that match the question:";

/// A collection that receives each summary, embedded by the store's embedder. With [an
/// embedder](Self::with_embedder) it is also searched for each question.
///
/// The entries have no time to live. They stay when a strategy erases messages, and until the session is
/// deleted.
#[derive(Clone)]
pub struct KnowledgeBase {
    store: Arc<dyn VectorStore>,
    collection: CollectionName,
    embedder: Option<Arc<dyn Embedder>>,
}

impl fmt::Debug for KnowledgeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeBase").field("store", &self.store).finish_non_exhaustive()
    }
}

impl KnowledgeBase {
    /// Creates a knowledge base that writes summaries to `collection` of a store that has an embedder.
    #[must_use]
    pub fn new(store: Arc<dyn VectorStore>, collection: CollectionName) -> Self {
        Self { store, collection, embedder: None }
    }

    /// Searches the thread's summaries for each question, by the question's embedding. The best matches enter
    /// the window after the summary, as one message that counts like any other. The summary that is already
    /// in the window is not added again.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    /// Returns the summaries of a thread that match a question, as one message for the model. `known` is the
    /// window's summary. A replacement of the session changes the positions, so its text identifies it too.
    pub(super) async fn recall(
        &self,
        thread: &Thread,
        query: &str,
        known: Option<&Summary>,
    ) -> Result<Option<WindowMessage>> {
        let Some(embedder) = self.embedder.as_ref().filter(|_| !query.trim().is_empty()) else {
            return Ok(None);
        };
        let Some(embedding) = embedder.embed(&[query]).await?.pop() else { return Ok(None) };
        let request = SearchRequest::new(embedding).with_limit(HITS_MAX + 1).with_filter(of(thread));
        let hits = self.store.search(&self.collection, &request).await?;
        let up_to = |hit: &SearchHit| hit.metadata.get("up_to").and_then(Value::as_i64).map(Seq::new);
        let is_known = |hit: &SearchHit| {
            known.is_some_and(|known| up_to(hit) == Some(known.up_to) || hit.content == known.text)
        };
        let new = hits.iter().filter(|hit| !is_known(hit));
        let lines: String = new.take(HITS_MAX).map(|hit| format!("\n- {}", hit.content)).collect();
        let message = ChatMessage::system(format!("{HEADING}{lines}")).with_created_at(Timestamp::default());
        Ok((!lines.is_empty()).then(|| WindowMessage::injected(message)))
    }

    /// Removes the summaries of a thread.
    pub(crate) async fn forget(&self, thread: &Thread) -> Result<()> {
        self.store.delete_matching(&self.collection, &of(thread)).await.map(drop)
    }

    /// Creates an entry for a summary. `digest` identifies the thread.
    pub(super) fn entry(&self, digest: String, thread: Thread, summary: Summary) -> KnowledgeEntry {
        KnowledgeEntry { base: self.clone(), digest, thread, summary }
    }
}

/// Returns the filter for the summaries of a thread.
fn of(thread: &Thread) -> Filter {
    Filter::eq("agent", thread.agent.as_str()).and(Filter::eq("session", thread.session.as_str()))
}

/// A summary to write to a knowledge base.
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
    /// Writes the summary. The document id is derived from the thread and the position, so a retry replaces
    /// the document.
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
