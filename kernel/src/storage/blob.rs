//! File storage: the contract of [`BlobStore`].
//!
//! A blob is a sequence of bytes under a [`BlobKey`]. It has a content type, user metadata and an [`ETag`]
//! that changes with every write. Conditions follow RFC 9110. Presigned URLs and the limits of user metadata
//! follow S3.

mod body;
mod check;
mod ext;
mod key;
mod types;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

pub use body::{BlobBody, BlobBytes};
pub use check::{check_get, check_prefix, check_presign, check_put};
pub use ext::BlobStoreExt;
pub use key::BlobKey;
pub use types::{
    BlobCondition, BlobEntry, BlobGetOptions, BlobInfo, BlobPutOptions, BlobRead, ByteRange, ETag,
    PresignMethod, PresignRequest, PresignedUrl, UserMetadata,
};

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
    /// - **BLOB-001** The bytes read back as written, from none to many megabytes.
    /// - **BLOB-002** Content type and user metadata read back as given; a blob written without has none.
    /// - **BLOB-003** Writing over a blob replaces it whole: bytes, content type and user metadata.
    /// - **BLOB-004** A reader sees the old blob or the new one, never a mixture and never a part.
    /// - **BLOB-005** A body given as a stream is written as the concatenation of its pieces, empty pieces included.
    /// - **BLOB-006** A stream that fails leaves the store as it was, and the call returns the stream's error.
    /// - **BLOB-007** With `Absent`, a blob that exists is `Conflict` and stays as it is.
    /// - **BLOB-008** Of concurrent writes with `Absent`, one succeeds and the others are `Conflict`.
    /// - **BLOB-009** With `Matches`, a blob with that `ETag` is replaced.
    /// - **BLOB-010** With `Matches`, a blob with another `ETag`, or none, is `Conflict` and nothing changes.
    /// - **BLOB-011** Of concurrent writes over one `ETag`, one succeeds and the others are `Conflict`.
    /// - **BLOB-012** Every write that changes the bytes changes the `ETag`, and the answer carries the new one.
    /// - **BLOB-013** A condition that the store does not declare is `Unsupported` and writes nothing.
    /// - **BLOB-014** A key may be a prefix of another key, at a `/` or anywhere else, and both are blobs.
    /// - **BLOB-015** Concurrent writes without a condition leave one of them, whole.
    /// - **BLOB-016** Every store keeps every key of at most 48 bytes in a namespace of at most 32 bytes.
    /// - **BLOB-017** With `blob-long-keys` declared, the store keeps every key of at most 512 bytes in every namespace.
    /// - **BLOB-018** Without it, a key longer than the store keeps is `Unsupported` naming `key`, here, as the target of
    ///   `copy` and in `presign`, and nothing changes.
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
    /// - **BLOB-020** A blob that is not there is `NotFound`.
    /// - **BLOB-021** A range returns exactly its bytes; an end past the blob's is cut to it.
    /// - **BLOB-022** A range that begins at or past the blob's end is `InvalidInput` naming `range`.
    /// - **BLOB-023** A suffix range returns the last bytes, the whole blob where it is longer.
    /// - **BLOB-024** The answer names the blob's full size and the range that the stream delivers.
    /// - **BLOB-025** A read that began before an overwrite or a deletion delivers the old blob whole, or fails.
    /// - **BLOB-028** Under a key that the store does not keep there is nothing: `get`, `head` and `copy` from it are
    ///   `NotFound`, and `delete` answers that no blob was there.
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
    /// - **BLOB-026** Size, content type, user metadata and `ETag` are those of the last write, equal to its answer.
    /// - **BLOB-027** A blob that is not there is `NotFound`.
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
    /// - **BLOB-030** Exactly the keys whose bytes begin with the prefix are listed, once each; `""` lists all, and a
    ///   prefix need not end at a `/`.
    /// - **BLOB-031** Keys come in the order of their bytes.
    /// - **BLOB-032** With `after`, only keys greater than it are listed; the key itself need not exist.
    /// - **BLOB-033** Blobs that exist from the listing's start to its end are all listed, whatever is written meanwhile.
    /// - **BLOB-034** Unfinished, failed and deleted blobs are not listed.
    /// - **BLOB-035** Each item carries the size and the `ETag` that `head` returns.
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
    /// - **BLOB-036** The copy has the source's bytes, content type and user metadata, and is independent of it.
    /// - **BLOB-037** A source that is not there is `NotFound`, and the target stays as it is.
    /// - **BLOB-038** A target that is there is replaced whole.
    /// - **BLOB-039** Copying a blob onto itself leaves its bytes, content type and user metadata.
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

    /// Deletes a blob. Returns `true` if the blob existed.
    ///
    /// - **BLOB-040** A deleted blob is `NotFound` and not listed, and the answer says that it was there.
    /// - **BLOB-041** Deleting a blob that is not there answers so and is no error.
    /// - **BLOB-042** Deleting a blob leaves those whose keys begin with its key.
    /// - **BLOB-043** Of concurrent deletions of a blob that nobody writes, all succeed, at least one answers that it was
    ///   there, and it is gone.
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

    /// Creates a URL that allows reading or writing one blob without credentials, for a limited time.
    ///
    /// - **BLOB-050** The answer names the method asked for and an expiry that lies as far ahead as asked.
    /// - **BLOB-051** A method that the store does not declare is `Unsupported`.
    /// - **BLOB-052** A URL that is no `http` or `https` URL is a locator that ends in the key, such as `memory://{key}`,
    ///   for callers that then read through the store.
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
