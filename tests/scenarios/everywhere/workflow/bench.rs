//! A room with both stores, and a key-value store that fails on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use larder_kernel::{
    ChatMessage, HistoryProvider, HistoryProviderExt, KeyValueStore, Result, Thread, ToolCall, ToolResult,
    forward,
};
use serde_json::Value;

use larder_agents::workflow::{TRANSITION_TOOL, TurnWindow, Workflow, WorkflowOptions, WorkflowSpec};
use tokio::sync::Notify;

use crate::test_backend::{Room, TestBackend as Backend};

/// The second sample document, as printed.
pub(super) const ROUTER: &str = concat!(
    r#"{ "states": { "triage": { "prompt_task": "triage", "on_event": { "Routed": "routed" } }, "#,
    r#""routed": { "prompt_task": "routed", "control": "agent", "on_event": { "ToBilling": "billing", "#,
    r#""ToTechnical": "technical" } }, "billing": { "prompt_task": "billing", "terminal": true }, "#,
    r#""technical": { "prompt_task": "technical", "terminal": true } }}"#,
);

/// Two states with transitions to each other.
pub(super) const PING_PONG: &str = r#"{"states": {
    "ping": {"prompt_task": "say ping", "on_event": {"Go": "pong"}},
    "pong": {"prompt_task": "say pong", "on_event": {"Go": "ping"}}
}}"#;

pub(super) struct Bench {
    room: Room,
    pub(super) options: WorkflowOptions,
    spec: WorkflowSpec,
}

impl Bench {
    pub(super) async fn new(backend: &Backend, json: &str) -> Self {
        let spec = WorkflowSpec::from_json(json).unwrap();
        Self { room: backend.room().await, options: WorkflowOptions::default(), spec }
    }

    pub(super) fn with(mut self, options: WorkflowOptions) -> Self {
        self.options = options;
        self
    }

    /// Uses another specification for the same runs.
    pub(super) fn with_spec(mut self, json: &str) -> Self {
        self.spec = WorkflowSpec::from_json(json).unwrap();
        self
    }

    pub(super) fn history(&self) -> Arc<dyn HistoryProvider> {
        self.room.history()
    }

    pub(super) fn state(&self) -> Arc<dyn KeyValueStore> {
        self.room.key_value()
    }

    /// Opens a separate handle, as another process would.
    pub(super) async fn open(&self) -> Workflow {
        self.open_on(self.state()).await
    }

    pub(super) async fn open_on(&self, state: Arc<dyn KeyValueStore>) -> Workflow {
        Workflow::open(self.history(), state, self.spec.clone(), self.options.clone(), "w").await.unwrap()
    }

    pub(super) async fn open_as(&self, id: &str) -> Workflow {
        let (spec, options) = (self.spec.clone(), self.options.clone());
        Workflow::open(self.history(), self.state(), spec, options, id).await.unwrap()
    }

    pub(super) async fn resume(&self) -> Result<Workflow> {
        Workflow::resume(self.history(), self.state(), self.spec.clone(), self.options.clone(), "w").await
    }

    /// Resumes as a newly started process does.
    pub(super) async fn resume_later(&self, backend: &Backend) -> Workflow {
        let stores = backend.reopened(&self.room).await;
        let (history, state) = (stores.set().history().unwrap(), stores.set().key_value().unwrap());
        Workflow::resume(history, state, self.spec.clone(), self.options.clone(), "w").await.unwrap()
    }

    pub(super) async fn start(&self) -> Result<Workflow> {
        Workflow::start(self.history(), self.state(), self.spec.clone(), self.options.clone(), "w").await
    }

    pub(super) async fn texts(&self, thread: &Thread) -> Vec<String> {
        let all = self.history().all_messages(thread).await.unwrap();
        all.into_iter().map(|stored| stored.message.text.clone()).collect()
    }

    pub(super) async fn everything_stored(&self) -> String {
        self.room.everything_stored().await
    }

    /// Returns the texts of a persistent state's conversation.
    pub(super) async fn said_in(&self, workflow: &Workflow, state: &str) -> Vec<String> {
        self.texts(&workflow.thread(state).unwrap().unwrap()).await
    }
}

pub(super) fn call(id: &str, event: &str) -> ToolCall {
    ToolCall::new(id, TRANSITION_TOOL, serde_json::json!({ "event": event }).to_string())
}

pub(super) async fn ask(workflow: &mut Workflow, event: &str) -> ToolResult {
    workflow.on_tool_call(&call("c", event)).await.unwrap()
}

pub(super) fn json(result: &ToolResult) -> Value {
    assert!(!result.is_error, "{}", result.content);
    serde_json::from_str(&result.content).unwrap()
}

pub(super) fn user(text: &str) -> Vec<ChatMessage> {
    vec![ChatMessage::user(text)]
}

pub(super) fn texts(turn: &TurnWindow) -> Vec<String> {
    turn.window.messages.iter().map(|message| message.message.text.clone()).collect()
}

/// Runs a turn that emits a text and requests at most one event.
pub(super) async fn turn(workflow: &mut Workflow, text: &str, event: Option<&str>) -> TurnWindow {
    let turn = workflow.begin_turn().await.unwrap();
    if let Some(event) = event {
        assert!(!ask(workflow, event).await.is_error);
    }
    workflow.end_turn(user(text)).await.unwrap();
    turn
}

/// The behavior of the next puts.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Puts {
    Work = 0,
    /// Writes, and loses the reply.
    LoseAnswer = 1,
    /// Does not write, and fails.
    Refuse = 2,
    /// Writes, and never returns.
    Hang = 3,
}

#[derive(Debug)]
pub(super) struct FaultyState {
    inner: Arc<dyn KeyValueStore>,
    puts: AtomicU8,
    hung: Notify,
}

impl FaultyState {
    pub(super) fn new(inner: Arc<dyn KeyValueStore>) -> Arc<Self> {
        Arc::new(Self { inner, puts: AtomicU8::new(0), hung: Notify::new() })
    }

    /// Returns when a put that never returns has written.
    pub(super) async fn hung(&self) {
        self.hung.notified().await;
    }

    pub(super) fn set(&self, puts: Puts) {
        self.puts.store(puts as u8, Ordering::SeqCst);
    }
}

macro_rules! faulty {
    ($self:ident KeyValueStore put($bucket:ident, $key:ident, $value:ident, $options:ident)) => {{
        let puts = $self.puts.load(Ordering::SeqCst);
        let failed = || Error::new(ErrorKind::Unavailable, "key_value.put", "connection lost");
        if puts == Puts::Refuse as u8 {
            return Err(failed());
        }
        let written = $self.inner.put($bucket, $key, $value, $options).await?;
        if puts == Puts::LoseAnswer as u8 {
            return Err(failed());
        }
        if puts == Puts::Hang as u8 {
            $self.hung.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(written)
    }};
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

forward!(Store for FaultyState);
forward!(KeyValueStore for FaultyState, faulty);
