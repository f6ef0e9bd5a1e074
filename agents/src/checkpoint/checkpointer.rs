//! The checkpointer, and its access to the key-value store.

use std::sync::Arc;

use larder_kernel::limits::{BATCH_KEYS_MAX, PAGE_ITEMS_MAX};
use larder_kernel::{
    BlobStore, BucketName, Key, KeyValueEntry, KeyValueItem, KeyValueQuery, KeyValueStore, Page, PageRequest,
    Result,
};

/// The number of times that a change is tried again because another writer changed the namespace.
pub(super) const ATTEMPTS_MAX: u32 = 16;

/// Stores the checkpoints of threads.
///
/// ```
/// use std::sync::Arc;
///
/// use larder_agents::InMemoryKeyValueStore;
/// use larder_agents::checkpoint::{CheckpointThread, Checkpointer, NewCheckpoint};
/// use larder_kernel::ErrorKind;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let checkpoints = Checkpointer::new(Arc::new(InMemoryKeyValueStore::new()));
/// let trip = CheckpointThread::new("trip-1")?.root();
/// let first = NewCheckpoint::new(None, "turn 1").with_value("plan", "Rome").with_delta("messages", "Hello");
/// let first = checkpoints.put(&trip, first).await?;
/// let second = NewCheckpoint::new(first.clone(), "turn 2").with_delta("messages", "By train, please");
/// let second = checkpoints.put(&trip, second).await?;
///
/// // Another writer continued the same checkpoint.
/// let late = checkpoints.put(&trip, NewCheckpoint::new(first, "lost")).await.unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::Conflict);
///
/// let newest = checkpoints.get(&trip, None).await?.unwrap();
/// assert_eq!((newest.info.id, &*newest.state), (second, &b"turn 2"[..]));
/// assert_eq!(newest.channels["plan"].value.as_deref(), Some(&b"Rome"[..]));
/// assert_eq!(newest.channels["messages"].deltas, ["Hello", "By train, please"]);
/// # Ok(())
/// # }
/// ```
///
/// # Limits
///
/// | | limit |
/// |---|---|
/// | name of a thread | 400 bytes |
/// | name of a namespace or a channel | 256 bytes |
/// | id of a checkpoint | 64 visible ASCII characters |
/// | task of a pending write | 128 bytes |
/// | channels of a checkpoint | 1,000 |
/// | values and deltas that one turn writes | 900 |
/// | deltas of a channel after its value | [`DELTAS_MAX`](super::DELTAS_MAX) |
/// | description of a checkpoint: metadata, and the names of its channels and values | 1 MiB |
/// | bytes of one turn, without a blob store | 14 MiB |
#[derive(Debug, Clone)]
pub struct Checkpointer {
    pub(super) store: Arc<dyn KeyValueStore>,
    pub(super) blobs: Option<Arc<dyn BlobStore>>,
}

impl Checkpointer {
    /// Stores checkpoints in the buckets `larder.checkpoints/…` of a store.
    #[must_use]
    pub fn new(store: Arc<dyn KeyValueStore>) -> Self {
        Self { store, blobs: None }
    }

    /// Stores values over 1 MiB as blobs `cp/…`, and the largest values of a turn until the others have at
    /// most 14 MiB. All writers and readers of a thread need the same stores.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// Returns a page of the entries that a query selects.
    pub(super) async fn page(
        &self,
        operation: &'static str,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        let page = self.store.list_entries(bucket, query, page).await;
        page.map_err(|error| error.in_operation(operation))
    }

    /// Returns all entries that a query selects.
    pub(super) async fn entries(
        &self,
        operation: &'static str,
        bucket: &BucketName,
        query: &KeyValueQuery,
    ) -> Result<Vec<KeyValueItem>> {
        let (mut found, mut after): (Vec<KeyValueItem>, Option<Key>) = (Vec::new(), None);
        loop {
            let page = PageRequest::first(PAGE_ITEMS_MAX).with_after(after);
            let page = self.page(operation, bucket, query, page).await?;
            found.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Reads keys, in their order.
    pub(super) async fn read_all(
        &self,
        operation: &'static str,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Vec<Option<KeyValueEntry>>> {
        let mut found = Vec::with_capacity(keys.len());
        while found.len() < keys.len() {
            let rest = &keys[found.len()..];
            let page = self.store.get_many(bucket, &rest[..rest.len().min(BATCH_KEYS_MAX)]).await;
            found.extend(page.map_err(|error| error.in_operation(operation))?.items);
        }
        Ok(found)
    }
}
