//! `ObjectStore` of the crate `object_store` 0.14 over any [`BlobStore`].
//!
//! # Preserved data
//! The adapter preserves bytes, content type, user metadata (`Attribute::Metadata`), `ETag`s, sizes and write
//! times. A location is the blob's key. Conditions on reads apply to the blob that was read, so a tag and its
//! bytes always belong together.
//!
//! # Renames
//! A rename is one step on a store that declares [`BlobRename`](Capability::BlobRename). On other stores it
//! is a copy and a deletion, so other callers can see the object under both locations.
//!
//! # Unsupported operations
//! - Attributes other than content type and user metadata return `NotImplemented`, and nothing is written.
//! - `PutMode::Create`, `PutMode::Update`, and copies and renames that must not replace need a store that
//!   declares [`BlobCreateOnly`](Capability::BlobCreateOnly) or [`BlobIfMatch`](Capability::BlobIfMatch).
//!   For such a rename, [`BlobRename`](Capability::BlobRename) suffices. Without it, they return
//!   `NotImplemented`, and nothing is written.
//! - Results contain no versions, and a read of a specific version returns `NotSupported`.
//! - Tags are ignored, as `object_store` requires of stores without tags.
//! - The adapter does not implement `MultipartStore` and `PaginatedListStore`, whose uploads and tokens
//!   outlive the process.
//!
//! # Errors
//! The source of each error is a [`larder_kernel::Error`]. `NotFound`, `AlreadyExists` and `PermissionDenied`
//! keep their kind. `Conflict` becomes `Precondition`, `Unsupported` becomes `NotSupported`, and all other
//! kinds become `Generic`. As everywhere in `object_store`, an error names its location.

mod list;
mod upload;

use std::fmt;
use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, Error as ObjectError, GetOptions, GetRange, GetResult,
    GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode, Result as ObjectResult,
};
use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use larder_kernel::storage::blob::check_put;
use larder_kernel::{
    BlobBody, BlobCondition, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    ByteRange, Capability, ETag, Error, ErrorKind, RenameMode, Timestamp,
};

/// The name of the store in errors.
const STORE: &str = "Larder";
/// The maximum number of concurrent deletions.
const DELETES_AT_ONCE: usize = 10;

/// A [`BlobStore`] as an [`ObjectStore`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use larder::{Stores, adapters::object_store::BlobObjectStore};
/// use object_store::{ObjectStoreExt, path::Path};
///
/// let stores = larder::open("memory:").await?;
/// let store = BlobObjectStore::new(stores.blobs()?);
/// let report = Path::from("reports/2026.csv");
/// store.put(&report, "day,visits\n".into()).await?;
/// assert_eq!(store.head(&report).await?.size, 11);
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// A dropped operation of the store is complete or has no effect. A rename is a copy followed by a deletion:
/// dropped between the two, it leaves both objects. An upload runs in a task of the Tokio runtime, so it
/// needs one; dropped before `complete`, it leaves nothing.
///
/// # Cost
/// Each operation is one call of the blob store, with these exceptions:
///
/// - `list_with_delimiter` skips deeper objects by reading up to a thousand or so keys per folder.
/// - A copy that must not replace sends the bytes through this process.
/// - A rename is two calls.
#[derive(Clone)]
pub struct BlobObjectStore {
    blobs: Arc<dyn BlobStore>,
}

impl BlobObjectStore {
    /// Creates an object store over this blob store, in its namespace.
    #[must_use]
    pub fn new(blobs: impl Into<Arc<dyn BlobStore>>) -> Self {
        Self { blobs: blobs.into() }
    }

    /// Refuses an operation if the store does not declare its capability.
    fn require(&self, capability: Capability, operation: &str) -> ObjectResult<()> {
        if self.blobs.capabilities().has(capability) { Ok(()) } else { Err(not_implemented(operation)) }
    }

    fn condition(&self, location: &Path, mode: PutMode) -> ObjectResult<BlobCondition> {
        match mode {
            PutMode::Overwrite => Ok(BlobCondition::None),
            PutMode::Create => {
                self.require(Capability::BlobCreateOnly, "put_opts with PutMode::Create")?;
                Ok(BlobCondition::Absent)
            }
            PutMode::Update(version) => {
                self.require(Capability::BlobIfMatch, "put_opts with PutMode::Update")?;
                let tag = version
                    .e_tag
                    .ok_or_else(|| generic("an update needs the ETag of the object that it replaces"))?;
                // An invalid tag matches no blob.
                ETag::new(&tag).map(BlobCondition::Matches).map_err(|error| ObjectError::Precondition {
                    path: location.to_string(),
                    source: Box::new(error),
                })
            }
        }
    }

    /// Reads a blob. Some ranges need the blob's size first, because `object_store` validates them against
    /// it.
    async fn read(&self, location: &Path, key: &BlobKey, options: &GetOptions) -> ObjectResult<BlobRead> {
        if options.head {
            return self.unread(location, key, options).await;
        }
        let range = options.range.as_ref().map(|range| match range {
            GetRange::Bounded(range) => ByteRange::Bounded { start: range.start, end: range.end },
            GetRange::Offset(start) => ByteRange::From(*start),
            GetRange::Suffix(count) => ByteRange::Suffix(*count),
        });
        match self.blobs.get(key, BlobGetOptions::default().with_range(range)).await {
            Err(error) if error.kind() == ErrorKind::InvalidInput && range.is_some() => {
                self.unread(location, key, options).await
            }
            read => read.map_err(|error| translate(location, error)),
        }
    }

    /// Returns the result of a read without its bytes.
    async fn unread(&self, location: &Path, key: &BlobKey, options: &GetOptions) -> ObjectResult<BlobRead> {
        let info = self.blobs.head(key).await.map_err(|error| translate(location, error))?;
        // A failed condition takes precedence over an invalid range.
        options.check_preconditions(&meta(location, &info))?;
        let range = match &options.range {
            Some(range) => range.as_range(info.size).map_err(generic)?,
            None => 0..info.size,
        };
        if !options.head && range.start < range.end {
            return Err(generic("the blob changed during the read; read it again"));
        }
        Ok(BlobRead::new(info, range, stream::empty().boxed()))
    }

    /// Copies if the target does not exist. The bytes pass through this process, because only a write has
    /// conditions.
    async fn copy_absent(&self, from: &Path, to: &Path) -> ObjectResult<()> {
        let read = self.blobs.get(&present(from)?, BlobGetOptions::default()).await;
        let BlobRead { info, bytes, .. } = read.map_err(|error| translate(from, error))?;
        self.require(Capability::BlobCreateOnly, "copy_opts with CopyMode::Create")?;
        let target = writable(to)?;
        // Avoids the transfer if the target exists; the write decides.
        if self.blobs.head(&target).await.is_ok() {
            return Err(exists(to));
        }
        let mut options =
            BlobPutOptions::default().with_condition(BlobCondition::Absent).with_all_metadata(info.metadata);
        options.content_type = info.content_type;
        let put = self.blobs.put(&target, BlobBody::Stream(bytes), options).await;
        put.map(drop).map_err(|error| of_creation(to, error))
    }
}

#[async_trait]
impl ObjectStore for BlobObjectStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> ObjectResult<PutResult> {
        let key = writable(location)?;
        let failed = if opts.mode == PutMode::Create { of_creation } else { translate };
        let condition = self.condition(location, opts.mode)?;
        let options = put_options("put_opts", &opts.attributes)?.with_condition(condition);
        let put = self.blobs.put(&key, BlobBody::Bytes(Bytes::from(payload)), options).await;
        Ok(put_result(&put.map_err(|error| failed(location, error))?))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> ObjectResult<Box<dyn MultipartUpload>> {
        let key = writable(location)?;
        let options = put_options("put_multipart_opts", &opts.attributes)?;
        check_put(&options, &self.blobs.capabilities()).map_err(|error| translate(location, error))?;
        Ok(Box::new(upload::start(Arc::clone(&self.blobs), location.clone(), key, options)?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> ObjectResult<GetResult> {
        if options.version.is_some() {
            return Err(ObjectError::NotSupported {
                source: "the adapter reads no versions; use `get_version`".into(),
            });
        }
        let key = present(location)?;
        let BlobRead { info, range, bytes, .. } = self.read(location, &key, &options).await?;
        let meta = meta(location, &info);
        options.check_preconditions(&meta)?;
        let path = location.clone();
        Ok(GetResult {
            payload: GetResultPayload::Stream(bytes.map_err(move |error| translate(&path, error)).boxed()),
            meta,
            range,
            attributes: attributes(info),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, ObjectResult<Path>>,
    ) -> BoxStream<'static, ObjectResult<Path>> {
        let blobs = Arc::clone(&self.blobs);
        locations
            .map(move |location| {
                let blobs = Arc::clone(&blobs);
                async move {
                    let location = location?;
                    // An invalid key has no blob, and deleting a missing blob is not an error.
                    if let Ok(key) = BlobKey::new(&location) {
                        blobs.delete(&key).await.map_err(|error| translate(&location, error))?;
                    }
                    Ok(location)
                }
            })
            .buffered(DELETES_AT_ONCE)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, ObjectResult<ObjectMeta>> {
        list::objects(Arc::clone(&self.blobs), prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, ObjectResult<ObjectMeta>> {
        list::objects(Arc::clone(&self.blobs), prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> ObjectResult<ListResult> {
        list::level(&self.blobs, prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> ObjectResult<()> {
        if options.mode == CopyMode::Create {
            return self.copy_absent(from, to).await;
        }
        let (source, target) = (present(from)?, writable(to)?);
        self.blobs.copy(&source, &target).await.map(drop).map_err(|error| match error.kind() {
            ErrorKind::NotFound => translate(from, error),
            _ => translate(to, error),
        })
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> ObjectResult<()> {
        let create = options.target_mode == RenameTargetMode::Create;
        if self.blobs.capabilities().has(Capability::BlobRename) {
            let mode = if create { RenameMode::Refuse } else { RenameMode::Replace };
            let (source, target) = (present(from)?, writable(to)?);
            let renamed = self.blobs.rename(&source, &target, mode).await;
            return renamed.map(drop).map_err(|error| match error.kind() {
                ErrorKind::NotFound => translate(from, error),
                _ => of_creation(to, error),
            });
        }
        if from == to {
            // Copying an object onto itself and deleting the source would lose it.
            let head = self.blobs.head(&present(from)?).await;
            head.map_err(|error| translate(from, error))?;
            return if create { Err(exists(to)) } else { Ok(()) };
        }
        let mode = if create { CopyMode::Create } else { CopyMode::Overwrite };
        self.copy_opts(from, to, CopyOptions::new().with_mode(mode)).await?;
        let deleted = self.blobs.delete(&present(from)?).await;
        deleted.map(drop).map_err(|error| translate(from, error))
    }
}

impl fmt::Display for BlobObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STORE)
    }
}

impl fmt::Debug for BlobObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobObjectStore").field("blobs", &self.blobs).finish()
    }
}

/// Returns the key of an object that should exist; an invalid key is `NotFound`.
fn present(location: &Path) -> ObjectResult<BlobKey> {
    BlobKey::new(location)
        .map_err(|error| ObjectError::NotFound { path: location.to_string(), source: Box::new(error) })
}

fn writable(location: &Path) -> ObjectResult<BlobKey> {
    BlobKey::new(location).map_err(|error| translate(location, error))
}

fn put_options(method: &str, attributes: &Attributes) -> ObjectResult<BlobPutOptions> {
    let mut options = BlobPutOptions::default();
    for (attribute, value) in attributes {
        match attribute {
            Attribute::ContentType => options.content_type = Some(value.as_ref().to_owned()),
            Attribute::Metadata(name) => {
                options.metadata.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
            }
            other => return Err(not_implemented(&format!("{method} with Attribute::{other:?}"))),
        }
    }
    Ok(options)
}

fn attributes(info: BlobInfo) -> Attributes {
    let content_type = info.content_type.map(|value| (Attribute::ContentType, value));
    let metadata = info.metadata.into_iter().map(|(name, value)| (Attribute::Metadata(name.into()), value));
    content_type.into_iter().chain(metadata).collect()
}

fn meta(location: &Path, info: &BlobInfo) -> ObjectMeta {
    object_meta(location.clone(), info.size, &info.etag, info.modified_at)
}

fn object_meta(location: Path, size: u64, etag: &ETag, modified_at: Timestamp) -> ObjectMeta {
    ObjectMeta {
        location,
        // Every timestamp is within the range of chrono.
        last_modified: DateTime::<Utc>::from_timestamp_micros(modified_at.as_micros()).unwrap_or_default(),
        size,
        e_tag: Some(etag.as_str().to_owned()),
        version: None,
    }
}

fn put_result(info: &BlobInfo) -> PutResult {
    PutResult { e_tag: Some(info.etag.as_str().to_owned()), version: None, extensions: Default::default() }
}

fn translate(location: &Path, error: Error) -> ObjectError {
    of_kind(location, error.kind(), Box::new(error))
}

fn of_kind(
    location: &Path,
    kind: ErrorKind,
    source: Box<dyn std::error::Error + Send + Sync + 'static>,
) -> ObjectError {
    let path = location.to_string();
    match kind {
        ErrorKind::NotFound => ObjectError::NotFound { path, source },
        ErrorKind::AlreadyExists => ObjectError::AlreadyExists { path, source },
        ErrorKind::Conflict => ObjectError::Precondition { path, source },
        ErrorKind::PermissionDenied => ObjectError::PermissionDenied { path, source },
        ErrorKind::Unsupported => ObjectError::NotSupported { source },
        _ => ObjectError::Generic { store: STORE, source },
    }
}

/// Maps a failed create-only condition to the error kind that `object_store` has for it.
fn of_creation(location: &Path, error: Error) -> ObjectError {
    match error.kind() {
        ErrorKind::Conflict => of_kind(location, ErrorKind::AlreadyExists, Box::new(error)),
        _ => translate(location, error),
    }
}

fn exists(location: &Path) -> ObjectError {
    ObjectError::AlreadyExists {
        path: location.to_string(),
        source: "a blob with this key already exists".into(),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> ObjectError {
    ObjectError::Generic { store: STORE, source: source.into() }
}

fn not_implemented(operation: &str) -> ObjectError {
    ObjectError::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}
