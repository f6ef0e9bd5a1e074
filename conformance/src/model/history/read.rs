//! The operations that read a thread.

use larder_kernel::check::size;
use larder_kernel::storage::history::{PageBytes, check_after, check_limit};
use larder_kernel::{AgentId, HistoryProvider, MessagePage, PageRequest, Seq, Thread};

use super::names::{At, thread as shown};
use super::{Held, History, Message};
use crate::model::compare::{Checked, Expected, same};
use crate::model::recorder::{Recorder, id, optional, page};
use crate::model::shared::page_of;

impl History {
    pub(super) async fn get(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, offset, limit): (&Thread, u64, usize),
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "HIST-024";
        recorder.call(CLAUSE, |_| format!("get_messages({}, {offset}, {limit})", shown(thread)));
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        let held = self.held(thread);
        let messages = held.messages.iter().skip(skipped).take(limit);
        let expected = limited("history.get_messages", limit, || held.page(messages));
        same(recorder, CLAUSE, &store.get_messages(thread, offset, limit).await, &expected)
    }

    pub(super) async fn tail(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, before, limit): (&Thread, Option<At>, usize),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let before = before.map(|at| held.seq(at));
        let clause = if before.is_some() { "HIST-026" } else { "HIST-025" };
        recorder.call(clause, |_| {
            let before = optional(before, |seq| format!("Seq::new({seq})"));
            format!("tail({}, {before}, {limit})", shown(thread))
        });
        let wanted = |held: &&Message| before.is_none_or(|before| held.seq < before.get());
        let messages = held.messages.iter().filter(wanted).rev().take(limit);
        let expected = limited("history.tail", limit, || held.newest(messages));
        same(recorder, clause, &store.tail(thread, before, limit).await, &expected)
    }

    pub(super) async fn page_after(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, after, limit): (&Thread, At, usize),
        recorder: &mut Recorder,
    ) -> Checked {
        const OPERATION: &str = "history.page_after";
        let held = self.held(thread);
        let after: Seq = held.seq(after);
        let lost = check_after(OPERATION, after, Seq::new(held.last));
        let clause = if lost.is_ok() { "HIST-028" } else { "HIST-100" };
        recorder.call(clause, |_| format!("page_after({}, Seq::new({after}), {limit})", shown(thread)));
        let messages = held.messages.iter().filter(|held| held.seq > after.get()).take(limit);
        let expected = limited(OPERATION, limit, || held.page(messages));
        let expected = expected.and_then(|page| Ok(lost.map(|()| page)?));
        same(recorder, clause, &store.page_after(thread, after, limit).await, &expected)
    }

    pub(super) async fn info(
        &mut self,
        store: &dyn HistoryProvider,
        thread: &Thread,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "HIST-031";
        recorder.call(CLAUSE, |_| format!("thread_info({})", shown(thread)));
        same(recorder, CLAUSE, &store.thread_info(thread).await, &Ok(self.held(thread).info(thread)))
    }

    pub(super) async fn list_threads(
        &mut self,
        store: &dyn HistoryProvider,
        (agent, request): (Option<&AgentId>, &PageRequest<Thread>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = match (agent, &request.after) {
            (Some(_), _) => "HIST-062",
            (None, Some(_)) => "HIST-061",
            (None, None) => "HIST-060",
        };
        recorder.call(clause, |_| {
            let key = |thread: &Thread| shown(thread).trim_start_matches('&').to_owned();
            format!("list_threads({}, {})", optional(agent, id), page(request, key))
        });
        let there = self.threads.iter().filter(|(thread, held)| {
            !held.messages.is_empty() && agent.is_none_or(|agent| thread.agent == *agent)
        });
        let there = there.map(|(thread, held)| held.info(thread));
        let expected = request
            .check("history.list_threads")
            .map(|()| page_of(there, request, |info| info.thread.clone()))
            .map_err(Into::into);
        same(recorder, clause, &store.list_threads(agent, request.clone()).await, &expected)
    }
}

pub(super) fn limited(
    operation: &'static str,
    limit: usize,
    page: impl FnOnce() -> MessagePage,
) -> Expected<MessagePage> {
    check_limit(operation, limit)?;
    Ok(page())
}

impl Held {
    /// Returns a page of messages in the order of the read.
    fn page<'a>(&self, messages: impl Iterator<Item = &'a Message>) -> MessagePage {
        let (mut bytes, mut page) = (PageBytes::default(), MessagePage::empty(Seq::new(self.last)));
        for held in messages {
            if !bytes.fits(size(held.message.size_bytes())) {
                return page.with_more(true);
            }
            page.messages.push(held.stored());
        }
        page
    }

    pub(super) fn newest<'a>(&self, newest_first: impl Iterator<Item = &'a Message>) -> MessagePage {
        let mut page = self.page(newest_first);
        page.messages.reverse();
        page
    }
}
