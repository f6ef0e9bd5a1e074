//! Key-value stores that are wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryKeyValueStore;
use larder_kernel::limits::{BUCKET_TOMBSTONES_MAX, VALUE_BYTES_MAX};
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValueEvent, KeyValueEventKind, KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery,
    KeyValueStore, KeyValueWrite, Namespace, Page, PageRequest, PrefixDeletion, Result, Revision, Store,
    Timestamp,
};

use super::serve::{SharedState, asleep, lock, serve};
use crate::harness::{Harness, StoreSet};

defects! { KeyValue;
    deleting_takes_longer_keys_too: DeletesPrefix => ["KV-027"],
    expired_values_are_read: ExpiredRead => ["KV-011"],
    values_over_64_kib_are_cut: LargeValuesCut => ["KV-001"],
    putting_at_a_revision_loses_updates: LostUpdates => ["KV-006", "KV-007", "KV-009"],
    creating_overwrites: CreatingOverwrites => ["KV-004", "KV-008"],
    a_lost_creation_has_another_error: LostCreationExists => ["KV-004", "KV-008"],
    a_put_keeps_the_time_to_live: TtlKept => ["KV-012"],
    a_declared_option_is_ignored: TtlIgnored => ["STORE-015", "KV-011"],
    an_absent_key_is_an_error: AbsentIsAnError => ["KV-021"],
    deleting_at_a_revision_deletes_any: DeletesAnyRevision => ["KV-025"],
    a_prefix_is_a_pattern: PrefixIsPattern => ["KV-034"],
    a_prefix_ignores_case: PrefixIgnoresCase => ["KV-030"],
    a_page_begins_with_its_cursor: PageRepeatsCursor => ["KV-032"],
    emptied_buckets_stay_listed: EmptiedBucketsListed => ["KV-035"],
    a_watch_hides_deletions: WatchHidesDeletions => ["KV-041", "KV-045"],
    a_watch_reports_every_key: WatchIgnoresPrefix => ["KV-044"],
    values_over_64_kib_are_dropped: LargeValuesDropped => ["KV-001"],
    a_watch_skips_every_third_change: SkipsThirdChange => ["KV-042", "KV-045"],
    expired_keys_are_listed: ExpiredListed => ["KV-033"],
    a_watch_that_looks_late_is_refused: LateWatchRefused => ["KV-047"],
    every_watch_ends_with_an_erasure: EveryWatchErased => ["KV-047"],
    a_watch_sleeps_over_an_erasure: SleepsOverErasure => ["KV-048"],
    deleting_reaches_other_namespaces: DeletesEverywhere => ["STORE-001"],
    a_key_is_in_every_bucket: BucketsIgnored => ["KV-010"],
    a_deletion_is_answered_as_absent: DeletionDenied => ["KV-023"],
    keys_are_listed_in_reverse: ListedInReverse => ["KV-031"],
    revisions_name_no_generation: GenerationUnnamed => ["KV-049"],
    the_generation_of_a_revision_is_ignored: GenerationIgnored => ["KV-050", "KV-051", "KV-052"],
}

/// The expired and emptied data, which the inner store forgets.
#[derive(Default)]
struct Memory {
    values: Mutex<BTreeMap<(Namespace, BucketName, Key), KeyValueEntry>>,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    let memory = Arc::new(Memory::default());
    serve(defect.opening(), move |shared, namespace, _| {
        let inner = InMemoryKeyValueStore::open(&shared.place, namespace);
        let wrong = Wrong { inner, defect, shared, memory: Arc::clone(&memory) };
        StoreSet::default().with_key_value(Arc::new(wrong))
    })
}

struct Wrong {
    inner: InMemoryKeyValueStore,
    defect: Defect,
    shared: SharedState,
    memory: Arc<Memory>,
}

forward_store!(Wrong, InMemoryKeyValueStore);

impl Wrong {
    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.list_buckets(PageRequest::first(1)).await?.items.is_empty())
    }

    fn bucket(&self, bucket: &BucketName) -> Result<BucketName> {
        match self.defect {
            Defect::BucketsIgnored => BucketName::new("one"),
            _ => BucketName::new(self.kept(bucket.as_str())),
        }
    }

    fn key(&self, key: &Key) -> Result<Key> {
        Key::new(self.kept(key.as_str()))
    }

    /// Writes a value in two steps. A dropped call leaves it half done.
    async fn put_in_part(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        let half = value.slice(..value.len() / 2);
        let first = self.inner.put(bucket, key, half, options).await?;
        tokio::task::yield_now().await;
        let rest = options.with_condition(KeyValueCondition::AtRevision(first));
        self.inner.put(bucket, key, value, rest).await
    }

    fn place_of(&self, bucket: &BucketName, key: &Key) -> (Namespace, BucketName, Key) {
        (self.inner.namespace().clone(), bucket.clone(), key.clone())
    }

    /// Returns the existing keys with the prefix and the expired ones.
    async fn list_expired(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: &PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        let mut all: BTreeMap<Key, Revision> = lock(&self.memory.values)
            .iter()
            .filter(|((space, other, _), _)| space == self.inner.namespace() && other == bucket)
            .map(|((_, _, key), entry)| (key.clone(), entry.revision))
            .collect();
        all.extend(self.keys(bucket).await?.into_iter().map(|item| (item.key, item.revision)));
        let wanted = |key: &Key| {
            key.as_str().starts_with(prefix) && page.after.as_ref().is_none_or(|after| key > after)
        };
        let found = all.into_iter().filter(|(key, _)| wanted(key));
        let found =
            found.map(|(key, revision)| KeyRevision::new(key, revision)).take(page.limit.saturating_add(1));
        Ok(Page::from_surplus(found.collect(), page.limit, |item| item.key.clone()))
    }

    /// Returns all keys of a bucket.
    async fn keys(&self, bucket: &BucketName) -> Result<Vec<KeyRevision>> {
        Ok(self.inner.list(bucket, "", PageRequest::default()).await?.items)
    }
}

#[async_trait]
impl KeyValueStore for Wrong {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        mut value: Bytes,
        mut options: KeyValuePutOptions,
    ) -> Result<Revision> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        match (self.defect, options.condition) {
            (Defect::GenerationIgnored, KeyValueCondition::AtRevision(at)) => {
                options.condition = KeyValueCondition::AtRevision(Revision::new(at.get()));
            }
            (Defect::LargeValuesCut, _) if value.len() <= VALUE_BYTES_MAX => value.truncate(64 << 10),
            (Defect::LargeValuesDropped, _) if (64 << 10..=VALUE_BYTES_MAX).contains(&value.len()) => {
                return Ok(Revision::new(1));
            }
            (Defect::TtlIgnored, _) => options.ttl = None,
            (Defect::WrittenInPart, KeyValueCondition::None) => {
                return self.put_in_part(&bucket, &key, value, options).await;
            }
            (Defect::RefusalLeavesTrace, _) if value.len() > VALUE_BYTES_MAX => {
                self.inner.delete(&bucket, &key, None).await?;
            }
            (Defect::CreatingOverwrites, KeyValueCondition::Absent) => {
                options.condition = KeyValueCondition::None;
            }
            (Defect::LostUpdates, KeyValueCondition::AtRevision(_)) => {
                // Every store that checks first and then writes waits in between.
                tokio::task::yield_now().await;
                options.condition = KeyValueCondition::None;
            }
            (Defect::TtlKept, _) if options.ttl.is_none() => {
                let there = self.inner.get(&bucket, &key).await?;
                let left = there.and_then(|entry| entry.expires_at).map(|at| {
                    let micros = at.as_micros() - Timestamp::now().as_micros();
                    Duration::from_micros(u64::try_from(micros).unwrap_or(0).max(1_000))
                });
                options.ttl = left;
            }
            _ => {}
        }
        let revision = match self.inner.put(&bucket, &key, value, options).await {
            Err(error)
                if self.defect == Defect::LostCreationExists
                    && options.condition == KeyValueCondition::Absent
                    && error.kind() == ErrorKind::Conflict =>
            {
                Err(Error::new(
                    ErrorKind::AlreadyExists,
                    "key_value.put",
                    "the key already exists; read it or write without the condition",
                ))
            }
            revision => revision,
        };
        let mut revision = self.quoting(revision, key.as_str())?;
        if self.defect == Defect::GenerationUnnamed {
            revision = Revision::new(revision.get());
        }
        if let (Defect::ExpiredRead | Defect::ExpiredListed | Defect::EmptiedBucketsListed, Some(entry)) =
            (self.defect, self.inner.get(&bucket, &key).await?)
        {
            lock(&self.memory.values).insert(self.place_of(&bucket, &key), entry);
        }
        Ok(revision)
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        let found = self.inner.get(&bucket, &key).await?;
        match (self.defect, &found) {
            (Defect::ExpiredRead, None) => {
                Ok(lock(&self.memory.values).get(&self.place_of(&bucket, &key)).cloned())
            }
            (Defect::AbsentIsAnError, None) => {
                Err(Error::new(ErrorKind::NotFound, "key_value.get", "no such key"))
            }
            _ => Ok(found),
        }
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, mut at: Option<Revision>) -> Result<bool> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        match self.defect {
            Defect::DeletesPrefix => {
                let longer = self.inner.list(&bucket, key.as_str(), PageRequest::default()).await?;
                for item in longer.items.into_iter().filter(|item| item.key != key) {
                    self.inner.delete(&bucket, &item.key, None).await?;
                }
            }
            Defect::DeletesAnyRevision => at = None,
            Defect::GenerationIgnored => at = at.map(|at| Revision::new(at.get())),
            Defect::DeletesEverywhere => {
                for name in self.shared.alike(self.inner.namespace()) {
                    InMemoryKeyValueStore::open(&self.shared.place, name).delete(&bucket, &key, None).await?;
                }
            }
            Defect::ExpiredRead | Defect::ExpiredListed => {
                lock(&self.memory.values).remove(&self.place_of(&bucket, &key));
            }
            _ => {}
        }
        let there = self.inner.delete(&bucket, &key, at).await?;
        Ok(there && self.defect != Defect::DeletionDenied)
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        let keys = keys.iter().map(|key| self.key(key)).collect::<Result<Vec<Key>>>()?;
        self.inner.get_many(&self.bucket(bucket)?, &keys).await
    }

    async fn write(
        &self,
        bucket: &BucketName,
        mut writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        for write in &mut writes {
            write.key = self.key(&write.key)?;
        }
        let mut revisions = self.inner.write(&self.bucket(bucket)?, writes).await?;
        if self.defect == Defect::GenerationUnnamed {
            revisions.iter_mut().flatten().for_each(|revision| *revision = Revision::new(revision.get()));
        }
        Ok(revisions)
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        self.inner.delete_prefix(&self.bucket(bucket)?, prefix).await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        self.inner.list_entries(&self.bucket(bucket)?, query, page).await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        let bucket = self.bucket(bucket)?;
        let wanted: Box<dyn Fn(&Key) -> bool + Send + Sync> = match self.defect {
            Defect::PrefixIsPattern if prefix.contains(['%', '_']) => {
                Box::new(|key| matches_like(prefix, key))
            }
            Defect::PrefixIgnoresCase if !prefix.is_empty() => {
                Box::new(|key| key.as_str().to_lowercase().starts_with(&prefix.to_lowercase()))
            }
            Defect::PageRepeatsCursor if page.after.is_some() && page.limit > 0 => {
                Box::new(|key| key.as_str().starts_with(prefix) && Some(key) >= page.after.as_ref())
            }
            Defect::ExpiredListed => return self.list_expired(&bucket, prefix, &page).await,
            Defect::ListedInReverse => {
                let mut listed = self.inner.list(&bucket, prefix, page).await?;
                listed.items.reverse();
                return Ok(listed);
            }
            _ => return self.inner.list(&bucket, prefix, page).await,
        };
        let repeats = self.defect == Defect::PageRepeatsCursor;
        let after = |key: &Key| repeats || page.after.as_ref().is_none_or(|after| key > after);
        let keys = self.keys(&bucket).await?;
        let found = keys.into_iter().filter(|item| wanted(&item.key) && after(&item.key));
        // A page with only the cursor's key would never end the listing.
        let limit = if repeats { page.limit.max(2) } else { page.limit };
        Ok(Page::from_surplus(found.take(limit.saturating_add(1)).collect(), limit, |item| item.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        let mut listed = self.inner.list_buckets(page.clone()).await?;
        if self.defect == Defect::EmptiedBucketsListed && page.after.is_none() && listed.next.is_none() {
            let memory = lock(&self.memory.values);
            for (_, bucket, _) in memory.keys().filter(|(space, _, _)| space == self.inner.namespace()) {
                if !listed.items.iter().any(|info| info.bucket == *bucket) {
                    listed.items.push(BucketInfo::new(bucket.clone(), 0));
                }
            }
            listed.items.sort_by(|left, right| left.bucket.cmp(&right.bucket));
        }
        Ok(listed)
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        let bucket = self.bucket(bucket)?;
        let prefix = if self.defect == Defect::WatchIgnoresPrefix { "" } else { prefix };
        let after = if self.defect == Defect::GenerationIgnored { Revision::new(after.get()) } else { after };
        let events = self.inner.watch(&bucket, prefix, after).await?;
        let refused_late = self.defect == Defect::LateWatchRefused
            && after == Revision::ZERO
            && self.inner.list(&bucket, prefix, PageRequest::first(1)).await?.items.is_empty();
        Ok(match self.defect {
            Defect::LateWatchRefused if refused_late => events.map(not_past_the_log).boxed(),
            Defect::WatchHidesDeletions => {
                events.try_filter(|event| future::ready(event.kind != KeyValueEventKind::Deleted)).boxed()
            }
            Defect::EveryWatchErased => self.shared.until_erased("key_value.watch", events),
            Defect::SleepsOverErasure => asleep(events),
            Defect::SkipsThirdChange => {
                events.try_filter(|event| future::ready(event.revision.get() % 3 != 0)).boxed()
            }
            _ => events,
        })
    }
}

/// Returns the event, unless the deletions may have been forgotten by then.
fn not_past_the_log(event: Result<KeyValueEvent>) -> Result<KeyValueEvent> {
    let event = event?;
    if usize::try_from(event.revision.get()).is_ok_and(|revision| revision <= BUCKET_TOMBSTONES_MAX) {
        return Ok(event);
    }
    Err(Error::new(ErrorKind::Conflict, "key_value.watch", "changes were forgotten"))
}

/// Matches like `LIKE prefix%` without escaping.
fn matches_like(prefix: &str, key: &Key) -> bool {
    fn like(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => true,
            (Some((b'%', rest)), _) => (0..=text.len()).any(|skip| like(rest, &text[skip..])),
            (Some((b'_', rest)), Some((_, tail))) => like(rest, tail),
            (Some((byte, rest)), Some((head, tail))) => byte == head && like(rest, tail),
            (Some(_), None) => false,
        }
    }
    like(prefix.as_bytes(), key.as_str().as_bytes())
}
