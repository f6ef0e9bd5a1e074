//! The folder of a store, which comes into being at the first write.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use larder_kernel::{Durability, Error, ErrorKind, Outcome, Result};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::config::FsConfig;
use super::engine::{self, Engine};
use super::failure::failed;
use crate::files::is_volatile;

/// A folder that may not exist yet.
pub(super) struct Folder {
    config: FsConfig,
    format: i64,
    engine: OnceLock<Arc<Engine>>,
    /// Held while the engine opens.
    opening: Mutex<()>,
}

impl Folder {
    /// Opens the folder if it exists. Otherwise checks that it can be created.
    pub(super) fn open(config: FsConfig, format: i64) -> Result<Self> {
        const OPERATION: &str = "blobs.open";
        let io = |error| failed(OPERATION, error, Outcome::NotApplied);
        let mut config = config;
        config.root = std::path::absolute(&config.root).map_err(io)?;
        let folder = Self { config, format, engine: OnceLock::new(), opening: Mutex::default() };
        if folder.for_reading(OPERATION)?.is_none() {
            let above = above(&folder.config.root).map_err(io)?;
            if !folder.config.mode.is_read_only() {
                access(above, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| io(error.into()))?;
            }
        }
        Ok(folder)
    }

    /// Returns the engine if the folder exists.
    pub(super) fn for_reading(&self, operation: &'static str) -> Result<Option<Arc<Engine>>> {
        if let Some(engine) = self.engine.get() {
            return Ok(Some(Arc::clone(engine)));
        }
        // A folder without this one has no blobs.
        match self.config.root.join(engine::OWN).symlink_metadata() {
            Ok(_) => self.open_now(operation).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(operation, error, Outcome::NotApplied)),
        }
    }

    /// Returns the engine if it is open for writing, without I/O.
    pub(super) fn ready(&self) -> Option<Arc<Engine>> {
        self.engine.get().filter(|_| !self.config.mode.is_read_only()).cloned()
    }

    /// Returns the engine, and creates the folder if it does not exist.
    pub(super) fn for_writing(&self, operation: &'static str) -> Result<Arc<Engine>> {
        if self.config.mode.is_read_only() {
            let message = "the folder is open for reading only; open it without `mode=ro` to write";
            let error = Error::new(ErrorKind::PermissionDenied, operation, message);
            return Err(error.with_outcome(Outcome::NotApplied));
        }
        match self.engine.get() {
            Some(engine) => Ok(Arc::clone(engine)),
            None => self.open_now(operation),
        }
    }

    /// Returns `true` if the folder keeps earlier versions of blobs, or will once it exists.
    pub(super) fn keeps_versions(&self) -> bool {
        self.engine.get().map_or(self.config.blob_versions, |engine| engine.keeps_versions())
    }

    /// Returns which failures a flushed write survives in the folder, or will survive once it exists.
    pub(super) fn durability(&self) -> Durability {
        match self.engine.get() {
            Some(engine) => engine.durability(),
            None if above(&self.config.root).is_ok_and(is_volatile) => Durability::Process,
            None => Durability::Power,
        }
    }

    fn open_now(&self, operation: &'static str) -> Result<Arc<Engine>> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = self.engine.get() {
            return Ok(Arc::clone(engine));
        }
        let opened = if self.config.mode.is_read_only() {
            Engine::open_reading(&self.config, self.format)
        } else {
            Engine::open(&self.config, self.format)
        };
        let opened = opened.map_err(|error| failed(operation, error, Outcome::NotApplied))?;
        let engine = Arc::new(opened.map_err(|error| error.in_operation(operation))?);
        Ok(Arc::clone(self.engine.get_or_init(|| engine)))
    }
}

/// Returns the nearest existing folder at or above a path.
fn above(path: &Path) -> io::Result<&Path> {
    let exists = |folder: &&Path| folder.symlink_metadata().is_ok();
    let found = path.ancestors().find(exists).ok_or(io::ErrorKind::NotFound)?;
    if found.is_dir() { Ok(found) } else { Err(Errno::NOTDIR.into()) }
}
