//! A store that counts and fails, and short forms of calls.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Key, KeyValueEntry, KeyValueItem, KeyValueQuery, KeyValueStore,
    KeyValueWrite, Outcome, Page, PageRequest, PrefixDeletion, Result, Revision, RunId,
};

use crate::InMemoryKeyValueStore;
use crate::checkpoint::{
    CheckpointFilter, CheckpointId, CheckpointNamespace, CheckpointThread, Checkpointer, NewCheckpoint,
};

/// The numbers of calls and bytes since the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pub(super) calls: u64,
    pub(super) read: u64,
    pub(super) written: u64,
}

/// A store in memory that yields before each call, counts, and fails one call.
#[derive(Debug, Default)]
pub(super) struct Spy {
    inner: InMemoryKeyValueStore,
    calls: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    /// The number of calls up to the one that fails.
    failing: AtomicI64,
    /// The number of calls up to the one whose response is lost.
    losing: AtomicI64,
}

larder_kernel::forward! { Store for Spy }

fn unavailable(outcome: Outcome) -> Error {
    Error::new(ErrorKind::Unavailable, "test", "lost").with_outcome(outcome)
}

impl Spy {
    pub(super) fn take(&self) -> Counts {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Counts { calls: take(&self.calls), read: take(&self.read), written: take(&self.written) }
    }

    /// Fails a call, counted from 1. `lost` applies it first.
    pub(super) fn fail(&self, call: i64, lost: bool) {
        let counter = if lost { &self.losing } else { &self.failing };
        counter.store(call, Ordering::Relaxed);
    }

    async fn enter(&self) -> Result<()> {
        tokio::task::yield_now().await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        let fails = self.failing.fetch_sub(1, Ordering::Relaxed) == 1;
        if fails { Err(unavailable(Outcome::NotApplied)) } else { Ok(()) }
    }

    fn leave<T>(&self, result: Result<T>) -> Result<T> {
        let lost = self.losing.fetch_sub(1, Ordering::Relaxed) == 1;
        if lost { Err(unavailable(Outcome::Unknown)) } else { result }
    }

    fn count<'a>(&self, values: impl IntoIterator<Item = &'a Bytes>) {
        let bytes: usize = values.into_iter().map(Bytes::len).sum();
        self.read.fetch_add(bytes.try_into().unwrap(), Ordering::Relaxed);
    }
}

#[async_trait]
impl KeyValueStore for Spy {
    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        self.enter().await?;
        let found = self.inner.get(bucket, key).await?;
        self.count(found.iter().map(|entry| &entry.value));
        self.leave(Ok(found))
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        self.enter().await?;
        let found = self.inner.get_many(bucket, keys).await?;
        self.count(found.items.iter().flatten().map(|entry| &entry.value));
        self.leave(Ok(found))
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        self.enter().await?;
        let bytes: usize = writes.iter().map(KeyValueWrite::size_bytes).sum();
        let written = self.inner.write(bucket, writes).await?;
        self.written.fetch_add(bytes.try_into().unwrap(), Ordering::Relaxed);
        self.leave(Ok(written))
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        self.enter().await?;
        let deleted = self.inner.delete_prefix(bucket, prefix).await?;
        self.leave(Ok(deleted))
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        self.enter().await?;
        let found = self.inner.list_entries(bucket, query, page).await?;
        self.count(found.items.iter().filter_map(|item| item.value.as_ref()));
        self.leave(Ok(found))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        self.enter().await?;
        let found = self.inner.list_buckets(page).await?;
        self.leave(Ok(found))
    }
}

pub(super) fn open() -> (Arc<Spy>, Checkpointer, CheckpointNamespace) {
    let store = Arc::new(Spy::default());
    let checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
    (store, checkpoints, thread("thread").root())
}

pub(super) fn thread(name: &str) -> CheckpointThread {
    CheckpointThread::new(name).unwrap()
}

pub(super) fn run(name: impl std::fmt::Display) -> RunId {
    RunId::new(name.to_string()).unwrap()
}

/// Writes a line of checkpoints after a parent, each with its number as its state. Two share a run.
pub(super) async fn line(
    checkpoints: &Checkpointer,
    namespace: &CheckpointNamespace,
    count: usize,
) -> Vec<CheckpointId> {
    let mut ids: Vec<CheckpointId> = Vec::new();
    for number in 0..count {
        let new = NewCheckpoint::new(ids.last().cloned(), number.to_string());
        let new = new.with_run(run(format!("run-{}", number / 2)));
        ids.push(checkpoints.put(namespace, new).await.unwrap());
    }
    ids
}

/// Returns the ids of all checkpoints, newest first.
pub(super) async fn listed(checkpoints: &Checkpointer, namespace: &CheckpointNamespace) -> Vec<CheckpointId> {
    let (filter, page) = (CheckpointFilter::default(), PageRequest::first(10_000));
    let page = checkpoints.list(namespace, &filter, page).await.unwrap();
    assert_eq!(page.next, None);
    page.items.into_iter().map(|info| info.id).collect()
}

/// Returns the number of keys of a thread.
pub(super) async fn keys(store: &Spy, thread: &CheckpointThread) -> usize {
    let query = KeyValueQuery::prefix("");
    let page = store.inner.list_entries(&thread.bucket, &query, PageRequest::default()).await.unwrap();
    page.items.len()
}

/// Returns bytes that differ from each other.
pub(super) fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Polls a call as often as it begins calls of the store, then runs `between`, then completes the call. The
/// store yields once before each call, so `calls` of them are complete by then.
pub(super) async fn interrupted<T>(
    call: impl Future<Output = T>,
    calls: usize,
    between: impl Future<Output = ()>,
) -> T {
    let mut call = pin!(call);
    for _ in 0..=calls {
        let ready = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
        assert!(!ready, "the call ended too early");
    }
    between.await;
    call.await
}
