//! The six contracts, forwarded with a check of the options that a request sets.
//!
//! Every method is listed, including the methods with a default body. The lint `missing_trait_methods`
//! rejects a missing one.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::Guarded;
use crate::error::Result;
use crate::storage::options::OptionSet;
use crate::{
    AgentId, AppendOptions, Appended, BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey,
    BlobPutOptions, BlobRead, BlobStore, Board, BoardId, BucketInfo, BucketName, ChatMessage, Claim,
    CollectionInfo, CollectionName, ConversationId, CypherCapable, DeletedEntity, Document, DocumentId,
    Entity, EntityId, EntityQuery, EntityWrite, FencingToken, Filter, Forked, GraphCounts, GraphStore,
    HistoryEvents, HistoryProvider, Key, KeyRevision, KeyValueEntry, KeyValueEvents, KeyValuePutOptions,
    KeyValueStore, Lease, MessageFilter, NeighborQuery, NewBoard, NewTask, Page, PageRequest, PresignRequest,
    PresignedUrl, PutMode, PutReport, Relationship, RelationshipId, RelationshipQuery, Replaced, Replacement,
    RetryOutcome, Revision, RunId, SearchHit, SearchRequest, Seq, StoredEntity, StoredMessage, SubGraph,
    Task, TaskId, TaskPosition, TaskQuery, TaskStore, Thread, ThreadInfo, Transition, Ttl, UpsertReport,
    VectorStore, WorkerId, WrittenEntity,
};

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl HistoryProvider for Guarded<dyn HistoryProvider> {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        self.check("history.append_many", options.options())?;
        self.inner.append_many(thread, messages, options).await
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        self.inner.get_messages(thread, offset, limit).await
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        self.inner.tail(thread, before, limit).await
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.check("history.tail_matching", filter.options())?;
        self.inner.tail_matching(thread, filter, before, limit).await
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        self.inner.page_after(thread, after, limit).await
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        self.inner.thread_info(thread).await
    }

    async fn clear(&self, thread: &Thread) -> Result<u64> {
        self.inner.clear(thread).await
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        self.inner.clear_run(thread, run).await
    }

    async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        self.inner.fork(source, target, up_to).await
    }

    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        self.inner.replace(thread, replacement).await
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        self.inner.list_threads(agent, page).await
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        self.inner.set_ttl(thread, ttl).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        self.inner.subscribe(thread, after).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl VectorStore for Guarded<dyn VectorStore> {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        self.inner.put(collection, documents, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        self.inner.get(collection, ids).await
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        self.check("vectors.search", request.options())?;
        self.inner.search(collection, request).await
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        self.check(
            "vectors.search_batch",
            requests.iter().map(SearchRequest::options).fold(OptionSet::NONE, OptionSet::union),
        )?;
        self.inner.search_batch(collection, requests).await
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        self.inner.delete(collection, ids).await
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        self.inner.delete_matching(collection, filter).await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        self.inner.count(collection, filter).await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        self.inner.list(collection, page).await
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        self.inner.list_collections(page).await
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        self.inner.drop_collection(collection).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl GraphStore for Guarded<dyn GraphStore> {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        self.inner.upsert_entities(entities).await
    }

    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<WrittenEntity>> {
        let set = writes.iter().map(EntityWrite::options).fold(OptionSet::NONE, OptionSet::union);
        self.check("graph.write_entities", set)?;
        self.inner.write_entities(writes).await
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        self.inner.upsert_relationships(relationships).await
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        self.inner.get_entities(ids).await
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        self.inner.get_stored_entities(ids).await
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        self.inner.get_relationships(ids).await
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        self.check("graph.neighbors", query.options())?;
        self.inner.neighbors(entity, query).await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        self.inner.delete_entity(entity).await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        self.inner.delete_relationship(relationship).await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        self.check("graph.find_entities", query.options())?;
        self.inner.find_entities(query, page).await
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        self.check("graph.find_relationships", query.options())?;
        self.inner.find_relationships(query, page).await
    }

    async fn count(&self) -> Result<GraphCounts> {
        self.inner.count().await
    }

    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        self.inner.as_cypher()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl BlobStore for Guarded<dyn BlobStore> {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        self.check("blobs.put", options.options())?;
        self.inner.put(key, body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        self.check("blobs.get", options.options())?;
        self.inner.get(key, options).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        self.inner.list(prefix, after).await
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        self.inner.copy(source, target).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        self.inner.delete(key).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        self.check("blobs.presign", request.options())?;
        self.inner.presign(key, request).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl TaskStore for Guarded<dyn TaskStore> {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        self.check("tasks.create_task_list", new.options())?;
        self.inner.create_task_list(board, new).await
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        self.check(
            "tasks.add_tasks",
            tasks.iter().map(NewTask::options).fold(OptionSet::NONE, OptionSet::union),
        )?;
        self.inner.add_tasks(board, tasks).await
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        self.inner.get_board(board).await
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        self.inner.get_task(board, task).await
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        self.check("tasks.list_tasks", query.options())?;
        self.inner.list_tasks(board, query, page).await
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        self.inner.list_boards(conversation, page).await
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        self.check("tasks.update_status", step.options())?;
        self.inner.update_status(board, task, step).await
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        self.inner.increment_retry(board, task, token).await
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        self.inner.force_retry(board, task).await
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        self.inner.settle_conversation(conversation).await
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        self.inner.claim(board, worker, lease).await
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        self.inner.renew_lease(board, task, token, lease).await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        self.inner.delete_board(board).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl KeyValueStore for Guarded<dyn KeyValueStore> {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        self.check("key_value.put", options.options())?;
        self.inner.put(bucket, key, value, options).await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        self.inner.get(bucket, key).await
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        self.inner.delete(bucket, key, at).await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        self.inner.list(bucket, prefix, page).await
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        self.inner.list_buckets(page).await
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        self.inner.watch(bucket, prefix, after).await
    }
}
