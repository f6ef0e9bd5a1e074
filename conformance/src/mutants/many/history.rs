//! History providers that are wrong for many messages.

use futures_util::{StreamExt, future};
use larder_agents::InMemoryHistoryProvider;
use larder_kernel::storage::history::no_such_message;
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, FencingToken, Forked, HistoryEvents, HistoryProvider,
    MessageFilter, MessageUpdate, Page, PageRequest, Replaced, Replacement, Result, RunId, Seq, Store,
    StoredMessage, Thread, ThreadInfo, Updated,
};

use super::{COUNT_MAX, ITEMS_MAX, ROWS_MAX, cut};

macro_rules! wrong {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append_wrongly($thread, $messages, $options).await
    };
    ($self:ident $contract:ident get_messages($thread:ident, $offset:ident, $limit:ident)) => {
        $self.inner.get_messages($thread, $offset, $self.limit(Defect::WindowCut, $limit)).await
    };
    ($self:ident $contract:ident tail($thread:ident, $before:ident, $limit:ident)) => {
        $self.inner.tail($thread, $before, $self.limit(Defect::TailCut, $limit)).await
    };
    ($self:ident $contract:ident page_after($thread:ident, $after:ident, $limit:ident)) => {
        $self.page_after_wrongly($thread, $after, $limit).await
    };
    ($self:ident $contract:ident tail_matching($thread:ident, $filter:ident, $end:ident, $limit:ident)) => {
        $self.tail_matching_wrongly($thread, $filter, $end, $limit).await
    };
    ($self:ident $contract:ident thread_info($thread:ident)) => {
        $self.thread_info_wrongly($thread).await
    };
    ($self:ident $contract:ident clear($thread:ident, $fence:ident)) => {
        $self.clear_wrongly($thread, $fence).await
    };
    ($self:ident $contract:ident clear_run($thread:ident, $run:ident, $fence:ident)) => {
        $self.clear_run_wrongly($thread, $run, $fence).await
    };
    ($self:ident $contract:ident update($thread:ident, $update:ident)) => {
        $self.update_wrongly($thread, $update).await
    };
    ($self:ident $contract:ident fork($source:ident, $target:ident, $up_to:ident, $fence:ident)) => {
        $self.fork_wrongly($source, $target, $up_to, $fence).await
    };
    ($self:ident $contract:ident replace($thread:ident, $replacement:ident)) => {
        $self.replace_wrongly($thread, $replacement).await
    };
    ($self:ident $contract:ident list_threads($agent:ident, $page:ident)) => {
        $self.list_threads_wrongly($agent, $page).await
    };
    ($self:ident $contract:ident subscribe($thread:ident, $after:ident)) => {
        $self.subscribe_wrongly($thread, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    keys_are_forgotten_after_10000_others: KeysForgotten => ["HIST-007"],
    a_window_ends_after_5000_messages: WindowCut => ["HIST-024"],
    the_tail_has_5000_messages: TailCut => ["HIST-025", "HIST-026"],
    a_thread_ends_after_10000_messages: ThreadCut => ["HIST-028"],
    the_search_for_matches_ends_after_10000_messages: SearchCut => ["HIST-090"],
    a_thread_counts_10000_messages: CountCut => ["HIST-031"],
    a_clear_removes_10000_messages: ClearCut => ["HIST-034"],
    clearing_a_run_removes_10000_messages: RunCut => ["HIST-038"],
    an_update_finds_10000_messages: UpdateCut => ["HIST-140"],
    a_fork_copies_10000_messages: ForkCut => ["HIST-040"],
    a_replacement_counts_10000_messages: ReplacedCut => ["HIST-050"],
    a_page_ends_after_5000_threads: ThreadsCut => ["HIST-061"],
    a_backlog_ends_after_10000_messages: BacklogCut => ["HIST-080"],
    a_lagging_subscription_loses_events: LaggingLoses => ["HIST-086"],
    an_erasure_takes_10000_messages: EraseCut => ["STORE-006"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect }
    }

    fn limit(&self, defect: Defect, limit: usize) -> usize {
        if self.defect == defect && limit > ROWS_MAX && limit <= ITEMS_MAX { ROWS_MAX } else { limit }
    }

    /// Returns the messages behind the first 10,000.
    async fn rest(&self, thread: &Thread) -> Result<Vec<StoredMessage>> {
        self.inner.get_messages(thread, COUNT_MAX, ITEMS_MAX).await
    }

    async fn append(&self, thread: &Thread, rest: Vec<StoredMessage>) -> Result<()> {
        let rest: Vec<ChatMessage> = rest.into_iter().map(|stored| (*stored.message).clone()).collect();
        for batch in rest.chunks(1_000) {
            self.inner.append_many(thread, batch.to_vec(), AppendOptions::default()).await?;
        }
        Ok(())
    }

    async fn append_wrongly(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        mut options: AppendOptions,
    ) -> Result<Appended> {
        let length = self.inner.thread_info(thread).await?.messages;
        if self.defect == Defect::KeysForgotten && length > COUNT_MAX {
            options.idempotency_key = None;
        }
        self.inner.append_many(thread, messages, options).await
    }

    async fn update_wrongly(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        if self.defect == Defect::UpdateCut
            && u64::try_from(update.seq.get()).is_ok_and(|seq| seq > COUNT_MAX)
        {
            return Err(no_such_message());
        }
        self.inner.update(thread, update).await
    }

    async fn page_after_wrongly(
        &self,
        thread: &Thread,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let mut page = self.inner.page_after(thread, after, limit).await?;
        if self.defect == Defect::ThreadCut
            && let Some(end) = self.rest(thread).await?.first()
        {
            page.retain(|stored| stored.seq < end.seq);
        }
        Ok(page)
    }

    async fn tail_matching_wrongly(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let mut found = self.inner.tail_matching(thread, filter, before, limit).await?;
        if self.defect == Defect::SearchCut
            && let Some(oldest) = self.inner.tail(thread, before, ITEMS_MAX).await?.first()
        {
            found.retain(|stored| stored.seq >= oldest.seq);
        }
        Ok(found)
    }

    async fn thread_info_wrongly(&self, thread: &Thread) -> Result<ThreadInfo> {
        let mut info = self.inner.thread_info(thread).await?;
        if self.defect == Defect::CountCut {
            info.messages = info.messages.min(COUNT_MAX);
        }
        Ok(info)
    }

    async fn clear_wrongly(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        if self.defect != Defect::ClearCut {
            return self.inner.clear(thread, fence).await;
        }
        let rest = self.rest(thread).await?;
        let cleared = self.inner.clear(thread, fence).await?;
        self.append(thread, rest).await?;
        Ok(cleared.min(COUNT_MAX))
    }

    async fn clear_run_wrongly(
        &self,
        thread: &Thread,
        run: &RunId,
        fence: Option<FencingToken>,
    ) -> Result<u64> {
        if self.defect != Defect::RunCut {
            return self.inner.clear_run(thread, run, fence).await;
        }
        let mut rest = self.rest(thread).await?;
        rest.retain(|stored| stored.message.run.as_ref() == Some(run));
        let cleared = self.inner.clear_run(thread, run, fence).await?;
        self.append(thread, rest).await?;
        Ok(cleared.min(COUNT_MAX))
    }

    async fn fork_wrongly(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        let last = self.inner.get_messages(source, COUNT_MAX - 1, 1).await?;
        match (self.defect, last.first()) {
            (Defect::ForkCut, Some(last)) => self.inner.fork(source, target, Some(last.seq), fence).await,
            _ => self.inner.fork(source, target, up_to, fence).await,
        }
    }

    async fn replace_wrongly(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        let mut replaced = self.inner.replace(thread, replacement).await?;
        if self.defect == Defect::ReplacedCut {
            replaced.removed = replaced.removed.min(COUNT_MAX);
        }
        Ok(replaced)
    }

    async fn list_threads_wrongly(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        let listed = self.inner.list_threads(agent, page).await?;
        Ok(if self.defect == Defect::ThreadsCut { cut(listed) } else { listed })
    }

    async fn subscribe_wrongly(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let long = !self.rest(thread).await?.is_empty();
        let events = self.inner.subscribe(thread, after).await?;
        let lost = match self.defect {
            Defect::BacklogCut if long => ITEMS_MAX..usize::MAX,
            Defect::LaggingLoses if !long => ITEMS_MAX..ITEMS_MAX + 100,
            _ => return Ok(events),
        };
        let numbered = events.enumerate().filter(move |(number, _)| future::ready(!lost.contains(number)));
        Ok(numbered.map(|(_, event)| event).boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let mut left = Vec::new();
        if self.defect == Defect::EraseCut {
            for info in self.inner.list_threads(None, PageRequest::first(10)).await?.items {
                let rest = self.rest(&info.thread).await?;
                left.extend((!rest.is_empty()).then_some((info.thread, rest)));
            }
        }
        self.inner.erase().await?;
        for (thread, rest) in left {
            self.append(&thread, rest).await?;
        }
        Ok(())
    }
}
