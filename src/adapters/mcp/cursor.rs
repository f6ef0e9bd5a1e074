//! Opaque cursors: the position at which a listing continues.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use larder_kernel::{Error, ErrorKind, Result, check};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The maximum length of a cursor, in bytes: three ids of 512 bytes, with every byte escaped, in base64.
const CURSOR_BYTES_MAX: usize = 16 * 1024;

/// Encodes a position as a cursor.
pub(crate) fn encode<T: Serialize>(place: &T) -> Result<String> {
    let json = serde_json::to_vec(place);
    let json = json.map_err(|_| {
        Error::new(ErrorKind::Unexpected, "mcp.cursor", "the position cannot be written as JSON")
    })?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

/// Decodes the position in a cursor.
pub(crate) fn decode<T: DeserializeOwned>(operation: &'static str, cursor: &str) -> Result<T> {
    check::text(operation, "cursor", cursor, CURSOR_BYTES_MAX)?;
    let json = URL_SAFE_NO_PAD.decode(cursor).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or_else(|| {
        Error::invalid(
            operation,
            "cursor",
            "is not a cursor of this tool; pass a cursor that the tool returned",
        )
    })
}
