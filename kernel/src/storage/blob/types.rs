//! Argument and result types of [`BlobStore`](super::BlobStore).

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
use crate::storage::options::{OptionSet, RequestOption};
use crate::timestamp::Timestamp;

/// The version of a blob, opaque to callers: 1 to 512 bytes of visible ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ETag(Arc<str>);

impl ETag {
    /// Checks the text from a store and creates the tag.
    ///
    /// # Errors
    /// `InvalidInput` naming `etag`.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        check::batch("etag.new", "etag", text.len(), ID_BYTES_MAX)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(
                "etag.new",
                "etag",
                "contains characters other than visible ASCII; remove them",
            ));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Returns the text.
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

/// The metadata that the writer attaches to a blob. Names are 1 to 128 bytes of lower-case ASCII letters,
/// digits, `-` and `_`. Values are visible ASCII with inner spaces. The restrictions exist because HTTP
/// headers carry both.
pub type UserMetadata = BTreeMap<String, String>;

/// The condition of a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum BlobCondition {
    /// The write is unconditional.
    #[default]
    None,
    /// The key has no blob. Needs the capability `blob-create-only`.
    Absent,
    /// The stored blob has this tag. Needs the capability `blob-if-match`.
    Matches(ETag),
}

/// Options of a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlobPutOptions {
    /// The condition of the write.
    pub condition: BlobCondition,
    /// The media type, for example `image/png`.
    pub content_type: Option<String>,
    /// The metadata that the writer attaches.
    pub metadata: UserMetadata,
}

impl BlobPutOptions {
    /// Sets the condition of the write.
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

    /// Adds a metadata name and value.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Sets all metadata names and values.
    #[must_use]
    pub fn with_all_metadata(mut self, metadata: UserMetadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Returns the options that are set. The condition has separate capabilities.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { condition: _, content_type, metadata } = self;
        OptionSet::NONE
            .with_if(content_type.is_some(), RequestOption::BlobContentType)
            .with_if(!metadata.is_empty(), RequestOption::BlobMetadata)
    }
}

/// The bytes of a blob to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteRange {
    /// The bytes from `start` up to but not including `end`.
    Bounded {
        /// The offset of the first byte.
        start: u64,
        /// The offset after the last byte.
        end: u64,
    },
    /// The bytes from this offset to the end.
    From(u64),
    /// The last bytes, up to this number.
    Suffix(u64),
}

impl ByteRange {
    /// Returns the range in a blob of `size` bytes.
    ///
    /// # Errors
    /// `InvalidInput` naming `range` if the range is empty or begins at or past the end of the blob.
    pub fn resolve(self, size: u64) -> Result<Range<u64>> {
        let range = match self {
            Self::Bounded { start, end } => start..end.min(size),
            Self::From(start) => start..size,
            Self::Suffix(count) => size.saturating_sub(count)..size,
        };
        if range.start < range.end {
            Ok(range)
        } else {
            Err(Error::invalid(
                "blobs.get",
                "range",
                "is empty or begins at or past the blob's end; begin before the end",
            )
            .with_limit(range.start, size))
        }
    }
}

/// Options of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlobGetOptions {
    /// The bytes to read; `None` reads all.
    pub range: Option<ByteRange>,
}

impl BlobGetOptions {
    /// Selects a part of the blob to read.
    #[must_use]
    pub fn with_range(mut self, range: impl Into<Option<ByteRange>>) -> Self {
        self.range = range.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { range } = self;
        OptionSet::NONE.with_if(range.is_some(), RequestOption::BlobRange)
    }
}

/// The properties of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobInfo {
    /// The key.
    pub key: BlobKey,
    /// The size in bytes.
    pub size: u64,
    /// The version.
    pub etag: ETag,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The metadata that the writer attached.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: UserMetadata,
    /// The time of the last write, by the store's clock, to the second or better.
    pub modified_at: Timestamp,
}

impl BlobInfo {
    /// Creates the properties of a blob without a media type and without metadata.
    #[must_use]
    pub fn new(key: BlobKey, size: u64, etag: ETag, modified_at: Timestamp) -> Self {
        Self { key, size, etag, modified_at, content_type: None, metadata: UserMetadata::new() }
    }

    /// Sets the media type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<Option<String>>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Sets the metadata that the writer attached.
    #[must_use]
    pub fn with_metadata(mut self, metadata: UserMetadata) -> Self {
        self.metadata = metadata;
        self
    }
}

/// A blob in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobEntry {
    /// The key.
    pub key: BlobKey,
    /// The size in bytes.
    pub size: u64,
    /// The version.
    pub etag: ETag,
    /// The time of the last write, by the store's clock, to the second or better.
    pub modified_at: Timestamp,
}

impl BlobEntry {
    /// Creates an item of a listing.
    #[must_use]
    pub fn new(key: BlobKey, size: u64, etag: ETag, modified_at: Timestamp) -> Self {
        Self { key, size, etag, modified_at }
    }
}

/// A blob that is being read.
#[non_exhaustive]
pub struct BlobRead {
    /// The properties of the blob.
    pub info: BlobInfo,
    /// The range of bytes that the stream delivers.
    pub range: Range<u64>,
    /// The bytes.
    pub bytes: BlobBytes,
}

impl BlobRead {
    /// Creates a read of the bytes in `range`.
    #[must_use]
    pub fn new(info: BlobInfo, range: Range<u64>, bytes: BlobBytes) -> Self {
        Self { info, range, bytes }
    }
}

impl fmt::Debug for BlobRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobRead").field("range", &self.range).finish_non_exhaustive()
    }
}

/// The operation that a presigned URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum PresignMethod {
    /// Reading the blob. Needs the capability `blob-presign-get`.
    Get,
    /// Writing the blob. Needs the capability `blob-presign-put`.
    Put,
}

/// A request for a presigned URL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PresignRequest {
    /// The operation to allow.
    pub method: PresignMethod,
    /// The validity of the URL: one second to seven days.
    pub valid_for: Duration,
    /// The content type that a write must send; only with `Put`.
    pub content_type: Option<String>,
}

impl PresignRequest {
    /// Requests a URL for reading.
    #[must_use]
    pub fn get(valid_for: Duration) -> Self {
        Self { method: PresignMethod::Get, valid_for, content_type: None }
    }

    /// Requests a URL for writing.
    #[must_use]
    pub fn put(valid_for: Duration) -> Self {
        Self { method: PresignMethod::Put, valid_for, content_type: None }
    }

    /// Sets the content type that a write must send.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { method: _, valid_for: _, content_type } = self;
        OptionSet::NONE.with_if(content_type.is_some(), RequestOption::PresignContentType)
    }
}

/// A URL that allows one operation for a limited time. Possession of the URL grants this right, so its
/// `Debug` form hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PresignedUrl {
    /// The URL.
    pub url: String,
    /// The operation that it allows.
    pub method: PresignMethod,
    /// The time when it expires.
    pub expires_at: Timestamp,
    /// The headers that the request must contain.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

impl PresignedUrl {
    /// Creates a URL that needs no headers.
    #[must_use]
    pub fn new(url: impl Into<String>, method: PresignMethod, expires_at: Timestamp) -> Self {
        Self { url: url.into(), method, expires_at, headers: BTreeMap::new() }
    }

    /// Sets the headers that the request must contain.
    #[must_use]
    pub fn with_headers(mut self, headers: BTreeMap<String, String>) -> Self {
        self.headers = headers;
        self
    }
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
