//! Listings: keys in byte order, flat or one level at a time.

use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{Error as ObjectError, ListResult, ObjectMeta, Result as ObjectResult};
use futures_util::future;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use larder_kernel::limits::ID_BYTES_MAX;
use larder_kernel::{BlobEntries, BlobEntry, BlobKey, BlobStore};

use super::{object_meta, translate};

/// The number of keys that a listing reads within one folder before it restarts after the folder. One or two
/// pages cost less than a new request for every small folder.
const READ_BEFORE_LEAP: usize = 1_000;

/// Returns all objects in a folder, at any depth, optionally only those after a location.
pub(super) fn objects(
    blobs: Arc<dyn BlobStore>,
    prefix: Option<&Path>,
    after: Option<&Path>,
) -> BoxStream<'static, ObjectResult<ObjectMeta>> {
    let Some(folder) = folder(prefix) else { return stream::empty().boxed() };
    let after = after.cloned();
    let begin = async move {
        // An invalid key, such as the root or a location that is too long, can still sort between two keys.
        let key = after.as_ref().and_then(|after| BlobKey::new(after).ok());
        let entries = entries(&blobs, &folder, key.as_ref()).await?;
        let objects = entries.map(|entry| match entry {
            Ok(entry) => object(&entry),
            Err(error) => Err(translate(&Path::ROOT, error)),
        });
        Ok::<_, ObjectError>(objects.try_filter(move |object| {
            future::ready(after.as_ref().is_none_or(|after| object.location > *after))
        }))
    };
    stream::once(begin).try_flatten().boxed()
}

/// Returns the objects directly in a folder, and its subfolders.
pub(super) async fn level(blobs: &Arc<dyn BlobStore>, prefix: Option<&Path>) -> ObjectResult<ListResult> {
    let mut level =
        ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
    let Some(folder) = folder(prefix) else { return Ok(level) };
    let failed = |error| translate(prefix.unwrap_or(&Path::ROOT), error);
    let mut listed = entries(blobs, &folder, None).await?;
    // The number of keys that were read of the latest folder.
    let mut read = 0;
    while let Some(entry) = listed.try_next().await.map_err(failed)? {
        let key = entry.key.as_str();
        let Some(end) = key.get(folder.len()..).and_then(|rest| rest.find('/')) else {
            level.objects.push(object(&entry)?);
            continue;
        };
        let Some((child, _)) = key.split_at_checked(folder.len() + end) else { continue };
        if level.common_prefixes.last().is_none_or(|last| last.as_ref() != child) {
            level.common_prefixes.push(Path::parse(child)?);
            read = 0;
        }
        read += 1;
        // Seeks once per folder: keys that begin with the last character of all are read one by one.
        if read == READ_BEFORE_LEAP
            && let Ok(behind) = BlobKey::new(format!("{child}/{}", char::MAX))
        {
            listed = entries(blobs, &folder, Some(&behind)).await?;
        }
    }
    Ok(level)
}

async fn entries(
    blobs: &Arc<dyn BlobStore>,
    folder: &str,
    after: Option<&BlobKey>,
) -> ObjectResult<BlobEntries> {
    blobs.list(folder, after).await.map_err(|error| translate(&Path::ROOT, error))
}

/// Returns the prefix of all keys in a folder; `None` if the folder is too deep for any key.
fn folder(prefix: Option<&Path>) -> Option<String> {
    let folder = match prefix {
        Some(prefix) if !prefix.is_root() => format!("{prefix}/"),
        _ => String::new(),
    };
    (folder.len() <= ID_BYTES_MAX).then_some(folder)
}

/// Converts an entry; fails if its key is not a location, for example because of control characters.
fn object(entry: &BlobEntry) -> ObjectResult<ObjectMeta> {
    Ok(object_meta(Path::parse(entry.key.as_str())?, entry.size, &entry.etag, entry.modified_at))
}
