//! Checks that every backend runs before its first I/O.

use bytes::Bytes;

use super::WRITE;
use super::batch::{KeyValueQuery, KeyValueWrite, KeyValueWriteKind};
use super::types::KeyValuePutOptions;
use crate::check;
use crate::error::Result;
use crate::id::Key;
use crate::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, ID_BYTES_MAX, VALUE_BYTES_MAX};
use crate::page::PageRequest;

/// Checks the arguments of [`put`](super::KeyValueStore::put).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_put(value: &Bytes, options: &KeyValuePutOptions) -> Result<()> {
    check_value("key_value.put", value, options)
}

fn check_value(operation: &'static str, value: &Bytes, options: &KeyValuePutOptions) -> Result<()> {
    check::at_most(operation, "value", value.len(), VALUE_BYTES_MAX)?;
    options.ttl.map_or(Ok(()), |ttl| check::ttl(operation, "ttl", ttl))
}

/// Checks the keys of [`get_many`](super::KeyValueStore::get_many).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_get_many(keys: &[Key]) -> Result<()> {
    check::at_most("key_value.get_many", "keys", keys.len(), BATCH_KEYS_MAX)
}

/// Checks the puts and deletions of [`write`](super::KeyValueStore::write).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_write(writes: &[KeyValueWrite]) -> Result<()> {
    check::batch(WRITE, "writes", writes.len(), BATCH_KEYS_MAX)?;
    check::distinct(WRITE, "writes.key", writes.iter().map(|write| &write.key))?;
    for write in writes {
        match &write.kind {
            KeyValueWriteKind::Put { value, options } => check_value(WRITE, value, options)?,
            KeyValueWriteKind::Delete { .. } => {}
        }
    }
    let bytes = writes.iter().map(KeyValueWrite::size_bytes).fold(0, usize::saturating_add);
    check::at_most(WRITE, "writes", bytes, BATCH_VALUES_BYTES_MAX)
}

/// Checks the query and the page of [`list_entries`](super::KeyValueStore::list_entries).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_list_entries(query: &KeyValueQuery, page: &PageRequest<Key>) -> Result<()> {
    check_list("key_value.list_entries", &query.prefix, Some(page))
}

/// Checks the prefix and, if given, the page of [`list`](super::KeyValueStore::list),
/// [`delete_prefix`](super::KeyValueStore::delete_prefix) and [`watch`](super::KeyValueStore::watch).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_list(operation: &'static str, prefix: &str, page: Option<&PageRequest<Key>>) -> Result<()> {
    check::text(operation, "prefix", prefix, ID_BYTES_MAX)?;
    check::no_nul(operation, "prefix", prefix)?;
    page.map_or(Ok(()), |page| page.check(operation))
}
