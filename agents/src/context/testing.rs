//! A test history that counts reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use larder_kernel::{
    Capabilities, HistoryProvider, MessagePage, Namespace, OptionSet, Result, Store, check, forward,
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

    fn counted(&self, page: MessagePage) -> MessagePage {
        self.messages.fetch_add(check::size(page.messages.len()), Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        page
    }

    /// Returns the numbers of messages read and of reads since the last call.
    pub(crate) fn take(&self) -> (u64, u64) {
        (self.messages.swap(0, Ordering::SeqCst), self.reads.swap(0, Ordering::SeqCst))
    }

    /// Returns the number of calls since the last call that could change data.
    pub(crate) fn take_writes(&self) -> u64 {
        self.writes.swap(0, Ordering::SeqCst)
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
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.inner.erase().await
    }
}

macro_rules! counted {
    (read $self:ident $method:ident($($argument:ident),*)) => {
        Ok($self.counted($self.inner.$method($($argument),*).await?))
    };
    ($self:ident $contract:ident get_messages $arguments:tt) => {
        counted!(read $self get_messages $arguments)
    };
    ($self:ident $contract:ident tail $arguments:tt) => {
        counted!(read $self tail $arguments)
    };
    ($self:ident $contract:ident tail_matching $arguments:tt) => {
        counted!(read $self tail_matching $arguments)
    };
    ($self:ident $contract:ident page_after $arguments:tt) => {
        counted!(read $self page_after $arguments)
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {{
        if !["thread_info", "list_threads", "subscribe"].contains(&stringify!($method)) {
            $self.writes.fetch_add(1, Ordering::SeqCst);
        }
        $self.inner.$method($($argument),*).await
    }};
}

forward!(HistoryProvider for CountingHistory, counted);
