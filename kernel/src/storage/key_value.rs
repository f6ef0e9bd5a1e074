//! Small state: the contract of [`KeyValueStore`].
//!
//! Keys are stored in buckets. Every write to a bucket takes the bucket's next [`Revision`]. A key's revision
//! therefore shows if another caller wrote the key in between, and a watcher can continue from the last
//! revision it saw. A revision also names the generation of its bucket, as a `Seq` does for its thread.

mod batch;
mod check;
mod ext;
mod types;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;

pub use batch::{
    KeyOrder, KeyValueItem, KeyValueQuery, KeyValueWrite, KeyValueWriteKind, PrefixDeletion, entries_page,
    fitting, many_page, prefix_end,
};
pub use check::{check_get_many, check_list, check_list_entries, check_put, check_write};
pub use ext::KeyValueStoreExt;
pub use types::{
    BucketInfo, KeyRevision, KeyValueCondition, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValuePutOptions,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{BucketName, Key};
use crate::page::{Page, PageRequest};
use crate::position::Revision;

/// The operation of [`KeyValueStore::write`] in errors.
const WRITE: &str = "key_value.write";

/// A stream of a bucket's changes.
pub type KeyValueEvents = BoxStream<'static, Result<KeyValueEvent>>;

/// A store of byte values under keys, in buckets.
///
/// [`KeyValueStoreExt`] has the convenience methods (`create`, `put_at`, `delete_all`).
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait KeyValueStore: Store {
    /// Writes a value if the condition holds, and returns its revision.
    ///
    /// - **KV-001** A value reads back byte for byte: any bytes, from the empty value up to the size limit.
    /// - **KV-002** Each write to a bucket gets a revision greater than all earlier ones in that bucket,
    ///   including those of deletions and of expired keys.
    /// - **KV-003** A put without a condition replaces the existing value.
    /// - **KV-004** With `Absent`, a put to an existing key fails with `Conflict` and changes neither the
    ///   value nor the revision.
    /// - **KV-005** With `AtRevision`, a put to a key at that revision replaces the value.
    /// - **KV-006** With `AtRevision`, a put to a key that is absent or at another revision fails with
    ///   `Conflict` and changes nothing.
    /// - **KV-007** Of concurrent puts at one revision, exactly one succeeds, and the others fail with
    ///   `Conflict`.
    /// - **KV-008** Of concurrent creations of one key, exactly one succeeds, and the others fail with
    ///   `Conflict`.
    /// - **KV-009** Counters that are kept by a read and a put at the revision read lose no update.
    /// - **KV-010** Buckets are separate: a key in one bucket does not exist in another.
    /// - **KV-011** From the instant at which its time to live expires on the store's clock, a key reads as
    ///   absent.
    /// - **KV-012** A put without a time to live removes the time to live that the key had.
    /// - **KV-013** An expired key counts as absent for every condition.
    /// - **KV-049** Every revision of a bucket names one generation, which remains when all keys are deleted
    ///   or expire and is another one after an erasure.
    /// - **KV-050** With `AtRevision`, a put with a revision of another generation than the bucket's fails
    ///   with `Conflict` and changes nothing, even if the number is right.
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
    /// - **KV-020** `get` returns the latest value and revision of an existing key.
    /// - **KV-021** `get` returns `None`, not an error, for a key or a bucket that does not exist.
    /// - **KV-022** `get` returns the instant at which a key expires, and `None` for a key without a time to
    ///   live.
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

    /// Reads several keys of one bucket. The items are in the order of the keys, and `next` is the number of
    /// items if further keys must be read by another call.
    ///
    /// - **KV-053** `get_many` returns for each key what `get` returns, in the order of the keys, and again
    ///   for a key that is named again.
    /// - **KV-054** All entries of one result existed at one instant: a result contains all puts and
    ///   deletions of a `write`, or none.
    /// - **KV-055** A result ends before its values exceed 16 MiB, but contains at least one item, and `next`
    ///   is the position of the first key that was not read.
    ///
    /// # Errors
    /// `InvalidInput` for more than 1,000 keys.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(keys and values), in one round trip.
    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        Err(Error::not_implemented("key_value.get_many"))
    }

    /// Writes and deletes several keys of one bucket, each under its own condition, completely or not at all.
    /// Returns the revision of each put and of each deletion of an existing key, in the order of the writes,
    /// and `None` for a deletion of an absent key.
    ///
    /// Each key may appear once. Every condition is therefore evaluated in the state before the call. The
    /// error of a condition that does not hold has the position of the first such write as `write` in its
    /// context.
    ///
    /// - **KV-056** A `write` has the effect of its puts and deletions one by one.
    /// - **KV-057** If one condition of a `write` does not hold, the call fails with `Conflict`, names the
    ///   position of the first such write, and changes nothing.
    /// - **KV-058** The puts of a `write` and its deletions of existing keys take revisions in the order of
    ///   the writes, and the result contains exactly these revisions.
    /// - **KV-059** No read sees a part of a `write`, and its times to live begin at one instant.
    /// - **KV-060** Of concurrent `write` calls that name one key at one revision or as absent, exactly one
    ///   succeeds, and the others fail with `Conflict`.
    /// - **KV-061** A watch delivers the changes of a `write` in the order of its writes, and when it
    ///   delivers the first of them, every read returns the whole `write`.
    /// - **KV-062** A `write` with 1,000 keys, or with 16 MiB of keys and values, is stored.
    /// - **KV-063** With a revision of another generation than the bucket's, a `write` fails with `Conflict`
    ///   and changes nothing, even if the number is right.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 writes, a key that appears twice, keys and values of more than
    /// 16 MiB together, a value over 4 MiB or a time to live of less than 1 ms or more than 100 years;
    /// `Conflict`; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The `write` happens completely or not at all.
    ///
    /// # Complexity
    /// O(writes and values), independent of the bucket's size, in one round trip.
    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        Err(Error::not_implemented("key_value.write"))
    }

    /// Deletes a key, optionally only at a given revision. Returns `true` if the key existed.
    ///
    /// - **KV-023** Deleting an existing key returns `true`, and the key then reads as absent.
    /// - **KV-024** Deleting a key that does not exist returns `false` and changes nothing.
    /// - **KV-025** With a revision, deleting a key that is absent or at another revision fails with
    ///   `Conflict` and changes nothing.
    /// - **KV-051** With a revision of another generation than the bucket's, deleting a key fails with
    ///   `Conflict` and changes nothing, even if the number is right.
    /// - **KV-026** A key written again after its deletion gets a revision greater than all its earlier ones.
    /// - **KV-027** Deleting a key does not delete other keys that begin with it.
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

    /// Deletes the first 1,000 keys that begin with a prefix, or all of them if they are fewer. To delete
    /// all, call it until the result has no `more`; [`KeyValueStoreExt::delete_all`] does that.
    ///
    /// A call is limited because every deletion takes a revision and leaves a record for watchers, of which a
    /// bucket keeps 1,000, and because other writers of the bucket wait for it.
    ///
    /// - **KV-064** `delete_prefix` deletes the first keys in byte order whose bytes begin with the prefix,
    ///   up to 1,000 or up to the 10,000th expired one, completely or not at all, and returns their number
    ///   and whether such keys remain.
    /// - **KV-065** Each deletion by `delete_prefix` takes one revision, in the order of the keys, and
    ///   a watch delivers it as a deletion.
    /// - **KV-066** `delete_prefix` neither counts nor deletes other keys: those without the prefix, absent
    ///   ones and expired ones.
    ///
    /// # Errors
    /// `InvalidInput` for a prefix that has more than 512 bytes or contains NUL.
    ///
    /// # Cancellation
    /// The call deletes all of its keys or none.
    ///
    /// # Complexity
    /// O(deleted keys) plus the cost of finding the first one.
    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        Err(Error::not_implemented("key_value.delete_prefix"))
    }

    /// Lists the keys that begin with a prefix, with their revisions.
    ///
    /// - **KV-030** Exactly the keys whose bytes begin with the prefix are listed, and `""` lists all keys.
    /// - **KV-031** Keys are listed in byte order.
    /// - **KV-032** Paging with any limit returns every key that exists for the whole listing exactly once.
    /// - **KV-033** Deleted and expired keys are not listed.
    /// - **KV-034** Characters that are special to some backend (`%`, `_`, `*`, `[`) have no special meaning
    ///   in a prefix.
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

    /// Lists the entries that a query selects: those between two keys, forwards or in reverse, and with their
    /// values if the query asks for them.
    ///
    /// - **KV-067** `list_entries` lists exactly the keys that begin with the prefix, are not below `from`
    ///   and are below `to`.
    /// - **KV-068** An item has the key's revision and expiry, and its value if and only if the query asks
    ///   for values.
    /// - **KV-069** The listing is in byte order, or in reverse byte order if the query asks for it, and
    ///   paging with any limit returns every key that exists for the whole listing exactly once.
    /// - **KV-070** A page ends before its values exceed 16 MiB, but contains at least one item if an entry
    ///   exists, and then has a next page.
    /// - **KV-071** A page contains the state of one instant: all puts and deletions of a `write`, or none.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000, or a prefix that has more than 512 bytes or contains NUL.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit and values) plus the cost of finding the start.
    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        Err(Error::not_implemented("key_value.list_entries"))
    }

    /// Lists the buckets that contain keys, in byte order.
    ///
    /// - **KV-035** Each bucket that contains a key is listed once, in byte order, with the number of its
    ///   keys, and a bucket without keys is not listed.
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
    /// - **KV-040** A watch first delivers the latest change after the revision to each key, in the order of
    ///   revisions, and then the live changes.
    /// - **KV-041** A put event carries key, value, revision and time to live, and a deletion event carries
    ///   key and revision.
    /// - **KV-042** The last change of a key is never missed, even under concurrent writers and from another
    ///   handle, but earlier changes of the same key may be omitted.
    /// - **KV-043** No change is delivered twice, and revisions only increase.
    /// - **KV-044** Only changes of keys with the prefix are delivered.
    /// - **KV-045** A watcher that starts from the last revision it received is notified of deletions since
    ///   that revision.
    /// - **KV-046** An expiry takes no revision and creates no event when it happens, and a watch that reads
    ///   the put after the expiry delivers a deletion of the key under the put's revision.
    /// - **KV-047** A watch from revision 0 is never refused: it begins with every existing key as soon as it
    ///   first finds one, and until then it continues across an erasure.
    /// - **KV-048** A watch that began after a revision greater than 0 or has delivered a change ends with
    ///   `Conflict` when the bucket comes back empty or with another generation, even if the bucket has been
    ///   written past its revision.
    /// - **KV-052** Watching from a revision of another generation than the bucket's, or beyond the bucket's
    ///   last revision, fails with `Conflict`.
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
