//! The contracts of Larder: the data that an agent runtime stores, and the promises of every backend about
//! it.
//!
//! The crate has six object-safe traits (in [`storage`]) with their types, limits and errors. It performs no
//! I/O and needs no async runtime. The backends are in `larder-agents` (in memory) and `larder-capabilities`
//! (SQLite, files and servers). The suite in `larder-conformance` proves that they behave alike.
//!
//! | contract | stored data |
//! |---|---|
//! | [`HistoryProvider`] | conversations, message by message |
//! | [`VectorStore`] | documents with embeddings |
//! | [`GraphStore`] | entities and relationships |
//! | [`BlobStore`] | files |
//! | [`TaskStore`] | boards of tasks, with claims |
//! | [`KeyValueStore`] | small state in buckets |

pub mod agent;
mod capability;
pub mod check;
mod error;
mod filter;
mod id;
pub mod limits;
mod message;
mod metadata;
mod page;
mod position;
#[doc(hidden)]
pub mod random;
pub mod storage;
mod timestamp;

pub use agent::HistoryRetention;
pub use agent::context::{
    AgentContextProtocol, CompactionStrategy, Origin, PendingWrite, Preparation, Prepared, Reach,
    StrategyEffect, Window, WindowMessage,
};
pub use agent::model::{Embedder, LanguageModel, LanguageModelRequest};
pub use capability::{Capabilities, Capability, Durability};
pub use error::{ContextValue, Error, ErrorKind, Outcome, Result};
pub use filter::{Field, Filter};
pub use id::{
    AgentId, AgentRole, BucketName, CollectionName, ConversationId, DocumentId, EntityId, EntityType,
    IdempotencyKey, Key, Namespace, RelationshipId, RelationshipType, RunId, SessionId, TaskId, Thread,
    WorkerId,
};
pub use message::{Author, BlobRef, ChatMessage, Role, ToolCall, ToolResult};
pub use metadata::{Metadata, canonical_json, json_compare, json_equal};
pub use page::{Page, PageRequest};
pub use position::{FencingToken, Generation, Revision, Seq, TaskPosition};
pub use storage::blob::{
    BlobBody, BlobBytes, BlobCondition, BlobEntries, BlobEntry, BlobGetOptions, BlobInfo, BlobKey,
    BlobPutOptions, BlobRead, BlobStore, BlobStoreExt, BlobVersion, BlobVersionId, BlobVersions, ByteRange,
    ETag, PresignMethod, PresignRequest, PresignedUrl, RenameMode, UserMetadata,
};
pub use storage::graph::{
    CypherCapable, CypherRow, DeletedEntity, Direction, Entity, EntityQuery, EntityWrite, GraphCondition,
    GraphCounts, GraphMode, GraphStore, GraphWritten, NeighborQuery, Reached, Relationship,
    RelationshipQuery, RelationshipWrite, StoredEntity, StoredRelationship, SubGraph, UpsertReport,
};
pub use storage::history::{
    AppendOptions, Appended, AuthorSet, AuthorTerms, Forked, HistoryEvent, HistoryEventKind, HistoryEvents,
    HistoryProvider, HistoryProviderExt, MessageFilter, MessageSelector, MessageUpdate, Removal,
    RemovalTarget, Removed, Replaced, Replacement, StoredMessage, ThreadInfo, Ttl, Updated,
};
pub use storage::key_value::{
    BucketInfo, KeyOrder, KeyRevision, KeyValueCondition, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueStoreExt,
    KeyValueWrite, KeyValueWriteKind, PrefixDeletion,
};
pub use storage::task::{
    Board, BoardId, BoardStatusCounts, Claim, Lease, NewBoard, NewTask, RetryOutcome, Task, TaskQuery,
    TaskStatus, TaskStore, Transition,
};
pub use storage::vector::{
    CollectionInfo, Document, Embedding, MetadataMode, MetadataReport, MetadataUpdate, PutMode, PutReport,
    SearchHit, SearchRequest, VectorStore,
};
pub use storage::{Contract, OptionSet, RequestOption, Store, StoreSet, undeclared_option};
pub use timestamp::Timestamp;

/// The README of this crate. Its examples compile as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
