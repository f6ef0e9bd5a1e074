//! The history provider in SQLite.
//!
//! A thread's row holds its counters, so an append costs the same in a thread of any length. The messages and
//! the other events of a thread share one sequence of numbers; a subscription reads both in that order. When
//! a thread's time to live has passed, the next call that uses the thread, or the expiry task, records the
//! expiry as a clear event.
//!
//! A filter by author is part of the query. The filtered columns precede the body, so dropped messages are
//! not decoded. If the filter includes exactly one author, an index finds that author's messages. Any other
//! filter scans backwards from the newest message.

mod events;
mod expiry;
mod message;
mod read;
mod removal;
mod removal_keys;
mod thread;
mod update;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::history::{
    check_append, check_limit, check_remove, check_replace, check_tail_matching, check_token, check_ttl,
    check_update,
};
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, Error, ErrorKind, FencingToken, Forked, HistoryEvents,
    HistoryProvider, MessageFilter, MessagePage, MessageUpdate, Namespace, Page, PageRequest, Removal,
    Removed, Replaced, Replacement, Result, RunId, Seq, Thread, ThreadInfo, Ttl, Updated,
};
use rusqlite::Connection;

use super::engine::{Engine, ReadBudget};
use super::failure::Fallible;
use super::value::now_ms;
use crate::message::{prepare, prepare_update};
pub(crate) use expiry::{is_due, remove_expired};
use message::Encoded;
use read::{Matching, Range, ReadOutcome};
use thread::{Address, ThreadRow};

/// A [`HistoryProvider`] in an SQLite file: the conversations of one namespace.
pub struct SqliteHistoryProvider {
    engine: Engine,
    namespace: Namespace,
}

impl SqliteHistoryProvider {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        Self { engine, namespace }
    }

    fn address(&self, thread: &Thread) -> Address {
        Address { namespace: self.namespace.clone(), thread: thread.clone() }
    }

    async fn messages(
        &self,
        operation: &'static str,
        thread: &Thread,
        range: Range,
        limit: usize,
    ) -> Result<MessagePage> {
        check_limit(operation, limit)?;
        let fits_inline = range.fits_inline(limit);
        let read = move |sql: &Connection, address: &Address, budget: &mut ReadBudget| {
            read::messages(sql, address, range, limit, budget)
        };
        self.read(operation, thread, fits_inline, read).await
    }

    /// Reads messages, which counts as a use of the thread.
    async fn read<R>(
        &self,
        operation: &'static str,
        thread: &Thread,
        fits_inline: bool,
        read: R,
    ) -> Result<MessagePage>
    where
        R: Fn(&Connection, &Address, &mut ReadBudget) -> Fallible<ReadOutcome> + Clone + Send + 'static,
    {
        loop {
            let (address, read) = (self.address(thread), read.clone());
            let job = move |sql: &Connection, budget: &mut ReadBudget| read(sql, &address, budget);
            let outcome = if fits_inline {
                self.engine.read_inline(operation, job).await?
            } else {
                self.engine.read(operation, move |sql| job(sql, &mut ReadBudget::unlimited())).await?
            };
            match outcome {
                ReadOutcome::Messages { page, refresh: None } => return Ok(page),
                // Only a store that may write records the use and the expiry.
                ReadOutcome::Messages { page, .. } if self.engine.is_read_only() => return Ok(page),
                ReadOutcome::Expired { last } if self.engine.is_read_only() => {
                    return Ok(MessagePage::empty(last));
                }
                ReadOutcome::Messages { page, refresh: Some(refresh) } => {
                    self.engine.write(operation, move |sql| refresh.apply(sql)).await?;
                    return Ok(page);
                }
                ReadOutcome::Expired { .. } => {
                    // The refresh of an earlier read may still be queued, and may have extended the thread's
                    // life.
                    match self.expire(operation, thread).await? {
                        None => return Ok(MessagePage::empty(Seq::ZERO)),
                        Some(row) if row.messages == 0 => return Ok(MessagePage::empty(row.last())),
                        Some(_) => {}
                    }
                }
            }
        }
    }

    /// Records a passed expiry as a clear event.
    async fn expire(&self, operation: &'static str, thread: &Thread) -> Result<Option<ThreadRow>> {
        let address = self.address(thread);
        self.engine.write(operation, move |sql| thread::expire(sql, &address)).await
    }

    /// Runs a job on the current row of the thread, if the thread was ever used, and stores the changed row.
    async fn change<T: Default + Send + 'static>(
        &self,
        operation: &'static str,
        thread: &Thread,
        fence: Option<FencingToken>,
        job: impl FnOnce(&Connection, &mut ThreadRow) -> Fallible<T> + Send + 'static,
    ) -> Result<T> {
        let address = self.address(thread);
        let job = move |sql: &Connection| {
            let Some(mut row) = ThreadRow::find(sql, &address)? else { return Ok(T::default()) };
            row.expire(sql, now_ms())?;
            row.check_fence(operation, fence)?;
            let answer = job(sql, &mut row)?;
            row.save(sql)?;
            Ok(answer)
        };
        self.engine.write(operation, job).await
    }
}

store! {
    SqliteHistoryProvider as store,
    shows: { engine: &store.engine },
    capabilities: super::capabilities(&store.engine),
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
        let namespace = store.namespace.clone();
        let job = move |sql: &Connection| {
            sql.prepare_cached("DELETE FROM threads WHERE namespace = ?1")?.execute([namespace.as_str()])?;
            Ok(())
        };
        store.engine.write("history.erase", job).await
    },
}

#[async_trait]
impl HistoryProvider for SqliteHistoryProvider {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        const OPERATION: &str = "history.append_many";
        check_append(&messages, &options)?;
        let (messages, key) = prepare(OPERATION, messages, options.idempotency_key, |messages| {
            Encoded::all(OPERATION, messages)
        })
        .await?;
        let address = self.address(thread);
        let options = write::Append { key, ttl: options.ttl, if_last: options.if_last, fence: options.fence };
        let job = move |sql: &Connection| write::append(sql, &address, &messages, &options);
        self.engine.write(OPERATION, job).await?
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
        let wanted = Arc::new(Matching { terms: filter.terms(thread), before });
        let read = move |sql: &Connection, address: &Address, _: &mut ReadBudget| {
            read::matching(sql, address, &wanted, limit)
        };
        self.read("history.tail_matching", thread, false, read).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        self.messages("history.page_after", thread, Range::After(after), limit).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        const OPERATION: &str = "history.thread_info";
        let address = self.address(thread);
        let find = move |sql: &Connection, _: &mut ReadBudget| ThreadRow::find(sql, &address);
        let found = self.engine.read_inline(OPERATION, find).await?;
        let row = match found {
            Some(row) if row.has_expired(now_ms()) && self.engine.is_read_only() => {
                Some(row.without_messages())
            }
            Some(row) if row.has_expired(now_ms()) => self.expire(OPERATION, thread).await?,
            found => found,
        };
        row.unwrap_or_default().info(thread.clone()).map_err(|failure| failure.into_error(OPERATION))
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        const OPERATION: &str = "history.clear";
        check_token(OPERATION, fence)?;
        let job = move |sql: &Connection, row: &mut ThreadRow| {
            row.raise_fence(sql, fence)?;
            row.clear(sql)
        };
        self.change(OPERATION, thread, fence, job).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        const OPERATION: &str = "history.clear_run";
        check_token(OPERATION, fence)?;
        let run = run.clone();
        let job = move |sql: &Connection, row: &mut ThreadRow| {
            row.raise_fence(sql, fence)?;
            write::clear_run(sql, row, &run)
        };
        self.change(OPERATION, thread, fence, job).await
    }

    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        check_remove(&removal)?;
        let address = self.address(thread);
        self.engine.write("history.remove", move |sql| removal::remove(sql, &address, &removal)).await?
    }

    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        const OPERATION: &str = "history.update";
        check_update(&update)?;
        let encode = |message: &ChatMessage| Encoded::new(OPERATION, message);
        let (update, message, digest) = prepare_update(OPERATION, update, encode).await?;
        let wanted = update::Update { address: self.address(thread), update, message, digest };
        self.engine.write(OPERATION, move |sql| update::update(sql, &wanted)).await?
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
            return Err(write::target_exists());
        }
        let (source, target) = (self.address(source), self.address(target));
        self.engine.write(OPERATION, move |sql| write::fork(sql, &source, &target, up_to, fence)).await
    }

    async fn replace(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
        const OPERATION: &str = "history.replace";
        check_replace(&replacement)?;
        let messages = std::mem::take(&mut replacement.messages);
        let (messages, _) =
            prepare(OPERATION, messages, None, |messages| Encoded::all(OPERATION, messages)).await?;
        let address = self.address(thread);
        let job = move |sql: &Connection| write::replace(sql, &address, &replacement, &messages);
        self.engine.write(OPERATION, job).await?
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        const OPERATION: &str = "history.list_threads";
        page.check(OPERATION)?;
        let (namespace, agent, limit) = (self.namespace.clone(), agent.cloned(), page.limit);
        let job = move |sql: &Connection| read::threads(sql, &namespace, agent.as_ref(), &page);
        let found = self.engine.read(OPERATION, job).await?;
        Ok(Page::from_surplus(found, limit, |info| info.thread.clone()))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        const OPERATION: &str = "history.set_ttl";
        check_ttl(ttl, fence)?;
        let job = move |sql: &Connection, row: &mut ThreadRow| {
            let there = row.messages > 0;
            if there {
                row.set_ttl(ttl, now_ms());
                row.raise_fence(sql, fence)?;
            }
            Ok(there)
        };
        if self.change(OPERATION, thread, fence, job).await? {
            Ok(())
        } else {
            let message = "the thread has no messages; append a message first";
            Err(Error::new(ErrorKind::NotFound, OPERATION, message))
        }
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        const OPERATION: &str = "history.subscribe";
        // Records a passed expiry as an event, so that the stream begins with it.
        let info = self.thread_info(thread).await.map_err(|error| error.in_operation(OPERATION))?;
        after.check_resume(OPERATION, "after", info.last)?;
        Ok(events::follow(self.engine.clone(), self.address(thread), after.anchored(info.last)))
    }
}
