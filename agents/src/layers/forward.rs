//! The six contracts of a store with a hook: the only module that forwards calls unchanged.
//!
//! Each line names a method with its arguments and result, the effect of the call, and the number of bytes if
//! it carries any. A new method of a contract does not compile until it is listed here. The lint
//! `missing_trait_methods` rejects one with a default body.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::check::size;
use larder_kernel::{
    AgentId, AppendOptions, Appended, BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey,
    BlobPutOptions, BlobRead, BlobStore, BlobVersionId, BlobVersions, Board, BoardId, BucketInfo, BucketName,
    Capabilities, Capability, ChatMessage, Claim, CollectionInfo, CollectionName, ConversationId,
    CypherCapable, CypherRow, DeletedEntity, Document, DocumentId, Entity, EntityId, EntityQuery,
    EntityWrite, Error, FencingToken, Filter, Forked, GraphCondition, GraphCounts, GraphStore, GraphWritten,
    HistoryEvents, HistoryProvider, Key, KeyRevision, KeyValueCondition, KeyValueEntry, KeyValueEvents,
    KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, KeyValueWriteKind, Lease,
    MessageFilter, MessageUpdate, Metadata, MetadataMode, MetadataReport, MetadataUpdate, Namespace,
    NeighborQuery, NewBoard, NewTask, OptionSet, Page, PageRequest, PrefixDeletion, PresignRequest,
    PresignedUrl, PutMode, PutReport, Relationship, RelationshipId, RelationshipQuery, RelationshipWrite,
    Removal, Removed, RenameMode, Replaced, Replacement, Result, RetryOutcome, Revision, RunId, SearchHit,
    SearchRequest, Seq, Store, StoredEntity, StoredMessage, StoredRelationship, SubGraph, Task, TaskId,
    TaskPosition, TaskQuery, TaskStore, Thread, ThreadInfo, Transition, Ttl, Updated, UpsertReport,
    VectorStore, WorkerId,
};

use super::middleware::{Argument, Body, Call, Effect, Middleware, Wrapped};

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized, H: Middleware> Store for Wrapped<S, H> {
    fn namespace(&self) -> &Namespace {
        self.hook.namespace().unwrap_or_else(|| self.inner.namespace())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.inner.options()
    }

    async fn erase(&self) -> Result<()> {
        // Erased data stays erased, so another call may complete the erasure.
        let mut call = Call::new(self.erase, Effect::Write);
        call.namespace = self.inner.namespace().as_str();
        self.hook.around(call, || self.inner.erase()).await
    }
}

macro_rules! forward {
    (
        $contract:ident;
        $(
            $how:ident $method:ident($($argument:ident: $type:ty),*) -> $answer:ty
                = $call:expr $(, $bytes:expr)?;
        )*
        $({ $($own:tt)* })?
    ) => {
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<H: Middleware> $contract for Wrapped<dyn $contract, H> {
            $(
                async fn $method(&self, $($argument: $type),*) -> Result<$answer> {
                    let mut call: Call<'_> = $call;
                    call.namespace = self.inner.namespace().as_str();
                    $(if H::MEASURES {
                        call.bytes = $bytes;
                    })?
                    $(let mut $argument = Argument::new($argument, H::REPEATS);)*
                    self.hook.$how(call, move || self.inner.$method($($argument.give()),*)).await
                }
            )*
            $($($own)*)?
        }
    };
}

fn sum<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> u64 {
    size(items.iter().map(bytes).sum())
}

fn is_at_revision(write: &EntityWrite) -> bool {
    matches!(write.condition, GraphCondition::AtRevision(_))
}

fn names_a_revision(write: &KeyValueWrite) -> bool {
    match &write.kind {
        KeyValueWriteKind::Put { options, .. } => {
            matches!(options.condition, KeyValueCondition::AtRevision(_))
        }
        KeyValueWriteKind::Delete { at } => at.is_some(),
        _ => false,
    }
}

fn is_edge_at_revision(write: &RelationshipWrite) -> bool {
    matches!(write.condition, GraphCondition::AtRevision(_))
}

fn task_bytes(task: &NewTask) -> usize {
    task.title.len() + task.description.as_ref().map_or(0, String::len) + task.metadata.size_bytes()
}

forward! {
    HistoryProvider;
    around append_many(thread: &Thread, messages: Vec<ChatMessage>, options: AppendOptions) -> Appended =
        Call::write("history.append_many")
            .effect(Effect::Guarded, options.if_last.is_some())
            .effect(Effect::Repeatable, options.idempotency_key.is_some()),
        sum(&messages, ChatMessage::size_bytes);
    around get_messages(thread: &Thread, offset: u64, limit: usize) -> Vec<StoredMessage> =
        Call::read("history.get_messages");
    around tail(thread: &Thread, before: Option<Seq>, limit: usize) -> Vec<StoredMessage> =
        Call::read("history.tail");
    around tail_matching(thread: &Thread, filter: &MessageFilter, before: Option<Seq>, limit: usize)
        -> Vec<StoredMessage> = Call::read("history.tail_matching");
    around page_after(thread: &Thread, after: Seq, limit: usize) -> Vec<StoredMessage> =
        Call::read("history.page_after");
    around thread_info(thread: &Thread) -> ThreadInfo = Call::read("history.thread_info");
    around clear(thread: &Thread, fence: Option<FencingToken>) -> u64 = Call::write("history.clear");
    around clear_run(thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> u64 =
        Call::write("history.clear_run");
    around remove(thread: &Thread, removal: Removal) -> Removed =
        Call::write("history.remove")
            .effect(Effect::Guarded, removal.if_last.is_some())
            .effect(Effect::Repeatable, removal.idempotency_key.is_some());
    around update(thread: &Thread, update: MessageUpdate) -> Updated =
        Call::new("history.update", Effect::Guarded)
            .effect(Effect::Repeatable, update.idempotency_key.is_some()),
        size(update.message.size_bytes());
    around fork(source: &Thread, target: &Thread, up_to: Option<Seq>, fence: Option<FencingToken>) -> Forked =
        Call::write("history.fork");
    around replace(thread: &Thread, replacement: Replacement) -> Replaced =
        Call::new("history.replace", Effect::Guarded), sum(&replacement.messages, ChatMessage::size_bytes);
    around list_threads(agent: Option<&AgentId>, page: PageRequest<Thread>) -> Page<ThreadInfo, Thread> =
        Call::read("history.list_threads");
    around set_ttl(thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> () =
        Call::write("history.set_ttl");
    open subscribe(thread: &Thread, after: Seq) -> HistoryEvents = Call::read("history.subscribe").live();
}

forward! {
    VectorStore;
    around put(collection: &CollectionName, documents: Vec<Document>, mode: PutMode) -> PutReport =
        Call::write("vectors.put").collection(collection.as_str()),
        sum(&documents, |document| document.content.len() + document.metadata.size_bytes());
    around update_metadata(collection: &CollectionName, updates: Vec<MetadataUpdate>, mode: MetadataMode)
        -> MetadataReport = Call::write("vectors.update_metadata").collection(collection.as_str()),
        sum(&updates, |update| update.metadata.size_bytes());
    around get(collection: &CollectionName, ids: &[DocumentId]) -> Vec<Option<Document>> =
        Call::read("vectors.get").collection(collection.as_str());
    around search(collection: &CollectionName, request: &SearchRequest) -> Vec<SearchHit> =
        Call::read("vectors.search").collection(collection.as_str());
    around search_batch(collection: &CollectionName, requests: &[SearchRequest]) -> Vec<Vec<SearchHit>> =
        Call::read("vectors.search_batch").collection(collection.as_str());
    around delete(collection: &CollectionName, ids: &[DocumentId]) -> u64 =
        Call::write("vectors.delete").collection(collection.as_str());
    around delete_matching(collection: &CollectionName, filter: &Filter) -> u64 =
        Call::write("vectors.delete_matching").collection(collection.as_str());
    around count(collection: &CollectionName, filter: Option<&Filter>) -> u64 =
        Call::read("vectors.count").collection(collection.as_str());
    around list(collection: &CollectionName, page: PageRequest<DocumentId>) -> Page<Document, DocumentId> =
        Call::read("vectors.list").collection(collection.as_str());
    around list_matching(collection: &CollectionName, filter: &Filter, page: PageRequest<DocumentId>)
        -> Page<Document, DocumentId> = Call::read("vectors.list_matching").collection(collection.as_str());
    around list_collections(page: PageRequest<CollectionName>) -> Page<CollectionInfo, CollectionName> =
        Call::read("vectors.list_collections");
    around drop_collection(collection: &CollectionName) -> bool =
        Call::write("vectors.drop_collection").collection(collection.as_str());
}

forward! {
    GraphStore;
    around upsert_entities(entities: Vec<Entity>) -> UpsertReport = Call::write("graph.upsert_entities"),
        sum(&entities, |entity| entity.properties.size_bytes());
    around write_entities(writes: Vec<EntityWrite>) -> Vec<GraphWritten> =
        // One condition that a second call fails protects the whole batch.
        Call::write("graph.write_entities").effect(Effect::Guarded, writes.iter().any(is_at_revision)),
        sum(&writes, |write| write.entity.properties.size_bytes());
    around upsert_relationships(relationships: Vec<Relationship>) -> UpsertReport =
        Call::write("graph.upsert_relationships"),
        sum(&relationships, |relationship| relationship.properties.size_bytes());
    around write_relationships(writes: Vec<RelationshipWrite>) -> Vec<GraphWritten> =
        Call::write("graph.write_relationships")
            .effect(Effect::Guarded, writes.iter().any(is_edge_at_revision)),
        sum(&writes, |write| write.relationship.properties.size_bytes());
    around get_entities(ids: &[EntityId]) -> Vec<Option<Entity>> = Call::read("graph.get_entities");
    around get_stored_entities(ids: &[EntityId]) -> Vec<Option<StoredEntity>> =
        Call::read("graph.get_stored_entities");
    around get_relationships(ids: &[RelationshipId]) -> Vec<Option<Relationship>> =
        Call::read("graph.get_relationships");
    around get_stored_relationships(ids: &[RelationshipId]) -> Vec<Option<StoredRelationship>> =
        Call::read("graph.get_stored_relationships");
    around neighbors(entity: &EntityId, query: &NeighborQuery) -> SubGraph = Call::read("graph.neighbors");
    around delete_entity(entity: &EntityId) -> DeletedEntity = Call::write("graph.delete_entity");
    around delete_relationship(relationship: &RelationshipId) -> bool =
        Call::write("graph.delete_relationship");
    around find_entities(query: &EntityQuery, page: PageRequest<EntityId>) -> Page<Entity, EntityId> =
        Call::read("graph.find_entities");
    around find_relationships(query: &RelationshipQuery, page: PageRequest<RelationshipId>)
        -> Page<Relationship, RelationshipId> = Call::read("graph.find_relationships");
    around count() -> GraphCounts = Call::read("graph.count");
    {
        fn as_cypher(&self) -> Option<&dyn CypherCapable> {
            self.inner.as_cypher().map(|_| self as &dyn CypherCapable)
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Middleware> CypherCapable for Wrapped<dyn GraphStore, H> {
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        const OPERATION: &str = "graph.cypher";
        let Some(inner) = self.inner.as_cypher() else {
            return Err(Error::unsupported(OPERATION, Capability::Cypher));
        };
        let mut call = Call::read(OPERATION);
        call.namespace = self.inner.namespace().as_str();
        let mut parameters = Argument::new(parameters, H::REPEATS);
        self.hook.around(call, move || inner.cypher(query, parameters.give())).await
    }
}

forward! {
    BlobStore;
    open get(key: &BlobKey, options: BlobGetOptions) -> BlobRead = Call::read("blobs.get");
    around head(key: &BlobKey) -> BlobInfo = Call::read("blobs.head");
    open list(prefix: &str, after: Option<&BlobKey>) -> BlobEntries = Call::read("blobs.list");
    around copy(source: &BlobKey, target: &BlobKey) -> BlobInfo = Call::write("blobs.copy");
    around rename(source: &BlobKey, target: &BlobKey, mode: RenameMode) -> BlobInfo =
        Call::write("blobs.rename");
    around delete(key: &BlobKey) -> bool = Call::write("blobs.delete");
    open list_versions(key: &BlobKey) -> BlobVersions = Call::read("blobs.list_versions");
    open get_version(key: &BlobKey, version: &BlobVersionId, options: BlobGetOptions) -> BlobRead =
        Call::read("blobs.get_version");
    around delete_version(key: &BlobKey, version: &BlobVersionId) -> bool =
        Call::write("blobs.delete_version");
    around presign(key: &BlobKey, request: &PresignRequest) -> PresignedUrl = Call::read("blobs.presign");
    {
        async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
            let body = Body::new(body);
            let mut call = Call::write("blobs.put");
            call.namespace = self.inner.namespace().as_str();
            call.bytes = body.bytes();
            call.taken = body.taken();
            let mut body = Argument::new(body, H::REPEATS);
            let mut options = Argument::new(options, H::REPEATS);
            self.hook.around(call, move || self.inner.put(key, body.give().into(), options.give())).await
        }
    }
}

forward! {
    TaskStore;
    around create_task_list(board: &BoardId, new: NewBoard) -> Board = Call::write("tasks.create_task_list"),
        sum(&new.tasks, task_bytes);
    around add_tasks(board: &BoardId, tasks: Vec<NewTask>) -> Vec<Task> = Call::write("tasks.add_tasks"),
        sum(&tasks, task_bytes);
    around get_board(board: &BoardId) -> Option<Board> = Call::read("tasks.get_board");
    around get_task(board: &BoardId, task: &TaskId) -> Option<Task> = Call::read("tasks.get_task");
    around list_tasks(board: &BoardId, query: &TaskQuery, page: PageRequest<TaskPosition>)
        -> Page<Task, TaskPosition> = Call::read("tasks.list_tasks");
    around list_boards(conversation: Option<&ConversationId>, page: PageRequest<BoardId>)
        -> Page<Board, BoardId> = Call::read("tasks.list_boards");
    around update_status(board: &BoardId, task: &TaskId, step: Transition) -> Task =
        Call::write("tasks.update_status").effect(Effect::Guarded, step.expected.is_some()),
        size(step.result.as_ref().map_or(0, String::len));
    around increment_retry(board: &BoardId, task: &TaskId, token: Option<FencingToken>) -> RetryOutcome =
        Call::write("tasks.increment_retry");
    around force_retry(board: &BoardId, task: &TaskId) -> Task = Call::write("tasks.force_retry");
    around settle_conversation(conversation: &ConversationId) -> u64 =
        Call::write("tasks.settle_conversation");
    around claim(board: &BoardId, worker: &WorkerId, lease: Duration) -> Option<Claim> =
        Call::write("tasks.claim");
    around renew_lease(board: &BoardId, task: &TaskId, token: FencingToken, lease: Duration) -> Lease =
        Call::new("tasks.renew_lease", Effect::Repeatable);
    around delete_board(board: &BoardId) -> bool = Call::write("tasks.delete_board");
}

forward! {
    KeyValueStore;
    around put(bucket: &BucketName, key: &Key, value: Bytes, options: KeyValuePutOptions) -> Revision =
        Call::write("key_value.put")
            .effect(Effect::Guarded, matches!(options.condition, KeyValueCondition::AtRevision(_)))
            .collection(bucket.as_str()),
        size(value.len());
    around get(bucket: &BucketName, key: &Key) -> Option<KeyValueEntry> =
        Call::read("key_value.get").collection(bucket.as_str());
    around get_many(bucket: &BucketName, keys: &[Key]) -> Page<Option<KeyValueEntry>, usize> =
        Call::read("key_value.get_many").collection(bucket.as_str());
    around delete(bucket: &BucketName, key: &Key, at: Option<Revision>) -> bool =
        Call::write("key_value.delete").effect(Effect::Guarded, at.is_some()).collection(bucket.as_str());
    around write(bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Vec<Option<Revision>> =
        // One condition that a second call fails protects the whole batch.
        Call::write("key_value.write")
            .effect(Effect::Guarded, writes.iter().any(names_a_revision))
            .collection(bucket.as_str()),
        sum(&writes, KeyValueWrite::size_bytes);
    around delete_prefix(bucket: &BucketName, prefix: &str) -> PrefixDeletion =
        Call::write("key_value.delete_prefix").collection(bucket.as_str());
    around list_entries(bucket: &BucketName, query: &KeyValueQuery, page: PageRequest<Key>)
        -> Page<KeyValueItem, Key> = Call::read("key_value.list_entries").collection(bucket.as_str());
    around list(bucket: &BucketName, prefix: &str, page: PageRequest<Key>) -> Page<KeyRevision, Key> =
        Call::read("key_value.list").collection(bucket.as_str());
    around list_buckets(page: PageRequest<BucketName>) -> Page<BucketInfo, BucketName> =
        Call::read("key_value.list_buckets");
    open watch(bucket: &BucketName, prefix: &str, after: Revision) -> KeyValueEvents =
        Call::read("key_value.watch").collection(bucket.as_str()).live();
}
