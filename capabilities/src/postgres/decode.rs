//! Conversion of columns to the contracts' values.

use larder_kernel::{Generation, Metadata, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::failure::{Fallible, corrupt};

const READ: &str = "postgres.read";

/// Converts a stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt(READ))?)
}

/// Converts a stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt(READ))?)
}

/// Converts a stored generation; `None` for a place that does not exist.
pub(crate) fn generation(stored: Option<i64>) -> Option<Generation> {
    stored.and_then(|stored| u64::try_from(stored).ok()).and_then(Generation::new)
}

/// Parses a stored id. This program never wrote an id that violates the rules.
pub(crate) fn parse_id<T: TryFrom<String>>(stored: String) -> Fallible<T> {
    T::try_from(stored).map_err(|_| corrupt(READ).into())
}

/// Returns the metadata in a column.
pub(crate) fn metadata(row: &PgRow, column: usize) -> Fallible<Metadata> {
    let text: &str = row.try_get(column)?;
    // The parser's message may quote the text, so it is dropped.
    serde_json::from_str(text).map_err(|_| corrupt(READ).into())
}

/// Returns the text in a BYTEA column. Such text may contain NUL.
pub(crate) fn text(row: &PgRow, column: usize) -> Fallible<String> {
    optional_text(row, column)?.ok_or_else(|| corrupt(READ).into())
}

/// Returns the text in a BYTEA column; `None` for NULL.
pub(crate) fn optional_text(row: &PgRow, column: usize) -> Fallible<Option<String>> {
    let Some(bytes) = row.try_get::<Option<&[u8]>, _>(column)? else { return Ok(None) };
    Ok(Some(std::str::from_utf8(bytes).map_err(|_| corrupt(READ))?.to_owned()))
}

/// Returns the id in a column. This program never wrote an id that violates the rules.
pub(crate) fn id<'r, T: TryFrom<&'r str>>(row: &'r PgRow, column: usize) -> Fallible<T> {
    optional_id(row, column)?.ok_or_else(|| corrupt(READ).into())
}

/// Returns the id in a column; `None` for NULL.
pub(crate) fn optional_id<'r, T: TryFrom<&'r str>>(row: &'r PgRow, column: usize) -> Fallible<Option<T>> {
    let Some(text) = row.try_get::<Option<&str>, _>(column)? else { return Ok(None) };
    Ok(Some(T::try_from(text).map_err(|_| corrupt(READ))?))
}

/// Returns a stored count or number, which is never negative.
pub(crate) fn unsigned(row: &PgRow, column: usize) -> Fallible<u64> {
    count(row.try_get(column)?)
}

/// Returns a stored number from 0 to 2^31 - 1.
pub(crate) fn small(row: &PgRow, column: usize) -> Fallible<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).map_err(|_| corrupt(READ))?)
}
