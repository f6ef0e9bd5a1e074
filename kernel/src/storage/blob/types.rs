//! The values that [`BlobStore`](super::BlobStore) takes and returns.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::body::BlobBytes;
use super::key::BlobKey;
use crate::check;
use crate::error::{Error, Result};
use crate::limits::ID_BYTES_MAX;
use crate::timestamp::Timestamp;

/// The version of a blob, opaque to callers: 1 to 512 bytes of visible ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ETag(Arc<str>);

impl ETag {
    /// Checks the text that a store gave and makes the tag.
    ///
    /// # Errors
    /// `InvalidInput` naming `etag`.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        check::batch("etag.new", "etag", text.len(), ID_BYTES_MAX)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid("etag.new", "etag", "holds something else than visible ASCII"));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ETag {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<ETag> for String {
    fn from(etag: ETag) -> Self {
        etag.0.as_ref().to_owned()
    }
}

/// What the writer attaches to a blob. Names are 1 to 128 bytes of lower-case ASCII letters, digits, `-` and `_`; values
/// are visible ASCII and inner spaces, because HTTP headers carry both.
pub type UserMetadata = BTreeMap<String, String>;

/// What must hold for a write to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BlobCondition {
    /// Nothing.
    #[default]
    None,
    /// No blob is there. Needs the capability `blob-create-only`.
    Absent,
    /// The blob there has this tag. Needs the capability `blob-if-match`.
    Matches(ETag),
}

/// Options of a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobPutOptions {
    /// What must hold.
    pub condition: BlobCondition,
    /// The media type, for example `image/png`.
    pub content_type: Option<String>,
    /// What the writer attaches.
    pub metadata: UserMetadata,
}

impl BlobPutOptions {
    /// Sets what must hold.
    #[must_use]
    pub fn with_condition(mut self, condition: BlobCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets the media type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Attaches a name and a value.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }
}

/// Which bytes to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteRange {
    /// From `start` up to but not including `end`.
    Bounded {
        /// The first byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// From this byte to the end.
    From(u64),
    /// The last bytes, this many.
    Suffix(u64),
}

impl ByteRange {
    /// The range in a blob of `size` bytes.
    ///
    /// # Errors
    /// `InvalidInput` naming `range` where it is empty or begins at or past the blob's end.
    pub fn resolve(self, size: u64) -> Result<Range<u64>> {
        let range = match self {
            Self::Bounded { start, end } => start..end.min(size),
            Self::From(start) => start..size,
            Self::Suffix(count) => size.saturating_sub(count)..size,
        };
        if range.start < range.end {
            Ok(range)
        } else {
            Err(Error::invalid("blobs.get", "range", "empty, or begins at or past the blob's end")
                .with_limit(range.start, size))
        }
    }
}

/// Options of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobGetOptions {
    /// Which bytes; `None` for all.
    pub range: Option<ByteRange>,
}

impl BlobGetOptions {
    /// Reads only part of the blob.
    #[must_use]
    pub fn with_range(mut self, range: ByteRange) -> Self {
        self.range = Some(range);
        self
    }
}

/// What is known of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobInfo {
    /// Its key.
    pub key: BlobKey,
    /// Its size in bytes.
    pub size: u64,
    /// Its version.
    pub etag: ETag,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What the writer attached.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: UserMetadata,
    /// When it was written, by the store's clock, to the second or better.
    pub modified_at: Timestamp,
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobEntry {
    /// Its key.
    pub key: BlobKey,
    /// Its size in bytes.
    pub size: u64,
    /// Its version.
    pub etag: ETag,
    /// When it was written, by the store's clock, to the second or better.
    pub modified_at: Timestamp,
}

/// A blob being read.
pub struct BlobRead {
    /// What is known of the blob.
    pub info: BlobInfo,
    /// Which bytes the stream delivers.
    pub range: Range<u64>,
    /// The bytes.
    pub bytes: BlobBytes,
}

impl fmt::Debug for BlobRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobRead").field("range", &self.range).finish_non_exhaustive()
    }
}

/// What a presigned URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PresignMethod {
    /// Reading the blob. Needs the capability `blob-presign-get`.
    Get,
    /// Writing the blob. Needs the capability `blob-presign-put`.
    Put,
}

/// What to allow, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresignRequest {
    /// The method.
    pub method: PresignMethod,
    /// How long the URL is valid: one second to seven days.
    pub valid_for: Duration,
    /// The content type that a write must send; only with `Put`.
    pub content_type: Option<String>,
}

impl PresignRequest {
    /// Allows reading for a while.
    #[must_use]
    pub fn get(valid_for: Duration) -> Self {
        Self { method: PresignMethod::Get, valid_for, content_type: None }
    }

    /// Allows writing for a while.
    #[must_use]
    pub fn put(valid_for: Duration) -> Self {
        Self { method: PresignMethod::Put, valid_for, content_type: None }
    }

    /// Binds the content type of a write.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }
}

/// A URL that allows one thing for a while. Whoever holds it has that right, so its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresignedUrl {
    /// The URL.
    pub url: String,
    /// What it allows.
    pub method: PresignMethod,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Headers that the request must carry.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for PresignedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PresignedUrl")
            .field("method", &self.method)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_resolve_within_the_blob_or_are_refused() {
        assert_eq!(ByteRange::Bounded { start: 2, end: 99 }.resolve(10).unwrap(), 2..10);
        assert_eq!(ByteRange::From(9).resolve(10).unwrap(), 9..10);
        assert_eq!(ByteRange::Suffix(3).resolve(10).unwrap(), 7..10);
        assert_eq!(ByteRange::Suffix(30).resolve(10).unwrap(), 0..10);
        for (range, size) in [
            (ByteRange::From(10), 10),
            (ByteRange::Bounded { start: 3, end: 3 }, 10),
            (ByteRange::Bounded { start: 4, end: 3 }, 10),
            (ByteRange::Suffix(0), 10),
            (ByteRange::Suffix(1), 0),
        ] {
            assert_eq!(range.resolve(size).unwrap_err().field(), Some("range"));
        }
    }
}
