//! The limits that every backend enforces alike, before any I/O.
//!
//! A limit is part of the contract: no backend is stricter, none is looser, so that a program that runs on one runs
//! on all. Units stand last in the names.

use std::time::Duration;

/// Longest id (agent, session, run, document, entity, key and so on), in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 512;
/// Longest namespace, in bytes of UTF-8.
pub const NAMESPACE_BYTES_MAX: usize = 128;
/// Deepest nesting of a JSON value or a filter.
pub const JSON_DEPTH_MAX: usize = 32;
/// Largest metadata or properties object, as [`Metadata::size_bytes`](crate::Metadata::size_bytes) measures it.
pub const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Most items that one page, one `get` by ids or one delete by ids may name or return.
pub const PAGE_ITEMS_MAX: usize = 10_000;
/// Most conditions in one filter, groups included.
pub const FILTER_NODES_MAX: usize = 256;
/// Most keys in the path of one filter field.
pub const FILTER_PATH_KEYS_MAX: usize = 8;
/// Shortest time to live, lease or presigned validity, in milliseconds.
pub const TTL_MS_MIN: u64 = 1;
/// Longest time to live or lease, in milliseconds: 100 years of 365 days.
pub const TTL_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

/// Most messages in one append or one replacement.
pub const BATCH_MESSAGES_MAX: usize = 1_000;
/// Largest message, as [`ChatMessage::size_bytes`](crate::ChatMessage::size_bytes) measures it.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest append as a whole, in the same measure.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most tool calls, tool results or blob references in one message.
pub const MESSAGE_PARTS_MAX: usize = 256;
/// Most agents and roles that one filter of messages may name.
pub const MESSAGE_FILTER_TERMS_MAX: usize = 64;

/// Most dimensions of an embedding.
pub const DIMENSIONS_MAX: usize = 16_000;
/// Smallest squared length of an embedding: below it a vector counts as zero in 32-bit arithmetic.
pub const EMBEDDING_NORM_SQUARED_MIN: f64 = f32::MIN_POSITIVE as f64;
/// Largest squared length of an embedding: above it 32-bit arithmetic overflows.
pub const EMBEDDING_NORM_SQUARED_MAX: f64 = f32::MAX as f64;
/// Most documents in one put.
pub const BATCH_DOCUMENTS_MAX: usize = 1_000;
/// Largest text of a document, in bytes of UTF-8.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Most hits that one search may ask for.
pub const SEARCH_LIMIT_MAX: usize = 10_000;
/// Most searches in one batch.
pub const BATCH_SEARCHES_MAX: usize = 256;

/// Most entities or relationships in one upsert.
pub const BATCH_GRAPH_ITEMS_MAX: usize = 1_000;
/// Deepest walk of `neighbors`, in hops.
pub const NEIGHBORS_DEPTH_MAX: u32 = 32;
/// Most relationship types that one walk may name.
pub const RELATIONSHIP_TYPES_MAX: usize = 64;
/// Longest openCypher query, in bytes of UTF-8.
pub const CYPHER_BYTES_MAX: usize = 64 * 1024;

/// Longest key of a blob that every store keeps, in bytes of UTF-8; longer ones need the capability `blob-long-keys`.
pub const BLOB_SHORT_KEY_BYTES_MAX: usize = 48;
/// Longest namespace in which every store keeps such keys, in bytes of UTF-8.
pub const BLOB_SHORT_NAMESPACE_BYTES_MAX: usize = 32;
/// Most key-value pairs of user metadata on a blob.
pub const BLOB_METADATA_ENTRIES_MAX: usize = 64;
/// Largest user metadata of a blob: names and values together, in bytes. The figure is S3's.
pub const BLOB_METADATA_BYTES_MAX: usize = 2_048;
/// Longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Longest validity of a presigned URL. The figure is S3's: seven days.
pub const PRESIGN_EXPIRY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Most tasks in one call that adds tasks.
pub const BATCH_TASKS_MAX: usize = 1_000;
/// Longest title of a task, in bytes of UTF-8.
pub const TASK_TITLE_BYTES_MAX: usize = 4_096;
/// Longest description or result of a task, in bytes of UTF-8.
pub const TASK_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Retries that a task is allowed when nothing else is said.
pub const TASK_RETRIES_DEFAULT: u32 = 3;
/// Most retries that a task may be allowed.
pub const TASK_RETRIES_MAX: u32 = 1_000;

/// Largest value in the key-value store, in bytes.
pub const VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Deletions per bucket that a watcher can still learn of afterwards; older ones may be forgotten.
pub const BUCKET_TOMBSTONES_MAX: usize = 1_000;
