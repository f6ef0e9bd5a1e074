//! Models, counters and stores for the tests of sessions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::session::{Inference, InferenceRequest, Sessions};
use larder_agents::tokens::TokenCounter;
use larder_kernel::{
    ChatMessage, Error, ErrorKind, HistoryProvider, KeyValueStore, LanguageModel, LanguageModelRequest,
    MessagePage, Result, SessionId, forward,
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
    async fn read(&self, read: Result<MessagePage>) -> Result<MessagePage> {
        let delay = self.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "history", "away"));
        }
        if let Ok(page) = &read {
            self.messages_read.fetch_add(page.messages.len(), Ordering::Relaxed);
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

macro_rules! probed {
    (read $self:ident $method:ident($($argument:ident),*)) => {
        $self.read($self.inner.$method($($argument),*).await).await
    };
    (write $self:ident $method:ident($($argument:ident),*)) => {{
        tokio::task::yield_now().await;
        let written = $self.inner.$method($($argument),*).await;
        tokio::task::yield_now().await;
        $self.wrote(written)
    }};
    ($self:ident $contract:ident append_many $arguments:tt) => {
        probed!(write $self append_many $arguments)
    };
    ($self:ident $contract:ident replace $arguments:tt) => { probed!(write $self replace $arguments) };
    ($self:ident $contract:ident get_messages $arguments:tt) => {
        probed!(read $self get_messages $arguments)
    };
    ($self:ident $contract:ident tail $arguments:tt) => { probed!(read $self tail $arguments) };
    ($self:ident $contract:ident tail_matching $arguments:tt) => {
        probed!(read $self tail_matching $arguments)
    };
    ($self:ident $contract:ident page_after $arguments:tt) => { probed!(read $self page_after $arguments) };
    ($self:ident $contract:ident thread_info($thread:ident)) => {{
        let info = $self.inner.thread_info($thread).await;
        let arrived = $self.arrives.lock().unwrap().take();
        if let Some(message) = arrived {
            $self.inner.append_many($thread, vec![message], AppendOptions::default()).await?;
        }
        info
    }};
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

forward!(Store for Probe);
forward!(HistoryProvider for Probe, probed);

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
