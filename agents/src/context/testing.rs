//! A test history that counts reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use larder_kernel::{
    AgentId, AppendOptions, Appended, Capabilities, ChatMessage, Forked, HistoryEvents, HistoryProvider,
    MessageFilter, Namespace, OptionSet, Page, PageRequest, Replaced, Replacement, Result, RunId, Seq, Store,
    StoredMessage, Thread, ThreadInfo, Ttl, check,
};

#[derive(Debug)]
pub(crate) struct CountingHistory {
    inner: Arc<dyn HistoryProvider>,
    messages: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl CountingHistory {
    pub(crate) fn new(inner: Arc<dyn HistoryProvider>) -> Self {
        let [messages, reads, writes] = [const { AtomicU64::new(0) }; 3];
        Self { inner, messages, reads, writes }
    }

    fn counted(&self, messages: Vec<StoredMessage>) -> Vec<StoredMessage> {
        self.messages.fetch_add(check::size(messages.len()), Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        messages
    }

    /// Returns the numbers of messages read and of reads since the last call.
    pub(crate) fn take(&self) -> (u64, u64) {
        (self.messages.swap(0, Ordering::SeqCst), self.reads.swap(0, Ordering::SeqCst))
    }

    /// Returns the number of calls since the last call that could change data.
    pub(crate) fn take_writes(&self) -> u64 {
        self.writes.swap(0, Ordering::SeqCst)
    }

    fn writing(&self) -> &dyn HistoryProvider {
        self.writes.fetch_add(1, Ordering::SeqCst);
        &*self.inner
    }
}

#[async_trait]
impl Store for CountingHistory {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.inner.options()
    }

    async fn erase(&self) -> Result<()> {
        self.writing().erase().await
    }
}

#[async_trait]
impl HistoryProvider for CountingHistory {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        self.writing().append_many(thread, messages, options).await
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        Ok(self.counted(self.inner.get_messages(thread, offset, limit).await?))
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        Ok(self.counted(self.inner.tail(thread, before, limit).await?))
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        Ok(self.counted(self.inner.tail_matching(thread, filter, before, limit).await?))
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        Ok(self.counted(self.inner.page_after(thread, after, limit).await?))
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        self.inner.thread_info(thread).await
    }

    async fn clear(&self, thread: &Thread) -> Result<u64> {
        self.writing().clear(thread).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        self.writing().clear_run(thread, run).await
    }

    async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        self.writing().fork(source, target, up_to).await
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        self.writing().replace(thread, replacement).await
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        self.inner.list_threads(agent, page).await
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        self.writing().set_ttl(thread, ttl).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        self.inner.subscribe(thread, after).await
    }
}
