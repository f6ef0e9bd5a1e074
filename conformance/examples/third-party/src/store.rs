//! A history that a developer could write in an afternoon: its methods are correct, and the others are
//! missing.
use std::{collections::BTreeMap, fmt, sync::Arc, sync::Mutex, sync::PoisonError};

use async_trait::async_trait;
use larder_conformance::kernel::storage::history::{
    PageBytes, check_append, check_limit, check_tail_matching,
};
use larder_conformance::kernel::*;

/// The last assigned number, and the messages.
type Messages = (i64, Vec<StoredMessage>);

#[derive(Clone)]
pub struct AfternoonHistory {
    pub namespace: Namespace,
    pub threads: Arc<Mutex<BTreeMap<(Namespace, Thread), Messages>>>,
}
impl AfternoonHistory {
    fn on<T>(&self, thread: &Thread, work: impl FnOnce(&mut Messages) -> T) -> Result<T> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(work(threads.entry((self.namespace.clone(), thread.clone())).or_default()))
    }
}
impl fmt::Debug for AfternoonHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AfternoonHistory")
    }
}
fn info(thread: &Thread, (last, messages): &Messages) -> ThreadInfo {
    let bytes = messages.iter().map(|stored| stored.message.size_bytes() as u64).sum();
    ThreadInfo::new(thread.clone(), messages.len() as u64, bytes, Seq::new(*last))
}

/// Returns a page of messages in the order of the read.
fn page<'a>(last: i64, messages: impl Iterator<Item = &'a StoredMessage>) -> MessagePage {
    let mut messages = messages.cloned().collect();
    let more = PageBytes::cut(&mut messages);
    MessagePage::new(messages, Seq::new(last)).with_more(more)
}
fn newest<'a>(last: i64, newest_first: impl Iterator<Item = &'a StoredMessage>) -> MessagePage {
    let mut page = page(last, newest_first);
    page.messages.reverse();
    page
}

#[async_trait]
impl Store for AfternoonHistory {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::AppendIdempotencyKey,
            RequestOption::AppendTtl,
            RequestOption::MessagesOfAgents,
            RequestOption::MessagesOfRoles,
        ])
    }
    async fn erase(&self) -> Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|(namespace, _), _| *namespace != self.namespace);
        Ok(())
    }
}
#[async_trait]
impl HistoryProvider for AfternoonHistory {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        check_append(&messages, &options)?;
        self.on(thread, |(last, stored)| {
            let first = Seq::new(*last + 1);
            for message in messages {
                *last += 1;
                stored.push(StoredMessage::new(Seq::new(*last), Arc::new(message)));
            }
            Appended::new(first, Seq::new(*last))
        })
    }
    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<MessagePage> {
        check_limit("history.get_messages", limit)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.on(thread, |(last, stored)| page(*last, stored.iter().skip(offset).take(limit)))
    }
    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<MessagePage> {
        check_limit("history.tail", limit)?;
        self.on(thread, |(last, stored)| {
            let end = stored.partition_point(|message| before.is_none_or(|before| message.seq < before));
            newest(*last, stored[..end].iter().rev().take(limit))
        })
    }
    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<MessagePage> {
        check_tail_matching(filter, limit)?;
        self.on(thread, |(last, stored)| {
            let kept = stored.iter().rev().filter(|message| {
                before.is_none_or(|before| message.seq < before) && filter.keeps(thread, &message.message)
            });
            newest(*last, kept.take(limit))
        })
    }
    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        check_limit("history.page_after", limit)?;
        self.on(thread, |(last, stored)| {
            page(*last, stored.iter().filter(|message| message.seq > after).take(limit))
        })
    }
    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        self.on(thread, |messages| info(thread, messages))
    }
    async fn clear(&self, thread: &Thread, _: Option<FencingToken>) -> Result<u64> {
        self.on(thread, |(last, stored)| {
            *last += i64::from(!stored.is_empty());
            stored.drain(..).count() as u64
        })
    }
    async fn clear_run(&self, thread: &Thread, run: &RunId, _: Option<FencingToken>) -> Result<u64> {
        self.on(thread, |(last, stored)| {
            let before = stored.len();
            stored.retain(|stored| stored.message.run.as_ref() != Some(run));
            *last += i64::from(stored.len() < before);
            (before - stored.len()) as u64
        })
    }
    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        page.check("history.list_threads")?;
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let own = threads
            .iter()
            .filter(|((namespace, _), messages)| *namespace == self.namespace && !messages.1.is_empty());
        let wanted = own.filter(|((_, thread), _)| {
            agent.is_none_or(|agent| thread.agent == *agent) && Some(thread) > page.after.as_ref()
        });
        let found =
            wanted.take(page.limit + 1).map(|((_, thread), messages)| info(thread, messages)).collect();
        Ok(Page::from_surplus(found, page.limit, |info: &ThreadInfo| info.thread.clone()))
    }
}
