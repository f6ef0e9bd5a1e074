//! Copies of data between any two backends, through the contracts alone.
//!
//! [`copy`] fills the stores of one [`StoreSet`](larder_kernel::StoreSet) from a [`Source`]: other stores, or
//! an [`Archive`] that [`dump`] wrote. Both sides are read contract by contract in the contract's own order,
//! one page at a time, so memory does not grow with the amount of data. A copy needs no journal: the contents
//! of the target show the progress of an earlier copy.
//!
//! | contract | copied | not copied |
//! |---|---|---|
//! | history | messages, every field, in order | `Seq` numbers, events, keys, time to live, fence |
//! | vectors | collections, empty ones too, documents, embeddings bit for bit | |
//! | graph | entities, relationships | |
//! | blobs | bytes, media type, user metadata | `ETag`, time of writing |
//! | tasks | boards, tasks in order, status, retries, result | positions, revisions, leases |
//! | key-value | values; the time of expiry, as far as clocks agree | revisions, deletions |
//!
//! The time to live of a thread is not copied, because the contract does not expose it. The fence of a thread
//! has no meaning in the target, and a thread that is fenced in the target refuses the copy with `Conflict`.
//! A task that a worker holds arrives as planned and can be claimed, because its lease token has no meaning
//! in the target.
//!
//! The target assigns its own numbers, so readers and watchers must start again there. Reading a thread
//! counts as a use, which extends a time to live that use extends. Two backends are compared by the
//! [`Digest`] of a scan. It compares numbers in metadata by value. For an expiry, it compares only the
//! presence.
//!
//! No other writer should be active during a copy. If one is, the two sides differ, and the copy reports it.
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
mod missing;
mod position;
mod progress;
mod record;
mod scan;
mod source;
mod totals;
mod write;

pub use archive::{Archive, dump, dump_undamaged};
pub use copy::{Copied, Existing, copy, left_out};
pub use diff::Difference;
pub use digest::Digest;
pub use erase::{Erased, Whose, erase, erase_of};
pub use missing::Missing;
pub use progress::{Phase, Progress, Watch};
pub use record::{
    BlobRecord, BoardRecord, CollectionRecord, DocumentRecord, MessageRecord, Record, TaskRecord, ValueRecord,
};
pub use source::Source;
pub use totals::{count, digest};
