//! Conversations. Messages cross the border as JSON.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use larder::{
    AgentId, AppendOptions, ChatMessage, FencingToken, History, IdempotencyKey, MessageFilter, MessageUpdate,
    PageRequest, Removal, Replacement, Revision, RunId, Seq, SessionId, Thread, Ttl,
};
use pyo3::prelude::*;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Fence, Limit, Offset, id, invalid, json, optional, position};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;
use crate::stream::NativeEvents;
use crate::transcripts::{Transcript, import};

/// A thread: the agent and the session.
pub(crate) type ThreadPair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);
/// A time to live: milliseconds, and `True` if each use restarts it.
pub(crate) type TtlPair = (u64, bool);

#[pyclass(frozen, module = "larder._native", name = "History")]
pub(crate) struct NativeHistory {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<History>,
}

pub(crate) fn thread((agent, session): &ThreadPair<'_>) -> PyResult<Thread> {
    Ok(Thread::from_ids(id::<AgentId>("agent", agent)?, id::<SessionId>("session", session)?))
}

fn seq(field: &'static str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Seq>> {
    optional(value, |value| position(field, value))
}

fn ttl(given: Option<TtlPair>) -> Option<Ttl> {
    given.map(|(ms, refresh)| Ttl::fixed(Duration::from_millis(ms)).with_refresh_on_use(refresh))
}

fn token(given: Option<Fence>) -> Option<FencingToken> {
    given.map(|Fence(number)| FencingToken::new(number))
}

fn idempotency_key(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<IdempotencyKey>> {
    optional(given, |key| id("idempotency_key", key))
}

/// Reads the options of an append.
pub(crate) fn append_options(
    key: Option<&Bound<'_, PyAny>>,
    if_last: Option<&Bound<'_, PyAny>>,
    time_to_live: Option<TtlPair>,
    fence: Option<Fence>,
) -> PyResult<AppendOptions> {
    Ok(AppendOptions::default()
        .with_idempotency_key(idempotency_key(key)?)
        .with_if_last(seq("if_last", if_last)?)
        .with_ttl(ttl(time_to_live))
        .with_fence(token(fence)))
}

impl NativeHistory {
    fn handle(&self, py: Python<'_>) -> PyResult<History> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeHistory {
    #[allow(clippy::too_many_arguments)]
    fn append(
        &self,
        py: Python<'_>,
        to: ThreadPair<'_>,
        messages: String,
        key: Option<&Bound<'_, PyAny>>,
        if_last: Option<&Bound<'_, PyAny>>,
        time_to_live: Option<TtlPair>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(&to)?, self.handle(py)?);
        let options = append_options(key, if_last, time_to_live, fence)?;
        self.shared.encoded(py, async move {
            let messages: Vec<ChatMessage> = json("history.append_many", "messages", &messages)?;
            handle.provider().append_many(&thread, messages, options).await
        })
    }

    fn messages(&self, py: Python<'_>, of: ThreadPair<'_>, offset: Offset, limit: Limit) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        let work = async move { handle.provider().get_messages(&thread, offset.0, limit.0).await };
        self.shared.encoded(py, work)
    }

    /// Reads the newest messages, all or by their authors.
    fn tail(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        limit: Limit,
        before: Option<&Bound<'_, PyAny>>,
        filter: Option<String>,
    ) -> PyResult<Call> {
        let (thread, handle, before) = (thread(&of)?, self.handle(py)?, seq("before", before)?);
        self.shared.encoded(py, async move {
            let Some(filter) = filter else { return handle.provider().tail(&thread, before, limit.0).await };
            let filter: MessageFilter = json("history.tail_matching", "filter", &filter)?;
            handle.provider().tail_matching(&thread, &filter, before, limit.0).await
        })
    }

    fn page_after(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        after: &Bound<'_, PyAny>,
        limit: Limit,
    ) -> PyResult<Call> {
        let (thread, handle, after) = (thread(&of)?, self.handle(py)?, position("after", after)?);
        self.shared.encoded(py, async move { handle.provider().page_after(&thread, after, limit.0).await })
    }

    fn info(&self, py: Python<'_>, of: ThreadPair<'_>) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.provider().thread_info(&thread).await })
    }

    fn clear(&self, py: Python<'_>, of: ThreadPair<'_>, fence: Option<Fence>) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        let work = async move { handle.provider().clear(&thread, token(fence)).await };
        self.shared.call(py, work, output::count)
    }

    fn clear_run(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        run: &Bound<'_, PyAny>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle, run) = (thread(&of)?, self.handle(py)?, id::<RunId>("run", run)?);
        let work = async move { handle.provider().clear_run(&thread, &run, token(fence)).await };
        self.shared.call(py, work, output::count)
    }

    /// Removes the newest messages, those after a position, or those with these numbers.
    #[allow(clippy::too_many_arguments)]
    fn remove(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        newest: Option<usize>,
        after: Option<&Bound<'_, PyAny>>,
        numbers: Option<Vec<Bound<'_, PyAny>>>,
        if_last: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        let removal = match (newest, seq("after", after)?, numbers) {
            (Some(count), None, None) => Removal::newest(count),
            (None, Some(after), None) => Removal::after(after),
            (None, None, Some(numbers)) => {
                let numbers = numbers.iter().map(|number| position("positions", number));
                Removal::numbers(numbers.collect::<PyResult<Vec<Seq>>>()?)
            }
            _ => return Err(invalid(py, "removal", "has no target or several; pass one")),
        };
        let removal = removal
            .with_if_last(seq("if_last", if_last)?)
            .with_idempotency_key(idempotency_key(key)?)
            .with_fence(token(fence));
        self.shared.encoded(py, async move { handle.provider().remove(&thread, removal).await })
    }

    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        number: &Bound<'_, PyAny>,
        revision: &Bound<'_, PyAny>,
        message: String,
        if_last: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        let (number, revision): (Seq, Revision) = (position("seq", number)?, position("revision", revision)?);
        let (if_last, key) = (seq("if_last", if_last)?, idempotency_key(key)?);
        self.shared.encoded(py, async move {
            let message: ChatMessage = json("history.update", "message", &message)?;
            let update = MessageUpdate::new(number, revision, message)
                .with_if_last(if_last)
                .with_idempotency_key(key)
                .with_fence(token(fence));
            handle.provider().update(&thread, update).await
        })
    }

    fn replace(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        up_to: &Bound<'_, PyAny>,
        seen: Option<&Bound<'_, PyAny>>,
        messages: String,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(&of)?, self.handle(py)?);
        let (up_to, seen): (Seq, _) = (position("up_to", up_to)?, seq("seen", seen)?);
        self.shared.encoded(py, async move {
            let messages: Vec<ChatMessage> = json("history.replace", "messages", &messages)?;
            let replacement = Replacement::new(up_to, messages).with_seen(seen.unwrap_or(up_to));
            handle.provider().replace(&thread, replacement.with_fence(token(fence))).await
        })
    }

    fn fork(
        &self,
        py: Python<'_>,
        source: ThreadPair<'_>,
        target: ThreadPair<'_>,
        up_to: Option<&Bound<'_, PyAny>>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (source, target, handle) = (thread(&source)?, thread(&target)?, self.handle(py)?);
        let up_to = seq("up_to", up_to)?;
        let work = async move { handle.provider().fork(&source, &target, up_to, token(fence)).await };
        self.shared.encoded(py, work)
    }

    fn set_ttl(
        &self,
        py: Python<'_>,
        of: ThreadPair<'_>,
        time_to_live: Option<TtlPair>,
        fence: Option<Fence>,
    ) -> PyResult<Call> {
        let (thread, handle, ttl) = (thread(&of)?, self.handle(py)?, ttl(time_to_live));
        let work = async move { handle.provider().set_ttl(&thread, ttl, token(fence)).await };
        self.shared.call(py, work, output::none)
    }

    fn threads(
        &self,
        py: Python<'_>,
        agent: Option<&Bound<'_, PyAny>>,
        after: Option<ThreadPair<'_>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let agent = optional(agent, |agent| id::<AgentId>("agent", agent))?;
        let after = after.as_ref().map(thread).transpose()?;
        let handle = self.handle(py)?;
        let page = PageRequest::first(limit.0).with_after(after);
        self.shared.encoded(py, async move { handle.provider().list_threads(agent.as_ref(), page).await })
    }

    /// Appends the messages of a transcript.
    #[allow(clippy::too_many_arguments)]
    fn import_transcript(
        &self,
        py: Python<'_>,
        to: ThreadPair<'_>,
        text: String,
        digest: String,
        format: Option<String>,
        conversation: Option<String>,
        lossy: bool,
    ) -> PyResult<Call> {
        let (thread, handle) = (thread(&to)?, self.handle(py)?);
        let given = Transcript { text, digest, format, conversation, lossy };
        self.shared.apart(py, async move { import(&handle, &thread, given).await })
    }

    /// Opens a stream of the events after a position.
    fn subscribe(&self, py: Python<'_>, of: ThreadPair<'_>, after: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (thread, handle, after) = (thread(&of)?, self.handle(py)?, position("after", after)?);
        let work = async move {
            let events = handle.provider().subscribe(&thread, after).await?;
            Ok(events.map(|event| output::encode(&event?)).boxed())
        };
        NativeEvents::open(py, &self.shared, work, output::text)
    }
}
