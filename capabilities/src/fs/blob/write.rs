//! Writing: a temporary file, flushed, then renamed to its final path in one step under a lock.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobBytes, BlobCondition, BlobInfo, BlobKey, BlobPutOptions, ETag, Error, ErrorKind, Namespace,
    Outcome, Result, Timestamp, UserMetadata,
};

use super::checksum::{self, Crc};
use super::footer::{Checksum, Footer};
use super::{read, versions};
use crate::fs::CHUNK_BYTES;
use crate::fs::blocking::{CancelFlag, blocking, cancellation};
use crate::fs::engine::{Engine, flush, open_file, unique};
use crate::fs::failure::failed;
use crate::fs::layout::{BlobPath, blob_path, namespace_folders};
use crate::fs::locks::{Attempt, Lock, LockGuard, LockMode, attempt, locked};

/// The maximum number of attempts of a write whose opened folder is removed as empty.
pub(super) const ATTEMPTS: u32 = 1_000;

/// A running upload. Its temporary file is removed on drop, unless it was renamed to its final path.
struct Upload {
    engine: Arc<Engine>,
    file: File,
    temporary: String,
    crc: Crc,
    size: u64,
    placed: bool,
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.placed {
            self.engine.remove_temporary(&self.temporary);
        }
    }
}

/// The target of an upload and its condition.
struct Target {
    operation: &'static str,
    namespace: Namespace,
    key: BlobKey,
    condition: BlobCondition,
    cancelled: CancelFlag,
}

/// A complete and flushed file, and its place.
struct Sealed {
    upload: Upload,
    target: Target,
    footer: Footer,
}

/// A blob that was written, or one that waits for a lock.
type Placed = Attempt<BlobInfo, Sealed>;

/// The attributes that are stored with the bytes.
struct Attributes {
    content_type: Option<String>,
    metadata: UserMetadata,
}

pub(crate) async fn put(
    engine: Arc<Engine>,
    namespace: Namespace,
    key: BlobKey,
    body: BlobBody,
    options: BlobPutOptions,
) -> Result<BlobInfo> {
    const OPERATION: &str = "blobs.put";
    let BlobPutOptions { condition, content_type, metadata, .. } = options;
    let (_waiting, cancelled) = cancellation();
    let target = Target { operation: OPERATION, namespace, key, condition, cancelled };
    let attributes = Attributes { content_type, metadata };
    let write = match body {
        BlobBody::Bytes(bytes) => {
            let engine = Arc::clone(&engine);
            let step = move || {
                let mut upload = Upload::start(OPERATION, engine)?;
                upload.push(OPERATION, &bytes)?;
                upload.finish(target, attributes)
            };
            blocking(OPERATION, step).await?
        }
        body => {
            let (engine, pieces) = (Arc::clone(&engine), body.into_stream());
            let upload = blocking(OPERATION, move || Upload::start(OPERATION, engine)).await?;
            let upload = receive(OPERATION, upload, pieces).await?;
            blocking(OPERATION, move || upload.finish(target, attributes)).await?
        }
    };
    end(OPERATION, &engine, write).await
}

/// Ends a write whose locks another call may hold.
async fn end(operation: &'static str, engine: &Arc<Engine>, write: Placed) -> Result<BlobInfo> {
    match write {
        Attempt::Done(info) => Ok(info),
        Attempt::Busy(sealed) => {
            locked(operation, engine.locks(), sealed.target.locks(), move |guard| sealed.place(guard)).await
        }
    }
}

/// Writes the pieces as they arrive, many small ones in one step.
async fn receive(operation: &'static str, mut upload: Upload, mut pieces: BlobBytes) -> Result<Upload> {
    let mut buffered = BytesMut::new();
    while let Some(piece) = pieces.try_next().await? {
        if buffered.len() + piece.len() < CHUNK_BYTES {
            buffered.extend_from_slice(&piece);
            continue;
        }
        upload = push_all(operation, upload, vec![buffered.split().freeze(), piece]).await?;
    }
    if buffered.is_empty() { Ok(upload) } else { push_all(operation, upload, vec![buffered.freeze()]).await }
}

async fn push_all(operation: &'static str, mut upload: Upload, pieces: Vec<Bytes>) -> Result<Upload> {
    blocking(operation, move || {
        for piece in &pieces {
            upload.push(operation, piece)?;
        }
        Ok(upload)
    })
    .await
}

pub(crate) async fn copy(
    engine: Arc<Engine>,
    namespace: Namespace,
    source: BlobKey,
    target: BlobKey,
) -> Result<BlobInfo> {
    const OPERATION: &str = "blobs.copy";
    let (_waiting, cancelled) = cancellation();
    let engine_of_step = Arc::clone(&engine);
    let step = move || {
        let (from, footer) = read::open_blob(OPERATION, &engine_of_step, &blob_path(&namespace, &source))?;
        let mut upload = Upload::start(OPERATION, engine_of_step)?;
        upload.size = io::copy(&mut (&from).take(footer.size), &mut upload.file)
            .map_err(|error| failed(OPERATION, error, Outcome::NotApplied))?;
        let Footer { checksum, content_type, metadata, .. } = footer;
        let condition = BlobCondition::None;
        let target = Target { operation: OPERATION, namespace, key: target, condition, cancelled };
        upload.finish_with(target, Attributes { content_type, metadata }, checksum)
    };
    let write = blocking(OPERATION, step).await?;
    end(OPERATION, &engine, write).await
}

impl Upload {
    fn start(operation: &'static str, engine: Arc<Engine>) -> Result<Self> {
        let (file, temporary) =
            engine.temporary().map_err(|error| failed(operation, error, Outcome::NotApplied))?;
        Ok(Self { engine, file, temporary, crc: checksum::begin(), size: 0, placed: false })
    }

    fn push(&mut self, operation: &'static str, piece: &[u8]) -> Result<()> {
        self.file.write_all(piece).map_err(|error| failed(operation, error, Outcome::NotApplied))?;
        self.crc.update(piece);
        self.size += larder_kernel::check::size(piece.len());
        Ok(())
    }

    fn finish(self, target: Target, attributes: Attributes) -> Result<Placed> {
        let checksum = Checksum::Crc64Nvme(self.crc.finalize());
        self.finish_with(target, attributes, checksum)
    }

    /// Completes and flushes the file. Then places it, unless it would have to wait for a lock.
    fn finish_with(mut self, target: Target, attributes: Attributes, checksum: Checksum) -> Result<Placed> {
        let io = |error| failed(target.operation, error, Outcome::NotApplied);
        // A checksum would repeat when equal bytes are written again; every write needs a different tag.
        let etag = ETag::new(format!("{:016x}-{}", self.crc.finalize(), unique()))?;
        let Attributes { content_type, metadata } = attributes;
        let footer =
            Footer { etag, checksum, content_type, metadata, modified_at: Timestamp::now(), size: self.size };
        self.file.write_all(&footer.encode().map_err(io)?).map_err(io)?;
        self.file.sync_all().map_err(io)?;
        let (operation, locks, engine) = (target.operation, target.locks(), Arc::clone(&self.engine));
        let sealed = Sealed { upload: self, target, footer };
        attempt(operation, engine.locks(), &locks, sealed, Sealed::place)
    }
}

impl Target {
    fn locks(&self) -> Vec<Lock> {
        Lock::write(&self.namespace, &blob_path(&self.namespace, &self.key).folders)
    }
}

impl Sealed {
    /// Renames the file to its final path under the locks, then flushes the folders.
    fn place(mut self, guard: LockGuard) -> Result<BlobInfo> {
        let Self { upload, target, .. } = &mut self;
        let path = blob_path(&target.namespace, &target.key);
        upload.engine.check_place(target.operation, Outcome::NotApplied)?;
        for _ in 0..ATTEMPTS {
            if upload.try_place(target, &path)? {
                upload.placed = true;
                drop(guard);
                let flushed = upload.engine.sync_folders(&path.folders);
                flushed.map_err(|error| failed(target.operation, error, Outcome::Unknown))?;
                upload.engine.check_place(target.operation, Outcome::Unknown)?;
                return Ok(self.footer.into_info(self.target.key));
            }
        }
        Err(folder_vanished(target.operation))
    }
}

/// Returns the error of a write whose opened folder was removed as empty in every attempt.
pub(super) fn folder_vanished(operation: &'static str) -> Error {
    let message = "the folder was removed during every attempt; try again later";
    Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied)
}

impl Upload {
    /// Checks the condition and renames the file in one step under the locks. Returns false if the folder was
    /// removed concurrently.
    fn try_place(&self, target: &Target, path: &BlobPath) -> Result<bool> {
        let io = |error| failed(target.operation, error, Outcome::NotApplied);
        let folder = match self.engine.make_folders(&path.folders) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(io)?,
        };
        let refused = check_condition(target, folder.as_fd(), &path.file);
        if let Err(refusal) = refused.and_then(|()| target.cancelled.check(target.operation)) {
            // Removes the folders again, if this write created them.
            self.engine.prune(&path.folders, namespace_folders(&target.namespace).len());
            return Err(refusal);
        }
        match versions::keep(target.operation, &self.engine, folder.as_fd(), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other.map_err(io)?,
        }
        match self.engine.place(&self.temporary, folder.as_fd(), &path.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true).map_err(io),
        }
    }
}

fn check_condition(target: &Target, folder: BorrowedFd<'_>, name: &str) -> Result<()> {
    let wanted = match &target.condition {
        BlobCondition::None => return Ok(()),
        BlobCondition::Absent => None,
        BlobCondition::Matches(etag) => Some(etag),
        _ => return Err(Error::unknown_value(target.operation, "condition")),
    };
    let present = match open_file(folder, name) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(target.operation, error, Outcome::NotApplied)),
    };
    match (wanted, present) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(Error::new(
            ErrorKind::Conflict,
            target.operation,
            "a blob with this key already exists; use another key or write without the condition",
        )),
        (Some(etag), Some(file)) if Footer::read(target.operation, &file)?.etag == *etag => Ok(()),
        (Some(_), _) => Err(Error::new(
            ErrorKind::Conflict,
            target.operation,
            "the blob has another ETag or does not exist; read it again and retry",
        )),
    }
}

pub(crate) async fn delete(engine: Arc<Engine>, namespace: Namespace, key: &BlobKey) -> Result<bool> {
    const OPERATION: &str = "blobs.delete";
    let (_waiting, cancelled) = cancellation();
    let path = blob_path(&namespace, key);
    let (engine_of_step, locks) = (Arc::clone(&engine), Lock::write(&namespace, &path.folders));
    let step = move |guard| remove(OPERATION, &engine_of_step, &namespace, &path, &cancelled, guard);
    locked(OPERATION, engine.locks(), locks, step).await
}

fn remove(
    operation: &'static str,
    engine: &Engine,
    namespace: &Namespace,
    path: &BlobPath,
    cancelled: &CancelFlag,
    guard: LockGuard,
) -> Result<bool> {
    let io = |error| failed(operation, error, Outcome::NotApplied);
    engine.check_place(operation, Outcome::NotApplied)?;
    let folder = match engine.folder(&path.folders) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(io)?,
    };
    cancelled.check(operation)?;
    versions::keep(operation, engine, folder.as_fd(), path).map_err(io)?;
    if !engine.remove(folder.as_fd(), &path.file).map_err(io)? {
        return Ok(false);
    }
    engine.prune(&path.folders, namespace_folders(namespace).len());
    drop(guard);
    flush(folder.as_fd())
        .and_then(|()| engine.sync_folders(&path.folders))
        .map_err(|error| failed(operation, error, Outcome::Unknown).with_idempotent(true))?;
    engine.check_place(operation, Outcome::Unknown).map_err(|error| error.with_idempotent(true))?;
    Ok(true)
}

/// Renames the namespace's folder while no writer is in it, then removes it.
pub(crate) async fn erase(engine: Arc<Engine>, namespace: Namespace) -> Result<()> {
    const OPERATION: &str = "blobs.erase";
    let (_waiting, cancelled) = cancellation();
    let (engine_of_step, locks) =
        (Arc::clone(&engine), vec![Lock::namespace(&namespace, LockMode::Exclusive)]);
    let step = move |guard| {
        let io = |error| failed(OPERATION, error, Outcome::Unknown).with_idempotent(true);
        engine_of_step.check_place(OPERATION, Outcome::NotApplied)?;
        cancelled.check(OPERATION)?;
        engine_of_step.discard(&namespace_folders(&namespace)).map_err(io)?;
        drop(guard);
        engine_of_step.empty_trash().map_err(io)?;
        let kept = engine_of_step.check_place(OPERATION, Outcome::Unknown);
        kept.map_err(|error| error.with_idempotent(true))
    };
    locked(OPERATION, engine.locks(), locks, step).await
}
