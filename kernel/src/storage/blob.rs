//! File storage: the contract of [`BlobStore`].
//!
//! A blob is a sequence of bytes under a [`BlobKey`]. It has a content type, user metadata and an [`ETag`]
//! that changes with every write. Conditions follow RFC 9110. Presigned URLs and the limits of user metadata
//! follow S3.

mod body;
mod check;
mod ext;
mod key;
mod rename;
mod types;
mod version;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

pub use body::{BlobBody, BlobBytes};
pub use check::{check_get, check_prefix, check_presign, check_put, check_rename, check_versions};
pub use ext::BlobStoreExt;
pub use key::BlobKey;
pub use rename::RenameMode;
pub use types::{
    BlobCondition, BlobEntry, BlobGetOptions, BlobInfo, BlobPutOptions, BlobRead, ByteRange, ETag,
    PresignMethod, PresignRequest, PresignedUrl, UserMetadata,
};
pub use version::{BlobVersion, BlobVersionId, BlobVersions};

use super::Store;
use crate::error::{Error, Result};

/// A stream of the blobs in a listing.
pub type BlobEntries = BoxStream<'static, Result<BlobEntry>>;

/// A store of files.
///
/// [`BlobStoreExt`] has the convenience methods (`get_bytes`, `put_bytes`).
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait BlobStore: Store {
    /// Writes a blob from bytes or from a stream, if the condition holds.
    ///
    /// - **BLOB-001** A blob reads back byte for byte as written, from 0 bytes to many megabytes.
    /// - **BLOB-002** Content type and user metadata read back as given, and a blob written without them has
    ///   none.
    /// - **BLOB-003** Overwriting a blob replaces it completely: bytes, content type and user metadata.
    /// - **BLOB-004** A reader sees the old blob or the new one, never a mixture of both and never a part of
    ///   one.
    /// - **BLOB-005** A body given as a stream is written as the concatenation of its chunks, including empty
    ///   chunks.
    /// - **BLOB-006** If a body stream fails, the store does not change, and the call returns the stream's
    ///   error.
    /// - **BLOB-007** With `Absent`, writing to a key that has a blob fails with `Conflict` and does not
    ///   change the blob.
    /// - **BLOB-008** Of concurrent writes with `Absent`, exactly one succeeds, and the others fail with
    ///   `Conflict`.
    /// - **BLOB-009** With `Matches`, a blob with that `ETag` is replaced.
    /// - **BLOB-010** With `Matches`, writing to a key whose blob has another `ETag` or does not exist fails
    ///   with `Conflict` and changes nothing.
    /// - **BLOB-011** Of concurrent writes that match one `ETag`, exactly one succeeds, and the others fail
    ///   with `Conflict`.
    /// - **BLOB-012** Every write that changes the bytes changes the `ETag`, and `put` returns the new
    ///   `ETag`.
    /// - **BLOB-013** A write with a condition that the store does not declare fails with `Unsupported` and
    ///   writes nothing.
    /// - **BLOB-014** A key may be a prefix of another key, at a `/` or at any other position, and both keys
    ///   have their own blobs.
    /// - **BLOB-015** Concurrent writes without a condition leave exactly one of the written blobs, complete.
    /// - **BLOB-016** Every store accepts every key of at most 48 bytes in a namespace of at most 32 bytes.
    /// - **BLOB-017** With `blob-long-keys` declared, the store accepts every key of at most 512 bytes in
    ///   every namespace.
    /// - **BLOB-018** Without `blob-long-keys`, a key that is too long for the store fails with `Unsupported`
    ///   for the field `key` in `put`, in `presign`, as the target of `copy` and, with `blob-rename`, of
    ///   `rename`, and the call changes nothing.
    ///
    /// Without `blob-long-keys`, the store joins the namespace and the key to a name of limited length.
    /// Between the two limits above, the lengths and the characters of both determine if the store keeps a
    /// key. The result for the same key in the same namespace is always the same.
    ///
    /// # Errors
    /// `InvalidInput` if the user metadata has more than 64 entries, more than 2,048 bytes or characters
    /// outside its grammar, or if the content type is empty, has more than 256 bytes or contains anything but
    /// visible ASCII with inner spaces; `Conflict`; `Unsupported`; the error of the stream;
    /// `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The blob is written completely or not at all. Parts that were already sent are removed.
    ///
    /// # Complexity
    /// O(bytes). Memory use is bounded by a few pieces, independent of the blob's size, unless the store
    /// keeps blobs in memory.
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        Err(Error::not_implemented("blobs.put"))
    }

    /// Reads a blob, or a range of it, as a stream.
    ///
    /// - **BLOB-020** Reading a blob that does not exist fails with `NotFound`.
    /// - **BLOB-021** A range returns exactly its bytes, and a range that ends past the blob's end is cut at
    ///   the blob's end.
    /// - **BLOB-022** A range that begins at or past the blob's end fails with `InvalidInput` for the field
    ///   `range`.
    /// - **BLOB-023** A suffix range returns the last bytes, or the whole blob if the suffix is longer than
    ///   the blob.
    /// - **BLOB-024** `get` returns the blob's full size and the range that the stream delivers.
    /// - **BLOB-025** A read that began before an overwrite, a deletion or a rename delivers the old blob
    ///   completely or fails with `Conflict`.
    /// - **BLOB-028** For a key that the store does not accept, `get`, `head`, `copy` from the key and, with
    ///   `blob-rename`, `rename` from the key fail with `NotFound`, and `delete` returns `false`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` if the range is empty or outside the blob.
    ///
    /// # Cancellation
    /// Dropping the stream ends the read.
    ///
    /// # Complexity
    /// O(bytes delivered). Memory use is bounded by a few pieces.
    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        Err(Error::not_implemented("blobs.get"))
    }

    /// Reads the size, content type, metadata and `ETag` of a blob without its bytes.
    ///
    /// - **BLOB-026** `head` returns the size, content type, user metadata and `ETag` of the last write,
    ///   equal to that write's result.
    /// - **BLOB-027** `head` of a blob that does not exist fails with `NotFound`.
    /// - **BLOB-053** `modified_at` is the time of the blob's last write by the store's clock, to the second
    ///   or better, in the results of `put`, `copy`, `head`, `get` and `list`.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1).
    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        Err(Error::not_implemented("blobs.head"))
    }

    /// Lists the blobs whose keys begin with a prefix, optionally only those after a key.
    ///
    /// - **BLOB-030** Exactly the keys whose bytes begin with the prefix are listed, each once: `""` lists
    ///   all keys, and a prefix need not end at a `/`.
    /// - **BLOB-031** Keys are listed in byte order.
    /// - **BLOB-032** With `after`, only keys greater than `after` are listed, and a blob with the key
    ///   `after` need not exist.
    /// - **BLOB-033** Every blob that exists from the start of the listing to its end is listed, regardless
    ///   of concurrent writes.
    /// - **BLOB-034** Deleted blobs and the blobs of unfinished or failed writes are not listed.
    /// - **BLOB-035** Each item has the size and the `ETag` that `head` returns.
    ///
    /// # Errors
    /// `InvalidInput` if the prefix has more than 512 bytes or contains NUL.
    ///
    /// # Cancellation
    /// Dropping the stream ends the listing.
    ///
    /// # Complexity
    /// O(blobs listed). The store reads them in pages or by folder.
    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        Err(Error::not_implemented("blobs.list"))
    }

    /// Copies a blob within the store.
    ///
    /// - **BLOB-036** A copy has the source's bytes, content type and user metadata, and is independent of
    ///   the source.
    /// - **BLOB-037** Copying a blob that does not exist fails with `NotFound` and does not change the
    ///   target.
    /// - **BLOB-038** Copying to a key that has a blob replaces that blob completely.
    /// - **BLOB-039** Copying a blob to its own key keeps its bytes, content type and user metadata.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` if the store does not keep the target key; `ResourceExhausted` if a quota is
    /// reached.
    ///
    /// # Cancellation
    /// The blob is copied completely or not at all.
    ///
    /// # Complexity
    /// O(bytes) or better. The bytes do not pass through the caller.
    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        Err(Error::not_implemented("blobs.copy"))
    }

    /// Moves a blob to another key in one step.
    ///
    /// - **BLOB-060** A rename moves the bytes, the content type and the user metadata to the target key, and
    ///   the source key then has no blob.
    /// - **BLOB-061** A renamed blob keeps its `ETag` and `modified_at`, and `rename` returns what `head` of
    ///   the target key returns.
    /// - **BLOB-062** With `Refuse`, renaming to a key that has a blob fails with `Conflict` and changes
    ///   nothing, even if both keys are equal.
    /// - **BLOB-063** With `Replace`, renaming to a key that has a blob replaces that blob completely, and
    ///   renaming a blob to its own key changes nothing.
    /// - **BLOB-064** Renaming a blob that does not exist fails with `NotFound` and changes nothing.
    /// - **BLOB-065** At every moment of a rename, the blob exists under exactly one of the two keys, and a
    ///   target key that had a blob before has one.
    /// - **BLOB-066** Of concurrent renames of one blob to different keys, exactly one succeeds, and the
    ///   others fail with `NotFound`.
    /// - **BLOB-067** Of concurrent renames with `Refuse` to one key, exactly one succeeds, and the others
    ///   fail with `Conflict`.
    /// - **BLOB-068** Without `blob-rename`, `rename` fails with `Unsupported` and changes nothing.
    /// - **BLOB-069** A listing during renames returns each key at most once, and returns every blob that no
    ///   rename moves or replaces.
    ///
    /// A listing during a rename can return the blob under the old key, the new key, both keys or neither.
    ///
    /// # Errors
    /// `NotFound`; `Conflict`; `Unsupported` if the store does not declare `blob-rename` or does not keep the
    /// target key; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The blob is moved or not moved.
    ///
    /// # Complexity
    /// O(1), independent of the blob's size.
    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        Err(Error::not_implemented("blobs.rename"))
    }

    /// Deletes a blob. Returns `true` if the blob existed. A store with `blob-versions` keeps it as an
    /// earlier version.
    ///
    /// - **BLOB-040** Deleting an existing blob returns `true`, and the blob is then `NotFound` and not
    ///   listed.
    /// - **BLOB-041** Deleting a blob that does not exist succeeds and returns `false`.
    /// - **BLOB-042** Deleting a blob does not change blobs whose keys begin with its key.
    /// - **BLOB-043** Concurrent deletions of a blob with no concurrent writer all succeed, at least one
    ///   returns `true`, and the blob then does not exist.
    ///
    /// More than one concurrent deletion can return `true`, because not every backend checks and deletes in
    /// one step. If only one caller may act on a deletion, claim the deletion first, for example by `create`
    /// in a [`KeyValueStore`](crate::KeyValueStore).
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// The deletion happens completely or not at all.
    ///
    /// # Complexity
    /// O(1).
    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        Err(Error::not_implemented("blobs.delete"))
    }

    /// Lists the versions of a blob, the newest first.
    ///
    /// A store with `blob-versions` keeps a blob that is overwritten or deleted as an earlier version of its
    /// key, until `delete_version` or an erasure removes it. The backend determines the capability: an S3
    /// bucket with versioning, or a folder or a memory backend that was created for versions. Copies and
    /// archives of a namespace contain current blobs only. A copy of a blob to its own key adds at most one
    /// version. A write that is repeated after a lost response can add two.
    ///
    /// - **BLOB-070** With `blob-versions`, a blob that `put`, `copy` or `rename` overwrites or `delete`
    ///   deletes becomes an earlier version of its key.
    /// - **BLOB-071** The versions of a key are listed once each, in the order in which the key got them with
    ///   the newest first, and exactly the version that `head` returns is current.
    /// - **BLOB-072** Each item has the size and the `ETag` that `head` returned while the version was
    ///   current, and a version that becomes an earlier one keeps its id, size, `ETag` and `modified_at`.
    /// - **BLOB-073** A key that never had a blob has no versions, and the versions of a key are separate
    ///   from those of keys that begin with it.
    /// - **BLOB-074** A `put` that fails and a deletion of a missing blob add no version.
    /// - **BLOB-075** Of concurrent writes to a key, each that succeeds leaves one version.
    /// - **BLOB-076** A rename moves the current version to the target key, and the source key keeps exactly
    ///   its earlier versions.
    /// - **BLOB-077** Without `blob-versions`, `list_versions`, `get_version` and `delete_version` fail with
    ///   `Unsupported` and change nothing.
    ///
    /// # Errors
    /// `Unsupported`.
    ///
    /// # Cancellation
    /// Dropping the stream ends the listing.
    ///
    /// # Complexity
    /// O(versions of the key). A write of a key may also read the names of its earlier versions.
    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        Err(Error::not_implemented("blobs.list_versions"))
    }

    /// Reads one version of a blob, or a range of it, as a stream.
    ///
    /// - **BLOB-080** A version has the bytes, content type, user metadata, `ETag` and `modified_at` of its
    ///   write, also after later writes and after the deletion of the blob.
    /// - **BLOB-081** A range of a version returns exactly its bytes, and a range that begins at or past the
    ///   end fails with `InvalidInput` for the field `range`.
    /// - **BLOB-082** Reading a version that the key does not have fails with `NotFound`, even if another key
    ///   has it.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` if the range is empty or outside the version; `Unsupported`.
    ///
    /// # Cancellation
    /// Dropping the stream ends the read.
    ///
    /// # Complexity
    /// O(bytes delivered + versions of the key).
    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        Err(Error::not_implemented("blobs.get_version"))
    }

    /// Deletes an earlier version of a blob. Returns `true` if the version existed.
    ///
    /// - **BLOB-085** A deleted version is `NotFound` and not listed, and no other version of the key and not
    ///   the current blob changes.
    /// - **BLOB-086** Deleting a version that the key does not have returns `false` and changes nothing.
    /// - **BLOB-087** Deleting the current version fails with `Conflict` and changes nothing.
    /// - **BLOB-088** An erasure removes all versions of all keys.
    ///
    /// # Errors
    /// `Conflict`; `Unsupported`.
    ///
    /// # Cancellation
    /// The version is deleted completely or not at all.
    ///
    /// # Complexity
    /// O(versions of the key).
    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        Err(Error::not_implemented("blobs.delete_version"))
    }

    /// Creates a URL that allows reading or writing one blob without credentials, for a limited time.
    ///
    /// - **BLOB-050** The presigned URL names the requested method and expires after the requested validity.
    /// - **BLOB-054** The headers of a presigned request contain exactly the content type that the request
    ///   names, as `content-type`, and no content type if the request names none.
    /// - **BLOB-051** A method that the store does not declare fails with `Unsupported`.
    /// - **BLOB-052** A URL with a scheme other than `http` or `https` is a locator that ends in the key,
    ///   such as `memory://{key}`, and the caller reads the blob through the store.
    ///
    /// # Errors
    /// `InvalidInput` if the validity is under one second or over seven days, or if a content type is given
    /// with `Get`, or if [`put`](Self::put) would refuse the content type; `Unsupported`.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1), without I/O if the backend allows it.
    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        Err(Error::not_implemented("blobs.presign"))
    }
}
