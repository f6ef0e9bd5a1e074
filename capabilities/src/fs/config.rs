//! The configuration of the file store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Options of [`FsBlobStore`](super::FsBlobStore).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FsConfig {
    /// The folder that holds every namespace. It is created if it is missing, and nothing outside it is ever
    /// touched. The whole folder must be on one file system.
    pub root: PathBuf,
}

impl FsConfig {
    /// Keeps the files under `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}
