//! The stores of a case, a model that returns the marks in its input, and snapshots of the stored data.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use larder_agents::compaction::{KnowledgeBase, KnowledgeBaseConfig, SUMMARY_BUCKET, SummaryStore};
use larder_agents::session::SESSION_BUCKET;
use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    BucketName, ChatMessage, CollectionName, Document, Embedder, Embedding, Error, ErrorKind,
    HistoryProvider, HistoryProviderExt, KeyValueStore, LanguageModel, LanguageModelRequest, PageRequest,
    Result, StoredMessage, Thread, VectorStore,
};

use crate::test_backend::{Room, TestBackend as Backend};

/// The collection that receives summaries.
pub(super) const COLLECTION: &str = "summaries";

/// Returns the marks `m1`, `m2` and so on in a text.
pub(super) fn marks(text: &str) -> BTreeSet<usize> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix('m')?.parse().ok()).collect()
}

/// Returns the mark of a message, which is in its text or in its tool result.
pub(super) fn mark_of(message: &ChatMessage) -> Option<usize> {
    let results = message.tool_results.iter().map(|result| &*result.content);
    std::iter::once(&*message.text).chain(results).find_map(|text| marks(text).first().copied())
}

/// A model whose summary is one word with all marks in its input.
#[derive(Debug)]
pub(super) struct Model {
    shared: Arc<Shared>,
    /// The number of replies to each question from one caller.
    asked: Mutex<HashMap<String, usize>>,
}

/// The state that all callers share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) fails: AtomicBool,
    pub(super) answers: AtomicUsize,
    /// A question that one caller asked more than once.
    pub(super) repeated: Mutex<Option<String>>,
}

#[async_trait]
impl LanguageModel for Model {
    fn name(&self) -> &str {
        "reads"
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        tokio::task::yield_now().await;
        if self.shared.fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "model", "away"));
        }
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        let question: Vec<&str> = request.messages.iter().map(|message| &*message.text).collect();
        let mut asked = self.asked.lock().unwrap();
        let times = asked.entry(question.join("\n")).or_default();
        *times += 1;
        if *times > 1 {
            *self.shared.repeated.lock().unwrap() = Some(question.join("\n"));
        }
        let read = marks(question.last().unwrap());
        let read: Vec<String> = read.iter().map(|mark| format!("m{mark}")).collect();
        Ok(ChatMessage::assistant(format!("read,{}", read.join(","))))
    }
}

/// Embeds a text by its length.
#[derive(Debug)]
pub(super) struct Lengths;

#[async_trait]
impl Embedder for Lengths {
    fn dimensions(&self) -> usize {
        2
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        texts
            .iter()
            .map(|text| Embedding::new(vec![1.0, f32::from(u16::try_from(text.len()).unwrap())]))
            .collect()
    }
}

/// The stores of one case, and a second handle on them.
pub(super) struct World {
    pub(super) history: Arc<dyn HistoryProvider>,
    pub(super) store: Arc<dyn KeyValueStore>,
    pub(super) shared: Arc<Shared>,
    /// The store of the summaries for search: in memory if the backend has no vectors.
    pub(super) vectors: Arc<dyn VectorStore>,
    room: Room,
}

/// A snapshot of all data of a session's conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    pub(super) messages: Vec<StoredMessage>,
    /// The summaries, and the records with prompts and hints.
    pub(super) values: Vec<(String, Vec<u8>)>,
    knowledge: Vec<(String, String)>,
}

impl Snapshot {
    /// Returns `true` if a summary is stored.
    pub(super) fn has_summary(&self) -> bool {
        self.values.iter().any(|(key, _)| key.starts_with("summary/"))
    }
}

impl World {
    pub(super) async fn new(backend: &Backend) -> Self {
        let room = backend.room_with(Some(Arc::new(Lengths))).await;
        let in_memory = || Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Lengths)));
        Self {
            history: room.history(),
            store: room.key_value(),
            shared: Arc::default(),
            vectors: room.vectors().unwrap_or_else(|| in_memory()),
            room,
        }
    }

    /// Returns the model for one caller.
    pub(super) fn model(&self) -> Arc<Model> {
        Arc::new(Model { shared: self.shared.clone(), asked: Mutex::default() })
    }

    pub(super) fn summaries(&self) -> SummaryStore {
        SummaryStore::new(self.store.clone()).unwrap()
    }

    pub(super) fn knowledge(&self, base: &KnowledgeBaseConfig) -> KnowledgeBase {
        KnowledgeBase::new(self.vectors.clone(), base.collection_id.clone()).with_embedder(Arc::new(Lengths))
    }

    /// Returns the stored data, read through either handle. It does not include claims to make a summary,
    /// which expire, and replies of the model that no turn has used yet.
    pub(super) async fn snapshot(&self, thread: &Thread) -> Snapshot {
        let messages = self.room.history().all_messages(thread).await.unwrap();
        let store = self.room.key_value();
        let mut values = Vec::new();
        for name in [SUMMARY_BUCKET, SESSION_BUCKET] {
            let bucket = BucketName::new(name).unwrap();
            for key in store.list(&bucket, "", PageRequest::first(10)).await.unwrap().items {
                // A claim may be released while this reads.
                if let Some(entry) = store.get(&bucket, &key.key).await.unwrap() {
                    values.push((key.key.as_str().to_owned(), entry.value.to_vec()));
                }
            }
        }
        values.retain(|(key, _)| !key.starts_with("claim/") && !key.starts_with("draft/"));
        let collection = CollectionName::new(COLLECTION).unwrap();
        let documents = self.vectors.list(&collection, PageRequest::first(100)).await.unwrap().items;
        let document = |document: Document| (document.id.as_str().to_owned(), document.content);
        Snapshot { messages, values, knowledge: documents.into_iter().map(document).collect() }
    }

    /// Erases everything.
    pub(super) async fn leave(self) {
        self.room.stores().erase().await.unwrap();
    }
}
