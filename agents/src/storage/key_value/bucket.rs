//! The state of one bucket.

mod batch;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use larder_kernel::check::size;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{
    BucketName, Error, ErrorKind, Generation, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValueEvent, KeyValueEventKind, KeyValuePutOptions, Result, Revision,
};

use crate::storage::backend::{MemoryBackend, deadline_ms, timestamp};
use crate::storage::sharded_map::{LogPage, Record};

/// The quota shares of a bucket and a change, apart from their content.
const BUCKET_SHARE_BYTES: u64 = 512;
const CHANGE_SHARE_BYTES: u64 = 256;
/// The time for which the value of an expired put is kept, so that an active watcher can still read it.
const EXPIRED_KEPT_MS: i64 = 60_000;
/// The largest number of changes that a watcher reads in one step.
const CHANGES_PAGE_MAX: usize = 256;

pub(super) struct Bucket {
    generation: Generation,
    revision: u64,
    /// The existing keys, with the revision of their value.
    keys: BTreeMap<Key, u64>,
    /// The deleted and expired keys, with the revision of their last change.
    gone: HashMap<Key, u64>,
    /// The last change of every key that exists or is remembered.
    changes: BTreeMap<u64, Change>,
    deletions: BTreeSet<u64>,
    /// The expired puts. They remain changes, because watchers may not have seen them.
    expired: BTreeSet<u64>,
    /// The expiries of existing keys, by time and revision.
    expiries: BTreeSet<(i64, u64)>,
    /// The expired puts that still have their value, with the time at which it is dropped, in that order.
    fading: VecDeque<(i64, u64)>,
    /// The largest revision of a change that was dropped.
    forgotten: u64,
    /// The bucket's share of the quota.
    held: u64,
}

struct Change {
    key: Key,
    kind: ChangeKind,
}

enum ChangeKind {
    Put { value: Bytes, expires_at_ms: Option<i64> },
    Deleted,
}

/// The progress of a watch.
pub(super) struct Progress {
    cursor: u64,
    /// `true` if the watch began at revision 0 and has delivered nothing yet. Its reader has seen no key, so
    /// it needs no dropped change.
    from_start: bool,
    /// The largest dropped revision that the watch may miss, because it was dropped before the watch
    /// delivered anything.
    excused: u64,
}

impl Progress {
    pub(super) fn after(revision: Revision) -> Self {
        Self {
            cursor: revision.get(),
            from_start: revision == Revision::ZERO && revision.generation().is_none(),
            excused: 0,
        }
    }

    /// Continues with the bucket that follows an erased one. Only a watch that would miss nothing may do so.
    pub(super) fn outlive_erasure(&mut self) -> Result<()> {
        if !self.from_start {
            return Err(Error::erased("key_value.watch"));
        }
        *self = Self::after(Revision::ZERO);
        Ok(())
    }
}

impl Bucket {
    pub(super) fn new(operation: &'static str, backend: &MemoryBackend, name: &BucketName) -> Result<Self> {
        let held = BUCKET_SHARE_BYTES + size(name.as_str().len());
        backend.try_reserve(operation, held)?;
        Ok(Self {
            generation: Generation::draw(),
            revision: 0,
            keys: BTreeMap::new(),
            gone: HashMap::new(),
            changes: BTreeMap::new(),
            deletions: BTreeSet::new(),
            expired: BTreeSet::new(),
            expiries: BTreeSet::new(),
            fading: VecDeque::new(),
            forgotten: 0,
            held,
        })
    }

    fn at(&self, revision: u64) -> Revision {
        Revision::new(revision).in_generation(self.generation)
    }

    /// Returns the last revision; 0 if the bucket was never written.
    pub(super) fn last(&self) -> Revision {
        if self.revision == 0 { Revision::ZERO } else { self.at(self.revision) }
    }

    /// Returns the revision of an existing key.
    fn revision_of(&self, key: &Key) -> Option<Revision> {
        self.keys.get(key).map(|revision| self.at(*revision))
    }

    /// Returns the number of existing keys.
    pub(super) fn len(&self) -> u64 {
        size(self.keys.len())
    }

    pub(super) fn put(
        &mut self,
        backend: &MemoryBackend,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
        now_ms: i64,
    ) -> Result<Revision> {
        const OPERATION: &str = "key_value.put";
        if !self.holds(OPERATION, key, options.condition)? {
            return Err(match options.condition {
                KeyValueCondition::Absent => Error::new(
                    ErrorKind::Conflict,
                    OPERATION,
                    "the key already exists; read it or write without the condition",
                ),
                _ => at_another_revision(OPERATION),
            });
        }
        let change = Change::put(key.clone(), value, options, now_ms);
        let (freed, needed) = (self.last_change(key).map_or(0, Change::share), change.share());
        backend.exchange(OPERATION, freed, needed)?;
        self.held = self.held + needed - freed;
        Ok(self.replace(change))
    }

    /// Returns `true` if the condition of a put holds.
    fn holds(&self, operation: &'static str, key: &Key, condition: KeyValueCondition) -> Result<bool> {
        match condition {
            KeyValueCondition::None => Ok(true),
            KeyValueCondition::Absent => Ok(self.revision_of(key).is_none()),
            KeyValueCondition::AtRevision(at) => Ok(self.is_at(key, at)),
            _ => Err(Error::unknown_value(operation, "condition")),
        }
    }

    /// Returns `true` if the key exists and is at this revision.
    fn is_at(&self, key: &Key, at: Revision) -> bool {
        self.revision_of(key).is_some_and(|there| at.names(there))
    }

    /// Gives a change the next revision, and replaces the last change of its key.
    fn replace(&mut self, change: Change) -> Revision {
        self.drop_change(&change.key);
        self.revision += 1;
        match &change.kind {
            ChangeKind::Put { expires_at_ms, .. } => {
                self.keys.insert(change.key.clone(), self.revision);
                self.expiries.extend(expires_at_ms.map(|at| (at, self.revision)));
            }
            ChangeKind::Deleted => {
                self.gone.insert(change.key.clone(), self.revision);
                self.deletions.insert(self.revision);
            }
        }
        self.changes.insert(self.revision, change);
        self.at(self.revision)
    }

    pub(super) fn get(&self, key: &Key) -> Option<KeyValueEntry> {
        let revision = *self.keys.get(key)?;
        let ChangeKind::Put { value, expires_at_ms } = &self.changes.get(&revision)?.kind else {
            return None;
        };
        Some(
            KeyValueEntry::new(value.clone(), self.at(revision))
                .with_expires_at(expires_at_ms.map(timestamp)),
        )
    }

    pub(super) fn delete(
        &mut self,
        backend: &MemoryBackend,
        key: &Key,
        at: Option<Revision>,
    ) -> Result<bool> {
        if at.is_some_and(|at| !self.is_at(key, at)) {
            return Err(at_another_revision("key_value.delete"));
        }
        if !self.keys.contains_key(key) {
            return Ok(false);
        }
        let freed = self.last_change(key).map_or(0, Change::share);
        self.release(backend, freed);
        let change = Change { key: key.clone(), kind: ChangeKind::Deleted };
        backend.count(change.share());
        self.held += change.share();
        self.replace(change);
        self.forget_deletions(backend);
        Ok(true)
    }

    /// Drops the oldest deletions beyond the limit.
    fn forget_deletions(&mut self, backend: &MemoryBackend) {
        while self.deletions.len() > BUCKET_TOMBSTONES_MAX {
            let oldest = self.deletions.pop_first();
            self.forget(backend, oldest);
        }
    }

    /// Returns up to `limit` keys with the prefix, after a key.
    pub(super) fn list(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Vec<KeyRevision>> {
        let first = if prefix.is_empty() { None } else { Some(Key::new(prefix)?) };
        let start = match (&first, after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let keys = self.keys.range::<Key, _>((start, Bound::Unbounded));
        let keys = keys.take_while(|(key, _)| key.as_str().starts_with(prefix)).take(limit);
        Ok(keys.map(|(key, at)| KeyRevision::new(key.clone(), self.at(*at))).collect())
    }

    /// Fails if the watch misses a change that was dropped.
    pub(super) fn check_watch(&self, watch: &mut Progress) -> Result<()> {
        if watch.from_start {
            watch.excused = self.forgotten;
        }
        if watch.cursor >= self.forgotten || watch.excused >= self.forgotten {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "key_value.watch",
            "deletions after that revision are no longer recorded; watch from revision 0",
        ))
    }

    /// Returns the next changes of keys with the prefix, and moves the cursor to the last one examined.
    pub(super) fn changes_after(&self, prefix: &str, watch: &mut Progress) -> Result<LogPage<KeyValueEvent>> {
        self.check_watch(watch)?;
        let mut events = Vec::new();
        let mut looked_at = 0;
        for (revision, change) in self.changes.range((Bound::Excluded(watch.cursor), Bound::Unbounded)) {
            looked_at += 1;
            watch.cursor = *revision;
            if change.key.as_str().starts_with(prefix) {
                watch.from_start = false;
                events.push(change.event(self.at(*revision), self.expired.contains(revision)));
            }
            if looked_at == CHANGES_PAGE_MAX {
                return Ok(LogPage { events, more: true });
            }
        }
        // The watch has also seen overwritten changes, up to the last assigned revision.
        watch.cursor = watch.cursor.max(self.revision);
        Ok(LogPage { events, more: false })
    }

    /// Returns the last change of a key that exists or is remembered.
    fn last_change(&self, key: &Key) -> Option<&Change> {
        self.changes.get(self.keys.get(key).or_else(|| self.gone.get(key))?)
    }

    /// Removes the last change of a key, because a new one follows.
    fn drop_change(&mut self, key: &Key) {
        let Some(revision) = self.keys.remove(key).or_else(|| self.gone.remove(key)) else { return };
        self.deletions.remove(&revision);
        self.expired.remove(&revision);
        if let Some(Change { kind: ChangeKind::Put { expires_at_ms: Some(at), .. }, .. }) =
            self.changes.remove(&revision)
        {
            self.expiries.remove(&(at, revision));
        }
    }

    fn forget(&mut self, backend: &MemoryBackend, revision: Option<u64>) {
        let Some(revision) = revision else { return };
        self.forgotten = self.forgotten.max(revision);
        if let Some(change) = self.changes.remove(&revision) {
            self.gone.remove(&change.key);
            self.release(backend, change.share());
        }
    }

    /// Drops the value of an expired put. Watchers see it as a deletion from then on.
    fn drop_value(&mut self, backend: &MemoryBackend, revision: u64) {
        if let Some(change) = self.changes.get_mut(&revision).filter(|_| self.expired.contains(&revision)) {
            let before = change.share();
            change.kind = ChangeKind::Deleted;
            let freed = before - change.share();
            self.release(backend, freed);
        }
    }

    fn release(&mut self, backend: &MemoryBackend, bytes: u64) {
        backend.release(bytes);
        self.held -= bytes;
    }
}

impl Record for Bucket {
    fn is_unused(&self) -> bool {
        self.revision == 0
    }

    fn held(&self) -> u64 {
        self.held
    }

    /// Removes the keys that have expired, and their values some time later. Every access calls this first.
    fn expire(&mut self, backend: &MemoryBackend, now_ms: i64) {
        while let Some(&(expires_at_ms, revision)) = self.expiries.first() {
            if expires_at_ms > now_ms {
                break;
            }
            self.expiries.pop_first();
            if let Some(change) = self.changes.get(&revision) {
                self.keys.remove(&change.key);
                self.gone.insert(change.key.clone(), revision);
                self.expired.insert(revision);
                self.fading.push_back((expires_at_ms + EXPIRED_KEPT_MS, revision));
            }
        }
        while let Some(&(ends_at_ms, revision)) = self.fading.front() {
            if ends_at_ms > now_ms {
                break;
            }
            self.fading.pop_front();
            self.drop_value(backend, revision);
        }
        while self.expired.len() > BUCKET_TOMBSTONES_MAX {
            let oldest = self.expired.pop_first();
            self.forget(backend, oldest);
        }
    }

    fn expires_at_ms(&self) -> Option<i64> {
        let key = self.expiries.first().map(|(expires_at_ms, _)| *expires_at_ms);
        let value = self.fading.front().map(|(ends_at_ms, _)| *ends_at_ms);
        key.into_iter().chain(value).min()
    }
}

pub(super) fn at_another_revision(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        operation,
        "the key is absent or at another revision; read it and try again",
    )
}

impl Change {
    fn put(key: Key, value: Bytes, options: KeyValuePutOptions, now_ms: i64) -> Self {
        let expires_at_ms = options.ttl.map(|ttl| deadline_ms(now_ms, ttl));
        Self { key, kind: ChangeKind::Put { value, expires_at_ms } }
    }

    fn share(&self) -> u64 {
        let value_bytes = match &self.kind {
            ChangeKind::Put { value, .. } => value.len(),
            ChangeKind::Deleted => 0,
        };
        CHANGE_SHARE_BYTES + size(self.key.as_str().len()) + size(value_bytes)
    }

    /// Returns the event of the change. That of an expired put is a deletion.
    fn event(&self, revision: Revision, expired: bool) -> KeyValueEvent {
        let kind = match &self.kind {
            ChangeKind::Put { value, expires_at_ms } if !expired => {
                KeyValueEventKind::Put { value: value.clone(), expires_at: expires_at_ms.map(timestamp) }
            }
            _ => KeyValueEventKind::Deleted,
        };
        KeyValueEvent::new(self.key.clone(), revision, kind)
    }
}
