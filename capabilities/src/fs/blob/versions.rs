//! Earlier versions: numbered files in a folder next to the blob.
//!
//! Before a write replaces or removes a blob's file, it gives the file a second name in this folder. So no
//! step loses a version, and a reader finds each version under at least one of the two names. A crash between
//! the two steps leaves the current file with both names, which its tag shows: the tag is the id
//! of the version.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use futures_util::StreamExt as _;
use larder_agents::internal::{current_version, missing_version};
use larder_kernel::{
    BlobGetOptions, BlobKey, BlobRead, BlobVersion, BlobVersionId, BlobVersions, Error, ErrorKind, Namespace,
    Outcome, Result,
};

use super::footer::Footer;
use super::read;
use crate::fs::blocking::cancellation;
use crate::fs::engine::{Engine, flush, open_file, read_folder};
use crate::fs::failure::failed;
use crate::fs::layout::{BlobPath, blob_path, decode_version, namespace_folders, version_file};
use crate::fs::locks::{Lock, LockGuard, LockMode, locked};

pub(crate) const LIST: &str = "blobs.list_versions";
pub(crate) const GET: &str = "blobs.get_version";
pub(crate) const DELETE: &str = "blobs.delete_version";

/// The earlier versions of a blob by their numbers, with their ids.
type Numbers = BTreeMap<u64, String>;

fn numbers(folder: BorrowedFd<'_>) -> io::Result<Numbers> {
    let names = read_folder(folder)?;
    Ok(names.iter().filter_map(|(name, _)| decode_version(name.to_str().ok()?)).collect())
}

/// Returns the name of the file of an earlier version.
fn file_of(folder: BorrowedFd<'_>, id: &str) -> io::Result<Option<String>> {
    let found = numbers(folder)?.into_iter().find(|(_, kept)| kept == id);
    Ok(found.map(|(number, id)| version_file(number, &id)))
}

/// Keeps the current file of a blob as an earlier version, for a write that then replaces or removes the
/// file. The caller holds the lock of the blob's folder, which is open as `folder`.
pub(super) fn keep(
    operation: &'static str,
    engine: &Engine,
    folder: BorrowedFd<'_>,
    path: &BlobPath,
) -> io::Result<()> {
    if !engine.keeps_versions() {
        return Ok(());
    }
    let current = match open_file(folder, &path.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    // A damaged file has no version to keep, and a write must be able to replace it.
    let Ok(footer) = Footer::read(operation, &current) else { return Ok(()) };
    let versions = engine.make_folder(folder, &path.versions())?;
    let kept = numbers(versions.as_fd())?;
    if kept.values().any(|id| id == footer.etag.as_str()) {
        // A program that ended here before may not have flushed the name.
        return flush(versions.as_fd()).and_then(|()| flush(folder));
    }
    let number = kept.last_key_value().map_or(1, |(number, _)| number + 1);
    let name = version_file(number, footer.etag.as_str());
    engine.link((folder, &path.file), (versions.as_fd(), &name))?;
    // The version must be on disk before its file can lose its other name.
    flush(versions.as_fd())?;
    if kept.is_empty() { flush(folder) } else { Ok(()) }
}

/// Removes the second name of a current file that a crash left. The file then moves to another key, whose
/// version it is.
pub(super) fn forget(
    engine: &Engine,
    folder: BorrowedFd<'_>,
    path: &BlobPath,
    footer: &Footer,
) -> io::Result<()> {
    if !engine.keeps_versions() {
        return Ok(());
    }
    let Some(versions) = open_versions(engine, path)? else { return Ok(()) };
    let Some(file) = file_of(versions.as_fd(), footer.etag.as_str())? else { return Ok(()) };
    engine.remove(versions.as_fd(), &file)?;
    flush(versions.as_fd())?;
    engine.prune(&versions_of(path), path.folders.len());
    flush(folder)
}

/// Returns the folders down to that of a blob's earlier versions.
fn versions_of(path: &BlobPath) -> Vec<String> {
    path.folders.iter().cloned().chain([path.versions()]).collect()
}

/// Opens the folder of a blob's earlier versions.
fn open_versions(engine: &Engine, path: &BlobPath) -> io::Result<Option<OwnedFd>> {
    match engine.folder(&versions_of(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The current file of a blob.
enum Current {
    Missing,
    /// Its tag is unknown, so it may be any version.
    Damaged(Error),
    Open(File, Footer),
}

impl Current {
    fn open(operation: &'static str, engine: &Engine, path: &BlobPath) -> Result<Self> {
        match read::open_blob(operation, engine, path) {
            Ok((file, footer)) => Ok(Self::Open(file, footer)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Self::Damaged(error)),
            Err(error) => Err(error),
        }
    }

    fn is(&self, version: &str) -> bool {
        matches!(self, Self::Open(_, footer) if footer.etag.as_str() == version)
    }
}

/// Lists the versions under the lock of the folder, so that no write changes them.
pub(crate) async fn list(engine: Arc<Engine>, namespace: &Namespace, key: &BlobKey) -> Result<BlobVersions> {
    let path = blob_path(namespace, key);
    let lock = Lock::folder(&path.folders, LockMode::Shared);
    let engine_of_step = Arc::clone(&engine);
    let step = move |_: LockGuard| all(&engine_of_step, &path);
    let versions = locked(LIST, engine.locks(), vec![lock], step).await?;
    Ok(futures_util::stream::iter(versions).boxed())
}

/// Returns all versions, the newest first. An unreadable version becomes an error item.
fn all(engine: &Engine, path: &BlobPath) -> Result<Vec<Result<BlobVersion>>> {
    let io = |error| failed(LIST, error, Outcome::NotApplied);
    let version = |footer: Footer| {
        let id = BlobVersionId::new(footer.etag.as_str())?;
        Ok(BlobVersion::new(id, footer.size, footer.etag, footer.modified_at))
    };
    let current = Current::open(LIST, engine, path)?;
    let mut versions: Vec<Result<BlobVersion>> = Vec::new();
    if let Some(folder) = open_versions(engine, path).map_err(io)? {
        for (number, id) in numbers(folder.as_fd()).map_err(io)?.into_iter().rev() {
            if current.is(&id) {
                continue;
            }
            match open_file(folder.as_fd(), &version_file(number, &id)) {
                // An erasure removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => versions.push(Footer::read(LIST, &opened.map_err(io)?).and_then(version)),
            }
        }
    }
    match current {
        Current::Missing => {}
        Current::Damaged(error) => versions.insert(0, Err(error)),
        Current::Open(_, footer) => versions.insert(0, version(footer).map(|it| it.with_current(true))),
    }
    Ok(versions)
}

pub(crate) fn get(
    engine: &Engine,
    namespace: &Namespace,
    key: &BlobKey,
    version: &BlobVersionId,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let path = blob_path(namespace, key);
    // The current file first: a write gives it its second name before it removes the first.
    let opened = match Current::open(GET, engine, &path)? {
        Current::Open(file, footer) if footer.etag.as_str() == version.as_str() => (file, footer),
        Current::Damaged(error) => open_earlier(engine, &path, version)
            .map_err(|missing| if missing.kind() == ErrorKind::NotFound { error } else { missing })?,
        Current::Missing | Current::Open(..) => open_earlier(engine, &path, version)?,
    };
    read::deliver(engine, key, opened, options).map_err(|error| error.in_operation(GET))
}

fn open_earlier(engine: &Engine, path: &BlobPath, version: &BlobVersionId) -> Result<(File, Footer)> {
    let io = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => missing_version(),
        _ => failed(GET, error, Outcome::NotApplied),
    };
    let folder = open_versions(engine, path).map_err(io)?.ok_or_else(missing_version)?;
    let name = file_of(folder.as_fd(), version.as_str()).map_err(io)?.ok_or_else(missing_version)?;
    let file = open_file(folder.as_fd(), &name).map_err(io)?;
    let footer = Footer::read(GET, &file)?;
    Ok((file, footer))
}

pub(crate) async fn delete(
    engine: Arc<Engine>,
    namespace: Namespace,
    key: &BlobKey,
    version: &BlobVersionId,
) -> Result<bool> {
    let (_waiting, cancelled) = cancellation();
    let (path, version) = (blob_path(&namespace, key), version.clone());
    let (engine_of_step, locks) = (Arc::clone(&engine), Lock::write(&namespace, &path.folders));
    let step = move |guard: LockGuard| {
        engine_of_step.check_place(DELETE, Outcome::NotApplied)?;
        cancelled.check(DELETE)?;
        remove(&engine_of_step, &namespace, &path, &version, guard)
    };
    locked(DELETE, engine.locks(), locks, step).await
}

fn remove(
    engine: &Engine,
    namespace: &Namespace,
    path: &BlobPath,
    version: &BlobVersionId,
    guard: LockGuard,
) -> Result<bool> {
    let io = |error| failed(DELETE, error, Outcome::NotApplied);
    let current = Current::open(DELETE, engine, path)?;
    if current.is(version.as_str()) {
        return Err(current_version());
    }
    let missing = || match current {
        Current::Damaged(error) => Err(error.with_outcome(Outcome::NotApplied)),
        Current::Missing | Current::Open(..) => Ok(false),
    };
    let Some(folder) = open_versions(engine, path).map_err(io)? else { return missing() };
    let Some(file) = file_of(folder.as_fd(), version.as_str()).map_err(io)? else { return missing() };
    if !engine.remove(folder.as_fd(), &file).map_err(io)? {
        return Ok(false);
    }
    let folders = versions_of(path);
    engine.prune(&folders, namespace_folders(namespace).len());
    drop(guard);
    flush(folder.as_fd())
        .and_then(|()| engine.sync_folders(&folders))
        .map_err(|error| failed(DELETE, error, Outcome::Unknown).with_idempotent(true))?;
    engine.check_place(DELETE, Outcome::Unknown).map_err(|error| error.with_idempotent(true))?;
    Ok(true)
}
