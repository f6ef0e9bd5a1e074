//! The six contracts, forwarded with a timer around each call.
//!
//! Every method of a trait is implemented here, including the methods with a default body. Otherwise the
//! default would replace the store's method, and the test would run other code. A test counts the methods.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{
    AgentId, AppendOptions, Appended, BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey,
    BlobPutOptions, BlobRead, BlobStore, Board, BoardId, BucketInfo, BucketName, Capabilities, ChatMessage,
    Claim, CollectionInfo, CollectionName, ConversationId, CypherCapable, CypherRow, DeletedEntity, Document,
    DocumentId, Entity, EntityId, EntityQuery, Error, ErrorKind, FencingToken, Filter, Forked, GraphCounts,
    GraphStore, HistoryEvents, HistoryProvider, Key, KeyRevision, KeyValueEntry, KeyValueEvents,
    KeyValuePutOptions, KeyValueStore, Lease, MessageFilter, Metadata, Namespace, NeighborQuery, NewBoard,
    NewTask, OptionSet, Page, PageRequest, PresignRequest, PresignedUrl, PutMode, PutReport, Relationship,
    RelationshipId, RelationshipQuery, Replaced, Replacement, Result, RetryOutcome, Revision, RunId,
    SearchHit, SearchRequest, Seq, Store, StoredMessage, SubGraph, Task, TaskId, TaskPosition, TaskQuery,
    TaskStore, Thread, ThreadInfo, Transition, Ttl, UpsertReport, VectorStore, WorkerId,
};

use super::Timed;

/// Calls the method of the inner store and records its time.
macro_rules! timed {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        $self.watch.time($self.contract, stringify!($method), $self.inner.$method($($argument),*)).await
    };
}

#[async_trait]
impl<T: Store + ?Sized> Store for Timed<T> {
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
        timed!(self.erase())
    }
}

#[async_trait]
impl HistoryProvider for Timed<dyn HistoryProvider> {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        timed!(self.append_many(thread, messages, options))
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        timed!(self.get_messages(thread, offset, limit))
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        timed!(self.tail(thread, before, limit))
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        timed!(self.tail_matching(thread, filter, before, limit))
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        timed!(self.page_after(thread, after, limit))
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        timed!(self.thread_info(thread))
    }

    async fn clear(&self, thread: &Thread) -> Result<u64> {
        timed!(self.clear(thread))
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        timed!(self.clear_run(thread, run))
    }

    async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        timed!(self.fork(source, target, up_to))
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        timed!(self.replace(thread, replacement))
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        timed!(self.list_threads(agent, page))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        timed!(self.set_ttl(thread, ttl))
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        timed!(self.subscribe(thread, after))
    }
}

#[async_trait]
impl VectorStore for Timed<dyn VectorStore> {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        timed!(self.put(collection, documents, mode))
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        timed!(self.get(collection, ids))
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        timed!(self.search(collection, request))
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        timed!(self.search_batch(collection, requests))
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        timed!(self.delete(collection, ids))
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        timed!(self.delete_matching(collection, filter))
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        timed!(self.count(collection, filter))
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        timed!(self.list(collection, page))
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        timed!(self.list_collections(page))
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        timed!(self.drop_collection(collection))
    }
}

#[async_trait]
impl GraphStore for Timed<dyn GraphStore> {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        timed!(self.upsert_entities(entities))
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        timed!(self.upsert_relationships(relationships))
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        timed!(self.get_entities(ids))
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        timed!(self.get_relationships(ids))
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        timed!(self.neighbors(entity, query))
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        timed!(self.delete_entity(entity))
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        timed!(self.delete_relationship(relationship))
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        timed!(self.find_entities(query, page))
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        timed!(self.find_relationships(query, page))
    }

    async fn count(&self) -> Result<GraphCounts> {
        timed!(self.count())
    }

    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        self.inner.as_cypher().map(|_| self as &dyn CypherCapable)
    }
}

#[async_trait]
impl BlobStore for Timed<dyn BlobStore> {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        timed!(self.put(key, body, options))
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        timed!(self.get(key, options))
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        timed!(self.head(key))
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        timed!(self.list(prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        timed!(self.copy(source, target))
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        timed!(self.delete(key))
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        timed!(self.presign(key, request))
    }
}

#[async_trait]
impl TaskStore for Timed<dyn TaskStore> {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        timed!(self.create_task_list(board, new))
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        timed!(self.add_tasks(board, tasks))
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        timed!(self.get_board(board))
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        timed!(self.get_task(board, task))
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        timed!(self.list_tasks(board, query, page))
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        timed!(self.list_boards(conversation, page))
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        timed!(self.update_status(board, task, step))
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        timed!(self.increment_retry(board, task, token))
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        timed!(self.force_retry(board, task))
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        timed!(self.settle_conversation(conversation))
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        timed!(self.claim(board, worker, lease))
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        timed!(self.renew_lease(board, task, token, lease))
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        timed!(self.delete_board(board))
    }
}

#[async_trait]
impl KeyValueStore for Timed<dyn KeyValueStore> {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        timed!(self.put(bucket, key, value, options))
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        timed!(self.get(bucket, key))
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        timed!(self.delete(bucket, key, at))
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        timed!(self.list(bucket, prefix, page))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        timed!(self.list_buckets(page))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        timed!(self.watch(bucket, prefix, after))
    }
}

#[async_trait]
impl CypherCapable for Timed<dyn GraphStore> {
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        match self.inner.as_cypher() {
            Some(inner) => self.watch.time(self.contract, "cypher", inner.cypher(query, parameters)).await,
            // Unreachable: `as_cypher` returns this store only if the inner store has Cypher.
            None => Err(Error::new(ErrorKind::Unsupported, "graph.cypher", "the store has no Cypher")),
        }
    }
}
