//! Reads and writes of several keys.

use std::ops::Bound;

use larder_kernel::check::size;
use larder_kernel::limits::BATCH_KEYS_MAX;
use larder_kernel::{
    Error, Key, KeyOrder, KeyValueItem, KeyValueQuery, KeyValueWrite, KeyValueWriteKind, PageRequest,
    PrefixDeletion, Result, Revision,
};

use super::{Bucket, Change, ChangeKind};
use crate::storage::backend::MemoryBackend;

impl Bucket {
    /// Evaluates every condition, reserves the bytes, and only then changes anything.
    pub(in crate::storage::key_value) fn write(
        &mut self,
        backend: &MemoryBackend,
        writes: Vec<KeyValueWrite>,
        now_ms: i64,
    ) -> Result<Vec<Option<Revision>>> {
        const OPERATION: &str = "key_value.write";
        let mut changes = Vec::with_capacity(writes.len());
        for (index, KeyValueWrite { key, kind, .. }) in writes.into_iter().enumerate() {
            let (holds, change) = match kind {
                KeyValueWriteKind::Put { value, options } => {
                    let holds = self.holds(OPERATION, &key, options.condition)?;
                    (holds, Some(Change::put(key, value, options, now_ms)))
                }
                KeyValueWriteKind::Delete { at } => {
                    let holds = at.is_none_or(|at| self.is_at(&key, at));
                    let exists = self.keys.contains_key(&key);
                    (holds, exists.then_some(Change { key, kind: ChangeKind::Deleted }))
                }
                _ => return Err(Error::unknown_value(OPERATION, "writes.kind")),
            };
            if !holds {
                return Err(KeyValueWrite::conflict(index));
            }
            changes.push(change);
        }
        let some = || changes.iter().flatten();
        let freed = some().filter_map(|change| self.last_change(&change.key)).map(Change::share).sum();
        let needed: u64 = some().map(Change::share).sum();
        backend.exchange(OPERATION, freed, needed)?;
        self.held = self.held + needed - freed;
        let revisions = changes.into_iter().map(|change| change.map(|change| self.replace(change))).collect();
        self.forget_deletions(backend);
        Ok(revisions)
    }

    pub(in crate::storage::key_value) fn delete_prefix(
        &mut self,
        backend: &MemoryBackend,
        prefix: &str,
    ) -> Result<PrefixDeletion> {
        let (query, page) = (KeyValueQuery::prefix(prefix), PageRequest::first(BATCH_KEYS_MAX));
        let mut items = self.entries(&query, &page);
        let more = items.len() > BATCH_KEYS_MAX;
        items.truncate(BATCH_KEYS_MAX);
        for item in &items {
            self.delete(backend, &item.key, None)?;
        }
        Ok(PrefixDeletion::new(size(items.len()), more))
    }

    /// Returns the entries of a page and one more, with their values if the query asks for them.
    pub(in crate::storage::key_value) fn entries(
        &self,
        query: &KeyValueQuery,
        page: &PageRequest<Key>,
    ) -> Vec<KeyValueItem> {
        let (start, end) = query.bounds(page);
        let (start, end) = (bound(start), bound(end));
        // A range must not be inverted.
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) = (&start, &end)
            && from >= to
        {
            return Vec::new();
        }
        let keys = self.keys.range((start, end)).map(|(key, _)| key);
        let item = |key: &Key| {
            let entry = self.get(key)?;
            let item = KeyValueItem::new(key.clone(), entry.revision).with_expires_at(entry.expires_at);
            Some(item.with_value(query.values.then_some(entry.value)))
        };
        let limit = page.limit.saturating_add(1);
        match query.order {
            KeyOrder::Descending => {
                keys.rev().filter(|key| query.selects(key)).filter_map(item).take(limit).collect()
            }
            _ => keys.filter(|key| query.selects(key)).filter_map(item).take(limit).collect(),
        }
    }
}

/// Returns the bound as a key. A text that no key can have, because it is too long, bounds nothing; the query
/// drops the keys beyond it.
fn bound(bound: Bound<String>) -> Bound<Key> {
    match bound {
        Bound::Included(text) => Key::try_from(text).map_or(Bound::Unbounded, Bound::Included),
        Bound::Excluded(text) => Key::try_from(text).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded => Bound::Unbounded,
    }
}
