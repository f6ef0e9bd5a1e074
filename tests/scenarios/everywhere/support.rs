//! Models and threads that the tests of compaction share.

#![allow(unreachable_pub, reason = "a test binary has no interface")]

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::compaction::{SummarySettings, SummaryStore, begin_with_summary};
use larder_agents::tokens::TokenCounter;
use larder_kernel::random::Random;
use larder_kernel::{
    ChatMessage, Error, ErrorKind, HistoryProvider, HistoryProviderExt, KeyValueStore, LanguageModel,
    LanguageModelRequest, Origin, Result, Thread, Window, forward,
};

use crate::test_backend::{Room, TestBackend as Backend};

/// A token is a word.
#[derive(Debug)]
pub struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn count(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}

type Script = dyn Fn(usize, &LanguageModelRequest) -> Result<ChatMessage> + Send + Sync;

/// A model that replies by a script, after a delay.
pub struct ScriptedModel {
    script: Box<Script>,
    latency: Duration,
    calls: AtomicUsize,
    pub requests: Mutex<Vec<LanguageModelRequest>>,
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedModel")
    }
}

impl ScriptedModel {
    pub fn new(
        latency: Duration,
        script: impl Fn(usize, &LanguageModelRequest) -> Result<ChatMessage> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (calls, requests) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        Arc::new(Self { script: Box::new(script), latency, calls, requests })
    }

    /// A model whose summary consists of the marks `m1`, `m2` and so on in its request.
    pub fn marks() -> Arc<Self> {
        Self::new(Duration::ZERO, |_, request| Ok(ChatMessage::assistant(marks_of(request))))
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns when the model has received this number of calls.
    pub async fn asked(&self, times: usize) {
        until(|| self.calls() >= times).await;
    }
}

#[async_trait]
impl LanguageModel for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        self.requests.lock().unwrap().push(request.clone());
        tokio::time::sleep(self.latency).await;
        (self.script)(call, &request)
    }
}

/// Waits for a condition that becomes true soon.
pub async fn until(happened: impl Fn() -> bool) {
    let waiting = async {
        while !happened() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it never happened");
}

/// Returns the marks in a request without duplicates, joined into one word.
pub fn marks_of(request: &LanguageModelRequest) -> String {
    let text = &request.messages.last().unwrap().text;
    let mut marks: Vec<&str> = text.split([' ', '\n', ',', '=']).filter(|word| is_mark(word)).collect();
    marks.sort_unstable();
    marks.dedup();
    marks.join(",")
}

fn is_mark(word: &str) -> bool {
    word.strip_prefix('m').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// A thread that several handles share.
pub struct Bench {
    pub room: Room,
    pub history: Arc<dyn HistoryProvider>,
    pub thread: Thread,
}

impl Bench {
    pub async fn new(backend: &Backend) -> Self {
        let room = backend.room().await;
        Self { history: room.history(), room, thread: Thread::new("agent", "session").unwrap() }
    }

    /// Returns another handle on the summaries.
    pub fn summaries(&self) -> SummaryStore {
        SummaryStore::new(self.key_value()).unwrap()
    }

    pub fn key_value(&self) -> Arc<dyn KeyValueStore> {
        self.room.key_value()
    }

    /// Appends turns of two messages with ten words each.
    pub async fn turns(&self, turns: std::ops::Range<usize>) {
        for turn in turns {
            let said = |mark: usize| format!("m{mark} and nine words more to have a length here");
            self.history.append(&self.thread, ChatMessage::user(said(2 * turn))).await.unwrap();
            self.history.append(&self.thread, ChatMessage::assistant(said(2 * turn + 1))).await.unwrap();
        }
    }

    /// Returns all stored content as bytes.
    pub async fn transcript(&self) -> Vec<u8> {
        serde_json::to_vec(&self.history.all_messages(&self.thread).await.unwrap()).unwrap()
    }

    /// Returns every stored message.
    pub async fn raw_window(&self) -> Window {
        let messages = self.history.all_messages(&self.thread).await.unwrap();
        Window::new(messages.into_iter().map(Into::into).collect()).with_thread(self.thread.clone())
    }

    /// Returns the stored summary and every stored message after it.
    pub async fn window(&self) -> Window {
        let mut window = self.raw_window().await;
        if let Some(kept) = self.summaries().get(&self.thread).await.unwrap() {
            begin_with_summary(&mut window, &kept.summary);
        }
        window
    }
}

/// Returns the positions of a window's stored messages.
pub fn seqs(window: &Window) -> Vec<i64> {
    let seq = |origin| match origin {
        Origin::Stored(seq) => Some(seq.get()),
        _ => None,
    };
    window.messages.iter().filter_map(|message| seq(message.origin)).collect()
}

/// Returns the text of a window's summary, of which at most one exists.
pub fn summary_text(window: &Window) -> Option<String> {
    let is_summary = |origin| matches!(origin, Origin::Summary(_));
    let mut summaries = window.messages.iter().filter(|message| is_summary(message.origin));
    let text = summaries.next().map(|message| message.message.text.clone());
    assert!(summaries.next().is_none(), "summaries are stacked");
    text
}

pub fn settings() -> SummarySettings {
    SummarySettings::default().with_timeout_ms(10_000).with_wait_ms(20_000).with_summary_tokens_max(1_000)
}

/// Summaries on a store that sometimes fails, before or after its write.
pub struct Shaky {
    inner: Arc<dyn KeyValueStore>,
    dice: Mutex<Random>,
    sides: u64,
}

impl fmt::Debug for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shaky")
    }
}

impl Shaky {
    /// Fails on average once in `sides` calls.
    pub fn new(inner: Arc<dyn KeyValueStore>, seed: u64, sides: u64) -> Self {
        Self { inner, dice: Mutex::new(Random::new(seed)), sides }
    }

    fn shake(&self) -> Result<()> {
        match self.dice.lock().unwrap().draw() % self.sides {
            0 => Err(Error::new(ErrorKind::Unavailable, "shaky", "away")),
            _ => Ok(()),
        }
    }
}

macro_rules! shaky {
    ($self:ident KeyValueStore put($bucket:ident, $key:ident, $value:ident, $options:ident)) => {{
        $self.shake()?;
        let revision = $self.inner.put($bucket, $key, $value, $options).await?;
        $self.shake().map(|()| revision)
    }};
    ($self:ident KeyValueStore get($bucket:ident, $key:ident)) => {{
        $self.shake()?;
        $self.inner.get($bucket, $key).await
    }};
    // A claim that is not released would outlast the test, so a deletion never fails.
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

forward!(Store for Shaky);
forward!(KeyValueStore for Shaky, shaky);
