//! Checks that all contracts share. Each error has the field and the limit. No check performs I/O.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::limits;

/// Converts a size to the unsigned number that errors contain.
#[must_use]
pub fn size(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Refuses a value of `actual` greater than `limit`.
///
/// # Errors
/// `InvalidInput` with the field and the limit.
pub fn at_most(operation: &'static str, field: &'static str, actual: usize, limit: usize) -> Result<()> {
    if actual > limit { Err(Error::over_limit(operation, field, size(actual), size(limit))) } else { Ok(()) }
}

/// Refuses a value of `actual` less than `limit`.
///
/// # Errors
/// `InvalidInput` with the field and the limit.
pub fn at_least(operation: &'static str, field: &'static str, actual: usize, limit: usize) -> Result<()> {
    if actual < limit { Err(Error::under_limit(operation, field, size(actual), size(limit))) } else { Ok(()) }
}

/// Refuses a count outside `1..=limit`.
///
/// # Errors
/// `InvalidInput` with the field and the limit.
pub fn batch(operation: &'static str, field: &'static str, actual: usize, limit: usize) -> Result<()> {
    at_least(operation, field, actual, 1)?;
    at_most(operation, field, actual, limit)
}

/// Refuses text that contains a NUL character.
///
/// # Errors
/// `InvalidInput` with the field.
pub fn no_nul(operation: &'static str, field: &'static str, text: &str) -> Result<()> {
    if text.as_bytes().contains(&0) {
        Err(Error::invalid(operation, field, "contains a NUL character; remove it"))
    } else {
        Ok(())
    }
}

/// Refuses text longer than `limit` bytes of UTF-8.
///
/// # Errors
/// `InvalidInput` with the field and the limit.
pub fn text(operation: &'static str, field: &'static str, text: &str, limit: usize) -> Result<()> {
    at_most(operation, field, text.len(), limit)
}

/// Refuses a time to live or a lease outside [`limits::TTL_MS_MIN`]`..=`[`limits::TTL_MS_MAX`].
///
/// # Errors
/// `InvalidInput` with the field and the limit in milliseconds.
pub fn ttl(operation: &'static str, field: &'static str, ttl: Duration) -> Result<()> {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    if ttl_ms < limits::TTL_MS_MIN {
        return Err(Error::under_limit(operation, field, ttl_ms, limits::TTL_MS_MIN));
    }
    if ttl_ms > limits::TTL_MS_MAX {
        return Err(Error::over_limit(operation, field, ttl_ms, limits::TTL_MS_MAX));
    }
    Ok(())
}

/// Refuses the second of two equal items.
///
/// # Errors
/// `InvalidInput` with the field.
pub fn distinct<'a, T: std::hash::Hash + Eq + 'a>(
    operation: &'static str,
    field: &'static str,
    items: impl IntoIterator<Item = &'a T>,
) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for item in items {
        if !seen.insert(item) {
            return Err(Error::invalid(operation, field, "contains the same id twice; pass each id once"));
        }
    }
    Ok(())
}
