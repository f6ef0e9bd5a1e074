//! Deleting one blob, and all blobs of a namespace.

use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use larder_kernel::{BlobKey, Error, ErrorKind, Outcome, Result};

use super::versions::{self, Versioning};
use super::{list, read};
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, failed, status};
use crate::s3::key::Layout;

/// The number of concurrent requests if a server does not support batches.
const DELETES_AT_ONCE: usize = 8;
const ERASE: &str = "blobs.erase";

/// Deletes a blob. S3 does not report whether the blob existed, so the blob is requested first.
pub(crate) async fn delete(engine: &Engine, layout: &Layout, key: &BlobKey) -> Result<bool> {
    const OPERATION: &str = "blobs.delete";
    match read::head(engine, layout, OPERATION, key).await {
        Ok(_) => delete_object(engine, OPERATION, &layout.object(key)).await.map(|()| true),
        Err(error) if error.kind() == ErrorKind::NotFound && error.field().is_none() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) async fn delete_object(engine: &Engine, operation: &'static str, object: &str) -> Result<()> {
    versions::remove(engine, operation, object, None).await
}

/// An object to delete: its name, and a version if the bucket keeps versions.
pub(crate) type Deleted = (String, Option<String>);

/// Removes all objects of the namespace, all their versions, and the remains of its uploads.
pub(crate) async fn erase(engine: &Engine, layout: &Layout) -> Result<()> {
    abort_uploads(engine, layout.root()).await?;
    // Versioning may have been changed since the store was opened.
    let versioning = Versioning::of_bucket(engine, ERASE).await.map_err(unknown)?;
    remove_all(engine, layout.root(), versioning).await
}

/// Removes all objects whose names begin with `root`, and all their versions.
pub(crate) async fn remove_all(engine: &Engine, root: &str, versioning: Versioning) -> Result<()> {
    if versioning != Versioning::Off {
        return remove_versions(engine, root).await;
    }
    let mut after = None;
    loop {
        let page = list::page(engine, ERASE, root, after).await.map_err(unknown)?;
        let names = page.objects.into_iter().filter_map(|object| Some((object.key?, None)));
        delete_all(engine, names.collect()).await?;
        after = match page.next {
            Some(next) => Some(next),
            None => return Ok(()),
        };
    }
}

/// Removes all versions and the marks of deletions. Begins again after each page: a server need not find the
/// position after a version that it has deleted.
async fn remove_versions(engine: &Engine, root: &str) -> Result<()> {
    let (mut after, mut first) = (None, None);
    loop {
        let page = versions::page(engine, ERASE, root, after).await.map_err(unknown)?;
        let versions = page.versions.into_iter().map(|version| (version.key, version.version_id));
        let marks = page.marks.into_iter().map(|mark| (mark.key, mark.version_id));
        let names = versions.chain(marks).filter_map(|(name, version)| Some((name?, version)));
        // A server may treat the prefix as a hint.
        let names: Vec<Deleted> = names.filter(|(name, _)| name.starts_with(root)).collect();
        let Some(next) = page.next else { return delete_all(engine, names).await };
        after = if names.is_empty() { Some(next) } else { None };
        if !names.is_empty() && first.as_ref() == names.first() {
            let message = "the server lists versions that it has deleted; try again later";
            return Err(unknown(Error::new(ErrorKind::Unavailable, ERASE, message)));
        }
        first = names.first().cloned();
        delete_all(engine, names).await?;
    }
}

/// Marks the error of an erasure that ended early: it may have removed any part, and may be repeated.
fn unknown(error: Error) -> Error {
    error.with_outcome(Outcome::Unknown).with_idempotent(true)
}

async fn delete_all(engine: &Engine, names: Vec<Deleted>) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let objects = names
        .iter()
        .map(|(name, version)| ObjectIdentifier::builder().key(name).set_version_id(version.clone()).build());
    let batch = objects
        .collect::<std::result::Result<Vec<_>, _>>()
        .and_then(|objects| Delete::builder().set_objects(Some(objects)).quiet(true).build())
        .map_err(|_| {
            Error::new(ErrorKind::Unexpected, ERASE, "the request could not be made; report the defect")
        })?;
    match engine
        .client
        .delete_objects()
        .bucket(&engine.bucket)
        .delete(batch)
        .customize()
        .config_override(engine.server_work(0))
        .send()
        .await
    {
        // The objects that a batch left may fail for a reason that only a single request reports.
        Ok(answer) if answer.errors().is_empty() => Ok(()),
        Ok(answer) => {
            let left = answer.errors.unwrap_or_default().into_iter();
            let left: Option<Vec<Deleted>> = left.map(|error| Some((error.key?, error.version_id))).collect();
            // If the server does not say which, all are tried.
            let left = left.filter(|left| left.iter().all(|object| names.contains(object)));
            one_by_one(engine, left.unwrap_or(names)).await
        }
        // Not every server supports batches.
        Err(error) if matches!(status(&error), Some(400 | 405 | 411 | 501)) => {
            one_by_one(engine, names).await
        }
        Err(error) => Err(unknown(failed(ERASE, Effect::Repeatable, &error))),
    }
}

async fn one_by_one(engine: &Engine, names: Vec<Deleted>) -> Result<()> {
    stream::iter(names)
        .map(Ok)
        .try_for_each_concurrent(DELETES_AT_ONCE, async |(name, version)| {
            versions::remove(engine, ERASE, &name, version).await.map_err(unknown)
        })
        .await
}

/// Removes the parts of unfinished uploads under the root.
pub(crate) async fn abort_uploads(engine: &Engine, root: &str) -> Result<()> {
    let (mut key_marker, mut id_marker) = (None, None);
    loop {
        let request = engine
            .client
            .list_multipart_uploads()
            .bucket(&engine.bucket)
            .prefix(root)
            .set_key_marker(key_marker)
            .set_upload_id_marker(id_marker);
        let answer = match request.send().await {
            Ok(answer) => answer,
            // A server without such a listing keeps the parts; they appear in no listing of blobs.
            Err(error) if matches!(status(&error), Some(405 | 501)) => return Ok(()),
            Err(error) => return Err(unknown(failed(ERASE, Effect::Repeatable, &error))),
        };
        let uploads = answer.uploads().iter().filter_map(|upload| Some((upload.key()?, upload.upload_id()?)));
        // A server may treat the prefix as a hint.
        for (name, id) in uploads.filter(|(name, _)| name.starts_with(root)) {
            let request =
                engine.client.abort_multipart_upload().bucket(&engine.bucket).key(name).upload_id(id);
            match request.send().await {
                Ok(_) => {}
                Err(error) if status(&error) == Some(404) => {}
                Err(error) => return Err(unknown(failed(ERASE, Effect::Repeatable, &error))),
            }
        }
        if !answer.is_truncated().unwrap_or_default() || answer.next_key_marker().is_none() {
            return Ok(());
        }
        (key_marker, id_marker) = (answer.next_key_marker, answer.next_upload_id_marker);
    }
}
