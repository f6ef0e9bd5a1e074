//! The permissions of new files and folders.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::driver::{BackendUrl, invalid_url};

const PARAMETER: &str = "permissions";
const OWNER: u32 = 0o600;
const ANYONE: u32 = 0o666;

/// The permissions of the files that a store creates, regardless of the program's umask. Folders also get
/// the permission to enter them. Files and folders that exist keep their permissions.
///
/// The default is `0600`: only the account of the program can read and write. On systems other than Unix,
/// the permissions of the parent folder apply.
///
/// ```
/// # extern crate larder_capabilities as larder;
/// use larder::FilePermissions;
///
/// assert_eq!(FilePermissions::default().mode(), 0o600);
/// assert_eq!(FilePermissions::new(0o660)?.mode(), 0o660);
/// assert!(FilePermissions::new(0o060).is_err());
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePermissions(u32);

impl FilePermissions {
    /// Creates permissions from a mode such as `0o660`.
    ///
    /// # Errors
    /// `InvalidInput` naming `permissions` if the owner cannot read and write, if others can write but not
    /// read, or if the mode has other bits.
    pub fn new(mode: u32) -> Result<Self> {
        let writes_unread = (mode & 0o022) << 1 & !mode;
        if mode & OWNER != OWNER || mode & !ANYONE != 0 || writes_unread != 0 {
            let message = "is no mode of a file; the owner must read and write, others may read, or read and \
                           write, as in 0660";
            return Err(Error::invalid("files.open", PARAMETER, message));
        }
        Ok(Self(mode))
    }

    /// Returns the mode of a file.
    #[must_use]
    pub const fn mode(self) -> u32 {
        self.0
    }

    /// Returns the mode of a folder. Accounts that can read it can also enter it.
    #[cfg(all(feature = "fs", unix))]
    pub(crate) const fn folder_mode(self) -> u32 {
        self.0 | (self.0 & 0o444) >> 2
    }

    fn parse(text: &str) -> Option<Self> {
        let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
        let mode = if is_octal { u32::from_str_radix(text, 8).ok()? } else { return None };
        Self::new(mode).ok()
    }

    /// Reads the parameter `permissions` of a URL.
    pub(crate) fn of_url(url: &BackendUrl<'_>) -> Result<Option<Self>> {
        let Some(text) = url.parameter(PARAMETER) else { return Ok(None) };
        if cfg!(not(unix)) {
            return Err(invalid_url("has `permissions`, which this system does not have; remove it"));
        }
        let permissions = Self::parse(text).ok_or_else(|| {
            invalid_url(
                "has a `permissions` that is not an octal mode such as 0660; the owner must read and write, \
                 others may read, or read and write",
            )
        });
        permissions.map(Some)
    }
}

impl Default for FilePermissions {
    fn default() -> Self {
        Self(OWNER)
    }
}

impl TryFrom<String> for FilePermissions {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not an octal mode of a file such as 0660")
    }
}

impl From<FilePermissions> for String {
    fn from(permissions: FilePermissions) -> Self {
        format!("{:04o}", permissions.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_never_exclude_the_owner() {
        for (text, mode) in [("0600", 0o600), ("660", 0o660), ("0640", 0o640), ("0664", 0o664)] {
            let url = format!("file:./a?permissions={text}");
            let read = FilePermissions::of_url(&BackendUrl::parse(&url).unwrap()).unwrap();
            assert_eq!(read.map(FilePermissions::mode), Some(mode), "{text}");
        }
        for text in ["", "0", "rw", "0700", "0060", "0620", "0602", "00600", "+600", "0o660", "1600", "0800"]
        {
            let url = format!("file:./a?permissions={text}");
            let error = FilePermissions::of_url(&BackendUrl::parse(&url).unwrap()).unwrap_err();
            assert!(error.message().contains("octal mode such as 0660"), "{text}: {error}");
        }
        let permissions: FilePermissions = serde_json::from_str("\"0660\"").unwrap();
        assert_eq!(serde_json::to_string(&permissions).unwrap(), "\"0660\"");
        assert!(serde_json::from_str::<FilePermissions>("\"0777\"").is_err());
    }
}
