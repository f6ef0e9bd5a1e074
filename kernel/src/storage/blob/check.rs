//! Checks that every backend runs before its first I/O.

use std::time::Duration;

use super::types::{
    BlobCondition, BlobGetOptions, BlobPutOptions, ByteRange, PresignMethod, PresignRequest, UserMetadata,
};
use crate::capability::{Capabilities, Capability};
use crate::check;
use crate::error::{Error, Result};
use crate::limits::{
    BLOB_METADATA_BYTES_MAX, BLOB_METADATA_ENTRIES_MAX, CONTENT_TYPE_BYTES_MAX, ID_BYTES_MAX,
    PRESIGN_EXPIRY_MAX,
};

const NAME_BYTES_MAX: usize = 128;

/// Checks the options of [`put`](super::BlobStore::put), and checks that the store declares the capability of
/// their condition.
///
/// # Errors
/// `InvalidInput` naming the field and the limit; `Unsupported` naming the capability.
pub fn check_put(options: &BlobPutOptions, declared: &Capabilities) -> Result<()> {
    const OPERATION: &str = "blobs.put";
    check_content_type(OPERATION, options.content_type.as_deref())?;
    check_metadata(OPERATION, &options.metadata)?;
    let needed = match options.condition {
        BlobCondition::None => return Ok(()),
        BlobCondition::Absent => Capability::BlobCreateOnly,
        BlobCondition::Matches(_) => Capability::BlobIfMatch,
    };
    if declared.has(needed) { Ok(()) } else { Err(Error::unsupported(OPERATION, needed)) }
}

fn check_content_type(operation: &'static str, content_type: Option<&str>) -> Result<()> {
    let Some(content_type) = content_type else { return Ok(()) };
    check::batch(operation, "content_type", content_type.len(), CONTENT_TYPE_BYTES_MAX)?;
    check_header_value(operation, "content_type", content_type)
}

fn check_header_value(operation: &'static str, field: &'static str, value: &str) -> Result<()> {
    let visible = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if visible && value.trim() == value {
        Ok(())
    } else {
        Err(Error::invalid(
            operation,
            field,
            "contains characters other than visible ASCII and inner spaces; remove them",
        ))
    }
}

fn check_metadata(operation: &'static str, metadata: &UserMetadata) -> Result<()> {
    check::at_most(operation, "metadata", metadata.len(), BLOB_METADATA_ENTRIES_MAX)?;
    let bytes = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    check::at_most(operation, "metadata.bytes", bytes, BLOB_METADATA_BYTES_MAX)?;
    for (name, value) in metadata {
        check::batch(operation, "metadata.name", name.len(), NAME_BYTES_MAX)?;
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if !name.bytes().all(allowed) {
            return Err(Error::invalid(
                operation,
                "metadata.name",
                "contains characters other than a-z, 0-9, `-` and `_`; rename it",
            ));
        }
        check_header_value(operation, "metadata.value", value)?;
    }
    Ok(())
}

/// Checks the options of [`get`](super::BlobStore::get), as far as possible before the blob's size is known.
///
/// # Errors
/// `InvalidInput` naming `range` if the range is empty.
pub fn check_get(options: &BlobGetOptions) -> Result<()> {
    match options.range {
        Some(ByteRange::Bounded { start, end }) if start >= end => {
            Err(Error::invalid("blobs.get", "range", "is empty; request at least one byte")
                .with_limit(start, end))
        }
        Some(ByteRange::Suffix(0)) => {
            Err(Error::invalid("blobs.get", "range", "is empty; request at least one byte"))
        }
        _ => Ok(()),
    }
}

/// Checks the prefix of [`list`](super::BlobStore::list).
///
/// # Errors
/// `InvalidInput` naming `prefix` and the limit.
pub fn check_prefix(prefix: &str) -> Result<()> {
    check::text("blobs.list", "prefix", prefix, ID_BYTES_MAX)?;
    check::no_nul("blobs.list", "prefix", prefix)
}

/// Checks that the store declares the capability of [`rename`](super::BlobStore::rename).
///
/// # Errors
/// `Unsupported` naming the capability.
pub fn check_rename(declared: &Capabilities) -> Result<()> {
    let needed = Capability::BlobRename;
    if declared.has(needed) { Ok(()) } else { Err(Error::unsupported("blobs.rename", needed)) }
}

/// Checks that the store declares the capability of an operation on versions.
///
/// # Errors
/// `Unsupported` naming the capability.
pub fn check_versions(operation: &'static str, declared: &Capabilities) -> Result<()> {
    let needed = Capability::BlobVersions;
    if declared.has(needed) { Ok(()) } else { Err(Error::unsupported(operation, needed)) }
}

/// Checks the request of [`presign`](super::BlobStore::presign), and checks that the store declares the
/// capability of its method.
///
/// # Errors
/// `InvalidInput` naming the field and the limit in seconds; `Unsupported` naming the capability.
pub fn check_presign(request: &PresignRequest, declared: &Capabilities) -> Result<()> {
    const OPERATION: &str = "blobs.presign";
    if request.valid_for < Duration::from_secs(1) {
        return Err(Error::under_limit(OPERATION, "valid_for", request.valid_for.as_secs(), 1));
    }
    if request.valid_for > PRESIGN_EXPIRY_MAX {
        let (actual, limit) = (request.valid_for.as_secs(), PRESIGN_EXPIRY_MAX.as_secs());
        return Err(Error::over_limit(OPERATION, "valid_for", actual, limit));
    }
    check_content_type(OPERATION, request.content_type.as_deref())?;
    let needed = match request.method {
        PresignMethod::Get if request.content_type.is_some() => {
            return Err(Error::invalid(
                OPERATION,
                "content_type",
                "is set for a read; set it for a write only",
            ));
        }
        PresignMethod::Get => Capability::BlobPresignGet,
        PresignMethod::Put => Capability::BlobPresignPut,
    };
    if declared.has(needed) { Ok(()) } else { Err(Error::unsupported(OPERATION, needed)) }
}
