//! In-memory stores, a model that returns the marks in its input, and snapshots of the stored data.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use larder_kernel::{
    BucketName, ChatMessage, CollectionName, Document, Embedder, Embedding, Error, ErrorKind,
    HistoryProviderExt, KeyValueStore, LanguageModel, LanguageModelRequest, PageRequest, Result,
    StoredMessage, Thread, VectorStore,
};

use crate::compaction::{KnowledgeBase, KnowledgeBaseConfig, SUMMARY_BUCKET, SummaryStore};
use crate::storage::InMemoryVectorStore;
use crate::tokens::TokenCounter;
use crate::{InMemoryHistoryProvider, InMemoryKeyValueStore};

/// A counter with one token per word.
#[derive(Debug)]
pub(in crate::session) struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.split_whitespace().count()).unwrap()
    }
}

/// Returns the marks `m1`, `m2` and so on in a text.
pub(in crate::session) fn marks(text: &str) -> BTreeSet<usize> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix('m')?.parse().ok()).collect()
}

/// Returns the mark of a message, which is in its text or in its tool result.
pub(in crate::session) fn mark_of(message: &ChatMessage) -> Option<usize> {
    let results = message.tool_results.iter().map(|result| &*result.content);
    std::iter::once(&*message.text).chain(results).find_map(|text| marks(text).first().copied())
}

/// A model whose summary is one word with all marks in its input.
#[derive(Debug)]
pub(in crate::session) struct Model {
    shared: Arc<Shared>,
    /// The number of replies to each question from one caller.
    asked: Mutex<HashMap<String, usize>>,
}

/// The state that all callers share.
#[derive(Debug, Default)]
pub(in crate::session) struct Shared {
    pub(in crate::session) fails: AtomicBool,
    pub(in crate::session) answers: AtomicUsize,
    /// A question that one caller asked more than once.
    pub(in crate::session) repeated: Mutex<Option<String>>,
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

/// The stores of one case.
#[derive(Debug)]
pub(in crate::session) struct World {
    pub(in crate::session) history: Arc<InMemoryHistoryProvider>,
    pub(in crate::session) store: Arc<InMemoryKeyValueStore>,
    pub(in crate::session) shared: Arc<Shared>,
    vectors: Arc<InMemoryVectorStore>,
}

/// Embeds a text by its length.
#[derive(Debug)]
struct Lengths;

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

/// A snapshot of all data of a session's conversation.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::session) struct Snapshot {
    pub(in crate::session) messages: Vec<StoredMessage>,
    summaries: Vec<(String, Vec<u8>)>,
    knowledge: Vec<(String, String)>,
}

impl World {
    pub(in crate::session) fn new() -> Self {
        Self {
            history: Arc::new(InMemoryHistoryProvider::new()),
            store: Arc::new(InMemoryKeyValueStore::new()),
            shared: Arc::default(),
            vectors: Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Lengths))),
        }
    }

    /// Returns the model for one caller.
    pub(in crate::session) fn model(&self) -> Arc<Model> {
        Arc::new(Model { shared: self.shared.clone(), asked: Mutex::default() })
    }

    pub(in crate::session) fn summaries(&self) -> SummaryStore {
        SummaryStore::new(self.store.clone()).unwrap()
    }

    pub(in crate::session) fn knowledge(&self, base: &KnowledgeBaseConfig) -> KnowledgeBase {
        KnowledgeBase::new(self.vectors.clone(), base.collection_id.clone()).with_embedder(Arc::new(Lengths))
    }

    /// Returns the stored data. A claim to make a summary is not included, because it expires.
    pub(in crate::session) async fn snapshot(&self, thread: &Thread) -> Snapshot {
        let messages = self.history.all_messages(thread).await.unwrap();
        let bucket = BucketName::new(SUMMARY_BUCKET).unwrap();
        let keys = self.store.list(&bucket, "summary/", PageRequest::first(10)).await.unwrap().items;
        let mut summaries = Vec::new();
        for key in keys {
            let value = self.store.get(&bucket, &key.key).await.unwrap().unwrap().value;
            summaries.push((key.key.as_str().to_owned(), value.to_vec()));
        }
        let collection = CollectionName::new("summaries").unwrap();
        let documents = self.vectors.list(&collection, PageRequest::first(100)).await.unwrap().items;
        let document = |document: Document| (document.id.as_str().to_owned(), document.content);
        Snapshot { messages, summaries, knowledge: documents.into_iter().map(document).collect() }
    }
}
