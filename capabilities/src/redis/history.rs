//! The history provider in Redis.
//!
//! A thread's keys share one slot, and each of its writes is one script: one round trip, and atomic. Its
//! messages are in a set sorted by their numbers, so each append and each read of the newest messages costs
//! O(log n) of the thread's length. When a thread's time to live passes, the server removes its messages. The
//! next script on the thread records the expiry as a clear event.
//!
//! The server evaluates a filter by author in steps of at most 2,000 messages or 4 MiB, because a running
//! script blocks all other clients. A longer scan takes one round trip for each step.

mod address;
mod events;
mod fast_path;
mod fork;
mod index;
mod matching;
mod message;
mod read;
mod removal;
mod scripts;
mod update;
pub(super) mod verify;
mod write;

use async_trait::async_trait;
use larder_kernel::storage::history::{
    check_append, check_limit, check_remove, check_replace, check_tail_matching, check_token, check_ttl,
    check_update,
};
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, FencingToken, Forked, HistoryEvents, HistoryProvider,
    MessageFilter, MessagePage, MessageUpdate, Namespace, Page, PageRequest, Removal, Removed, Replaced,
    Replacement, Result, RunId, Seq, Thread, ThreadInfo, Ttl, Updated,
};

use super::engine::Engine;
use crate::message::{prepare, prepare_update};
use address::Address;
use fast_path::FastAppendCache;
use index::Index;
use matching::Matching;
use message::Batch;
use read::Range;

const APPEND: &str = "history.append_many";
const REPLACE: &str = "history.replace";

/// A [`HistoryProvider`] on a Redis server or cluster: the conversations of one namespace.
pub struct RedisHistoryProvider {
    engine: Engine,
    namespace: Namespace,
    index: Index,
    fast: FastAppendCache,
}

impl RedisHistoryProvider {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        let index = Index::new(engine.clone(), namespace.clone());
        Self { engine, namespace, index, fast: FastAppendCache::default() }
    }

    fn address(&self, thread: &Thread) -> Address {
        Address::new(self.engine.prefix(), &self.namespace, thread)
    }

    /// Reads messages, which counts as a use of the thread.
    async fn messages(
        &self,
        operation: &'static str,
        thread: &Thread,
        range: Range,
        limit: usize,
    ) -> Result<MessagePage> {
        check_limit(operation, limit)?;
        read::messages(&self.engine, operation, &self.address(thread), range, limit).await
    }
}

store! {
    RedisHistoryProvider as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [
        AppendIdempotencyKey,
        AppendTtl,
        AppendIfLast,
        RemoveIfLast,
        RemoveIdempotencyKey,
        UpdateIfLast,
        UpdateIdempotencyKey,
        Fence,
        MessagesOfAgents,
        MessagesOfRoles
    ],
    erase: store.index.erase("history.erase").await,
}

#[async_trait]
impl HistoryProvider for RedisHistoryProvider {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        check_append(&messages, &options)?;
        let (batch, key) =
            prepare(APPEND, messages, options.idempotency_key, |messages| Batch::new(APPEND, messages))
                .await?;
        let repeatable = key.is_some();
        let address = self.address(thread);
        let AppendOptions { ttl, if_last, fence, .. } = options;
        let options = write::Append { key, ttl, if_last, fence };
        let appended = write::append(&self.index, &self.fast, &address, batch, options).await;
        appended.map_err(|error| error.with_idempotent(repeatable))
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<MessagePage> {
        self.messages("history.get_messages", thread, Range::Offset(offset), limit).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<MessagePage> {
        self.messages("history.tail", thread, Range::Before(before), limit).await
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<MessagePage> {
        check_tail_matching(filter, limit)?;
        let wanted = Matching { thread, filter, before, limit };
        matching::messages(&self.engine, &self.address(thread), &wanted).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        self.messages("history.page_after", thread, Range::After(after), limit).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        read::settle(&self.engine, "history.thread_info", &self.address(thread)).await
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        check_token("history.clear", fence)?;
        write::clear(&self.engine, &self.address(thread), fence).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        check_token("history.clear_run", fence)?;
        write::clear_run(&self.engine, &self.address(thread), run, fence).await
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        check_remove(&removal)?;
        let repeatable = removal.idempotency_key.is_some();
        let removed = removal::remove(&self.index, &self.address(thread), &removal).await;
        removed.map_err(|error| error.with_idempotent(repeatable))
    }

    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        const OPERATION: &str = "history.update";
        check_update(&update)?;
        let repeatable = update.idempotency_key.is_some();
        let encode = |message: &ChatMessage| Batch::new(OPERATION, std::slice::from_ref(message));
        let (update, batch, digest) = prepare_update(OPERATION, update, encode).await?;
        let updated = update::update(&self.index, &self.address(thread), &update, batch, digest).await;
        updated.map_err(|error| error.with_idempotent(repeatable))
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
            return Err(fork::target_is_there());
        }
        let (source, target) = (self.address(source), self.address(target));
        fork::fork(&self.engine, &self.index, &source, &target, up_to, fence).await
    }

    async fn replace(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
        check_replace(&replacement)?;
        let messages = std::mem::take(&mut replacement.messages);
        let (batch, _) = prepare(REPLACE, messages, None, |messages| Batch::new(REPLACE, messages)).await?;
        write::replace(&self.index, &self.address(thread), &replacement, batch).await
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        const OPERATION: &str = "history.list_threads";
        page.check(OPERATION)?;
        if page.limit == 0 {
            return Ok(Page::empty());
        }
        let found = self.index.page(OPERATION, agent, &page).await?;
        Ok(Page::from_surplus(found, page.limit, |info| info.thread.clone()))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        check_ttl(ttl, fence)?;
        write::set_ttl(&self.engine, &self.address(thread), ttl, fence).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        const OPERATION: &str = "history.subscribe";
        let address = self.address(thread);
        // Records a passed expiry as an event, so that the stream begins with it.
        let info = read::settle(&self.engine, OPERATION, &address).await?;
        after.check_resume(OPERATION, "after", info.last)?;
        Ok(events::follow(self.engine.clone(), address, after.anchored(info.last)))
    }
}
