//! The six contracts with a hook around each call.
//!
//! Each line below names a method with its arguments and its result. The lint `missing_trait_methods` rejects
//! a contract whose method is not listed: its default body would replace the store's method.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{
    AgentId, AppendOptions, Appended, BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey,
    BlobPutOptions, BlobRead, BlobStore, Board, BoardId, BucketInfo, BucketName, Capabilities, Capability,
    ChatMessage, Claim, CollectionInfo, CollectionName, Contract, ConversationId, CypherCapable, CypherRow,
    DeletedEntity, Document, DocumentId, Entity, EntityId, EntityQuery, EntityWrite, Error, FencingToken,
    Filter, Forked, GraphCounts, GraphStore, HistoryEvents, HistoryProvider, Key, KeyRevision, KeyValueEntry,
    KeyValueEvents, KeyValuePutOptions, KeyValueStore, Lease, MessageFilter, Metadata, Namespace,
    NeighborQuery, NewBoard, NewTask, OptionSet, Page, PageRequest, PresignRequest, PresignedUrl, PutMode,
    PutReport, Relationship, RelationshipId, RelationshipQuery, Replaced, Replacement, Result, RetryOutcome,
    Revision, RunId, SearchHit, SearchRequest, Seq, Store, StoredEntity, StoredMessage, SubGraph, Task,
    TaskId, TaskPosition, TaskQuery, TaskStore, Thread, ThreadInfo, Transition, Ttl, UpsertReport,
    VectorStore, WorkerId, WrittenEntity,
};

use crate::harness::{Harness, OpenOptions, Relayed, StoreSet};

/// The behavior around each call.
pub(crate) trait Hook: Clone + Send + Sync + 'static {
    /// Makes the call, or returns an error instead.
    fn around<T: Send>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// A store with a hook around each of its calls. Capabilities, `Debug` and the availability of Cypher pass
/// through unchanged.
struct Hooked<S: ?Sized, H> {
    inner: Arc<S>,
    contract: Contract,
    hook: H,
}

impl<S: fmt::Debug + ?Sized, H> fmt::Debug for Hooked<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized, H: Hook> Store for Hooked<S, H> {
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
        self.hook.around(self.contract, "erase", self.inner.erase()).await
    }
}

macro_rules! hooked {
    (
        $store:ident;
        $($method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
        $({ $($own:tt)* })?
    ) => {
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<H: Hook> $store for Hooked<dyn $store, H> {
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                    let call = self.inner.$method($($argument),*);
                    self.hook.around(self.contract, stringify!($method), call).await
                }
            )*
            $($($own)*)?
        }
    };
}

hooked! {
    HistoryProvider;
    append_many(thread: &Thread, messages: Vec<ChatMessage>, options: AppendOptions) -> Appended;
    get_messages(thread: &Thread, offset: u64, limit: usize) -> Vec<StoredMessage>;
    tail(thread: &Thread, before: Option<Seq>, limit: usize) -> Vec<StoredMessage>;
    tail_matching(thread: &Thread, filter: &MessageFilter, before: Option<Seq>, limit: usize)
        -> Vec<StoredMessage>;
    page_after(thread: &Thread, after: Seq, limit: usize) -> Vec<StoredMessage>;
    thread_info(thread: &Thread) -> ThreadInfo;
    clear(thread: &Thread) -> u64;
    clear_run(thread: &Thread, run: &RunId) -> u64;
    fork(source: &Thread, target: &Thread, up_to: Option<Seq>) -> Forked;
    replace(thread: &Thread, replacement: Replacement) -> Replaced;
    list_threads(agent: Option<&AgentId>, page: PageRequest<Thread>) -> Page<ThreadInfo, Thread>;
    set_ttl(thread: &Thread, ttl: Option<Ttl>) -> ();
    subscribe(thread: &Thread, after: Seq) -> HistoryEvents;
}

hooked! {
    VectorStore;
    put(collection: &CollectionName, documents: Vec<Document>, mode: PutMode) -> PutReport;
    get(collection: &CollectionName, ids: &[DocumentId]) -> Vec<Option<Document>>;
    search(collection: &CollectionName, request: &SearchRequest) -> Vec<SearchHit>;
    search_batch(collection: &CollectionName, requests: &[SearchRequest]) -> Vec<Vec<SearchHit>>;
    delete(collection: &CollectionName, ids: &[DocumentId]) -> u64;
    delete_matching(collection: &CollectionName, filter: &Filter) -> u64;
    count(collection: &CollectionName, filter: Option<&Filter>) -> u64;
    list(collection: &CollectionName, page: PageRequest<DocumentId>) -> Page<Document, DocumentId>;
    list_collections(page: PageRequest<CollectionName>) -> Page<CollectionInfo, CollectionName>;
    drop_collection(collection: &CollectionName) -> bool;
}

hooked! {
    GraphStore;
    upsert_entities(entities: Vec<Entity>) -> UpsertReport;
    write_entities(writes: Vec<EntityWrite>) -> Vec<WrittenEntity>;
    upsert_relationships(relationships: Vec<Relationship>) -> UpsertReport;
    get_entities(ids: &[EntityId]) -> Vec<Option<Entity>>;
    get_stored_entities(ids: &[EntityId]) -> Vec<Option<StoredEntity>>;
    get_relationships(ids: &[RelationshipId]) -> Vec<Option<Relationship>>;
    neighbors(entity: &EntityId, query: &NeighborQuery) -> SubGraph;
    delete_entity(entity: &EntityId) -> DeletedEntity;
    delete_relationship(relationship: &RelationshipId) -> bool;
    find_entities(query: &EntityQuery, page: PageRequest<EntityId>) -> Page<Entity, EntityId>;
    find_relationships(query: &RelationshipQuery, page: PageRequest<RelationshipId>)
        -> Page<Relationship, RelationshipId>;
    count() -> GraphCounts;
    {
        fn as_cypher(&self) -> Option<&dyn CypherCapable> {
            self.inner.as_cypher().map(|_| self as &dyn CypherCapable)
        }
    }
}

hooked! {
    BlobStore;
    put(key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> BlobInfo;
    get(key: &BlobKey, options: BlobGetOptions) -> BlobRead;
    head(key: &BlobKey) -> BlobInfo;
    list(prefix: &str, after: Option<&BlobKey>) -> BlobEntries;
    copy(source: &BlobKey, target: &BlobKey) -> BlobInfo;
    delete(key: &BlobKey) -> bool;
    presign(key: &BlobKey, request: &PresignRequest) -> PresignedUrl;
}

hooked! {
    TaskStore;
    create_task_list(board: &BoardId, new: NewBoard) -> Board;
    add_tasks(board: &BoardId, tasks: Vec<NewTask>) -> Vec<Task>;
    get_board(board: &BoardId) -> Option<Board>;
    get_task(board: &BoardId, task: &TaskId) -> Option<Task>;
    list_tasks(board: &BoardId, query: &TaskQuery, page: PageRequest<TaskPosition>)
        -> Page<Task, TaskPosition>;
    list_boards(conversation: Option<&ConversationId>, page: PageRequest<BoardId>) -> Page<Board, BoardId>;
    update_status(board: &BoardId, task: &TaskId, step: Transition) -> Task;
    increment_retry(board: &BoardId, task: &TaskId, token: Option<FencingToken>) -> RetryOutcome;
    force_retry(board: &BoardId, task: &TaskId) -> Task;
    settle_conversation(conversation: &ConversationId) -> u64;
    claim(board: &BoardId, worker: &WorkerId, lease: Duration) -> Option<Claim>;
    renew_lease(board: &BoardId, task: &TaskId, token: FencingToken, lease: Duration) -> Lease;
    delete_board(board: &BoardId) -> bool;
}

hooked! {
    KeyValueStore;
    put(bucket: &BucketName, key: &Key, value: Bytes, options: KeyValuePutOptions) -> Revision;
    get(bucket: &BucketName, key: &Key) -> Option<KeyValueEntry>;
    delete(bucket: &BucketName, key: &Key, at: Option<Revision>) -> bool;
    list(bucket: &BucketName, prefix: &str, page: PageRequest<Key>) -> Page<KeyRevision, Key>;
    list_buckets(page: PageRequest<BucketName>) -> Page<BucketInfo, BucketName>;
    watch(bucket: &BucketName, prefix: &str, after: Revision) -> KeyValueEvents;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hook> CypherCapable for Hooked<dyn GraphStore, H> {
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        // Only a store with Cypher is returned by `as_cypher`.
        let unsupported = || Error::unsupported("graph.cypher", Capability::Cypher);
        let inner = self.inner.as_cypher().ok_or_else(unsupported)?;
        self.hook.around(self.contract, "cypher", inner.cypher(query, parameters)).await
    }
}

/// A backend with a hook around each call of its stores.
pub(crate) struct HookedHarness<H> {
    inner: Arc<dyn Harness>,
    hook: H,
}

impl<H: Hook> HookedHarness<H> {
    pub(crate) fn new(inner: Arc<dyn Harness>, hook: H) -> Self {
        Self { inner, hook }
    }
}

impl<H> fmt::Debug for HookedHarness<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hook> Harness for HookedHarness<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    fn shared_url(&self) -> Option<String> {
        self.inner.shared_url()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let set = self.inner.open(namespace, options).await?;
        let mut hooked = set.clone();
        macro_rules! hook {
            ($($field:ident $with:ident $contract:ident;)*) => {$(
                if let Ok(inner) = set.$field() {
                    let (contract, hook) = (Contract::$contract, self.hook.clone());
                    hooked = hooked.$with(Arc::new(Hooked { inner, contract, hook }));
                }
            )*};
        }
        hook! {
            history with_history History;
            vectors with_vectors Vectors;
            graph with_graph Graph;
            blobs with_blobs Blobs;
            tasks with_tasks Tasks;
            key_value with_key_value KeyValue;
        }
        Ok(hooked)
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        let isolated = self.inner.isolated().await?;
        Ok(isolated.map(|inner| Arc::new(Self::new(inner, self.hook.clone())) as _))
    }

    fn servers(&self) -> Vec<String> {
        self.inner.servers()
    }

    /// Not hooked: the delays of a relay are not the backend's latency.
    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        self.inner.relayed(relays).await
    }

    async fn destroy(&self) -> Result<()> {
        self.inner.destroy().await
    }
}

#[cfg(test)]
mod tests;
