//! Moving data between any two backends, through the contracts alone.
//!
//! [`copy`] fills the stores of one [`StoreSet`](larder_kernel::StoreSet) with what a [`Source`] holds: other stores, or an [`Archive`] that [`dump`]
//! wrote. Both sides are read contract by contract in the contract's own order, a page at a time, so memory does not grow
//! with what is moved. There is no journal: what the target holds says how far an earlier copy came.
//!
//! | contract | what moves | what does not |
//! |---|---|---|
//! | history | messages, every field, in order | `Seq` numbers, events, idempotency keys; the time to live of a thread, which the contract does not tell |
//! | vectors | collections, empty ones too, documents, embeddings bit for bit | |
//! | graph | entities, relationships | |
//! | blobs | bytes, media type, user metadata | `ETag`, time of writing |
//! | tasks | boards, tasks in their order, status, retries, result | positions, revisions; leases: a task that a worker holds arrives planned, free to be claimed, because its token means nothing elsewhere |
//! | key-value | values; the instant of expiry, as far as clocks agree | revisions, deletions |
//!
//! Numbers that a store assigns are the target's own, so readers and watchers begin anew there. Reading a thread counts as
//! a use, which prolongs a time to live that use prolongs. Two places are compared by the [`Digest`] of a scan, in which
//! numbers of metadata count by value and an expiry only by being there.
//!
//! Nobody else should write meanwhile. Who does makes the two sides differ, and the copy says so.
//!
//! ```
//! use std::sync::Arc;
//!
//! use larder_agents::storage::{InMemoryKeyValueStore, MemoryBackend};
//! use larder_agents::transfer::{Existing, Source, Watch, copy};
//! use larder_kernel::StoreSet;
//! use larder_kernel::{BucketName, Contract, Key, KeyValueStoreExt, Namespace};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! let from = InMemoryKeyValueStore::open(&MemoryBackend::new(), Namespace::new("tenant-1")?);
//! let to = InMemoryKeyValueStore::open(&MemoryBackend::new(), Namespace::new("tenant-1")?);
//! from.set(&BucketName::new("jam")?, &Key::new("shelf")?, "second".into()).await?;
//!
//! let source = Source::from(StoreSet::new().with_key_value(Arc::new(from)));
//! let target = StoreSet::new().with_key_value(Arc::new(to));
//! let copied = copy(&source, &target, &[Contract::KeyValue], Existing::Refuse, &Watch::nobody()).await?;
//! assert!(copied[0].is_equal());
//! assert_eq!(copied[0].written, 1);
//! # Ok(())
//! # }
//! ```

mod archive;
mod copy;
mod diff;
mod digest;
mod encode;
mod erase;
mod position;
mod progress;
mod record;
mod scan;
mod source;
mod totals;
mod write;

pub use archive::{Archive, dump};
pub use copy::{Copied, Existing, copy, left_out};
pub use diff::Difference;
pub use digest::Digest;
pub use erase::{Erased, Whose, erase, erase_of};
pub use progress::{Phase, Progress, Watch};
pub use record::{
    BlobRecord, BoardRecord, CollectionRecord, DocumentRecord, MessageRecord, Record, TaskRecord, ValueRecord,
};
pub use source::Source;
pub use totals::{count, digest};
