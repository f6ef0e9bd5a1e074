//! In-memory stores, and a model that returns the marks in its input.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use larder_kernel::{ChatMessage, LanguageModel, LanguageModelRequest, Result};

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

/// A model whose summary is one word with all marks `m1`, `m2` and so on in its input.
#[derive(Debug)]
pub(in crate::session) struct Model {
    shared: Arc<Shared>,
}

/// The state that all callers share.
#[derive(Debug, Default)]
pub(in crate::session) struct Shared {
    pub(in crate::session) answers: AtomicUsize,
}

#[async_trait]
impl LanguageModel for Model {
    fn name(&self) -> &str {
        "reads"
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        let question = &request.messages.last().unwrap().text;
        let words = question.split(|character: char| !character.is_ascii_alphanumeric());
        let read: BTreeSet<usize> = words.filter_map(|word| word.strip_prefix('m')?.parse().ok()).collect();
        let read: Vec<String> = read.iter().map(|mark| format!("m{mark}")).collect();
        Ok(ChatMessage::assistant(format!("read,{}", read.join(","))))
    }
}

/// The stores of one test.
#[derive(Debug)]
pub(in crate::session) struct World {
    pub(in crate::session) history: Arc<InMemoryHistoryProvider>,
    pub(in crate::session) store: Arc<InMemoryKeyValueStore>,
    pub(in crate::session) shared: Arc<Shared>,
}

impl World {
    pub(in crate::session) fn new() -> Self {
        Self {
            history: Arc::new(InMemoryHistoryProvider::new()),
            store: Arc::new(InMemoryKeyValueStore::new()),
            shared: Arc::default(),
        }
    }

    pub(in crate::session) fn model(&self) -> Arc<Model> {
        Arc::new(Model { shared: self.shared.clone() })
    }
}
