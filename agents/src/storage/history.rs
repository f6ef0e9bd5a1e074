//! In-memory conversations.

mod events;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::history::{
    append_digest, check_after, check_append, check_before, check_fork, check_if_last, check_limit,
    check_remove, check_remove_at, check_replace, check_tail_matching, check_token, check_ttl, check_update,
    check_update_at, no_such_message,
};
use larder_kernel::{
    AgentId, AppendOptions, Appended, Capabilities, ChatMessage, Durability, Error, ErrorKind, FencingToken,
    Forked, HistoryEvents, HistoryProvider, IdempotencyKey, MessageFilter, MessageUpdate, Namespace,
    OptionSet, Page, PageRequest, Removal, Removed, Replaced, Replacement, RequestOption, Result, RunId, Seq,
    SessionId, Store, StoredMessage, Thread, ThreadInfo, Ttl, Updated,
};

use super::backend::{MemoryBackend, default_namespace, now_ms};
use super::sharded_map::{LogPage, Record, ShardedMap};
use crate::internal::offload;
use state::ThreadState;

type Threads = ShardedMap<Thread, ThreadState>;

/// An in-memory [`HistoryProvider`]: the reference for every other backend, and the default for temporary
/// data.
///
/// Each thread has its own lock, so writers to different threads do not wait for each other.
///
/// ```
/// use larder_agents::storage::InMemoryHistoryProvider;
/// use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let history = InMemoryHistoryProvider::new();
/// let thread = Thread::new("assistant", "session-1")?;
/// history.append(&thread, ChatMessage::user("Where is the jam?")).await?;
/// history.append(&thread, ChatMessage::assistant("Second shelf.")).await?;
///
/// let newest = history.tail(&thread, None, 1).await?;
/// assert_eq!(newest[0].message.text, "Second shelf.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryHistoryProvider {
    backend: MemoryBackend,
    namespace: Namespace,
    threads: Arc<Threads>,
}

impl InMemoryHistoryProvider {
    /// Creates a store in a new backend, in the namespace `default`.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of `namespace` on `backend`. All handles with the same backend and namespace share it.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        let threads = backend.namespace_state::<Threads>(&namespace);
        Self { backend: backend.clone(), namespace, threads }
    }

    /// Runs `work` on the current state of a thread, if it was ever used.
    fn read<R>(&self, thread: &Thread, work: impl FnOnce(&mut ThreadState, i64) -> R) -> Option<R> {
        self.threads.read(thread, |state| {
            let now = now_ms();
            state.expire(&self.backend, now);
            work(state, now)
        })
    }

    /// Works as `read`, for a read of messages, which counts as a use of the thread. `check` gets the
    /// thread's last position.
    fn read_messages(
        &self,
        thread: &Thread,
        check: impl Fn(Seq) -> Result<()>,
        work: impl FnOnce(&ThreadState) -> Vec<StoredMessage>,
    ) -> Result<Vec<StoredMessage>> {
        let messages = self.threads.read(thread, |state| {
            check(state.last())?;
            // Without a time to live, the clock is not needed.
            if state.has_life() {
                let now = now_ms();
                state.expire(&self.backend, now);
                state.touch(now);
            }
            Ok(work(state))
        });
        messages.unwrap_or_else(|| check(Seq::ZERO).map(|()| Vec::new()))
    }

    /// Runs `work` on the thread, and creates it if it was never used.
    fn write<R>(
        &self,
        operation: &'static str,
        thread: &Thread,
        work: impl FnOnce(&mut ThreadState) -> Result<R>,
    ) -> Result<R> {
        let make = || ThreadState::new(operation, &self.backend, thread);
        self.threads.write(&self.backend, thread, make, |state| {
            if state.has_life() {
                state.expire(&self.backend, now_ms());
            }
            work(state)
        })
    }

    /// Runs `work` on a thread that was ever used, if its fence admits the token. Returns 0 for any other
    /// thread.
    fn change_fenced(
        &self,
        operation: &'static str,
        thread: &Thread,
        fence: Option<FencingToken>,
        work: impl FnOnce(&mut ThreadState) -> u64,
    ) -> Result<u64> {
        check_token(operation, fence)?;
        let changed = self.threads.change(&self.backend, thread, |state| {
            state.expire(&self.backend, now_ms());
            state.check_fence(operation, fence)?;
            let removed = work(state);
            state.raise_fence(fence);
            Ok(removed)
        });
        changed.unwrap_or(Ok(0))
    }

    /// Forks under the locks of both threads, which are always taken in the order of their names.
    fn fork_locked(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        const OPERATION: &str = "history.fork";
        loop {
            let Some(from) = self.threads.find(source) else {
                let there = self
                    .read(target, |state, _| state.check_fence(OPERATION, fence).map(|()| !state.is_empty()));
                if there.transpose()?.unwrap_or(false) {
                    return Err(target_is_there());
                }
                return check_fork(up_to, Seq::ZERO).and(Err(nothing_to_fork()));
            };
            let to =
                self.threads.find_or_make(target, || ThreadState::new(OPERATION, &self.backend, target))?;
            let (mut from_state, mut to_state);
            if source < target {
                from_state = from.lock();
                to_state = to.lock();
            } else {
                to_state = to.lock();
                from_state = from.lock();
            }
            // The thread was erased in between: look it up again.
            let (Some(from_live), Some(to_live)) = (from_state.as_mut(), to_state.as_mut()) else { continue };
            let now = now_ms();
            from_live.expire(&self.backend, now);
            to_live.expire(&self.backend, now);
            to_live.check_fence(OPERATION, fence)?;
            if !to_live.is_empty() {
                return Err(target_is_there());
            }
            let fits = check_fork(up_to, from_live.last());
            let copied = from_live.copy(up_to);
            let messages = larder_kernel::check::size(copied.len());
            let done = if fits.is_err() || copied.is_empty() {
                fits.and(Err(nothing_to_fork()))
            } else {
                to_live.append(OPERATION, &self.backend, copied, None)
            };
            if done.is_ok() {
                to_live.raise_fence(fence);
            }
            drop((from_state, to_state));
            to.notify_followers();
            if done.is_err() {
                self.threads.forget_unused(&self.backend, target, &to);
            }
            return Ok(Forked::new(messages, done?.last));
        }
    }
}

fn nothing_to_fork() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "history.fork",
        "the source has no messages to copy; check the thread and `up_to`",
    )
}

fn target_is_there() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "history.fork",
        "the target already has messages; fork into an empty thread",
    )
}

impl Default for InMemoryHistoryProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryHistoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryHistoryProvider").field("backend", &self.backend).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryHistoryProvider {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::AppendIdempotencyKey,
            RequestOption::AppendTtl,
            RequestOption::AppendIfLast,
            RequestOption::RemoveIfLast,
            RequestOption::RemoveIdempotencyKey,
            RequestOption::UpdateIfLast,
            RequestOption::UpdateIdempotencyKey,
            RequestOption::Fence,
            RequestOption::MessagesOfAgents,
            RequestOption::MessagesOfRoles,
        ])
    }

    async fn erase(&self) -> Result<()> {
        self.threads.erase(|state| self.backend.release(state.held()));
        Ok(())
    }
}

/// Returns the messages, and the key with the digest that identifies a repeated append.
async fn digested(
    operation: &'static str,
    messages: Vec<ChatMessage>,
    key: IdempotencyKey,
) -> Result<(Vec<ChatMessage>, Option<(IdempotencyKey, [u8; 32])>)> {
    let bytes = messages.iter().map(ChatMessage::size_bytes).sum();
    offload::run(operation, bytes, move || {
        let digest = append_digest(&messages)?;
        Ok((messages, Some((key, digest))))
    })
    .await
}

#[async_trait]
impl HistoryProvider for InMemoryHistoryProvider {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        const OPERATION: &str = "history.append_many";
        check_append(&messages, &options)?;
        let (messages, key) = match options.idempotency_key {
            Some(key) => digested(OPERATION, messages, key).await?,
            None => (messages, None),
        };
        self.write(OPERATION, thread, |state| {
            if let Some((key, digest)) = &key
                && let Some(first_answer) = state.repeated(key, digest)?
            {
                state.raise_fence(options.fence);
                return Ok(first_answer);
            }
            state.check_fence(OPERATION, options.fence)?;
            check_if_last(OPERATION, options.if_last, state.last())?;
            let appended = state.append(OPERATION, &self.backend, messages, key)?;
            match options.ttl {
                Some(ttl) => state.set_ttl(Some(ttl), now_ms()),
                None if state.has_life() => state.touch(now_ms()),
                None => {}
            }
            state.raise_fence(options.fence);
            Ok(appended)
        })
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        check_limit("history.get_messages", limit)?;
        self.read_messages(thread, |_| Ok(()), |state| state.window(offset, limit))
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        const OPERATION: &str = "history.tail";
        check_limit(OPERATION, limit)?;
        let check = |last| check_before(OPERATION, before, last);
        self.read_messages(thread, check, |state| state.tail(before, limit))
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        check_tail_matching(filter, limit)?;
        let check = |last| check_before("history.tail_matching", before, last);
        self.read_messages(thread, check, |state| state.tail_matching(thread, filter, before, limit))
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        const OPERATION: &str = "history.page_after";
        check_limit(OPERATION, limit)?;
        let check = |last| check_after(OPERATION, after, last);
        self.read_messages(thread, check, |state| state.after(after.get(), limit))
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        let info = self.read(thread, |state, _| state.info(thread));
        Ok(info.unwrap_or_else(|| ThreadInfo::new(thread.clone(), 0, 0, Seq::ZERO)))
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        self.change_fenced("history.clear", thread, fence, |state| state.clear(&self.backend))
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        let clear = |state: &mut ThreadState| state.clear_run(&self.backend, run);
        self.change_fenced("history.clear_run", thread, fence, clear)
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        check_remove(&removal)?;
        let remove = |state: &mut ThreadState| {
            let now_ms = now_ms();
            state.expire(&self.backend, now_ms);
            state.remove(&self.backend, &removal, now_ms)
        };
        // Only a key must be remembered, so only a removal with a key creates the thread.
        if removal.idempotency_key.is_some() {
            return self.write("history.remove", thread, remove);
        }
        self.threads.change(&self.backend, thread, remove).unwrap_or_else(|| {
            check_if_last("history.remove", removal.if_last, Seq::ZERO)?;
            check_remove_at(&removal, Seq::ZERO)?;
            Ok(Removed::new(0, Seq::ZERO))
        })
    }

    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        const OPERATION: &str = "history.update";
        check_update(&update)?;
        let digest = match &update.idempotency_key {
            Some(_) => {
                let hashed = update.clone();
                let bytes = hashed.message.size_bytes();
                Some(offload::run(OPERATION, bytes, move || hashed.digest()).await?)
            }
            None => None,
        };
        let change = |state: &mut ThreadState| {
            state.expire(&self.backend, now_ms());
            state.update(&self.backend, &update, digest)
        };
        self.threads.change(&self.backend, thread, change).unwrap_or_else(|| {
            check_if_last(OPERATION, update.if_last, Seq::ZERO)?;
            check_update_at(&update, Seq::ZERO)?;
            Err(no_such_message())
        })
    }

    async fn fork(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        check_token("history.fork", fence)?;
        if source == target {
            return Err(target_is_there());
        }
        self.fork_locked(source, target, up_to, fence)
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        check_replace(&replacement)?;
        const OPERATION: &str = "history.replace";
        let fence = replacement.fence;
        self.write(OPERATION, thread, |state| {
            state.check_fence(OPERATION, fence)?;
            let replaced = state.replace(&self.backend, replacement)?;
            state.raise_fence(fence);
            Ok(replaced)
        })
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        page.check("history.list_threads")?;
        // No session sorts before U+0001, because an id has at least one character and none is NUL.
        let first = match agent {
            Some(agent) => Some(Thread { agent: agent.clone(), session: SessionId::new("\u{1}")? }),
            None => None,
        };
        let start = match (first, page.after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let mut found = Vec::new();
        self.threads.scan(start, |thread, state| {
            if found.len() > page.limit || agent.is_some_and(|agent| thread.agent != *agent) {
                return ControlFlow::Break(());
            }
            state.expire(&self.backend, now_ms());
            if !state.is_empty() {
                found.push(state.info(&thread));
            }
            ControlFlow::Continue(())
        });
        Ok(Page::from_surplus(found, page.limit, |info| info.thread.clone()))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        const OPERATION: &str = "history.set_ttl";
        check_ttl(ttl, fence)?;
        let set = self.threads.change(&self.backend, thread, |state| -> Result<bool> {
            let now = now_ms();
            state.expire(&self.backend, now);
            state.check_fence(OPERATION, fence)?;
            let there = !state.is_empty();
            if there {
                state.set_ttl(ttl, now);
                state.raise_fence(fence);
            }
            Ok(there)
        });
        if set.transpose()? == Some(true) {
            Ok(())
        } else {
            let message = "the thread has no messages; append a message first";
            Err(Error::new(ErrorKind::NotFound, OPERATION, message))
        }
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        const OPERATION: &str = "history.subscribe";
        let (backend, named) = (self.backend.clone(), thread.clone());
        let make = move || ThreadState::new(OPERATION, &backend, &named);
        let following = self.threads.follow(&self.backend, thread, make)?;
        let last = following.slot().lock().as_ref().map_or(Seq::ZERO, ThreadState::last);
        after.check_resume(OPERATION, "after", last)?;
        let from_start = after <= Seq::ZERO && after.generation().is_none();
        let (backend, mut cursor) = (self.backend.clone(), after.get());
        Ok(following.stream(move |state| match state {
            Some(state) => {
                state.expire(&backend, now_ms());
                Ok(state.events_after(&mut cursor))
            }
            // The watch started at the beginning and has delivered nothing, so it misses nothing.
            None if from_start && cursor == after.get() => Ok(LogPage::empty()),
            None => Err(Error::erased(OPERATION)),
        }))
    }
}
