//! Small state: the contract of [`KeyValueStore`].
//!
//! Keys are stored in buckets. Every write to a bucket takes the bucket's next [`Revision`]. A key's revision
//! therefore shows if another caller wrote the key in between, and a watcher can continue from the last
//! revision it saw.

mod check;
mod ext;
mod types;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;

pub use check::{check_list, check_put};
pub use ext::KeyValueStoreExt;
pub use types::{
    BucketInfo, KeyRevision, KeyValueCondition, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValuePutOptions,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{BucketName, Key, Revision};
use crate::page::{Page, PageRequest};

/// A stream of a bucket's changes.
pub type KeyValueEvents = BoxStream<'static, Result<KeyValueEvent>>;

/// A store of byte values under keys, in buckets.
///
/// [`KeyValueStoreExt`] has the convenience methods (`create`, `put_at`).
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait KeyValueStore: Store {
    /// Writes a value if the condition holds, and returns its revision.
    ///
    /// - **KV-001** The value reads back byte for byte, any bytes, the empty value included, up to the size limit.
    /// - **KV-002** Each write of a bucket gets a revision greater than all before it in that bucket, deletions and
    ///   expiries included.
    /// - **KV-003** Without a condition the value replaces what was there.
    /// - **KV-004** With `Absent`, a key that exists is `Conflict` and keeps its value and revision.
    /// - **KV-005** With `AtRevision`, a key at that revision is replaced.
    /// - **KV-006** With `AtRevision`, a key at another revision, or absent, is `Conflict` and nothing changes.
    /// - **KV-007** Of concurrent puts at one revision, one succeeds and the others are `Conflict`.
    /// - **KV-008** Of concurrent creations of one key, one succeeds and the others are `Conflict`.
    /// - **KV-009** Counters kept by reading and putting at the revision read lose no update.
    /// - **KV-010** Buckets are separate: a key of one is not in another.
    /// - **KV-011** From the instant its time to live passes on the store's clock, a key reads as absent.
    /// - **KV-012** A put without a time to live removes the one that the key had.
    /// - **KV-013** An expired key counts as absent for every condition.
    ///
    /// # Errors
    /// `InvalidInput` for a value over 4 MiB or a time to live of less than 1 ms or more than 100 years;
    /// `Conflict`; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The write happens completely or not at all.
    ///
    /// # Complexity
    /// O(value), independent of the bucket's size.
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        Err(Error::not_implemented("key_value.put"))
    }

    /// Reads a key.
    ///
    /// - **KV-020** A key that is there returns its latest value and revision.
    /// - **KV-021** A key or a bucket that is not there is `None`, not an error.
    /// - **KV-022** A key with a time to live returns the instant at which it passes; one without returns none.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(value).
    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        Err(Error::not_implemented("key_value.get"))
    }

    /// Deletes a key, optionally only at a given revision. Returns `true` if the key existed.
    ///
    /// - **KV-023** A deleted key reads as absent, and the answer says that it was there.
    /// - **KV-024** Deleting a key that is not there answers that it was not, and changes nothing.
    /// - **KV-025** With a revision, a key at another revision, or absent, is `Conflict` and nothing changes.
    /// - **KV-026** A key written again after its deletion gets a greater revision than any before.
    /// - **KV-027** Deleting a key leaves keys that begin with it.
    ///
    /// # Errors
    /// `Conflict`.
    ///
    /// # Cancellation
    /// The deletion happens completely or not at all.
    ///
    /// # Complexity
    /// O(1) plus the cost of finding the key.
    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        Err(Error::not_implemented("key_value.delete"))
    }

    /// Lists the keys that begin with a prefix, with their revisions.
    ///
    /// - **KV-030** Exactly the keys whose bytes begin with the prefix are listed; `""` lists all.
    /// - **KV-031** Keys come in the order of their bytes.
    /// - **KV-032** Paging with any limit visits each key that exists throughout exactly once.
    /// - **KV-033** Deleted and expired keys are not listed.
    /// - **KV-034** Characters special to some backend (`%`, `_`, `*`, `[`) have no special meaning in a prefix.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000, or a prefix that has more than 512 bytes or contains NUL.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus the cost of finding the start.
    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        Err(Error::not_implemented("key_value.list"))
    }

    /// Lists the buckets that contain keys, in byte order.
    ///
    /// - **KV-035** Each bucket that holds a key is listed once, in byte order, with the number of its keys; a bucket
    ///   whose keys are all gone is not.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(buckets and their keys).
    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        Err(Error::not_implemented("key_value.list_buckets"))
    }

    /// Streams the changes to keys that begin with a prefix: first the changes after a revision, then the
    /// live ones.
    ///
    /// - **KV-040** The latest change after the revision to each key comes first, in the order of revisions; then the
    ///   live changes follow.
    /// - **KV-041** A put carries key, value, revision and time to live; a deletion carries key and revision.
    /// - **KV-042** A key's last change is never missed, under concurrent writers and from another handle too; earlier
    ///   changes of the same key may be left out.
    /// - **KV-043** No change comes twice, and revisions only grow.
    /// - **KV-044** Only keys with the prefix are reported.
    /// - **KV-045** A watcher that starts from the last revision it saw learns of deletions in between.
    /// - **KV-046** An expiry takes no revision and makes no event when it happens; a later watcher may be told of the
    ///   put, or that the key is gone, under the put's revision.
    /// - **KV-047** A watch from revision 0 is never refused: it begins with every key that is there, whenever it first
    ///   finds one, and goes on over an erasure until then.
    /// - **KV-048** A watch that has told of a change ends with `Conflict` when its namespace is erased, unless the bucket
    ///   is written past that change's revision before the watch looks.
    ///
    /// A bucket remembers at least its last 1,000 deletions. Watching from a revision older than the last
    /// forgotten deletion is `Conflict`: discard the cached state of the bucket and watch from revision 0.
    ///
    /// # Errors
    /// `InvalidInput` for a prefix that has more than 512 bytes or contains NUL; `Conflict` as described
    /// above. The stream ends after an error that it cannot recover from.
    ///
    /// # Cancellation
    /// Dropping the stream ends the watch.
    ///
    /// # Complexity
    /// O(changes), read in pages.
    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        Err(Error::not_implemented("key_value.watch"))
    }
}
