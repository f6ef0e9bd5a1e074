//! The attributes of a blob in the headers of S3.

use aws_sdk_s3::primitives::DateTime;
use larder_kernel::{BlobInfo, BlobKey, ETag, Result, Timestamp, UserMetadata};

use crate::s3::failure::corrupt;

/// The content type of a blob written without one. S3 would choose a type that could not be distinguished
/// from a given one. This type can, and browsers treat it as bytes of an unknown type.
const NO_CONTENT_TYPE: &str = "application/octet-stream; larder=none";
/// The suffix of a given content type that reads like the above.
const GIVEN: char = '~';

/// Returns the content type to send.
pub(crate) fn content_type_out(content_type: Option<&str>) -> String {
    match content_type {
        None => NO_CONTENT_TYPE.to_owned(),
        Some(given) if given.trim_end_matches(GIVEN) == NO_CONTENT_TYPE => format!("{given}{GIVEN}"),
        Some(given) => given.to_owned(),
    }
}

fn content_type_in(stored: Option<&str>) -> Option<String> {
    let stored = stored?;
    if stored == NO_CONTENT_TYPE {
        return None;
    }
    let given = stored.strip_suffix(GIVEN).filter(|given| given.trim_end_matches(GIVEN) == NO_CONTENT_TYPE);
    Some(given.unwrap_or(stored).to_owned())
}

/// Returns the user metadata to send. Servers written for CGI's rules drop headers with `_` or confuse it
/// with `-`. The character `.` is not in the grammar of metadata names, and arrives unchanged.
pub(crate) fn metadata_out(metadata: &UserMetadata) -> impl Iterator<Item = (String, String)> {
    metadata.iter().map(|(name, value)| (name.replace('_', "."), value.clone()))
}

/// Returns the tag without the quotes of the header.
pub(crate) fn etag_in(operation: &'static str, tag: Option<&str>) -> Result<ETag> {
    let tag = tag.unwrap_or_default();
    let bare = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag);
    ETag::new(bare).map_err(|_| corrupt(operation))
}

/// Returns the tag in the form of the header; `None` if it cannot be a tag of this store.
pub(crate) fn etag_out(etag: &ETag) -> Option<String> {
    (!etag.as_str().contains('"')).then(|| format!("\"{etag}\""))
}

pub(crate) fn time_in(operation: &'static str, time: Option<&DateTime>) -> Result<Timestamp> {
    let micros = time.and_then(|time| i64::try_from(time.as_nanos() / 1_000).ok());
    micros.and_then(|micros| Timestamp::from_micros(micros).ok()).ok_or_else(|| corrupt(operation))
}

pub(crate) fn size_in(operation: &'static str, size: Option<i64>) -> Result<u64> {
    size.and_then(|size| u64::try_from(size).ok()).ok_or_else(|| corrupt(operation))
}

/// The headers that describe a blob, from any kind of response.
pub(crate) struct ObjectHeaders<'a> {
    pub(crate) size: u64,
    pub(crate) etag: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) metadata: Option<&'a std::collections::HashMap<String, String>>,
    pub(crate) modified_at: Option<&'a DateTime>,
}

impl ObjectHeaders<'_> {
    pub(crate) fn into_info(self, operation: &'static str, key: &BlobKey) -> Result<BlobInfo> {
        let metadata = self.metadata.into_iter().flatten();
        Ok(BlobInfo::new(
            key.clone(),
            self.size,
            etag_in(operation, self.etag)?,
            time_in(operation, self.modified_at)?,
        )
        .with_content_type(content_type_in(self.content_type))
        .with_metadata(metadata.map(|(name, value)| (name.replace('.', "_"), value.clone())).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_content_type_reads_back_the_missing_one_too() {
        let given = [
            None,
            Some("text/plain; charset=utf-8"),
            Some("application/octet-stream"),
            Some(NO_CONTENT_TYPE),
            Some("application/octet-stream; larder=none~"),
            Some("application/octet-stream; larder=none~~"),
            Some("a~"),
        ];
        for content_type in given {
            let stored = content_type_out(content_type);
            assert_eq!(content_type_in(Some(&stored)).as_deref(), content_type);
        }
        assert_eq!(content_type_in(None), None);
    }

    #[test]
    fn tags_lose_their_quotes_and_get_them_back() {
        let etag = etag_in("test", Some("\"abc-2\"")).unwrap();
        assert_eq!(etag.as_str(), "abc-2");
        assert_eq!(etag_out(&etag).as_deref(), Some("\"abc-2\""));
        assert_eq!(etag_in("test", Some("abc")).unwrap().as_str(), "abc");
        assert!(etag_in("test", None).is_err());
        assert_eq!(etag_out(&ETag::new("a\",\"b").unwrap()), None);
    }
}
