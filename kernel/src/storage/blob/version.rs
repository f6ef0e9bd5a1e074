//! Versions of blobs.

use std::fmt;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::types::ETag;
use crate::check;
use crate::error::{Error, Result};
use crate::limits::VERSION_ID_BYTES_MAX;
use crate::timestamp::Timestamp;

/// A stream of the versions of a blob.
pub type BlobVersions = BoxStream<'static, Result<BlobVersion>>;

/// The id of one version of a blob, opaque to callers: 1 to 1,024 bytes of visible ASCII. It identifies the
/// version together with the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobVersionId(Arc<str>);

impl BlobVersionId {
    /// Checks the text from a store and creates the id.
    ///
    /// # Errors
    /// `InvalidInput` naming `blob_version`.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        const OPERATION: &str = "blob_version.new";
        const FIELD: &str = "blob_version";
        let text = text.as_ref();
        check::batch(OPERATION, FIELD, text.len(), VERSION_ID_BYTES_MAX)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "contains characters other than visible ASCII; remove them";
            return Err(Error::invalid(OPERATION, FIELD, message));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobVersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&Self> for BlobVersionId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl TryFrom<&str> for BlobVersionId {
    type Error = Error;
    fn try_from(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl TryFrom<String> for BlobVersionId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<BlobVersionId> for String {
    fn from(id: BlobVersionId) -> Self {
        id.0.as_ref().to_owned()
    }
}

/// One version of a blob in a listing of its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobVersion {
    /// The id.
    pub id: BlobVersionId,
    /// `true` for the version that `get` and `head` return.
    pub current: bool,
    /// The size in bytes.
    pub size: u64,
    /// The tag that the blob had in this version.
    pub etag: ETag,
    /// The time of the write that created the version, by the store's clock, to the second or better.
    pub modified_at: Timestamp,
}

impl BlobVersion {
    /// Creates an earlier version.
    #[must_use]
    pub fn new(id: BlobVersionId, size: u64, etag: ETag, modified_at: Timestamp) -> Self {
        Self { id, current: false, size, etag, modified_at }
    }

    /// Sets whether the version is the one that `get` and `head` return.
    #[must_use]
    pub fn with_current(mut self, current: bool) -> Self {
        self.current = current;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_visible_ascii_of_limited_length() {
        for text in ["1", "3/L4kqtJlcpXroDTDmJ+rmSpXd3dIbrHY+MTRCxf3vjVBH40Nr8X8gdRQBpUMLUo", "null"] {
            assert_eq!(BlobVersionId::new(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "\u{e9}", "a\n", &"v".repeat(1_025)] {
            assert_eq!(BlobVersionId::new(text).unwrap_err().field(), Some("blob_version"), "{text:?}");
        }
    }
}
