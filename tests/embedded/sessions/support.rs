//! Models, counters and stores for the tests of sessions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::session::{Inference, InferenceRequest, Sessions};
use larder_agents::tokens::TokenCounter;
use larder_kernel::{
    AgentId, AppendOptions, Appended, Capabilities, ChatMessage, Error, ErrorKind, Forked, HistoryEvents,
    HistoryProvider, KeyValueStore, LanguageModel, LanguageModelRequest, MessageFilter, Namespace, Page,
    PageRequest, Replaced, Replacement, Result, RunId, Seq, SessionId, Store, StoredMessage, Thread,
    ThreadInfo, Ttl,
};

use crate::test_backend::{Room, TestBackend as Backend};

/// Counts words, and counts its calls.
#[derive(Debug, Default)]
pub(crate) struct Words(pub(crate) AtomicUsize);

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn count(&self, text: &str) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed);
        u64::try_from(text.split_whitespace().count()).unwrap()
    }
}

/// The behavior of a model in a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    Text(&'static str),
    Fails,
    Hangs,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    replies: Mutex<VecDeque<Reply>>,
    pub(crate) asked: Mutex<Vec<LanguageModelRequest>>,
}

impl Model {
    pub(crate) fn new(replies: &[Reply]) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.to_vec().into()), asked: Mutex::default() })
    }

    pub(crate) fn prompt(&self, index: usize) -> String {
        self.asked.lock().unwrap()[index].messages.last().unwrap().text.clone()
    }

    pub(crate) fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl LanguageModel for Model {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        self.asked.lock().unwrap().push(request);
        tokio::task::yield_now().await;
        let reply = self.replies.lock().unwrap().pop_front();
        match reply {
            Some(Reply::Text(text)) => Ok(ChatMessage::assistant(text)),
            Some(Reply::Hangs) => std::future::pending().await,
            Some(Reply::Fails) | None => Err(Error::new(ErrorKind::Unavailable, "model", "no answer")),
        }
    }
}

/// A history that counts reads. It can be slow, and can lose the reply to a write that happened.
#[derive(Debug)]
pub(crate) struct Probe {
    inner: Arc<dyn HistoryProvider>,
    pub(crate) messages_read: AtomicUsize,
    pub(crate) writes: AtomicUsize,
    pub(crate) delay_ms: AtomicU64,
    pub(crate) lost_answers: AtomicUsize,
    /// `true` if reads fail.
    pub(crate) is_away: AtomicBool,
    /// Messages that another writer appends right after a thread's counts were read.
    pub(crate) arrives: Mutex<Option<ChatMessage>>,
}

impl Probe {
    async fn read(&self, read: Result<Vec<StoredMessage>>) -> Result<Vec<StoredMessage>> {
        let delay = self.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "history", "away"));
        }
        if let Ok(messages) = &read {
            self.messages_read.fetch_add(messages.len(), Ordering::Relaxed);
        }
        read
    }

    fn wrote<T>(&self, written: Result<T>) -> Result<T> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let lost = |left: usize| left.checked_sub(1);
        if written.is_ok()
            && self.lost_answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lost).is_ok()
        {
            return Err(Error::new(ErrorKind::Unavailable, "history", "connection lost"));
        }
        written
    }
}

#[async_trait]
impl Store for Probe {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn erase(&self) -> Result<()> {
        self.inner.erase().await
    }
}

#[async_trait]
impl HistoryProvider for Probe {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        tokio::task::yield_now().await;
        let written = self.inner.append_many(thread, messages, options).await;
        tokio::task::yield_now().await;
        self.wrote(written)
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        self.read(self.inner.get_messages(thread, offset, limit).await).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        self.read(self.inner.tail(thread, before, limit).await).await
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.read(self.inner.tail_matching(thread, filter, before, limit).await).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        self.read(self.inner.page_after(thread, after, limit).await).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        let info = self.inner.thread_info(thread).await;
        let arrived = self.arrives.lock().unwrap().take();
        if let Some(message) = arrived {
            self.inner.append_many(thread, vec![message], AppendOptions::default()).await?;
        }
        info
    }

    async fn clear(&self, thread: &Thread) -> Result<u64> {
        self.inner.clear(thread).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        self.inner.clear_run(thread, run).await
    }

    async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        self.inner.fork(source, target, up_to).await
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        tokio::task::yield_now().await;
        let written = self.inner.replace(thread, replacement).await;
        tokio::task::yield_now().await;
        self.wrote(written)
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        self.inner.list_threads(agent, page).await
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        self.inner.set_ttl(thread, ttl).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        self.inner.subscribe(thread, after).await
    }
}

/// One room with any number of handles.
pub(crate) struct World {
    room: Room,
}

impl World {
    pub(crate) async fn new(backend: &Backend) -> Self {
        Self { room: backend.room().await }
    }

    pub(crate) fn probe(&self) -> Arc<Probe> {
        Arc::new(Probe {
            inner: self.room.history(),
            messages_read: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            delay_ms: AtomicU64::new(0),
            lost_answers: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            arrives: Mutex::default(),
        })
    }

    pub(crate) fn key_value(&self) -> Arc<dyn KeyValueStore> {
        self.room.key_value()
    }

    pub(crate) async fn everything_stored(&self) -> String {
        self.room.everything_stored().await
    }

    /// Opens sessions through a separate handle.
    pub(crate) fn sessions(&self) -> Sessions {
        self.sessions_on(self.probe())
    }

    pub(crate) fn sessions_on(&self, history: Arc<Probe>) -> Sessions {
        Sessions::new(history, self.key_value()).unwrap().with_token_counter(Arc::new(Words::default()))
    }
}

pub(crate) fn user(text: &str) -> InferenceRequest {
    InferenceRequest::new([ChatMessage::user(text)])
}

/// Appends one question and its answer.
pub(crate) async fn turn(sessions: &Sessions, id: &SessionId, question: &str, answer: &str) {
    let inference = sessions.begin(id, user(question)).await.unwrap();
    inference.complete([ChatMessage::assistant(answer)]).await.unwrap();
}

pub(crate) fn texts(inference: &Inference) -> Vec<String> {
    inference.window().messages.iter().map(|message| message.message.text.clone()).collect()
}

pub(crate) async fn stored(sessions: &Sessions, id: &SessionId) -> Vec<String> {
    let messages = sessions.get(id).await.unwrap().messages;
    messages.iter().map(|stored| stored.message.text.clone()).collect()
}
