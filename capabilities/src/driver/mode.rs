//! The parameter `mode` of the backends that are files.

use larder_kernel::Result;
use serde::{Deserialize, Serialize};

use super::url::{BackendUrl, invalid_url};

/// The permission of a program to write to the files of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OpenMode {
    /// Reads and writes. The first write creates what is missing.
    #[default]
    #[serde(rename = "rw")]
    ReadWrite,
    /// Only reads. Nothing is created, upgraded or removed, and every write fails with `PermissionDenied`.
    #[serde(rename = "ro")]
    ReadOnly,
}

impl OpenMode {
    /// Reads the parameter `mode` of a URL: `rw` (the default) or `ro`.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for another value.
    pub fn of(url: &BackendUrl<'_>) -> Result<Self> {
        match url.parameter("mode") {
            None | Some("rw") => Ok(Self::ReadWrite),
            Some("ro") => Ok(Self::ReadOnly),
            Some(_) => Err(invalid_url("has a `mode` other than `rw` and `ro`")),
        }
    }

    /// Returns true if the files are only read.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::ReadOnly)
    }
}
