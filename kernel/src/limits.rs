//! Limits that every backend enforces in the same way, before any I/O.
//!
//! A limit is part of the contract. No backend has a lower or a higher limit, so a program that runs on one
//! backend runs on all. Names end in their unit.

use std::time::Duration;

/// The maximum length of an id (agent, session, run, document, entity, key and so on), in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 512;
/// The maximum length of a namespace, in bytes of UTF-8.
pub const NAMESPACE_BYTES_MAX: usize = 128;
/// The maximum nesting depth of a JSON value or a filter.
pub const JSON_DEPTH_MAX: usize = 32;
/// The maximum size of a metadata or properties object, as measured by
/// [`Metadata::size_bytes`](crate::Metadata::size_bytes). The metadata of a message counts against
/// [`MESSAGE_BYTES_MAX`] instead.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of items in one page, one `get` by ids, one delete by ids or one `In` filter.
pub const PAGE_ITEMS_MAX: usize = 10_000;
/// The maximum number of conditions in one filter, groups included.
pub const FILTER_NODES_MAX: usize = 256;
/// The maximum number of values of one `ContainsAny` or `ContainsAll` filter.
pub const FILTER_ELEMENTS_MAX: usize = 256;
/// The maximum number of keys in the path of one filter field.
pub const FILTER_PATH_KEYS_MAX: usize = 8;
/// The minimum time to live or lease, in milliseconds.
pub const TTL_MS_MIN: u64 = 1;
/// The maximum time to live or lease, in milliseconds: 100 years of 365 days.
pub const TTL_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

/// The maximum number of messages in one append or one replacement.
pub const BATCH_MESSAGES_MAX: usize = 1_000;
/// The maximum size of a message, as measured by [`ChatMessage::size_bytes`](crate::ChatMessage::size_bytes).
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum total size of one append or one replacement, in the same measure.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum total size of the messages of one read, in the same measure.
pub const READ_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum time for which a store keeps the messages of a pop with an idempotency key.
pub const POPPED_KEPT_MAX: Duration = Duration::from_secs(600);
/// The greatest fencing token of a write: 2^63 - 1.
pub const FENCING_TOKEN_MAX: u64 = i64::MAX as u64;
/// The maximum number of tool calls, tool results or blob references in one message.
pub const MESSAGE_PARTS_MAX: usize = 256;
/// The maximum number of agents and roles in one message filter.
pub const MESSAGE_FILTER_TERMS_MAX: usize = 64;

/// The maximum number of dimensions of an embedding.
pub const DIMENSIONS_MAX: usize = 16_000;
/// The minimum squared length of an embedding. A shorter vector counts as zero in 32-bit arithmetic.
pub const EMBEDDING_NORM_SQUARED_MIN: f64 = f32::MIN_POSITIVE as f64;
/// The maximum squared length of an embedding. A longer vector overflows 32-bit arithmetic.
pub const EMBEDDING_NORM_SQUARED_MAX: f64 = f32::MAX as f64;
/// The maximum number of documents in one put.
pub const BATCH_DOCUMENTS_MAX: usize = 1_000;
/// The maximum size of a document's text, in bytes of UTF-8.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of hits of one search.
pub const SEARCH_LIMIT_MAX: usize = 10_000;
/// The maximum number of searches in one batch.
pub const BATCH_SEARCHES_MAX: usize = 256;

/// The maximum number of entities or relationships in one upsert.
pub const BATCH_GRAPH_ITEMS_MAX: usize = 1_000;
/// The maximum depth of a `neighbors` traversal, in hops.
pub const NEIGHBORS_DEPTH_MAX: u32 = 32;
/// The maximum number of relationship types in one traversal.
pub const RELATIONSHIP_TYPES_MAX: usize = 64;
/// The maximum length of an openCypher query, in bytes of UTF-8.
pub const CYPHER_BYTES_MAX: usize = 64 * 1024;

/// The maximum length of a blob key that every store keeps, in bytes of UTF-8. Longer keys need the
/// capability `blob-long-keys`.
pub const BLOB_SHORT_KEY_BYTES_MAX: usize = 48;
/// The maximum length of a namespace in which every store keeps such keys, in bytes of UTF-8.
pub const BLOB_SHORT_NAMESPACE_BYTES_MAX: usize = 32;
/// The maximum number of key-value pairs in a blob's user metadata.
pub const BLOB_METADATA_ENTRIES_MAX: usize = 64;
/// The maximum size of a blob's user metadata: names and values together, in bytes. S3 has the same limit.
pub const BLOB_METADATA_BYTES_MAX: usize = 2_048;
/// The maximum length of the id of a blob's version, in bytes. S3 has the same limit.
pub const VERSION_ID_BYTES_MAX: usize = 1_024;
/// The maximum length of a content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// The maximum validity of a presigned URL: seven days. S3 has the same limit.
pub const PRESIGN_EXPIRY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The maximum number of tasks in one call that adds tasks.
pub const BATCH_TASKS_MAX: usize = 1_000;
/// The maximum length of a task's title or a board's label, in bytes of UTF-8.
pub const TASK_TITLE_BYTES_MAX: usize = 4_096;
/// The maximum length of a task's description or result, in bytes of UTF-8.
pub const TASK_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// The default number of retries that a task is allowed.
pub const TASK_RETRIES_DEFAULT: u32 = 3;
/// The maximum number of retries that a task can be allowed.
pub const TASK_RETRIES_MAX: u32 = 1_000;

/// The maximum size of a value in the key-value store, in bytes.
pub const VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The maximum number of keys that one `get_many` reads, one `write` names or one `delete_prefix` deletes.
pub const BATCH_KEYS_MAX: usize = 1_000;
/// The maximum size of the keys and values of one `write`, and of the values of one `get_many` or one page of
/// `list_entries`, in bytes.
pub const BATCH_VALUES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The number of deletions per bucket that a watcher can still receive afterwards. A store may forget older
/// ones.
pub const BUCKET_TOMBSTONES_MAX: usize = 1_000;
