//! Faulty key-value stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use larder_agents::InMemoryKeyValueStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, Page,
    PageRequest, PrefixDeletion, Result, Revision,
};

use super::frame::{assert_caught, assert_caught_in, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Compares, waits, and writes.
    LostUpdates,
    /// Checks that the key exists, waits, and writes.
    TwoCreators,
    /// Each handle caches its reads, and never sees other handles' writes.
    CachePerHandle,
    /// Acknowledges a write before it is visible.
    AnswersEarly,
    /// Compares the revision of a deletion, waits, and deletes.
    DeletesLater,
    /// Fails with `Unexpected` instead of `Conflict`.
    ConflictUnexpected,
    /// A read sometimes never ends.
    Hangs,
    /// A write panics if another write was faster.
    Panics,
    /// Writes several keys one after the other.
    WritesOneByOne,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let inner = Arc::new(InMemoryKeyValueStore::open(place, namespace));
        let wrong = Wrong { inner, defect, cache: Mutex::default() };
        StoreSet::default().with_key_value(Arc::new(wrong))
    })
}

#[derive(Debug)]
struct Wrong {
    inner: Arc<InMemoryKeyValueStore>,
    defect: Defect,
    cache: Mutex<BTreeMap<Key, Option<KeyValueEntry>>>,
}

impl Wrong {
    async fn revision(&self, bucket: &BucketName, key: &Key) -> Result<Option<Revision>> {
        Ok(self.inner.get(bucket, key).await?.map(|entry| entry.revision))
    }
}

fn conflict() -> Error {
    Error::new(ErrorKind::Conflict, "key_value.put", "another revision")
}

wrong! {
    KeyValueStore for Wrong {
        async fn put(
            &self,
            bucket: &BucketName,
            key: &Key,
            value: Bytes,
            mut options: KeyValuePutOptions,
        ) -> Result<Revision> {
            self.cache.lock().unwrap().remove(key);
            match (self.defect, options.condition) {
                (Defect::LostUpdates, KeyValueCondition::AtRevision(at)) => {
                    if self.revision(bucket, key).await? != Some(at) {
                        return Err(conflict());
                    }
                    pause().await;
                    options.condition = KeyValueCondition::None;
                }
                (Defect::TwoCreators, KeyValueCondition::Absent) => {
                    if self.revision(bucket, key).await?.is_some() {
                        return Err(Error::new(ErrorKind::Conflict, "key_value.put", "the key already exists; \
                            read it or write without the condition"));
                    }
                    pause().await;
                    options.condition = KeyValueCondition::None;
                }
                (Defect::AnswersEarly, KeyValueCondition::None) => {
                    let before = self.inner.put(bucket, &Key::new("other")?, Bytes::new(), options).await?;
                    let (inner, bucket, key) = (Arc::clone(&self.inner), bucket.clone(), key.clone());
                    tokio::spawn(async move {
                        pause().await;
                        inner.put(&bucket, &key, value, options).await
                    });
                    return Ok(Revision::new(before.get() + 1));
                }
                _ => {}
            }
            let put = self.inner.put(bucket, key, value, options).await;
            let conflict = put.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
            if self.defect == Defect::Panics && conflict {
                panic!("an unexpected conflict");
            }
            if self.defect == Defect::ConflictUnexpected {
                return put.map_err(|error| match error.kind() {
                    ErrorKind::Conflict => {
                        Error::new(ErrorKind::Unexpected, "key_value.put", "serialization")
                    }
                    _ => error,
                });
            }
            put
        }

        async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
            if self.defect == Defect::CachePerHandle
                && let Some(known) = self.cache.lock().unwrap().get(key)
            {
                return Ok(known.clone());
            }
            let found = self.inner.get(bucket, key).await?;
            let seventh = found.as_ref().is_some_and(|entry| entry.revision.get() % 7 == 0);
            if self.defect == Defect::Hangs && seventh {
                return std::future::pending().await;
            }
            self.cache.lock().unwrap().insert(key.clone(), found.clone());
            Ok(found)
        }

        async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
            self.cache.lock().unwrap().remove(key);
            if let (Defect::DeletesLater, Some(at)) = (self.defect, at) {
                if self.revision(bucket, key).await? != Some(at) {
                    return Err(conflict());
                }
                pause().await;
                self.inner.delete(bucket, key, None).await?;
                return Ok(true);
            }
            self.inner.delete(bucket, key, at).await
        }

        async fn write(
            &self,
            bucket: &BucketName,
            writes: Vec<KeyValueWrite>,
        ) -> Result<Vec<Option<Revision>>> {
            self.cache.lock().unwrap().clear();
            if self.defect != Defect::WritesOneByOne {
                return self.inner.write(bucket, writes).await;
            }
            let mut revisions = Vec::new();
            for write in writes {
                revisions.extend(self.inner.write(bucket, vec![write]).await?);
                pause().await;
            }
            Ok(revisions)
        }
    }
    get_many(bucket: &BucketName, keys: &[Key]) -> Page<Option<KeyValueEntry>, usize>;
    delete_prefix(bucket: &BucketName, prefix: &str) -> PrefixDeletion;
    list(bucket: &BucketName, prefix: &str, page: PageRequest<Key>) -> Page<KeyRevision, Key>;
    list_entries(bucket: &BucketName, query: &KeyValueQuery, page: PageRequest<Key>)
        -> Page<KeyValueItem, Key>;
    list_buckets(page: PageRequest<BucketName>) -> Page<BucketInfo, BucketName>;
    watch(bucket: &BucketName, prefix: &str, after: Revision) -> KeyValueEvents;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn an_update_that_compares_first_and_writes_later_is_caught() {
    assert_caught(&["KV-007", "STORE-002", "KV-005"], &backend(Defect::LostUpdates));
}

#[test]
fn a_creation_that_looks_first_and_writes_later_is_caught() {
    assert_caught(&["KV-008"], &backend(Defect::TwoCreators));
}

#[test]
fn a_cache_for_each_handle_is_caught() {
    assert_caught(&["STORE-002"], &backend(Defect::CachePerHandle));
}

#[test]
fn a_write_acknowledged_before_it_is_visible_is_caught() {
    let clauses =
        ["STORE-002", "KV-002", "KV-004", "KV-005", "KV-007", "KV-008", "KV-023", "KV-024", "KV-025"];
    assert_caught(&clauses, &backend(Defect::AnswersEarly));
}

#[test]
fn a_deletion_that_compares_first_and_deletes_later_is_caught() {
    assert_caught(&["KV-025", "STORE-002", "KV-024"], &backend(Defect::DeletesLater));
}

#[test]
fn a_conflict_that_comes_as_a_defect_is_caught() {
    assert_caught(&["KV-004", "KV-005"], &backend(Defect::ConflictUnexpected));
}

#[test]
fn a_call_that_panics_is_caught() {
    assert_caught(&["KV-004", "KV-005"], &backend(Defect::Panics));
}

#[test]
fn several_keys_that_are_written_one_after_the_other_are_caught() {
    let clauses =
        ["KV-054", "KV-058", "KV-060", "KV-064", "STORE-002", "KV-002", "KV-004", "KV-005", "KV-007"];
    assert_caught(&clauses, &backend(Defect::WritesOneByOne));
}

#[test]
fn a_call_that_never_ends_is_caught_and_ends_the_level_no_later() {
    assert_caught_in(&["STORE-002"], &backend(Defect::Hangs), Duration::from_millis(300));
}
