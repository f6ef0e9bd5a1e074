//! The rows of blobs.

use larder_kernel::{BlobInfo, BlobKey, ETag, Error, ErrorKind, Namespace, Result, Timestamp, UserMetadata};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::super::decode::{timestamp, unsigned};
use super::super::failure::{Fallible, corrupt};

/// The columns that [`Stored::read`] reads, in this order.
macro_rules! stored_columns {
    ($from:literal) => {
        concat!(
            $from,
            ".version, ",
            $from,
            ".size, ",
            $from,
            ".crc, ",
            $from,
            ".modified_ms, ",
            $from,
            ".content_type, ",
            $from,
            ".metadata"
        )
    };
}
pub(super) use stored_columns;

/// The namespace and key that identify a blob.
pub(super) struct Address {
    pub(super) namespace: Namespace,
    pub(super) key: BlobKey,
}

impl Address {
    pub(super) fn new(namespace: &Namespace, key: &BlobKey) -> Self {
        Self { namespace: namespace.clone(), key: key.clone() }
    }
}

/// The row of a blob, without its bytes.
pub(super) struct Stored {
    pub(super) version: i64,
    pub(super) size: u64,
    pub(super) crc: i64,
    pub(super) modified_at: Timestamp,
    pub(super) content_type: Option<String>,
    pub(super) metadata: UserMetadata,
}

impl Stored {
    /// Reads the columns of `stored_columns`, which begin the row.
    pub(super) fn read(row: &PgRow) -> Fallible<Self> {
        Ok(Self {
            version: row.try_get(0)?,
            size: unsigned(row, 1)?,
            crc: row.try_get(2)?,
            modified_at: timestamp(row.try_get(3)?)?,
            content_type: row.try_get(4)?,
            metadata: metadata(row.try_get(5)?)?,
        })
    }

    pub(super) fn into_info(self, key: BlobKey) -> Result<BlobInfo> {
        let etag = etag(self.version, self.crc)?;
        let info = BlobInfo::new(key, self.size, etag, self.modified_at);
        Ok(info.with_content_type(self.content_type).with_metadata(self.metadata))
    }
}

/// Parses stored user metadata.
pub(crate) fn metadata(stored: Option<&str>) -> Fallible<UserMetadata> {
    let parse = |text| serde_json::from_str(text).map_err(|_| corrupt("postgres.read"));
    Ok(stored.map_or(Ok(UserMetadata::new()), parse)?)
}

/// Returns the tag of a version. The checksum makes it differ from the tag of another blob that a restored
/// database gives the same version.
pub(super) fn etag(version: i64, crc: i64) -> Result<ETag> {
    ETag::new(format!("{version:x}-{:016x}", crc.cast_unsigned()))
}

/// Returns the version and the checksum in a tag; `None` for a tag of another store.
pub(super) fn version_of(tag: &ETag) -> Option<(i64, i64)> {
    let (version, crc) = tag.as_str().split_once('-')?;
    let version = i64::from_str_radix(version, 16).ok()?;
    let crc = u64::from_str_radix(crc, 16).ok()?.cast_signed();
    (etag(version, crc).ok()? == *tag).then_some((version, crc))
}

/// Returns the error for a blob that does not exist.
pub(super) fn missing(operation: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, "the blob does not exist; check the key")
        .with_field("blob_key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_its_version_and_other_tags_name_none() {
        for (version, crc) in [(1, 0), (i64::MAX, -1), (255, i64::MIN)] {
            assert_eq!(version_of(&etag(version, crc).unwrap()), Some((version, crc)));
        }
        for other in ["abc", "1-2", "-1-0000000000000000", "+1-0000000000000000", "1-000000000000000G", "-"] {
            assert_eq!(version_of(&ETag::new(other).unwrap()), None, "{other}");
        }
    }
}
