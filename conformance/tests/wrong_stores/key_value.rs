//! Wrong key-value stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryKeyValueStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    BucketInfo, BucketName, ErrorKind, Key, KeyRevision, KeyValueStore, KvCondition, KvEntry, KvEventKind,
    KvEvents, KvPutOptions, Namespace, Page, PageRequest, Result, Revision, Store, Timestamp,
};

use crate::frame::serve;

sins! { KeyValue;
    deleting_takes_longer_keys_too: DeletesPrefix => ["KV-027"],
    expired_values_are_read: ExpiredRead => ["KV-011"],
    values_over_64_kib_are_cut: LargeValuesCut => ["KV-001"],
    putting_at_a_revision_loses_updates: LostUpdates => ["KV-006", "KV-007", "KV-009"],
    creating_overwrites: CreatingOverwrites => ["KV-004", "KV-008"],
    a_put_keeps_the_time_to_live: TtlKept => ["KV-012"],
    an_absent_key_is_an_error: AbsentIsAnError => ["KV-021"],
    deleting_at_a_revision_deletes_any: DeletesAnyRevision => ["KV-025"],
    a_prefix_is_a_pattern: PrefixIsPattern => ["KV-034"],
    a_prefix_ignores_case: PrefixIgnoresCase => ["KV-030"],
    a_page_begins_with_its_cursor: PageRepeatsCursor => ["KV-032"],
    emptied_buckets_stay_listed: EmptiedBucketsListed => ["KV-035"],
    a_watch_hides_deletions: WatchHidesDeletions => ["KV-041", "KV-045"],
    a_watch_reports_every_key: WatchIgnoresPrefix => ["KV-044"],
    the_debug_form_shows_keys: DebugShowsKeys => ["STORE-012"],
    buckets_are_case_folded: BucketsFolded => ["STORE-003"],
    keys_are_cut_at_40_characters: KeysCut => ["STORE-003"],
}

/// What expired and what was emptied, which the inner store forgets.
#[derive(Debug, Default)]
struct Memory {
    values: Mutex<BTreeMap<(Namespace, BucketName, Key), KvEntry>>,
}

fn backend(sin: Sin) -> Arc<dyn Harness> {
    let memory = Arc::new(Memory::default());
    serve(sin.opening(), move |place, namespace, _| {
        let inner = InMemoryKeyValueStore::open(place, namespace);
        let wrong = Wrong { inner, sin, memory: Arc::clone(&memory) };
        StoreSet { key_value: Some(Arc::new(wrong)), ..StoreSet::default() }
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryKeyValueStore,
    sin: Sin,
    memory: Arc<Memory>,
}

forward_store!(Wrong);

impl Wrong {
    fn bucket(&self, bucket: &BucketName) -> Result<BucketName> {
        match self.sin {
            Sin::BucketsFolded => BucketName::new(bucket.as_str().to_lowercase()),
            _ => Ok(bucket.clone()),
        }
    }

    fn key(&self, key: &Key) -> Result<Key> {
        match self.sin {
            Sin::KeysCut => Key::new(key.as_str().chars().take(40).collect::<String>()),
            _ => Ok(key.clone()),
        }
    }

    fn place_of(&self, bucket: &BucketName, key: &Key) -> (Namespace, BucketName, Key) {
        (self.inner.namespace().clone(), bucket.clone(), key.clone())
    }

    /// All keys of a bucket.
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
        mut options: KvPutOptions,
    ) -> Result<Revision> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        match (self.sin, options.condition) {
            (Sin::LargeValuesCut, _) if value.len() <= 4 << 20 => value.truncate(64 << 10),
            (Sin::CreatingOverwrites, KvCondition::Absent) => options.condition = KvCondition::None,
            (Sin::LostUpdates, KvCondition::AtRevision(_)) => {
                // Every store that checks first and writes then waits in between.
                tokio::task::yield_now().await;
                options.condition = KvCondition::None;
            }
            (Sin::TtlKept, _) if options.ttl.is_none() => {
                let there = self.inner.get(&bucket, &key).await?;
                let left = there.and_then(|entry| entry.expires_at).map(|at| {
                    let micros = at.as_micros() - Timestamp::now().as_micros();
                    Duration::from_micros(u64::try_from(micros).unwrap_or(0).max(1_000))
                });
                options.ttl = left;
            }
            _ => {}
        }
        let revision = self.inner.put(&bucket, &key, value, options).await?;
        if let (Sin::ExpiredRead | Sin::EmptiedBucketsListed | Sin::DebugShowsKeys, Some(entry)) =
            (self.sin, self.inner.get(&bucket, &key).await?)
        {
            self.memory.values.lock().unwrap().insert(self.place_of(&bucket, &key), entry);
        }
        Ok(revision)
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KvEntry>> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        let found = self.inner.get(&bucket, &key).await?;
        match (self.sin, &found) {
            (Sin::ExpiredRead, None) => {
                Ok(self.memory.values.lock().unwrap().get(&self.place_of(&bucket, &key)).cloned())
            }
            (Sin::AbsentIsAnError, None) => {
                Err(larder_kernel::Error::new(ErrorKind::NotFound, "key_value.get", "no such key"))
            }
            _ => Ok(found),
        }
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, mut at: Option<Revision>) -> Result<bool> {
        let (bucket, key) = (self.bucket(bucket)?, self.key(key)?);
        match self.sin {
            Sin::DeletesPrefix => {
                let longer = self.inner.list(&bucket, key.as_str(), PageRequest::default()).await?;
                for item in longer.items.into_iter().filter(|item| item.key != key) {
                    self.inner.delete(&bucket, &item.key, None).await?;
                }
            }
            Sin::DeletesAnyRevision => at = None,
            Sin::ExpiredRead => {
                self.memory.values.lock().unwrap().remove(&self.place_of(&bucket, &key));
            }
            _ => {}
        }
        self.inner.delete(&bucket, &key, at).await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        let bucket = self.bucket(bucket)?;
        let wanted: Box<dyn Fn(&Key) -> bool + Send + Sync> = match self.sin {
            Sin::PrefixIsPattern if prefix.contains(['%', '_']) => Box::new(|key| matches_like(prefix, key)),
            Sin::PrefixIgnoresCase if !prefix.is_empty() => {
                Box::new(|key| key.as_str().to_lowercase().starts_with(&prefix.to_lowercase()))
            }
            Sin::PageRepeatsCursor if page.after.is_some() && page.limit > 0 => {
                Box::new(|key| key.as_str().starts_with(prefix) && Some(key) >= page.after.as_ref())
            }
            _ => return self.inner.list(&bucket, prefix, page).await,
        };
        let repeats = self.sin == Sin::PageRepeatsCursor;
        let after = |key: &Key| repeats || page.after.as_ref().is_none_or(|after| key > after);
        let keys = self.keys(&bucket).await?;
        let found = keys.into_iter().filter(|item| wanted(&item.key) && after(&item.key));
        // A page of the cursor alone would never end the listing.
        let limit = if repeats { page.limit.max(2) } else { page.limit };
        Ok(Page::from_surplus(found.take(limit + 1).collect(), limit, |item| item.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        let mut listed = self.inner.list_buckets(page.clone()).await?;
        if self.sin == Sin::EmptiedBucketsListed && page.after.is_none() && listed.next.is_none() {
            let memory = self.memory.values.lock().unwrap();
            for (_, bucket, _) in memory.keys().filter(|(space, _, _)| space == self.inner.namespace()) {
                if !listed.items.iter().any(|info| info.bucket == *bucket) {
                    listed.items.push(BucketInfo { bucket: bucket.clone(), keys: 0 });
                }
            }
            listed.items.sort_by(|left, right| left.bucket.cmp(&right.bucket));
        }
        Ok(listed)
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KvEvents> {
        let bucket = self.bucket(bucket)?;
        let prefix = if self.sin == Sin::WatchIgnoresPrefix { "" } else { prefix };
        let events = self.inner.watch(&bucket, prefix, after).await?;
        Ok(match self.sin {
            Sin::WatchHidesDeletions => {
                events.try_filter(|event| future::ready(event.kind != KvEventKind::Deleted)).boxed()
            }
            _ => events,
        })
    }
}

/// `LIKE prefix%` without escaping.
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
