//! Versions of a bucket with versioning enabled.

use std::sync::Arc;

use aws_sdk_s3::types::{BucketVersioningStatus, DeleteMarkerEntry, ObjectVersion};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use larder_agents::internal::{current_version, missing_version};
use larder_kernel::{
    BlobGetOptions, BlobKey, BlobRead, BlobVersion, BlobVersionId, BlobVersions, Error, ErrorKind, Outcome,
    Result,
};

use super::read;
use super::value::{etag_in, size_in, time_in};
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, code, corrupt, failed, status};
use crate::s3::key::Layout;

pub(crate) const LIST: &str = "blobs.list_versions";
pub(crate) const GET: &str = "blobs.get_version";
pub(crate) const DELETE: &str = "blobs.delete_version";

/// The setting of a bucket for objects that are overwritten or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versioning {
    /// They are lost.
    Off,
    /// They are lost, but earlier versions may exist from the time when they were kept.
    Suspended,
    /// They become earlier versions.
    On,
}

impl Versioning {
    /// Reads the setting. A server without the query keeps no versions, and neither may a user without the
    /// permission rely on them.
    pub(crate) async fn of_bucket(engine: &Engine, operation: &'static str) -> Result<Self> {
        match engine.client.get_bucket_versioning().bucket(&engine.bucket).send().await {
            Ok(answer) => Ok(match answer.status() {
                Some(BucketVersioningStatus::Enabled) => Self::On,
                Some(_) => Self::Suspended,
                None => Self::Off,
            }),
            Err(error) => {
                // Moto names the root of its response in another way, which the SDK rejects.
                if status(&error) == Some(200) {
                    let body = error.raw_response().and_then(|response| response.body().bytes());
                    return Ok(Self::of_text(&String::from_utf8_lossy(body.unwrap_or_default())));
                }
                let answered = status(&error).is_some();
                let error = failed(operation, Effect::Read, &error);
                let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout);
                if answered && !passing { Ok(Self::Off) } else { Err(error) }
            }
        }
    }

    fn of_text(response: &str) -> Self {
        let status = response.split_once("<Status>").and_then(|(_, rest)| rest.split_once('<'));
        match status {
            Some(("Enabled", _)) => Self::On,
            Some(("Suspended", _)) => Self::Suspended,
            _ => Self::Off,
        }
    }
}

/// The position after a page: the last name, and the last version of it.
type Position = (String, Option<String>);

/// One page of versions.
pub(crate) struct Page {
    pub(crate) versions: Vec<ObjectVersion>,
    /// The marks that deletions left.
    pub(crate) marks: Vec<DeleteMarkerEntry>,
    /// The position of the next page; `None` after the last page.
    pub(crate) next: Option<Position>,
}

/// Reads the versions of the objects whose names begin with `prefix`, by name and with the newest first.
pub(crate) async fn page(
    engine: &Engine,
    operation: &'static str,
    prefix: &str,
    after: Option<Position>,
) -> Result<Page> {
    let (name, version) = after.map_or((None, None), |(name, version)| (Some(name), version));
    let request = engine.client.list_object_versions().bucket(&engine.bucket).prefix(prefix);
    let request = request.set_key_marker(name).set_version_id_marker(version);
    let answer = request.send().await.map_err(|error| failed(operation, Effect::Read, &error))?;
    let next = answer.next_key_marker.map(|name| (name, answer.next_version_id_marker));
    if answer.is_truncated.unwrap_or_default() && next.is_none() {
        let message = "the server returned an incomplete listing without a position; use another server";
        return Err(Error::new(ErrorKind::Unexpected, operation, message).with_outcome(Outcome::NotApplied));
    }
    Ok(Page {
        versions: answer.versions.unwrap_or_default(),
        marks: answer.delete_markers.unwrap_or_default(),
        next: next.filter(|_| answer.is_truncated.unwrap_or_default()),
    })
}

/// Lists the versions of one blob, the newest first.
pub(crate) fn list(engine: &Arc<Engine>, layout: &Layout, key: &BlobKey) -> BlobVersions {
    let (engine, name): (_, Arc<str>) = (Arc::clone(engine), layout.object(key).into());
    stream::try_unfold(Some(None), move |next: Option<Option<Position>>| {
        let (engine, name) = (Arc::clone(&engine), Arc::clone(&name));
        async move {
            let Some(after) = next else { return Ok::<_, Error>(None) };
            let page = page(&engine, LIST, &name, after).await?;
            // The versions of longer names follow.
            let next = page.next.filter(|(last, _)| **last == *name).map(Some);
            let own = page.versions.into_iter().filter(move |version| version.key() == Some(&*name));
            let versions: Vec<Result<BlobVersion>> = own.map(|found| version(&found)).collect();
            Ok(Some((stream::iter(versions), next)))
        }
    })
    .try_flatten()
    .boxed()
}

fn version(found: &ObjectVersion) -> Result<BlobVersion> {
    let id = BlobVersionId::new(found.version_id().unwrap_or_default()).map_err(|_| corrupt(LIST))?;
    let version = BlobVersion::new(
        id,
        size_in(LIST, found.size)?,
        etag_in(LIST, found.e_tag())?,
        time_in(LIST, found.last_modified())?,
    );
    Ok(version.with_current(found.is_latest().unwrap_or_default()))
}

pub(crate) async fn get(
    engine: &Arc<Engine>,
    layout: &Layout,
    key: &BlobKey,
    version: &BlobVersionId,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let read = read::get(engine, layout, key, Some(version.as_str()), options).await;
    read.map_err(|error| if is_missing(&error) { missing_version() } else { error.in_operation(GET) })
}

/// Returns `true` for the error of a version that does not exist. Servers refuse the ids of marks of
/// deletions with 405, and ids in another form than theirs with 400.
fn is_missing(error: &Error) -> bool {
    let refused =
        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unexpected | ErrorKind::Unsupported);
    let status = |status: u64| error.context().contains(&("status", status.into()));
    refused && error.field().is_none() && [400, 404, 405].into_iter().any(status)
}

/// Deletes an object, or one version of it.
pub(crate) async fn remove(
    engine: &Engine,
    operation: &'static str,
    object: &str,
    version: Option<String>,
) -> Result<()> {
    let request = engine.client.delete_object().bucket(&engine.bucket).key(object);
    match request.set_version_id(version).send().await {
        Ok(_) => Ok(()),
        Err(error) if matches!(code(&error), Some("NoSuchKey" | "NoSuchVersion")) => Ok(()),
        Err(error) => Err(failed(operation, Effect::Repeatable, &error)),
    }
}

/// Deletes an earlier version. A version that is not current never becomes current again, because no other
/// method deletes the versions after it. So the check and the deletion can be two requests.
pub(crate) async fn delete(
    engine: &Arc<Engine>,
    layout: &Layout,
    key: &BlobKey,
    version: &BlobVersionId,
) -> Result<bool> {
    let mut versions = list(engine, layout, key);
    while let Some(found) = versions.try_next().await.map_err(|error| error.in_operation(DELETE))? {
        if found.id != *version {
            continue;
        }
        if found.current {
            return Err(current_version());
        }
        let id = Some(version.as_str().to_owned());
        remove(engine, DELETE, &layout.object(key), id).await?;
        return Ok(true);
    }
    Ok(false)
}
