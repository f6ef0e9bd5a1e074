//! Watches: the changes of a bucket after a revision.

use larder_kernel::storage::key_value::check_list;
use larder_kernel::{BucketName, Key, KeyValueEvent, KeyValueEventKind, KeyValueStore, Revision};

use super::operation::{At, revision};
use super::{Bucket, KeyValue};
use crate::model::compare::{Checked, answered, holds, wrong};
use crate::model::recorder::{Recorder, bytes, id, json_text, quoted};
use crate::model::shared::{Streamed, backlog};

const OPERATION: &str = "key_value.watch";
const LATEST: &str = "KV-040";

impl KeyValue {
    pub(super) async fn watch(
        &mut self,
        store: &dyn KeyValueStore,
        (bucket, prefix, key, after): (&BucketName, &str, &Key, At),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.bucket(bucket);
        let after = held.revision(key, after);
        let checked = check_list(OPERATION, prefix, None);
        let expected = checked.and_then(|()| after.check_resume(OPERATION, "after", held.last()));
        let expected = expected.map_err(Into::into);
        let changes = held.changes_after(after, prefix);
        let call = |recorder: &Recorder| {
            let after = revision(recorder, bucket, after);
            format!("§a.watch({}, {}, {after}).await", id(bucket), quoted(prefix))
        };
        match expected {
            Err(_) => {
                recorder.statement(LATEST, |recorder| format!("let {{s}} = {}.map(drop);", call(recorder)));
            }
            Ok(()) => {
                recorder.stream(LATEST, changes.len(), |recorder| format!("{}.unwrap()", call(recorder)));
            }
        }
        let got = store.watch(bucket, prefix, after).await;
        let Some(Streamed(events)) = answered(recorder, LATEST, got.map(Streamed), &expected)? else {
            return Ok(());
        };
        let told = backlog(events, changes.len(), "KV-042", recorder).await?;
        let held = self.buckets.entry(bucket.clone()).or_default();
        held.compare(&changes, &told, after, recorder)
    }
}

impl Bucket {
    /// Returns the keys with the prefix whose last change is after a revision, in the order of their changes.
    fn changes_after(&self, after: Revision, prefix: &str) -> Vec<Key> {
        // The change number of the revision, if it was assigned.
        let given = self.given.iter().rev().find(|(revision, _)| *revision <= after);
        let place = given.map_or(0, |(_, place)| *place);
        let there = self.keys.iter().map(|(key, record)| (record.place, key));
        let gone = self.gone.iter().map(|(key, gone)| (gone.place, key));
        let wanted = |(at, key): &(u64, &Key)| *at > place && key.as_str().starts_with(prefix);
        let mut changes: Vec<(u64, &Key)> = there.chain(gone).filter(wanted).collect();
        changes.sort_unstable();
        changes.into_iter().map(|(_, key)| key.clone()).collect()
    }

    fn compare(
        &mut self,
        changes: &[Key],
        told: &[KeyValueEvent],
        after: Revision,
        recorder: &Recorder,
    ) -> Checked {
        let mut last = after;
        for (at, (key, event)) in changes.iter().zip(told).enumerate() {
            let fails = |what: &str| format!("panic!(\"{what}: {{:?}}\", {});", recorder.answer());
            let expected = || format!("the last change of {key:?}");
            let keys = || {
                let keys = format!("{}.iter().map(|event| event.key.to_string())", recorder.answer());
                format!("assert_eq!({keys}.collect::<Vec<_>>(), of::<Vec<String>>({}));", json_text(&changes))
            };
            holds(LATEST, event.key == *key, expected, event, keys)?;
            let grows = || format!("a revision above {last}");
            let growing = || {
                format!(
                    "assert!({}.windows(2).all(|pair| pair[0].revision < pair[1].revision));",
                    recorder.answer()
                )
            };
            holds("KV-043", event.revision > last, grows, event, growing)?;
            last = event.revision;
            match (&event.kind, self.keys.get_mut(key), self.gone.get_mut(key)) {
                (KeyValueEventKind::Put { value, expires_at }, Some(record), _) => {
                    record.learn(*expires_at, recorder)?;
                    let right = *value == record.value
                        && event.revision == record.revision
                        && *expires_at == record.expires_at;
                    let expected = || format!("{record:?}");
                    let another = || {
                        let kind = format!("{}[{at}].kind", recorder.answer());
                        let held = bytes(&record.value);
                        format!(
                            "assert!(matches!(&{kind}, KeyValueEventKind::Put {{ value, .. }} if *value == \
                             {held}));"
                        )
                    };
                    holds("KV-041", right, expected, event, another)?;
                }
                (KeyValueEventKind::Deleted, None, Some(gone)) => {
                    let known = *gone.revision.get_or_insert(event.revision);
                    let expected = || format!("the deletion at {known}");
                    let right = event.revision == known;
                    holds("KV-041", right, expected, event, || fails("the deletion moved"))?;
                }
                (_, record, _) => {
                    let expected = format!("a put: {}", record.is_some());
                    let is_put = format!(
                        "matches!({}[{at}].kind, KeyValueEventKind::Put {{ .. }})",
                        recorder.answer()
                    );
                    let assertion = format!("assert_eq!({is_put}, {});", record.is_some());
                    return Err(wrong("KV-041", expected, format!("{event:?}"), assertion));
                }
            }
        }
        Ok(())
    }
}
