//! The configuration of the file store.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::OpenMode;
use crate::files::{BUSY_TIMEOUT_DEFAULT, FilePermissions, busy_timeout_default, millis};

/// Options of [`FsBlobStore`](super::FsBlobStore).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FsConfig {
    /// The folder that holds every namespace. The first write creates it if it is missing, and nothing
    /// outside it is ever touched. The whole folder must be on one file system.
    pub root: PathBuf,
    /// The time limit of a call that waits for a lock of another call or another process. After it the call
    /// fails with `Timeout`, and nothing is written.
    #[serde(default = "busy_timeout_default", rename = "busy_timeout_ms", with = "millis")]
    pub busy_timeout: Duration,
    /// The permissions of new files and folders.
    #[serde(default)]
    pub permissions: FilePermissions,
    /// Keeps earlier versions of blobs that are overwritten or deleted. It applies to a new folder. An
    /// existing folder keeps versions exactly if it was created for them; opening another one with this
    /// option fails with `InvalidInput`. The file system must have hard links.
    #[serde(default)]
    pub blob_versions: bool,
    /// The permission of the store to write.
    #[serde(default)]
    pub mode: OpenMode,
}

impl FsConfig {
    /// Keeps the files under `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (busy_timeout, permissions) = (BUSY_TIMEOUT_DEFAULT, FilePermissions::default());
        Self { root: root.into(), busy_timeout, permissions, blob_versions: false, mode: OpenMode::default() }
    }

    /// Sets how long a call waits for a lock of another call or another process.
    #[must_use]
    pub fn with_busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// Sets the permissions of new files and folders.
    #[must_use]
    pub fn with_permissions(mut self, permissions: FilePermissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Keeps earlier versions of blobs in a new folder.
    #[must_use]
    pub fn with_blob_versions(mut self) -> Self {
        self.blob_versions = true;
        self
    }

    /// Sets whether the store may write.
    #[must_use]
    pub fn with_mode(mut self, mode: OpenMode) -> Self {
        self.mode = mode;
        self
    }
}
