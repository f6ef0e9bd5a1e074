//! Conversions between columns and the contracts' values.

use larder_kernel::{Generation, Metadata, Timestamp};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::failure::{Fallible, corrupt};
pub(crate) use crate::number::{integer, length, millis};

const READ: &str = "sqlite.read";

/// Returns the milliseconds since the epoch: the clock of these stores.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_micros().div_euclid(1_000)
}

/// Converts a stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt(READ))?)
}

/// Converts a stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt(READ))?)
}

/// Converts a stored generation. `None` for a row in which none was drawn.
pub(crate) fn generation(stored: i64) -> Option<Generation> {
    u64::try_from(stored).ok().and_then(Generation::new)
}

/// Draws a generation for a new row.
pub(crate) fn new_generation() -> i64 {
    integer(Generation::draw().get())
}

/// Returns the JSON text for a metadata column.
pub(crate) fn metadata_text(metadata: &Metadata) -> Fallible<String> {
    Ok(serde_json::to_string(metadata)?)
}

/// Returns the size in bytes of the text or BLOB in a column.
pub(crate) fn bytes(row: &Row<'_>, column: usize) -> Fallible<i64> {
    let value = row.get_ref(column)?.as_bytes_or_null().map_err(|_| corrupt(READ))?;
    Ok(length(value.map_or(0, <[u8]>::len)))
}

/// Returns the metadata in a column.
pub(crate) fn metadata(row: &Row<'_>, column: usize) -> Fallible<Metadata> {
    match row.get_ref(column)? {
        ValueRef::Text(text) => Ok(serde_json::from_slice(text)?),
        _ => Err(corrupt(READ).into()),
    }
}

/// Returns the text in a BLOB column. Such text may contain NUL.
pub(crate) fn text(row: &Row<'_>, column: usize) -> Fallible<String> {
    optional_text(row, column)?.ok_or_else(|| corrupt(READ).into())
}

/// Returns the text in a BLOB column; `None` for NULL.
pub(crate) fn optional_text(row: &Row<'_>, column: usize) -> Fallible<Option<String>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(bytes) => Ok(Some(std::str::from_utf8(bytes).map_err(|_| corrupt(READ))?.to_owned())),
        _ => Err(corrupt(READ).into()),
    }
}

/// Returns the id in a column. This program never wrote an id that violates the rules.
pub(crate) fn id<'r, T: TryFrom<&'r str>>(row: &'r Row<'_>, column: usize) -> Fallible<T> {
    let text = row.get_ref(column)?.as_str().map_err(|_| corrupt(READ))?;
    T::try_from(text).map_err(|_| corrupt(READ).into())
}

/// Returns a stored count or number, which is never negative.
pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> Fallible<u64> {
    count(row.get(column)?)
}
