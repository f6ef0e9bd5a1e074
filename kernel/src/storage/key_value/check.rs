//! Checks that every backend runs before its first I/O.

use bytes::Bytes;

use super::types::KeyValuePutOptions;
use crate::check;
use crate::error::Result;
use crate::id::Key;
use crate::limits::{ID_BYTES_MAX, VALUE_BYTES_MAX};
use crate::page::PageRequest;

/// Checks the arguments of [`put`](super::KeyValueStore::put).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_put(value: &Bytes, options: &KeyValuePutOptions) -> Result<()> {
    const OPERATION: &str = "key_value.put";
    check::at_most(OPERATION, "value", value.len(), VALUE_BYTES_MAX)?;
    options.ttl.map_or(Ok(()), |ttl| check::ttl(OPERATION, "ttl", ttl))
}

/// Checks the prefix and, if given, the page of [`list`](super::KeyValueStore::list) and
/// [`watch`](super::KeyValueStore::watch).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_list(operation: &'static str, prefix: &str, page: Option<&PageRequest<Key>>) -> Result<()> {
    check::text(operation, "prefix", prefix, ID_BYTES_MAX)?;
    check::no_nul(operation, "prefix", prefix)?;
    page.map_or(Ok(()), |page| page.check(operation))
}
