//! The history provider in Postgres.
//!
//! A thread's row holds its counters, and its lock orders the thread's writers. So numbers become visible in
//! order, and an append costs the same in a thread of any length. Each write is one call of a function in the
//! database: one round trip and one transaction. Concurrent appends of several callers share a call. When a
//! thread's time to live has passed, the next call that uses the thread, or the sweep, records the expiry as
//! a clear event.
//!
//! A filter by author is part of the query, so dropped messages are not fetched. If the filter includes
//! exactly one author, an index finds that author's messages. Any other filter scans backwards from the
//! newest message.

mod append_batcher;
mod events;
mod lifetime;
mod read;
mod removal;
mod update;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::history::{
    check_after, check_append, check_before, check_limit, check_remove, check_replace, check_tail_matching,
    check_token, check_ttl, check_update,
};
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, Error, ErrorKind, FencingToken, Forked, HistoryEvents,
    HistoryProvider, MessageFilter, MessageUpdate, Namespace, Page, PageRequest, Removal, Removed, Replaced,
    Replacement, Result, RunId, Seq, StoredMessage, Thread, ThreadInfo, Ttl, Updated,
};

use super::engine::Engine;
use crate::message::{prepare, prepare_update};
pub(crate) use append_batcher::AppendBatcher;
use read::{Matching, Range, Seen, Wanted};
use write::Batch;

const APPEND: &str = "history.append_many";

/// The namespace and ids that identify a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Address {
    namespace: Namespace,
    thread: Thread,
}

impl Address {
    /// Returns the namespace, agent and session.
    fn key(&self) -> (&str, &str, &str) {
        (self.namespace.as_str(), self.thread.agent.as_str(), self.thread.session.as_str())
    }
}

/// A [`HistoryProvider`] in a Postgres database: the conversations of one namespace.
pub struct PostgresHistoryProvider {
    engine: Engine,
    appends: Arc<AppendBatcher>,
    namespace: Namespace,
}

impl PostgresHistoryProvider {
    pub(crate) fn new(engine: Engine, appends: Arc<AppendBatcher>, namespace: Namespace) -> Self {
        Self { engine, appends, namespace }
    }

    fn address(&self, thread: &Thread) -> Address {
        Address { namespace: self.namespace.clone(), thread: thread.clone() }
    }

    /// Reads messages, which counts as a use of the thread.
    async fn messages(
        &self,
        operation: &'static str,
        thread: &Thread,
        range: Range,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        check_limit(operation, limit)?;
        let wanted = Wanted { address: self.address(thread), range, limit };
        let seen = self.engine.read(operation, &wanted, |sql, wanted| read::messages(sql, wanted)).await?;
        let (position, last) = (range.position(), seen.last.unwrap_or(Seq::ZERO));
        let checked = match range {
            Range::Before(before) if seen.last.is_some() => check_before(operation, before, last),
            Range::After(after) => check_after(operation, after, last),
            Range::Before(_) | Range::Offset(_) => Ok(()),
        };
        self.explained(checked, position, last).await?;
        self.settle(operation, &wanted.address, seen).await
    }

    /// Explains the refusal of a position in a thread whose last position is `last`.
    async fn explained(&self, checked: Result<()>, position: Option<Seq>, last: Seq) -> Result<()> {
        match checked {
            Ok(()) => Ok(()),
            Err(refusal) => {
                let may_follow = position.is_some_and(|position| position.may_follow(last));
                Err(self.engine.explain_position(refusal, may_follow).await)
            }
        }
    }

    /// Applies the effects of a read of messages on the thread's time to live.
    async fn settle(
        &self,
        operation: &'static str,
        address: &Address,
        seen: Seen,
    ) -> Result<Vec<StoredMessage>> {
        let write = self.engine.write();
        if seen.expired {
            self.engine
                .read(operation, address, |sql, address| lifetime::expire(sql, write, address))
                .await?;
        } else if let Some(read_ms) = seen.refresh {
            self.engine
                .read(operation, address, |sql, address| lifetime::refresh(sql, write, address, read_ms))
                .await?;
        }
        Ok(seen.messages)
    }
}

store! {
    PostgresHistoryProvider as store,
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
    erase: {
        // In steps, so that no statement exceeds its time limit.
        while store
            .engine
            .statement("history.erase", &store.namespace, write::erase)
            .await?
        {}
        Ok(())
    },
}

#[async_trait]
impl HistoryProvider for PostgresHistoryProvider {
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
        let AppendOptions { ttl, if_last, fence, .. } = options;
        let append = write::Append { address: self.address(thread), batch, key, ttl, if_last, fence };
        let appended = append_batcher::append(&self.appends, append).await;
        appended.map_err(|error| error.with_idempotent(repeatable))
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        self.messages("history.get_messages", thread, Range::Offset(offset), limit).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        self.messages("history.tail", thread, Range::Before(before), limit).await
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        const OPERATION: &str = "history.tail_matching";
        check_tail_matching(filter, limit)?;
        let (address, terms) = (self.address(thread), filter.terms(thread));
        let wanted = Matching { address, terms, before, limit };
        let seen = self.engine.read(OPERATION, &wanted, |sql, wanted| read::matching(sql, wanted)).await?;
        let last = seen.last.unwrap_or(Seq::ZERO);
        self.explained(check_before(OPERATION, before, last), before, last).await?;
        self.settle(OPERATION, &wanted.address, seen).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        self.messages("history.page_after", thread, Range::After(after), limit).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        let (address, write) = (self.address(thread), self.engine.write());
        let info =
            self.engine.read("history.thread_info", &address, |sql, address| read::info(sql, write, address));
        info.await
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        const OPERATION: &str = "history.clear";
        check_token(OPERATION, fence)?;
        let address = self.address(thread);
        let clear = self
            .engine
            .statement(OPERATION, &address, |sql, write, address| write::clear(sql, write, address, fence));
        clear.await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        const OPERATION: &str = "history.clear_run";
        check_token(OPERATION, fence)?;
        let wanted = (self.address(thread), run.clone());
        self.engine
            .statement(OPERATION, &wanted, |sql, write, (address, run)| {
                write::clear_run(sql, write, address, run, fence)
            })
            .await
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        check_remove(&removal)?;
        let repeatable = removal.idempotency_key.is_some();
        let wanted = (self.address(thread), removal);
        let removed = self.engine.statement("history.remove", &wanted, |sql, write, (address, removal)| {
            removal::remove(sql, write, address, removal)
        });
        removed.await.map_err(|error| error.with_idempotent(repeatable))
    }

    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        const OPERATION: &str = "history.update";
        check_update(&update)?;
        let repeatable = update.idempotency_key.is_some();
        let encode = |message: &ChatMessage| Batch::new(OPERATION, std::slice::from_ref(message));
        let (update, batch, digest) = prepare_update(OPERATION, update, encode).await?;
        let wanted = update::Update { address: self.address(thread), update, batch, digest };
        let updated = self.engine.statement(OPERATION, &wanted, update::update).await;
        updated.map_err(|error| error.with_idempotent(repeatable))
    }

    async fn fork(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        const OPERATION: &str = "history.fork";
        check_token(OPERATION, fence)?;
        if source == target {
            return Err(write::target_is_there());
        }
        let fork = (self.address(source), self.address(target), up_to);
        self.engine
            .statement(OPERATION, &fork, |sql, write, (source, target, up_to)| {
                write::fork(sql, write, source, target, *up_to, fence)
            })
            .await
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        const OPERATION: &str = "history.replace";
        check_replace(&replacement)?;
        let Replacement { up_to, seen, messages, fence, .. } = replacement;
        let (batch, _) =
            prepare(OPERATION, messages, None, |messages| Batch::new(OPERATION, messages)).await?;
        let replace = write::Replace { address: self.address(thread), batch, up_to, seen, fence };
        self.engine.statement(OPERATION, &replace, write::replace).await
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        const OPERATION: &str = "history.list_threads";
        page.check(OPERATION)?;
        let limit = page.limit;
        let wanted = (self.namespace.clone(), agent.cloned(), page);
        let found = self
            .engine
            .read(OPERATION, &wanted, |sql, (namespace, agent, page)| {
                read::threads(sql, namespace, agent.as_ref(), page)
            })
            .await?;
        Ok(Page::from_surplus(found, limit, |info| info.thread.clone()))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        const OPERATION: &str = "history.set_ttl";
        check_ttl(ttl, fence)?;
        let address = self.address(thread);
        let set = self.engine.statement(OPERATION, &address, |sql, write, address| {
            lifetime::set_ttl(sql, write, address, ttl, fence)
        });
        if set.await? {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::NotFound,
                OPERATION,
                "the thread has no messages; append a message first",
            ))
        }
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        const OPERATION: &str = "history.subscribe";
        let address = self.address(thread);
        // Records a passed expiry as an event, so that the stream begins with it.
        let write = self.engine.write();
        let number = self
            .engine
            .read(OPERATION, &address, |sql, address| lifetime::notify_number(sql, write, address))
            .await?;
        let info =
            self.engine.read(OPERATION, &address, |sql, address| read::info(sql, write, address)).await?;
        self.explained(after.check_resume(OPERATION, "after", info.last), Some(after), info.last).await?;
        Ok(events::follow(self.engine.clone(), address, number, after.anchored(info.last)))
    }
}
