//! Blob keys.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::{Error, Result};
use crate::limits::ID_BYTES_MAX;

/// The key of a blob: 1 to 512 bytes of UTF-8 without NUL. A key consists of segments separated by `/`; no
/// segment is empty, `.` or `..`. Keys are ordered by their bytes, and no other characters are special.
///
/// ```
/// use larder_kernel::BlobKey;
///
/// assert_eq!(BlobKey::new("reports/2026/a.pdf")?.as_str(), "reports/2026/a.pdf");
/// assert_eq!(BlobKey::new("../secret").unwrap_err().field(), Some("blob_key"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobKey(Arc<str>);

impl BlobKey {
    /// Checks the text and creates the key.
    ///
    /// # Errors
    /// `InvalidInput` naming `blob_key`, with the limit if the text is too long.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        const OPERATION: &str = "blob_key.new";
        const FIELD: &str = "blob_key";
        let text = text.as_ref();
        check::batch(OPERATION, FIELD, text.len(), ID_BYTES_MAX)?;
        check::no_nul(OPERATION, FIELD, text)?;
        if text.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(Error::invalid(
                OPERATION,
                FIELD,
                "has a segment between `/` that is empty, `.` or `..`; remove that segment",
            ));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the text exactly as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobKey({:?})", &*self.0)
    }
}

impl From<&Self> for BlobKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl TryFrom<&str> for BlobKey {
    type Error = Error;
    fn try_from(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl TryFrom<String> for BlobKey {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<BlobKey> for String {
    fn from(key: BlobKey) -> Self {
        key.0.as_ref().to_owned()
    }
}

impl std::str::FromStr for BlobKey {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_keeps_paths_inside_and_accepts_all_others() {
        for text in
            ["a", "a/b", "a//".trim_end_matches('/'), "...", "a b", "%2e%2e", "C:\\x", "é/🦀", "-", "~"]
        {
            assert_eq!(BlobKey::new(text).unwrap().as_str(), text);
        }
        for text in ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "a\0", &"k".repeat(513)] {
            assert_eq!(BlobKey::new(text).unwrap_err().field(), Some("blob_key"), "{text:?}");
        }
    }
}
