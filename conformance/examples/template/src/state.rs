//! The state of a namespace. Replace it with your backend's files, tables or server.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::task::Waker;

use larder_conformance::bytes::Bytes;
use larder_conformance::kernel::limits::BATCH_KEYS_MAX;
use larder_conformance::kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Generation, Key, KeyOrder, KeyRevision, KeyValueCondition,
    KeyValueEntry, KeyValueEvent, KeyValueEventKind, KeyValueItem, KeyValuePutOptions, KeyValueQuery,
    KeyValueWrite, KeyValueWriteKind, PageRequest, PrefixDeletion, Result, Revision, Timestamp,
};

/// One namespace: its buckets, and the watchers that wait for changes.
#[derive(Default)]
pub(crate) struct State {
    buckets: BTreeMap<BucketName, Bucket>,
    pub(crate) waiting: Vec<Waker>,
}

/// The last change of each key, including deletions, for watchers that start later.
#[derive(Default)]
struct Bucket {
    /// Drawn with the first change. Every revision names it, so that none from before an erasure fits
    /// (KV-049).
    generation: Option<Generation>,
    revision: u64,
    keys: BTreeMap<Key, u64>,
    changes: BTreeMap<u64, KeyValueEvent>,
}

impl Bucket {
    /// Returns the value of a key, if it exists and has not expired at an instant. A call that reads several
    /// keys reads the clock once (KV-054).
    fn get_at(&self, key: &Key, now: Timestamp) -> Option<KeyValueEntry> {
        let change = self.changes.get(self.keys.get(key)?)?;
        let KeyValueEventKind::Put { value, expires_at } = &change.kind else { return None };
        if expires_at.is_some_and(|at| at <= now) {
            return None;
        }
        Some(KeyValueEntry::new(value.clone(), change.revision).with_expires_at(*expires_at))
    }

    /// Returns the last revision; 0 before the first change.
    fn last(&self) -> Revision {
        Revision::new(self.revision).in_generation(self.generation)
    }

    /// Makes a change under the bucket's next revision.
    fn change(&mut self, key: &Key, kind: KeyValueEventKind) -> Revision {
        self.generation.get_or_insert_with(Generation::draw);
        self.revision += 1;
        let revision = self.last();
        if let Some(last) = self.keys.insert(key.clone(), self.revision) {
            self.changes.remove(&last);
        }
        self.changes.insert(self.revision, KeyValueEvent::new(key.clone(), revision, kind));
        revision
    }
}

impl State {
    pub(crate) fn put(
        &mut self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        const OPERATION: &str = "key_value.put";
        if !self.holds(bucket, key, options.condition) {
            return Err(match options.condition {
                KeyValueCondition::Absent => Error::new(
                    ErrorKind::Conflict,
                    OPERATION,
                    "the key already exists; read it or write without the condition",
                ),
                _ => at_another_revision(OPERATION),
            });
        }
        Ok(self.set(bucket, key, value, options, now()))
    }

    /// Sets a value whose time to live begins at an instant.
    fn set(
        &mut self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
        now: Timestamp,
    ) -> Revision {
        let expires_at = options.ttl.map(|ttl| now.saturating_add(ttl));
        let bucket = self.buckets.entry(bucket.clone()).or_default();
        let revision = bucket.change(key, KeyValueEventKind::Put { value, expires_at });
        self.wake();
        revision
    }

    /// Returns `true` if the condition of a put holds.
    fn holds(&self, bucket: &BucketName, key: &Key, condition: KeyValueCondition) -> bool {
        let there = self.get(bucket, key).map(|entry| entry.revision);
        match condition {
            KeyValueCondition::Absent => there.is_none(),
            KeyValueCondition::AtRevision(at) => there.is_some_and(|there| at.names(there)),
            _ => true,
        }
    }

    pub(crate) fn get_many(&self, bucket: &BucketName, keys: &[Key]) -> Vec<Option<KeyValueEntry>> {
        let (bucket, now) = (self.buckets.get(bucket), now());
        keys.iter().map(|key| bucket?.get_at(key, now)).collect()
    }

    /// Evaluates every condition before the first change (KV-057), and reads the clock once (KV-059).
    pub(crate) fn write(
        &mut self,
        bucket: &BucketName,
        writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        for (index, write) in writes.iter().enumerate() {
            let condition = match write.kind {
                KeyValueWriteKind::Put { options, .. } => options.condition,
                KeyValueWriteKind::Delete { at } => {
                    at.map_or(KeyValueCondition::None, KeyValueCondition::AtRevision)
                }
                _ => return Err(Error::unknown_value("key_value.write", "writes.kind")),
            };
            if !self.holds(bucket, &write.key, condition) {
                return Err(KeyValueWrite::conflict(index));
            }
        }
        let (mut revisions, now) = (Vec::new(), now());
        for KeyValueWrite { key, kind, .. } in writes {
            revisions.push(match kind {
                KeyValueWriteKind::Put { value, options } => {
                    Some(self.set(bucket, &key, value, options, now))
                }
                _ => self.delete(bucket, &key, None)?.then(|| self.last(bucket)),
            });
        }
        Ok(revisions)
    }

    pub(crate) fn delete_prefix(&mut self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        let keys = self.list(bucket, prefix, None, BATCH_KEYS_MAX + 1);
        for item in keys.iter().take(BATCH_KEYS_MAX) {
            self.delete(bucket, &item.key, None)?;
        }
        let deleted = keys.len().min(BATCH_KEYS_MAX).try_into().unwrap_or(u64::MAX);
        Ok(PrefixDeletion::new(deleted, keys.len() > BATCH_KEYS_MAX))
    }

    /// Returns the entries of a page and one more.
    pub(crate) fn entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: &PageRequest<Key>,
    ) -> Vec<KeyValueItem> {
        let Some(bucket) = self.buckets.get(bucket) else { return Vec::new() };
        let descending = query.order == KeyOrder::Descending;
        let follows = |key: &Key| match &page.after {
            Some(after) if descending => key < after,
            Some(after) => key > after,
            None => true,
        };
        let keys: Vec<&Key> = bucket.keys.keys().filter(|key| query.selects(key) && follows(key)).collect();
        let ordered: Box<dyn Iterator<Item = &Key>> =
            if descending { Box::new(keys.into_iter().rev()) } else { Box::new(keys.into_iter()) };
        let now = now();
        let item = |key: &Key| {
            let entry = bucket.get_at(key, now)?;
            let item = KeyValueItem::new(key.clone(), entry.revision).with_expires_at(entry.expires_at);
            Some(item.with_value(query.values.then_some(entry.value)))
        };
        ordered.filter_map(item).take(page.limit.saturating_add(1)).collect()
    }

    pub(crate) fn get(&self, bucket: &BucketName, key: &Key) -> Option<KeyValueEntry> {
        self.buckets.get(bucket)?.get_at(key, now())
    }

    pub(crate) fn delete(&mut self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let there = self.get(bucket, key).map(|entry| entry.revision);
        if at.is_some_and(|at| !there.is_some_and(|there| at.names(there))) {
            return Err(at_another_revision("key_value.delete"));
        }
        if there.is_some()
            && let Some(bucket) = self.buckets.get_mut(bucket)
        {
            bucket.change(key, KeyValueEventKind::Deleted);
            self.wake();
        }
        Ok(there.is_some())
    }

    /// Returns up to `limit` keys that begin with the prefix, after a key.
    pub(crate) fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Vec<KeyRevision> {
        let Some(bucket) = self.buckets.get(bucket) else { return Vec::new() };
        let keys = bucket.keys.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let now = now();
        keys.filter(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, _)| Some(KeyRevision::new(key.clone(), bucket.get_at(key, now)?.revision)))
            .take(limit)
            .collect()
    }

    /// Returns up to `limit` buckets that contain keys, after one.
    pub(crate) fn list_buckets(&self, after: Option<&BucketName>, limit: usize) -> Vec<BucketInfo> {
        let (start, now) = (after.map_or(Bound::Unbounded, Bound::Excluded), now());
        let buckets = self.buckets.range((start, Bound::Unbounded)).map(|(name, bucket)| {
            let keys = bucket.keys.keys().filter(|key| bucket.get_at(key, now).is_some()).count();
            BucketInfo::new(name.clone(), keys.try_into().unwrap_or(u64::MAX))
        });
        buckets.filter(|bucket| bucket.keys > 0).take(limit).collect()
    }

    /// Returns the last revision of a bucket; 0 if it was never written.
    pub(crate) fn last(&self, bucket: &BucketName) -> Revision {
        self.buckets.get(bucket).map_or(Revision::ZERO, Bucket::last)
    }

    /// Returns the first change after a revision to a key with the prefix. A put that has expired is a
    /// deletion (KV-046).
    pub(crate) fn change_after(
        &self,
        bucket: &BucketName,
        prefix: &str,
        after: u64,
    ) -> Option<KeyValueEvent> {
        let changes = &self.buckets.get(bucket)?.changes;
        let mut changes = changes.range((Bound::Excluded(after), Bound::Unbounded));
        let (_, change) = changes.find(|(_, change)| change.key.as_str().starts_with(prefix))?;
        let mut change = change.clone();
        if matches!(change.kind, KeyValueEventKind::Put { expires_at: Some(at), .. } if at <= now()) {
            change.kind = KeyValueEventKind::Deleted;
        }
        Some(change)
    }

    pub(crate) fn erase(&mut self) {
        self.buckets.clear();
        self.wake();
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

/// Returns the current time in milliseconds, the precision of the contract.
fn now() -> Timestamp {
    let micros = Timestamp::now().as_micros();
    Timestamp::from_micros(micros - micros % 1_000).unwrap_or_default()
}

fn at_another_revision(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        operation,
        "the key is absent or at another revision; read it and try again",
    )
}
