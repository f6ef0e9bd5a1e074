//! Reads and writes of several keys, each in one transaction.

use std::ops::Bound;

use larder::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX};
use larder::{
    Error, Generation, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem, KeyValueQuery,
    KeyValueWrite, KeyValueWriteKind, PageRequest, PrefixDeletion, Revision,
};
use redb::{ReadableDatabase, ReadableTable, WriteTransaction};

use super::{BUCKETS, CHANGES, GENERATIONS, KEYS, Result, Tables, entry, generation, now, record};

impl Tables {
    /// Returns the entries of the keys, until their values exceed the limit for one answer.
    pub(crate) fn get_many(
        &self,
        namespace: &str,
        bucket: &str,
        wanted: &[Key],
    ) -> Result<Vec<Option<KeyValueEntry>>> {
        let read = self.database.begin_read()?;
        let (keys, changes) = (read.open_table(KEYS)?, read.open_table(CHANGES)?);
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        let (mut entries, mut bytes, at) = (Vec::with_capacity(wanted.len()), 0, now());
        for key in wanted {
            let found = entry(&keys, &changes, (namespace, bucket, key.as_str()), at)?;
            bytes += found.as_ref().map_or(0, |entry| entry.value.len());
            entries.push(found.map(|mut entry| {
                entry.revision = entry.revision.in_generation(generation);
                entry
            }));
            if bytes > BATCH_VALUES_BYTES_MAX {
                break;
            }
        }
        Ok(entries)
    }

    /// Evaluates every condition before the first change (KV-057).
    pub(crate) fn write_keys(
        &self,
        namespace: &str,
        bucket: &str,
        writes: &[KeyValueWrite],
    ) -> Result<Vec<Option<Revision>>> {
        self.write(|write| {
            let at = now();
            let exists = evaluate(write, (namespace, bucket), writes)?;
            let (mut keys, mut changes) = (write.open_table(KEYS)?, write.open_table(CHANGES)?);
            let (mut buckets, mut generations) = (write.open_table(BUCKETS)?, write.open_table(GENERATIONS)?);
            let drawn = generation(&generations, (namespace, bucket))?.unwrap_or_else(Generation::draw);
            let mut revisions = Vec::with_capacity(writes.len());
            for (change, exists) in writes.iter().zip(exists) {
                let key = change.key.as_str();
                let change = match &change.kind {
                    KeyValueWriteKind::Put { value, options } => {
                        let expires_at = options.ttl.map(|ttl| at.saturating_add(ttl).as_micros());
                        (key, expires_at, Some(&value[..]))
                    }
                    _ if exists => (key, None, None),
                    _ => {
                        revisions.push(None);
                        continue;
                    }
                };
                generations.insert((namespace, bucket), drawn.get())?;
                let at = record(&mut keys, &mut changes, &mut buckets, (namespace, bucket, key), change)?;
                revisions.push(Some(at.in_generation(drawn)));
            }
            Ok(revisions)
        })
    }

    pub(crate) fn delete_prefix(
        &self,
        namespace: &str,
        bucket: &str,
        prefix: &str,
    ) -> Result<PrefixDeletion> {
        self.write(|write| {
            let (mut keys, mut changes) = (write.open_table(KEYS)?, write.open_table(CHANGES)?);
            let mut buckets = write.open_table(BUCKETS)?;
            let (mut found, at) = (Vec::new(), now());
            for row in keys.range((namespace, bucket, prefix)..)? {
                let (row, _) = row?;
                let (of, within, key) = row.value();
                if (of, within) != (namespace, bucket) || !key.starts_with(prefix) {
                    break;
                }
                if entry(&keys, &changes, (namespace, bucket, key), at)?.is_some() {
                    found.push(key.to_owned());
                }
                if found.len() > BATCH_KEYS_MAX {
                    break;
                }
            }
            let more = found.len() > BATCH_KEYS_MAX;
            found.truncate(BATCH_KEYS_MAX);
            for key in &found {
                let change = (key.as_str(), None, None);
                record(&mut keys, &mut changes, &mut buckets, (namespace, bucket, key), change)?;
            }
            Ok(PrefixDeletion::new(found.len().try_into().unwrap_or(u64::MAX), more))
        })
    }

    /// Returns the entries of a page and one more, until their values exceed the limit for one answer.
    pub(crate) fn entries(
        &self,
        namespace: &str,
        bucket: &str,
        query: &KeyValueQuery,
        page: &PageRequest<Key>,
    ) -> Result<Vec<KeyValueItem>> {
        let read = self.database.begin_read()?;
        let (keys, changes) = (read.open_table(KEYS)?, read.open_table(CHANGES)?);
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        let (start, end) = query.bounds(page);
        // No name contains NUL, so nothing sorts between a bucket and the same name with NUL.
        let after = format!("{bucket}\0");
        let start = start.as_ref().map(|key| (namespace, bucket, key.as_str()));
        let end = match &end {
            Bound::Unbounded => Bound::Excluded((namespace, after.as_str(), "")),
            end => end.as_ref().map(|key| (namespace, bucket, key.as_str())),
        };
        if let (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) = (&start, &end)
            && start >= end
        {
            return Ok(Vec::new());
        }
        let mut rows = keys.range((start, end))?;
        let (mut found, mut bytes, at) = (Vec::new(), 0, now());
        while found.len() <= page.limit && bytes <= BATCH_VALUES_BYTES_MAX {
            let row = if query.order == KeyOrder::Descending { rows.next_back() } else { rows.next() };
            let Some(row) = row else { break };
            let (row, _) = row?;
            let key = row.value().2;
            let Some(entry) = entry(&keys, &changes, (namespace, bucket, key), at)? else { continue };
            let item = KeyValueItem::new(Key::new(key)?, entry.revision.in_generation(generation))
                .with_expires_at(entry.expires_at);
            bytes += if query.values { entry.value.len() } else { 0 };
            found.push(item.with_value(query.values.then_some(entry.value)));
        }
        Ok(found)
    }
}

/// Returns which keys exist, or the conflict of the first write whose condition does not hold.
fn evaluate(
    write: &WriteTransaction,
    (namespace, bucket): (&str, &str),
    writes: &[KeyValueWrite],
) -> Result<Vec<bool>> {
    let (keys, changes) = (write.open_table(KEYS)?, write.open_table(CHANGES)?);
    let generation = generation(&write.open_table(GENERATIONS)?, (namespace, bucket))?;
    let (mut exists, now) = (Vec::with_capacity(writes.len()), now());
    for (index, write) in writes.iter().enumerate() {
        let current = entry(&keys, &changes, (namespace, bucket, write.key.as_str()), now)?;
        let current = current.map(|entry| entry.revision.in_generation(generation));
        let is_at = |at: Revision| current.is_some_and(|current| at.names(current));
        let holds = match &write.kind {
            KeyValueWriteKind::Put { options, .. } => match options.condition {
                KeyValueCondition::Absent => current.is_none(),
                KeyValueCondition::AtRevision(at) => is_at(at),
                _ => true,
            },
            KeyValueWriteKind::Delete { at } => at.is_none_or(is_at),
            _ => return Err(Error::unknown_value("key_value.write", "writes.kind").into()),
        };
        if !holds {
            return Err(KeyValueWrite::conflict(index).into());
        }
        exists.push(current.is_some());
    }
    Ok(exists)
}
