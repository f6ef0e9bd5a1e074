//! Reads and writes of several keys.

use larder_kernel::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_write, entries_page,
};
use larder_kernel::{
    BucketName, ErrorKind, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem, KeyValuePutOptions,
    KeyValueQuery, KeyValueStore, KeyValueWrite, KeyValueWriteKind, Page, PageRequest, PrefixDeletion,
    Revision,
};

use super::operation::{Write, WriteKind, options, revision, revision_name};
use super::{Bucket, Gone, KeyValue, Record};
use crate::model::compare::{Checked, Expected, answered, holds, same};
use crate::model::recorder::{Recorder, bytes, id, owned_id, owned_text, page as page_text, quoted, with};

impl KeyValue {
    pub(super) async fn write(
        &mut self,
        store: &dyn KeyValueStore,
        bucket: &BucketName,
        writes: &[Write],
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.bucket(bucket);
        let writes: Vec<KeyValueWrite> = writes.iter().map(|write| held.named(write)).collect();
        let expected = match check_write(&writes) {
            Err(refusal) => Err(refusal.into()),
            Ok(()) if writes.iter().all(|write| held.allows(write)) => Ok(()),
            Ok(()) => Err(ErrorKind::Conflict.into()),
        };
        let clause = if expected.is_ok() { "KV-056" } else { "KV-057" };
        recorder.call(clause, |recorder| {
            let writes: Vec<String> = writes.iter().map(|write| shown(recorder, bucket, write)).collect();
            format!("write({}, vec![{}])", id(bucket), writes.join(", "))
        });
        let got = store.write(bucket, writes.clone()).await;
        let Some(given) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let takes: Vec<bool> = writes.iter().map(|write| held.takes_revision(write)).collect();
        let told: Vec<bool> = given.iter().map(Option::is_some).collect();
        let which = || {
            let answer = recorder.answer();
            format!(
                "assert_eq!({answer}.unwrap().iter().map(Option::is_some).collect::<Vec<_>>(), {takes:?});"
            )
        };
        holds("KV-058", told == takes, || format!("revisions at {takes:?}"), &given, which)?;
        let mut last = held.last();
        for (index, (write, given)) in writes.into_iter().zip(given).enumerate() {
            let Some(at) = given else { continue };
            let greater = || {
                let answer = recorder.answer();
                format!("assert!({answer}.unwrap()[{index}].unwrap() > Revision::new({last}));")
            };
            holds("KV-058", at > last, || format!("a revision above {last}"), &at, greater)?;
            last = at;
            recorder
                .name(|| revision_name(bucket, at), &format!("{{s}}.as_ref().unwrap()[{index}].unwrap()"));
            self.apply(bucket, write, at);
        }
        Ok(())
    }

    /// Applies a put, or the deletion of an existing key.
    fn apply(&mut self, bucket: &BucketName, write: KeyValueWrite, at: Revision) {
        let place = self.next_place();
        let held = self.buckets.entry(bucket.clone()).or_default();
        held.given.push((at, place));
        match write.kind {
            KeyValueWriteKind::Put { value, options } => {
                held.gone.remove(&write.key);
                let record = Record { value, revision: at, place, ttl: options.ttl, expires_at: None };
                held.keys.insert(write.key, record);
            }
            _ => {
                held.keys.remove(&write.key);
                held.gone.insert(write.key, Gone { place, revision: Some(at) });
            }
        }
    }

    pub(super) async fn get_many(
        &mut self,
        store: &dyn KeyValueStore,
        bucket: &BucketName,
        keys: &[Key],
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "KV-053";
        recorder.call(CLAUSE, |_| {
            let keys: Vec<String> = keys.iter().map(owned_id).collect();
            format!("get_many({}, &[{}])", id(bucket), keys.join(", "))
        });
        let got = store.get_many(bucket, keys).await;
        let held = self.buckets.entry(bucket.clone()).or_default();
        for (key, entry) in keys.iter().zip(got.iter().flat_map(|page| &page.items)) {
            if let (Some(record), Some(entry)) = (held.keys.get_mut(key), entry) {
                record.learn(entry.expires_at, recorder)?;
            }
        }
        let entry = |key: &Key| held.keys.get(key).map(Record::entry);
        let expected = check_get_many(keys)
            .map(|()| Page::new(keys.iter().map(entry).collect::<Vec<_>>(), None::<usize>))
            .map_err(Into::into);
        same(recorder, CLAUSE, &got, &expected)
    }

    pub(super) async fn delete_prefix(
        &mut self,
        store: &dyn KeyValueStore,
        bucket: &BucketName,
        prefix: &str,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "KV-064";
        recorder.call(CLAUSE, |_| format!("delete_prefix({}, {})", id(bucket), quoted(prefix)));
        let with = |key: &&Key| key.as_str().starts_with(prefix);
        let keys: Vec<Key> = self.bucket(bucket).keys.keys().filter(with).cloned().collect();
        let expected: Expected<PrefixDeletion> = check_list("key_value.delete_prefix", prefix, None)
            .map(|()| PrefixDeletion::new(larder_kernel::check::size(keys.len()), false))
            .map_err(Into::into);
        same(recorder, CLAUSE, &store.delete_prefix(bucket, prefix).await, &expected)?;
        if expected.is_ok() {
            for key in keys {
                let place = self.next_place();
                let held = self.buckets.entry(bucket.clone()).or_default();
                held.keys.remove(&key);
                held.gone.insert(key, Gone { place, revision: None });
            }
        }
        Ok(())
    }

    pub(super) async fn list_entries(
        &mut self,
        store: &dyn KeyValueStore,
        (bucket, query, page): (&BucketName, &KeyValueQuery, &PageRequest<Key>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if page.after.is_some() { "KV-069" } else { "KV-067" };
        recorder.call(clause, |_| {
            let key = |name, key: &Option<Key>| {
                with(name, key.as_ref(), |key| format!("id::<Key>({})", quoted(key.as_str())))
            };
            let (from, to) = (key("from", &query.from), key("to", &query.to));
            let order = if query.order == KeyOrder::Descending { ".descending()" } else { "" };
            let values = if query.values { ".with_values()" } else { "" };
            let query =
                format!("&KeyValueQuery::prefix({}){from}{to}{order}{values}", owned_text(&query.prefix));
            format!("list_entries({}, {query}, {})", id(bucket), page_text(page, owned_id))
        });
        let got = store.list_entries(bucket, query, page.clone()).await;
        let held = self.buckets.entry(bucket.clone()).or_default();
        for item in got.iter().flat_map(|page| &page.items) {
            if let Some(record) = held.keys.get_mut(&item.key) {
                record.learn(item.expires_at, recorder)?;
            }
        }
        let expected = check_list_entries(query, page)
            .map(|()| entries_page(held.entries(query, page), query.values, page.limit))
            .map_err(Into::into);
        same(recorder, clause, &got, &expected)
    }
}

impl Bucket {
    /// Returns the write with the revisions that it names.
    fn named(&self, write: &Write) -> KeyValueWrite {
        let key = write.key.clone();
        match &write.kind {
            WriteKind::Put { value, condition, ttl } => {
                let condition = condition.key_value(|at| self.revision(&key, at));
                let options = KeyValuePutOptions::default().with_condition(condition).with_ttl(*ttl);
                KeyValueWrite::put(key, value.clone(), options)
            }
            WriteKind::Delete { at } => {
                let at = at.map(|at| self.revision(&key, at));
                KeyValueWrite::delete(key, at)
            }
        }
    }

    /// Returns `true` if the condition of a write holds.
    fn allows(&self, write: &KeyValueWrite) -> bool {
        let there = self.keys.get(&write.key).map(|record| record.revision);
        match &write.kind {
            KeyValueWriteKind::Put { options, .. } => match options.condition {
                KeyValueCondition::Absent => there.is_none(),
                KeyValueCondition::AtRevision(at) => there == Some(at),
                _ => true,
            },
            KeyValueWriteKind::Delete { at } => at.is_none() || there == *at,
            _ => unreachable!("the model draws no other write"),
        }
    }

    /// Returns `true` if the write changes its key.
    fn takes_revision(&self, write: &KeyValueWrite) -> bool {
        matches!(write.kind, KeyValueWriteKind::Put { .. }) || self.keys.contains_key(&write.key)
    }

    /// Returns the entries that follow in a listing.
    fn entries(&self, query: &KeyValueQuery, page: &PageRequest<Key>) -> Vec<KeyValueItem> {
        let descending = query.order == KeyOrder::Descending;
        let follows = |key: &Key| match &page.after {
            Some(after) if descending => key < after,
            Some(after) => key > after,
            None => true,
        };
        let item = |(key, record): (&Key, &Record)| {
            let item = KeyValueItem::new(key.clone(), record.revision).with_expires_at(record.expires_at);
            item.with_value(query.values.then(|| record.value.clone()))
        };
        let found = self.keys.iter().filter(|(key, _)| query.selects(key) && follows(key)).map(item);
        let mut found: Vec<KeyValueItem> = found.collect();
        if descending {
            found.reverse();
        }
        found
    }
}

impl Record {
    fn entry(&self) -> KeyValueEntry {
        KeyValueEntry::new(self.value.clone(), self.revision).with_expires_at(self.expires_at)
    }
}

/// Returns a write as an expression.
fn shown(recorder: &Recorder, bucket: &BucketName, write: &KeyValueWrite) -> String {
    let key = owned_id(&write.key);
    match &write.kind {
        KeyValueWriteKind::Put { value, options: given } => {
            let options = options(recorder, bucket, given.condition, given.ttl);
            format!("KeyValueWrite::put({key}, {}, {options})", bytes(value))
        }
        KeyValueWriteKind::Delete { at: Some(at) } => {
            format!("KeyValueWrite::delete({key}, Some({}))", revision(recorder, bucket, *at))
        }
        _ => format!("KeyValueWrite::delete({key}, None)"),
    }
}
