//! Renaming: one step of the file system, under the locks of both folders.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use larder_kernel::{BlobInfo, BlobKey, Error, ErrorKind, Namespace, Outcome, RenameMode, Result};

use super::footer::Footer;
use super::write::{ATTEMPTS, folder_vanished};
use super::{read, versions};
use crate::fs::blocking::{CancelFlag, cancellation};
use crate::fs::engine::{Engine, flush, open_file};
use crate::fs::failure::failed;
use crate::fs::layout::{BlobPath, blob_path, namespace_folders};
use crate::fs::locks::{Lock, LockGuard, LockMode, locked};

const OPERATION: &str = "blobs.rename";

struct Rename {
    engine: Arc<Engine>,
    namespace: Namespace,
    source: BlobPath,
    target: BlobPath,
    key: BlobKey,
    mode: RenameMode,
    cancelled: CancelFlag,
}

pub(crate) async fn rename(
    engine: Arc<Engine>,
    namespace: Namespace,
    (source, target): (&BlobKey, &BlobKey),
    mode: RenameMode,
) -> Result<BlobInfo> {
    let (_waiting, cancelled) = cancellation();
    let (source, key) = (blob_path(&namespace, source), target.clone());
    let target = blob_path(&namespace, target);
    let mut locks = vec![Lock::namespace(&namespace, LockMode::Shared)];
    locks.extend(Lock::folders(&source.folders, &target.folders));
    let rename = Rename { engine: Arc::clone(&engine), namespace, source, target, key, mode, cancelled };
    locked(OPERATION, engine.locks(), locks, move |guard| rename.run(guard)).await
}

impl Rename {
    fn run(self, guard: LockGuard) -> Result<BlobInfo> {
        self.engine.check_place(OPERATION, Outcome::NotApplied)?;
        let (_, footer) = read::open_blob(OPERATION, &self.engine, &self.source)?;
        self.check_target()?;
        if self.source == self.target {
            return Ok(footer.into_info(self.key));
        }
        for _ in 0..ATTEMPTS {
            let Some(from) = self.try_move(&footer)? else { continue };
            // The new name first: a loss of power between the two must not lose the blob. Both folders are
            // flushed under the locks: another caller's acknowledged change must not be undone.
            let moved = self.engine.sync_folders(&self.target.folders).and_then(|()| flush(from.as_fd()));
            drop(guard);
            moved
                .and_then(|()| self.engine.sync_folders(&self.source.folders))
                .map_err(|error| failed(OPERATION, error, Outcome::Unknown))?;
            self.engine.check_place(OPERATION, Outcome::Unknown)?;
            return Ok(footer.into_info(self.key));
        }
        Err(folder_vanished(OPERATION))
    }

    /// Rejects a target that has a blob, unless the rename replaces it.
    fn check_target(&self) -> Result<()> {
        match self.mode {
            RenameMode::Replace => return Ok(()),
            RenameMode::Refuse => {}
            _ => return Err(Error::unknown_value(OPERATION, "mode")),
        }
        let folder = self.engine.folder(&self.target.folders);
        match folder.and_then(|folder| open_file(folder.as_fd(), &self.target.file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(OPERATION, error, Outcome::NotApplied)),
            Ok(_) => {
                let message =
                    "a blob with the target key already exists; use another key or replace the blob";
                Err(Error::new(ErrorKind::Conflict, OPERATION, message))
            }
        }
    }

    /// Moves the file in one step and returns the folder that it left. Returns none if the target's folder
    /// was removed concurrently.
    fn try_move(&self, footer: &Footer) -> Result<Option<OwnedFd>> {
        let io = |error| failed(OPERATION, error, Outcome::NotApplied);
        let keep = namespace_folders(&self.namespace).len();
        let to = match self.engine.make_folders(&self.target.folders) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(io)?,
        };
        let moved = self.cancelled.check(OPERATION).and_then(|()| {
            let from = self.engine.folder(&self.source.folders).map_err(io)?;
            versions::keep(OPERATION, &self.engine, to.as_fd(), &self.target).map_err(io)?;
            let (source, target) = (self.source.file.as_str(), self.target.file.as_str());
            versions::forget(&self.engine, from.as_fd(), &self.source, footer).map_err(io)?;
            match self.engine.rename((from.as_fd(), source), (to.as_fd(), target)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                other => other.map(|()| Some(from)).map_err(io),
            }
        });
        // The folders that the file left, or that were created for it in vain.
        let emptied = if moved.is_ok() { &self.source } else { &self.target };
        self.engine.prune(&emptied.folders, keep);
        moved
    }
}
