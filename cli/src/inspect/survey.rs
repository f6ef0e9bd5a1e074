//! The survey of a namespace, read with the listings of the contracts.

use futures_util::{StreamExt, TryStreamExt, stream};
use larder::Stores;
use larder_kernel::{Board, BoardStatusCounts, Contract, Page, PageRequest, Result, ThreadInfo, Timestamp};
use serde::Serialize;

/// The number of items per page.
const PAGE: usize = 500;
/// The number of concurrent requests for single items.
const AT_ONCE: usize = 8;

/// The contents of the stores of one namespace.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Survey {
    pub(crate) namespace: String,
    /// The maximum number of items that were listed or counted of each kind.
    pub(crate) limit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<Listed<ThreadRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vectors: Option<Listed<CollectionRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) graph: Option<GraphRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blobs: Option<BlobRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks: Option<Listed<BoardRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_value: Option<Listed<BucketRow>>,
}

/// A listing, possibly truncated.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    /// `true` if more items exist than were listed.
    pub(crate) cut: bool,
}

/// A conversation.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ThreadRow {
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// The time of the last message, by its writer's clock.
    pub(crate) last_at: Option<Timestamp>,
}

/// A collection of documents.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CollectionRow {
    pub(crate) collection: String,
    pub(crate) dimensions: usize,
    pub(crate) documents: u64,
}

/// The graph.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct GraphRow {
    pub(crate) entities: u64,
    pub(crate) relationships: u64,
}

/// The totals of all files, and the first files.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BlobRow {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// `true` if more files exist than were counted.
    pub(crate) cut: bool,
    pub(crate) items: Vec<BlobItem>,
}

/// A file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BlobItem {
    pub(crate) key: String,
    pub(crate) bytes: u64,
    pub(crate) modified_at: Timestamp,
}

/// A board of tasks.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BoardRow {
    pub(crate) conversation: String,
    pub(crate) agent: String,
    pub(crate) label: Option<String>,
    /// The number of tasks in each status.
    pub(crate) tasks: BoardStatusCounts,
}

/// A bucket of keys.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BucketRow {
    pub(crate) bucket: String,
    pub(crate) keys: u64,
    /// The size of the values that were read, in bytes.
    pub(crate) bytes: u64,
    /// `true` if the bucket has more keys than were read.
    pub(crate) cut: bool,
}

/// Reads the contents of the stores, at most `limit` items of each kind.
pub(crate) async fn take(stores: &Stores, limit: usize) -> Result<Survey> {
    let mut survey = Survey { namespace: stores.namespace().to_string(), limit, ..Survey::default() };
    for contract in stores.contracts() {
        match contract {
            Contract::History => survey.history = Some(threads(stores, limit).await?),
            Contract::Vectors => survey.vectors = Some(collections(stores, limit).await?),
            Contract::Graph => {
                let counts = stores.set().graph()?.count().await?;
                let (entities, relationships) = (counts.entities, counts.relationships);
                survey.graph = Some(GraphRow { entities, relationships });
            }
            Contract::Blobs => survey.blobs = Some(blobs(stores, limit).await?),
            Contract::Tasks => survey.tasks = Some(boards(stores, limit).await?),
            Contract::KeyValue => survey.key_value = Some(buckets(stores, limit).await?),
        }
    }
    Ok(survey)
}

/// Returns the first items of a listing, page by page.
pub(crate) async fn first<T, K>(
    limit: usize,
    fetch: impl AsyncFn(PageRequest<K>) -> Result<Page<T, K>>,
) -> Result<Listed<T>> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let wanted = PAGE.min(limit - items.len());
        let page = fetch(PageRequest::first(wanted).with_after(after)).await?;
        items.extend(page.items);
        match page.next {
            Some(next) if items.len() < limit => after = Some(next),
            next => return Ok(Listed { items, cut: next.is_some() }),
        }
    }
}

async fn threads(stores: &Stores, limit: usize) -> Result<Listed<ThreadRow>> {
    let store = stores.set().history()?;
    let listed = first(limit, async |page| store.list_threads(None, page).await).await?;
    let rows = listed.items.into_iter().map(|info: ThreadInfo| {
        let store = store.clone();
        async move {
            let last = store.tail(&info.thread, None, 1).await?;
            Ok::<_, larder_kernel::Error>(ThreadRow {
                agent: info.thread.agent.to_string(),
                session: info.thread.session.to_string(),
                messages: info.messages,
                bytes: info.bytes,
                last_at: last.messages.first().map(|stored| stored.message.created_at),
            })
        }
    });
    Ok(Listed { items: stream::iter(rows).buffered(AT_ONCE).try_collect().await?, cut: listed.cut })
}

async fn collections(stores: &Stores, limit: usize) -> Result<Listed<CollectionRow>> {
    let store = stores.set().vectors()?;
    let listed = first(limit, async |page| store.list_collections(page).await).await?;
    let row = |info: larder_kernel::CollectionInfo| CollectionRow {
        collection: info.collection.to_string(),
        dimensions: info.dimensions,
        documents: info.documents,
    };
    Ok(Listed { items: listed.items.into_iter().map(row).collect(), cut: listed.cut })
}

async fn blobs(stores: &Stores, limit: usize) -> Result<BlobRow> {
    let mut entries = stores.set().blobs()?.list("", None).await?;
    let mut row = BlobRow { count: 0, bytes: 0, cut: false, items: Vec::new() };
    while let Some(entry) = entries.try_next().await? {
        if row.items.len() == limit {
            row.cut = true;
            break;
        }
        row.count += 1;
        row.bytes = row.bytes.saturating_add(entry.size);
        let (key, bytes, modified_at) = (entry.key.to_string(), entry.size, entry.modified_at);
        row.items.push(BlobItem { key, bytes, modified_at });
    }
    Ok(row)
}

async fn boards(stores: &Stores, limit: usize) -> Result<Listed<BoardRow>> {
    let store = stores.set().tasks()?;
    let listed = first(limit, async |page| store.list_boards(None, page).await).await?;
    let row = |board: Board| BoardRow {
        conversation: board.id.conversation.to_string(),
        agent: board.id.agent.to_string(),
        label: board.label,
        tasks: board.tasks,
    };
    Ok(Listed { items: listed.items.into_iter().map(row).collect(), cut: listed.cut })
}

async fn buckets(stores: &Stores, limit: usize) -> Result<Listed<BucketRow>> {
    let store = stores.set().key_value()?;
    let listed = first(limit, async |page| store.list_buckets(page).await).await?;
    let (mut items, mut left) = (Vec::new(), limit);
    for info in listed.items {
        let (bucket, at) = (info.bucket.clone(), &store);
        let keys = first(left, async |page| at.list(&bucket, "", page).await).await?;
        left -= keys.items.len();
        let sizes =
            keys.items.iter().map(|item| {
                let (store, bucket, key) = (store.clone(), info.bucket.clone(), item.key.clone());
                // A key that was deleted after the listing counts as empty.
                async move {
                    store.get(&bucket, &key).await.map(|entry| entry.map_or(0, |entry| entry.value.len()))
                }
            });
        let sizes: Vec<usize> = stream::iter(sizes).buffered(AT_ONCE).try_collect().await?;
        items.push(BucketRow {
            bucket: info.bucket.to_string(),
            keys: info.keys,
            bytes: sizes.into_iter().map(|size| u64::try_from(size).unwrap_or(u64::MAX)).sum(),
            cut: keys.cut || (left == 0 && keys.items.is_empty() && info.keys > 0),
        });
    }
    Ok(Listed { items, cut: listed.cut })
}
