//! The model of [`KeyValueStore`].

mod batch;
mod operation;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::storage::key_value::{check_list, check_put};
use larder_kernel::{
    BucketInfo, BucketName, Capabilities, Contract, ErrorKind, Key, KeyRevision, KeyValueCondition,
    KeyValueEntry, KeyValuePutOptions, KeyValueStore, PageRequest, Result, Revision, Timestamp,
};

use self::operation::{At, Operation, Put};
use super::compare::{Checked, Expected, answered, holds, same};
use super::recorder::{Recorder, id, optional, page, quoted};
use super::rng::Rng;
use super::shared::{is_due, page_of};
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of key-value data.
#[derive(Debug, Default)]
pub(super) struct KeyValue {
    buckets: BTreeMap<BucketName, Bucket>,
    /// Counts the changes of all buckets, which orders the changes of each bucket.
    changes: u64,
}

#[derive(Debug, Default)]
struct Bucket {
    keys: BTreeMap<Key, Record>,
    /// The removed keys and their removals: only a watch returns their revision.
    gone: BTreeMap<Key, Gone>,
    /// The revisions that puts returned, in order, each with its change number.
    given: Vec<(Revision, u64)>,
}

#[derive(Debug, Clone)]
struct Record {
    value: Bytes,
    revision: Revision,
    place: u64,
    ttl: Option<Duration>,
    /// The expiry time, after a read has returned it.
    expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Gone {
    place: u64,
    /// The revision, after a watch has returned it.
    revision: Option<Revision>,
}

impl Bucket {
    fn last(&self) -> Revision {
        self.given.last().map_or(Revision::ZERO, |(revision, _)| *revision)
    }

    /// Returns the revision that an operation names.
    fn revision(&self, key: &Key, at: At) -> Revision {
        match at {
            At::Current => self.keys.get(key).map_or(self.last(), |record| record.revision),
            At::Zero => Revision::ZERO,
            At::First => self.given.first().map_or(Revision::ZERO, |(revision, _)| *revision),
            At::Last => self.last(),
            At::Ahead => Revision::new(self.last().get() + 1_000),
            At::Far => Revision::new(u64::MAX),
        }
    }
}

impl KeyValue {
    fn bucket(&self, bucket: &BucketName) -> &Bucket {
        static EMPTY: Bucket = Bucket { keys: BTreeMap::new(), gone: BTreeMap::new(), given: Vec::new() };
        self.buckets.get(bucket).unwrap_or(&EMPTY)
    }

    fn next_place(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    async fn put(&mut self, store: &dyn KeyValueStore, put: &Put, recorder: &mut Recorder) -> Checked {
        let Put { bucket, key, value, condition, ttl } = put;
        let held = self.bucket(bucket);
        let there = held.keys.get(key).map(|record| record.revision);
        let condition = condition.key_value(|at| held.revision(key, at));
        let options = KeyValuePutOptions::default().with_condition(condition).with_ttl(*ttl);
        let expected = match (check_put(value, &options), condition, there) {
            (Err(refusal), ..) => Err(refusal.into()),
            (_, KeyValueCondition::Absent, Some(_)) => Err(ErrorKind::Conflict.into()),
            (_, KeyValueCondition::AtRevision(at), there) if there != Some(at) => {
                Err(ErrorKind::Conflict.into())
            }
            _ => Ok(()),
        };
        let clause = match condition {
            KeyValueCondition::None => "KV-003",
            KeyValueCondition::Absent => "KV-004",
            KeyValueCondition::AtRevision(_) if expected.is_ok() => "KV-005",
            KeyValueCondition::AtRevision(_) => "KV-006",
            _ => unreachable!("the model draws no other condition"),
        };
        recorder.call(clause, |recorder| operation::put_call(recorder, put, condition));
        let got = store.put(bucket, key, value.clone(), options).await;
        let last = held.last();
        let Some(revision) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let greater = || format!("assert!({}.unwrap() > Revision::new({last}));", recorder.answer());
        holds("KV-002", revision > last, || format!("a revision above {last}"), &revision, greater)?;
        recorder.name(|| operation::revision_name(bucket, revision), "*{s}.as_ref().unwrap()");
        let place = self.next_place();
        let held = self.buckets.entry(bucket.clone()).or_default();
        held.given.push((revision, place));
        held.gone.remove(key);
        let record = Record { value: value.clone(), revision, place, ttl: *ttl, expires_at: None };
        held.keys.insert(key.clone(), record);
        Ok(())
    }

    async fn get(
        &mut self,
        store: &dyn KeyValueStore,
        bucket: &BucketName,
        key: &Key,
        recorder: &mut Recorder,
    ) -> Checked {
        let record = self.buckets.get_mut(bucket).and_then(|held| held.keys.get_mut(key));
        let clause = if record.is_some() { "KV-020" } else { "KV-021" };
        recorder.call(clause, |_| format!("get({}, {})", id(bucket), id(key)));
        let got = store.get(bucket, key).await;
        let Some(record) = record else { return same(recorder, clause, &got, &Ok(None)) };
        let told = got.as_ref().ok().and_then(Option::as_ref).and_then(|entry| entry.expires_at);
        record.learn(told, recorder)?;
        let expected =
            KeyValueEntry::new(record.value.clone(), record.revision).with_expires_at(record.expires_at);
        same(recorder, clause, &got, &Ok(Some(expected)))
    }

    async fn delete(
        &mut self,
        store: &dyn KeyValueStore,
        (bucket, key, at): (&BucketName, &Key, Option<At>),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.bucket(bucket);
        let there = held.keys.get(key).map(|record| record.revision);
        let at = at.map(|at| held.revision(key, at));
        let expected: Expected<bool> = match at {
            Some(_) if there != at => Err(ErrorKind::Conflict.into()),
            _ => Ok(there.is_some()),
        };
        let clause = match (at, there) {
            (Some(_), _) => "KV-025",
            (None, Some(_)) => "KV-023",
            (None, None) => "KV-024",
        };
        recorder.call(clause, |recorder| {
            let at = optional(at, |at| operation::revision(recorder, bucket, at));
            format!("delete({}, {}, {at})", id(bucket), id(key))
        });
        same(recorder, clause, &store.delete(bucket, key, at).await, &expected)?;
        if expected == Ok(true) {
            let place = self.next_place();
            let held = self.buckets.entry(bucket.clone()).or_default();
            held.keys.remove(key);
            held.gone.insert(key.clone(), Gone { place, revision: None });
        }
        Ok(())
    }

    async fn list(
        &self,
        store: &dyn KeyValueStore,
        (bucket, prefix, request): (&BucketName, &str, &PageRequest<Key>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if request.after.is_some() { "KV-032" } else { "KV-030" };
        recorder.call(clause, |_| {
            format!("list({}, {}, {})", id(bucket), quoted(prefix), page(request, super::recorder::owned_id))
        });
        let found = self.bucket(bucket).keys.iter().filter(|(key, _)| key.as_str().starts_with(prefix));
        let found = found.map(|(key, record)| KeyRevision::new(key.clone(), record.revision));
        let expected = check_list("key_value.list", prefix, Some(request))
            .map(|()| page_of(found, request, |item| item.key.clone()))
            .map_err(Into::into);
        same(recorder, clause, &store.list(bucket, prefix, request.clone()).await, &expected)
    }

    async fn list_buckets(
        &self,
        store: &dyn KeyValueStore,
        request: &PageRequest<BucketName>,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "KV-035";
        recorder.call(CLAUSE, |_| format!("list_buckets({})", page(request, super::recorder::owned_id)));
        let held = self.buckets.iter().filter(|(_, held)| !held.keys.is_empty());
        let held = held.map(|(bucket, held)| {
            BucketInfo::new(bucket.clone(), larder_kernel::check::size(held.keys.len()))
        });
        let expected = request
            .check("key_value.list_buckets")
            .map(|()| page_of(held, request, |info| info.bucket.clone()))
            .map_err(Into::into);
        same(recorder, CLAUSE, &store.list_buckets(request.clone()).await, &expected)
    }

    async fn erase(&mut self, store: &dyn KeyValueStore, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        let got: Result<()> = store.erase().await;
        same(recorder, "STORE-006", &got, &Ok(()))?;
        *self = Self { changes: self.changes, ..Self::default() };
        Ok(())
    }
}

impl Record {
    /// Records the expiry time that the store returned, or compares it with the recorded one.
    fn learn(&mut self, told: Option<Timestamp>, recorder: &Recorder) -> Checked {
        if let (Some(ttl), None, Some(told)) = (self.ttl, self.expires_at, told) {
            let near = || "panic!(\"the instant told is not the time to live from now\");".to_owned();
            let expected = || format!("an instant {} s from now", ttl.as_secs_f64());
            holds("KV-022", is_due(told, ttl), expected, &told, near)?;
            self.expires_at = Some(told);
        }
        if self.ttl.is_some() && told.is_none() && self.expires_at.is_none() {
            let assertion =
                || format!("assert!({}.unwrap().unwrap().expires_at.is_some());", recorder.answer());
            return holds("KV-022", false, || "the end of its life".to_owned(), &told, assertion);
        }
        Ok(())
    }
}

#[async_trait]
impl Subject for KeyValue {
    const CONTRACT: Contract = Contract::KeyValue;
    const FIELD: &'static str = "key_value";
    type Store = dyn KeyValueStore;
    type Operation = Operation;

    fn new(_declared: &Capabilities) -> Self {
        Self::default()
    }

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.key_value()
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Put(put) => self.put(store, put, recorder).await,
            Operation::Write { bucket, writes } => self.write(store, bucket, writes, recorder).await,
            Operation::GetMany { bucket, keys } => self.get_many(store, bucket, keys, recorder).await,
            Operation::DeletePrefix { bucket, prefix } => {
                self.delete_prefix(store, bucket, prefix, recorder).await
            }
            Operation::ListEntries { bucket, query, page } => {
                self.list_entries(store, (bucket, query, page), recorder).await
            }
            Operation::Get { bucket, key } => self.get(store, bucket, key, recorder).await,
            Operation::Delete { bucket, key, at } => self.delete(store, (bucket, key, *at), recorder).await,
            Operation::List { bucket, prefix, page } => {
                self.list(store, (bucket, prefix, page), recorder).await
            }
            Operation::ListBuckets { page } => self.list_buckets(store, page, recorder).await,
            Operation::Watch { bucket, prefix, key, after } => {
                self.watch(store, (bucket, prefix, key, *after), recorder).await
            }
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.list_buckets(store, &PageRequest::first(10_000), recorder).await?;
        let held: Vec<(BucketName, Vec<Key>)> = self
            .buckets
            .iter()
            .map(|(bucket, held)| {
                (bucket.clone(), held.keys.keys().chain(held.gone.keys()).cloned().collect())
            })
            .collect();
        for (bucket, keys) in held {
            self.list(store, (&bucket, "", &PageRequest::first(10_000)), recorder).await?;
            for key in keys {
                self.get(store, &bucket, &key, recorder).await?;
            }
        }
        Ok(())
    }
}
