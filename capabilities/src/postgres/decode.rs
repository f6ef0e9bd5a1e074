//! Columns to values of the contracts.

use larder_kernel::{Metadata, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::failure::{Fallible, corrupt};

const READ: &str = "postgres.read";

/// A stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt(READ))?)
}

/// A stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt(READ))?)
}

/// A stored id. An id that violates the rules was not written by this program.
pub(crate) fn parse_id<T: TryFrom<String>>(stored: String) -> Fallible<T> {
    T::try_from(stored).map_err(|_| corrupt(READ).into())
}

/// The metadata in a column.
pub(crate) fn metadata(row: &PgRow, column: usize) -> Fallible<Metadata> {
    let text: &str = row.try_get(column)?;
    // The parser's message may quote the text, so it is left out.
    serde_json::from_str(text).map_err(|_| corrupt(READ).into())
}

/// The text in a column that is kept as BYTEA because it may hold NUL.
pub(crate) fn text(row: &PgRow, column: usize) -> Fallible<String> {
    optional_text(row, column)?.ok_or_else(|| corrupt(READ).into())
}

/// The text in such a column, or `None` for NULL.
pub(crate) fn optional_text(row: &PgRow, column: usize) -> Fallible<Option<String>> {
    let Some(bytes) = row.try_get::<Option<&[u8]>, _>(column)? else { return Ok(None) };
    Ok(Some(std::str::from_utf8(bytes).map_err(|_| corrupt(READ))?.to_owned()))
}

/// The id in a column. An id that the rules refuse was not written by this program.
pub(crate) fn id<'r, T: TryFrom<&'r str>>(row: &'r PgRow, column: usize) -> Fallible<T> {
    optional_id(row, column)?.ok_or_else(|| corrupt(READ).into())
}

/// The id in a column, or `None` for NULL.
pub(crate) fn optional_id<'r, T: TryFrom<&'r str>>(row: &'r PgRow, column: usize) -> Fallible<Option<T>> {
    let Some(text) = row.try_get::<Option<&str>, _>(column)? else { return Ok(None) };
    Ok(Some(T::try_from(text).map_err(|_| corrupt(READ))?))
}

/// A count or a number of the store's, which is never negative.
pub(crate) fn unsigned(row: &PgRow, column: usize) -> Fallible<u64> {
    count(row.try_get(column)?)
}

/// A number below 2^31 that is never negative.
pub(crate) fn small(row: &PgRow, column: usize) -> Fallible<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).map_err(|_| corrupt(READ))?)
}
