//! The methods of the contracts in one table, for stores that pass calls on to another store.

pub use std::time::Duration;

pub use async_trait::async_trait;
pub use bytes::Bytes;

pub use crate::*;

/// Implements a contract for a type by a macro, which gets each method with its arguments:
/// `passing! { self KeyValueStore get(bucket, key) }`. A rule of the macro for one method replaces the call
/// of that method.
///
/// Without a macro, it implements [`Store`](crate::Store) for a type by the calls of its field `inner`.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($([$($generics:tt)*])? Store for $type:ty) => {
        const _: () = {
            use $crate::storage::forward::*;
            #[async_trait]
            #[deny(clippy::missing_trait_methods)]
            impl<$($($generics)*)?> Store for $type {
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
                    self.inner.erase().await
                }
            }
        };
    };
    ($([$($generics:tt)*])? HistoryProvider for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] HistoryProvider for $type, $by;
            append_many(thread: &Thread, messages: Vec<ChatMessage>, options: AppendOptions) -> Appended;
            get_messages(thread: &Thread, offset: u64, limit: usize) -> Vec<StoredMessage>;
            tail(thread: &Thread, before: Option<Seq>, limit: usize) -> Vec<StoredMessage>;
            tail_matching(thread: &Thread, filter: &MessageFilter, before: Option<Seq>, limit: usize)
                -> Vec<StoredMessage>;
            page_after(thread: &Thread, after: Seq, limit: usize) -> Vec<StoredMessage>;
            thread_info(thread: &Thread) -> ThreadInfo;
            clear(thread: &Thread, fence: Option<FencingToken>) -> u64;
            clear_run(thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> u64;
            remove(thread: &Thread, removal: Removal) -> Removed;
            update(thread: &Thread, update: MessageUpdate) -> Updated;
            fork(source: &Thread, target: &Thread, up_to: Option<Seq>, fence: Option<FencingToken>) -> Forked;
            replace(thread: &Thread, replacement: Replacement) -> Replaced;
            list_threads(agent: Option<&AgentId>, page: PageRequest<Thread>) -> Page<ThreadInfo, Thread>;
            set_ttl(thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> ();
            subscribe(thread: &Thread, after: Seq) -> HistoryEvents;
        }
    };
    ($([$($generics:tt)*])? VectorStore for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] VectorStore for $type, $by;
            put(collection: &CollectionName, documents: Vec<Document>, mode: PutMode) -> PutReport;
            update_metadata(collection: &CollectionName, updates: Vec<MetadataUpdate>, mode: MetadataMode)
                -> MetadataReport;
            get(collection: &CollectionName, ids: &[DocumentId]) -> Vec<Option<Document>>;
            search(collection: &CollectionName, request: &SearchRequest) -> Vec<SearchHit>;
            search_batch(collection: &CollectionName, requests: &[SearchRequest]) -> Vec<Vec<SearchHit>>;
            delete(collection: &CollectionName, ids: &[DocumentId]) -> u64;
            delete_matching(collection: &CollectionName, filter: &Filter) -> u64;
            count(collection: &CollectionName, filter: Option<&Filter>) -> u64;
            list(collection: &CollectionName, page: PageRequest<DocumentId>) -> Page<Document, DocumentId>;
            list_matching(collection: &CollectionName, filter: &Filter, page: PageRequest<DocumentId>)
                -> Page<Document, DocumentId>;
            list_collections(page: PageRequest<CollectionName>) -> Page<CollectionInfo, CollectionName>;
            drop_collection(collection: &CollectionName) -> bool;
        }
    };
    ($([$($generics:tt)*])? GraphStore for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] GraphStore for $type, $by;
            upsert_entities(entities: Vec<Entity>) -> UpsertReport;
            write_entities(writes: Vec<EntityWrite>) -> Vec<GraphWritten>;
            upsert_relationships(relationships: Vec<Relationship>) -> UpsertReport;
            write_relationships(writes: Vec<RelationshipWrite>) -> Vec<GraphWritten>;
            get_entities(ids: &[EntityId]) -> Vec<Option<Entity>>;
            get_stored_entities(ids: &[EntityId]) -> Vec<Option<StoredEntity>>;
            get_relationships(ids: &[RelationshipId]) -> Vec<Option<Relationship>>;
            get_stored_relationships(ids: &[RelationshipId]) -> Vec<Option<StoredRelationship>>;
            neighbors(entity: &EntityId, query: &NeighborQuery) -> SubGraph;
            delete_entity(entity: &EntityId) -> DeletedEntity;
            delete_relationship(relationship: &RelationshipId) -> bool;
            find_entities(query: &EntityQuery, page: PageRequest<EntityId>) -> Page<Entity, EntityId>;
            find_relationships(query: &RelationshipQuery, page: PageRequest<RelationshipId>)
                -> Page<Relationship, RelationshipId>;
            count() -> GraphCounts;
            {
                fn as_cypher(&self) -> Option<&dyn CypherCapable> {
                    $by! { self GraphStore as_cypher() }
                }
            }
        }
    };
    ($([$($generics:tt)*])? BlobStore for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] BlobStore for $type, $by;
            put(key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> BlobInfo;
            get(key: &BlobKey, options: BlobGetOptions) -> BlobRead;
            head(key: &BlobKey) -> BlobInfo;
            list(prefix: &str, after: Option<&BlobKey>) -> BlobEntries;
            copy(source: &BlobKey, target: &BlobKey) -> BlobInfo;
            rename(source: &BlobKey, target: &BlobKey, mode: RenameMode) -> BlobInfo;
            delete(key: &BlobKey) -> bool;
            list_versions(key: &BlobKey) -> BlobVersions;
            get_version(key: &BlobKey, version: &BlobVersionId, options: BlobGetOptions) -> BlobRead;
            delete_version(key: &BlobKey, version: &BlobVersionId) -> bool;
            presign(key: &BlobKey, request: &PresignRequest) -> PresignedUrl;
        }
    };
    ($([$($generics:tt)*])? TaskStore for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] TaskStore for $type, $by;
            create_task_list(board: &BoardId, new: NewBoard) -> Board;
            add_tasks(board: &BoardId, tasks: Vec<NewTask>) -> Vec<Task>;
            get_board(board: &BoardId) -> Option<Board>;
            get_task(board: &BoardId, task: &TaskId) -> Option<Task>;
            list_tasks(board: &BoardId, query: &TaskQuery, page: PageRequest<TaskPosition>)
                -> Page<Task, TaskPosition>;
            list_boards(conversation: Option<&ConversationId>, page: PageRequest<BoardId>)
                -> Page<Board, BoardId>;
            update_status(board: &BoardId, task: &TaskId, step: Transition) -> Task;
            increment_retry(board: &BoardId, task: &TaskId, token: Option<FencingToken>) -> RetryOutcome;
            force_retry(board: &BoardId, task: &TaskId) -> Task;
            settle_conversation(conversation: &ConversationId) -> u64;
            claim(board: &BoardId, worker: &WorkerId, lease: Duration) -> Option<Claim>;
            renew_lease(board: &BoardId, task: &TaskId, token: FencingToken, lease: Duration) -> Lease;
            delete_board(board: &BoardId) -> bool;
        }
    };
    ($([$($generics:tt)*])? KeyValueStore for $type:ty, $by:ident) => {
        $crate::forward! {
            @[$($($generics)*)?] KeyValueStore for $type, $by;
            put(bucket: &BucketName, key: &Key, value: Bytes, options: KeyValuePutOptions) -> Revision;
            get(bucket: &BucketName, key: &Key) -> Option<KeyValueEntry>;
            get_many(bucket: &BucketName, keys: &[Key]) -> Page<Option<KeyValueEntry>, usize>;
            delete(bucket: &BucketName, key: &Key, at: Option<Revision>) -> bool;
            write(bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Vec<Option<Revision>>;
            delete_prefix(bucket: &BucketName, prefix: &str) -> PrefixDeletion;
            list(bucket: &BucketName, prefix: &str, page: PageRequest<Key>) -> Page<KeyRevision, Key>;
            list_entries(bucket: &BucketName, query: &KeyValueQuery, page: PageRequest<Key>)
                -> Page<KeyValueItem, Key>;
            list_buckets(page: PageRequest<BucketName>) -> Page<BucketInfo, BucketName>;
            watch(bucket: &BucketName, prefix: &str, after: Revision) -> KeyValueEvents;
        }
    };
    (
        @[$($generics:tt)*] $contract:ident for $type:ty, $by:ident;
        $($method:ident($($argument:ident: $input:ty),*) -> $answer:ty;)*
        $({ $($more:tt)* })?
    ) => {
        const _: () = {
            use $crate::storage::forward::*;
            #[async_trait]
            #[allow(unused_variables)]
            #[deny(clippy::missing_trait_methods)]
            impl<$($generics)*> $contract for $type {
                $(
                    async fn $method(&self, $($argument: $input),*) -> Result<$answer> {
                        $by! { self $contract $method($($argument),*) }
                    }
                )*
                $($($more)*)?
            }
        };
    };
}
