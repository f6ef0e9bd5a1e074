//! Windows of conversations and pipelines of strategies. Settings, messages and windows cross the border as
//! JSON.

use std::sync::Arc;

use larder::compaction::{
    CompactionAgent, CompactionAgentConfig, Pipeline, PipelineConfig, SlidingWindow, StrategyConfig,
    SummaryMaker, SummarySettings, SummaryStore,
};
use larder::context::memory::LimitedWindow;
use larder::context::{AgentContext, ContextConfig, WindowExplanation};
use larder::session::parse_config;
use larder::tokens::{EstimatedTokenCounter, TokenCounter, counter_for};
use larder::{
    AgentId, Author, ChatMessage, CompactionStrategy as _, Error, HistoryRetention, LanguageModel, Origin,
    Result, RunId, Seq, SessionId, StoreSet, StrategyEffect, Thread, Window, WindowMessage,
};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::callback::{PythonModel, on_behalf_of};
use crate::errors::OrRaise as _;
use crate::history::{ThreadPair, TtlPair, append_options, thread};
use crate::input::{Fence, id, json};
use crate::process::Owned;
use crate::stores::Shared;

const OPERATION: &str = "toolkit.config";

/// The settings of a context or of a pipeline.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// The strategies; without any, those of the Rust library's default.
    pipeline: Option<Vec<StrategyConfig>>,
    retention: HistoryRetention,
    memory: Option<LimitedWindow>,
    author: Option<Author>,
    scan_messages_max: Option<u64>,
    /// The model whose tokens are counted.
    tokens_of: Option<String>,
    summaries: SummarySettings,
}

impl Settings {
    fn counter(&self) -> Arc<dyn TokenCounter> {
        match self.tokens_of.as_deref() {
            Some(model) => counter_for(model),
            None => Arc::new(EstimatedTokenCounter),
        }
    }

    /// Builds the pipeline. A strategy that summarizes needs a model, and stores for its summaries.
    fn pipeline(
        &self,
        stores: Option<&StoreSet>,
        model: Option<&Arc<dyn LanguageModel>>,
        counter: &Arc<dyn TokenCounter>,
    ) -> Result<Pipeline> {
        let Some(strategies) = &self.pipeline else { return Ok(SlidingWindow::default().into()) };
        let maker = || -> Result<SummaryMaker> {
            let lacks =
                |field: &'static str, message: &'static str| Error::invalid(OPERATION, field, message);
            let model = model.ok_or_else(|| {
                lacks("model", "is missing, and a strategy of `pipeline` summarizes; pass a model")
            })?;
            let stores = stores.ok_or_else(|| {
                lacks("stores", "is missing, and a strategy of `pipeline` summarizes; pass the stores")
            })?;
            let summaries = SummaryStore::new(stores.key_value()?)?;
            SummaryMaker::new(Arc::clone(model), Arc::clone(counter), summaries, self.summaries)
        };
        PipelineConfig::default().with_pipeline(strategies.clone()).build(counter, &maker)
    }

    fn context(
        self,
        stores: &StoreSet,
        agent: AgentId,
        model: Option<&Arc<dyn LanguageModel>>,
    ) -> Result<AgentContext> {
        let counter = self.counter();
        let pipeline = self.pipeline(Some(stores), model, &counter)?;
        let mut config = ContextConfig::new(stores.history()?);
        if pipeline.effect() == StrategyEffect::Summarizes {
            config = config.with_summaries(SummaryStore::new(stores.key_value()?)?);
        }
        config = config.with_pipeline(pipeline).with_retention(self.retention).with_counter(counter);
        if let Some(memory) = self.memory {
            config = config.with_memory(memory);
        }
        if let Some(author) = self.author {
            config = config.with_author(author);
        }
        if let Some(messages) = self.scan_messages_max {
            config = config.with_scan_messages_max(messages);
        }
        Ok(AgentContext::new(config)?.for_agent(agent))
    }
}

/// A message of a window.
#[derive(Serialize)]
struct Shown {
    origin: &'static str,
    seq: Option<Seq>,
    message: Arc<ChatMessage>,
}

fn shown(window: Window) -> Vec<Shown> {
    let shown = window.messages.into_iter().map(|WindowMessage { origin, message, .. }| {
        let (origin, seq) = match origin {
            Origin::Stored(seq) => ("stored", Some(seq)),
            Origin::Summary(up_to) => ("summary", Some(up_to)),
            _ => ("injected", None),
        };
        Shown { origin, seq, message }
    });
    shown.collect()
}

/// A message that Python puts into a window.
#[derive(Deserialize)]
struct Given {
    origin: String,
    seq: Option<Seq>,
    message: ChatMessage,
}

impl From<Given> for WindowMessage {
    fn from(Given { origin, seq, message }: Given) -> Self {
        let origin = match (&*origin, seq) {
            ("summary", Some(up_to)) => Origin::Summary(up_to),
            (_, Some(seq)) => Origin::Stored(seq),
            (_, None) => Origin::Injected,
        };
        Self::new(origin, message)
    }
}

#[derive(Serialize)]
struct Explained {
    #[serde(flatten)]
    explanation: WindowExplanation,
    text: String,
    window: Vec<Shown>,
}

impl From<WindowExplanation> for Explained {
    fn from(mut explanation: WindowExplanation) -> Self {
        let text = explanation.to_string();
        let window = shown(std::mem::take(&mut explanation.window));
        Self { explanation, text, window }
    }
}

/// The conversations of one agent, with windows for its model.
#[pyclass(frozen, module = "larder._native", name = "Context")]
pub(crate) struct NativeContext {
    shared: Arc<Shared>,
    context: Owned<AgentContext>,
}

impl NativeContext {
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        stores: &StoreSet,
        agent: &Bound<'_, PyAny>,
        settings: &str,
        model: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (agent, shared) = (id::<AgentId>("agent", agent)?, Arc::clone(shared));
        let model = model.map(|function| PythonModel::shared(shared.process, function));
        let settings: Settings = parse_config(settings).or_raise(py)?;
        let context = settings.context(stores, agent, model.as_ref()).or_raise(py)?;
        Ok(Self { context: Owned::new(shared.process, context), shared })
    }

    fn context(&self, py: Python<'_>) -> PyResult<AgentContext> {
        self.context.get().cloned().or_raise(py)
    }
}

fn session(value: &Bound<'_, PyAny>) -> PyResult<SessionId> {
    id("session", value)
}

/// Reads the messages that follow the stored ones in a window.
fn unstored(new: &str) -> Result<Vec<ChatMessage>> {
    json("context.window", "new", new)
}

#[pymethods]
impl NativeContext {
    #[allow(clippy::too_many_arguments)]
    fn append(
        &self,
        py: Python<'_>,
        to: &Bound<'_, PyAny>,
        messages: String,
        key: Option<&Bound<'_, PyAny>>,
        if_last: Option<&Bound<'_, PyAny>>,
        time_to_live: Option<TtlPair>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (session, context) = (session(to)?, self.context(py)?);
        let options = append_options(key, if_last, time_to_live, fence)?;
        self.shared.apart(py, async move {
            let messages: Vec<ChatMessage> = json("context.append", "messages", &messages)?;
            context.append_many(&session, messages, options).await
        })
    }

    /// Makes a window, followed by messages that are not stored.
    fn window(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        new: String,
        caller: Option<Py<PyAny>>,
    ) -> PyResult<Call> {
        let (session, context) = (session(of)?, self.context(py)?);
        self.shared.apart(
            py,
            on_behalf_of(
                caller,
                async move { Ok(shown(context.window_with(&session, unstored(&new)?).await?)) },
            ),
        )
    }

    /// As `window`, with the effect of each step.
    fn explain_window(
        &self,
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        new: String,
        caller: Option<Py<PyAny>>,
    ) -> PyResult<Call> {
        let (session, context) = (session(of)?, self.context(py)?);
        self.shared.apart(
            py,
            on_behalf_of(caller, async move {
                Ok(Explained::from(context.explain_window_with(&session, unstored(&new)?).await?))
            }),
        )
    }

    fn end_run(&self, py: Python<'_>, of: &Bound<'_, PyAny>, run: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (session, context, run) = (session(of)?, self.context(py)?, id::<RunId>("run", run)?);
        self.shared.apart(py, async move { context.end_run(&session, &run).await })
    }

    fn clear(&self, py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (session, context) = (session(of)?, self.context(py)?);
        self.shared.apart(py, async move { context.clear(&session).await })
    }
}

/// Strategies that shorten a window, in order.
#[pyclass(frozen, module = "larder._native", name = "Pipeline")]
pub(crate) struct NativePipeline {
    shared: Arc<Shared>,
    pipeline: Owned<Pipeline>,
}

impl NativePipeline {
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        stores: Option<&StoreSet>,
        settings: &str,
        model: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let shared = Arc::clone(shared);
        let model = model.map(|function| PythonModel::shared(shared.process, function));
        let settings: Settings = parse_config(settings).or_raise(py)?;
        let pipeline = settings.pipeline(stores, model.as_ref(), &settings.counter()).or_raise(py)?;
        Ok(Self { pipeline: Owned::new(shared.process, pipeline), shared })
    }
}

#[pymethods]
impl NativePipeline {
    /// Shortens a window.
    fn compact(
        &self,
        py: Python<'_>,
        messages: String,
        of: Option<ThreadPair<'_>>,
        caller: Option<Py<PyAny>>,
    ) -> PyResult<Call> {
        let thread: Option<Thread> = of.as_ref().map(thread).transpose()?;
        let pipeline = self.pipeline.get().cloned().or_raise(py)?;
        self.shared.apart(
            py,
            on_behalf_of(caller, async move {
                let given: Vec<Given> = json("pipeline.compact", "messages", &messages)?;
                let messages = given.into_iter().map(WindowMessage::from).collect();
                Ok(shown(pipeline.compact(Window::new(messages).with_thread(thread)).await?))
            }),
        )
    }
}

/// Shortens stored conversations with a model.
#[pyclass(frozen, module = "larder._native", name = "CompactionAgent")]
pub(crate) struct NativeCompactionAgent {
    shared: Arc<Shared>,
    agent: Owned<Arc<CompactionAgent>>,
}

impl NativeCompactionAgent {
    pub(crate) fn new(
        py: Python<'_>,
        shared: &Arc<Shared>,
        stores: &StoreSet,
        settings: &str,
        model: Py<PyAny>,
    ) -> PyResult<Self> {
        let shared = Arc::clone(shared);
        let model = PythonModel::shared(shared.process, model);
        let config: CompactionAgentConfig = parse_config(settings).or_raise(py)?;
        let agent = stores.history().and_then(|history| CompactionAgent::new(history, model, config));
        let agent = Owned::new(shared.process, Arc::new(agent.or_raise(py)?));
        Ok(Self { shared, agent })
    }
}

#[pymethods]
impl NativeCompactionAgent {
    fn compact(&self, py: Python<'_>, of: ThreadPair<'_>, caller: Option<Py<PyAny>>) -> PyResult<Call> {
        let (thread, agent) = (thread(&of)?, self.agent.get().cloned().or_raise(py)?);
        let work = async move {
            let compacted = agent.compact(&thread).await?;
            Ok(compacted.map(|compacted| (compacted.removed, compacted.up_to)))
        };
        self.shared.apart(py, on_behalf_of(caller, work))
    }
}
