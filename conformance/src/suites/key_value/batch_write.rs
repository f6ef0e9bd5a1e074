//! Writes of several keys.

use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, VALUE_BYTES_MAX};
use larder_kernel::{
    BucketName, ContextValue, ErrorKind, KeyValueCondition, KeyValueEventKind, KeyValuePutOptions,
    KeyValueStore, KeyValueWrite, Revision,
};

use super::generation::written_again;
use super::support::{
    absent, bucket, buckets, bytes, events_until, holds, key, listed, names, past, read, set, set_for,
};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_millis(250);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-056", a_write_has_the_effect_of_its_puts_and_deletions),
        case!(KeyValue, "KV-056", a_write_sets_and_removes_times_to_live),
        case!(KeyValue, "KV-056", an_expired_key_is_absent_for_a_write),
        case!(KeyValue, "KV-056", deleting_absent_keys_by_a_write_changes_nothing),
        case!(KeyValue, "KV-057", a_write_with_a_lost_condition_changes_nothing),
        case!(KeyValue, "KV-057", the_first_lost_condition_is_named),
        case!(KeyValue, "KV-058", a_write_returns_its_revisions_in_order),
        case!(KeyValue, "KV-062", a_write_of_1000_keys_is_stored),
        case!(KeyValue, "KV-062", a_write_of_16_mib_is_stored),
        case!(KeyValue, "KV-063", a_write_at_a_revision_of_another_generation_conflicts),
    ]
}

/// Returns a put.
pub(super) fn put(name: &str, text: &str, condition: KeyValueCondition) -> CaseResult<KeyValueWrite> {
    let options = KeyValuePutOptions::default().with_condition(condition);
    Ok(KeyValueWrite::put(key(name)?, bytes(text), options))
}

/// Returns a deletion.
pub(super) fn delete(name: &str, at: Option<Revision>) -> CaseResult<KeyValueWrite> {
    Ok(KeyValueWrite::delete(key(name)?, at))
}

async fn a_write_has_the_effect_of_its_puts_and_deletions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("written")?;
    for name in ["replaced", "at", "deleted", "deleted-at", "untouched"] {
        set(&*a, &bucket, name, "old").await?;
    }
    let (at, gone) =
        (read(&*a, &bucket, "at").await?.revision, read(&*a, &bucket, "deleted-at").await?.revision);
    let untouched = read(&*a, &bucket, "untouched").await?.revision;
    let writes = vec![
        put("replaced", "new", KeyValueCondition::None)?,
        put("fresh", "", KeyValueCondition::None)?,
        put("created", "new", KeyValueCondition::Absent)?,
        put("at", "new", KeyValueCondition::AtRevision(at))?,
        delete("deleted", None)?,
        delete("deleted-at", Some(gone))?,
        delete("never", None)?,
    ];
    let revisions = a.write(&bucket, writes).await?;
    for (name, text, index) in
        [("replaced", "new", 0), ("fresh", "", 1), ("created", "new", 2), ("at", "new", 3)]
    {
        let revision = expect::some("a revision", revisions.get(index).copied().flatten())?;
        holds(&*b, &bucket, name, text, revision).await?;
        holds(&*a, &bucket, name, text, revision).await?;
    }
    for name in ["deleted", "deleted-at", "never"] {
        absent(&*b, &bucket, name).await?;
    }
    holds(&*b, &bucket, "untouched", "old", untouched).await?;
    let expected = ["at", "created", "fresh", "replaced", "untouched"].map(str::to_owned).to_vec();
    expect::equal("the keys", &names(&*b, &bucket, "").await?, &expected)?;
    // A write can be the first of its bucket.
    let new = super::support::bucket("new")?;
    let raw = Bytes::from_static(&[0, 0xFF, 0x80, b'\n', 0]);
    let write = KeyValueWrite::put(key("raw")?, raw.clone(), KeyValuePutOptions::default());
    b.write(&new, vec![write]).await?;
    expect::equal("the bytes", &read(&*a, &new, "raw").await?.value, &raw)?;
    let counts: Vec<u64> = buckets(&*a, 10).await?.into_iter().map(|info| info.keys).collect();
    expect::equal("the keys of the buckets", &counts, &vec![1, 5])
}

async fn a_write_sets_and_removes_times_to_live(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    for name in ["kept", "replaced"] {
        set_for(&*a, &bucket, name, HOUR).await?;
    }
    let for_two_hours = KeyValuePutOptions::default().with_ttl(2 * HOUR);
    let shortest = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
    let writes = vec![
        put("kept", "for ever", KeyValueCondition::None)?,
        KeyValueWrite::put(key("replaced")?, "longer", for_two_hours),
        KeyValueWrite::put(key("shortest")?, "soon gone", shortest),
    ];
    let hour_ago = read(&*a, &bucket, "replaced").await?.expires_at;
    b.write(&bucket, writes).await?;
    past(Instant::now(), Duration::from_millis(1)).await;
    expect::equal("the expiry of a put without", &read(&*a, &bucket, "kept").await?.expires_at, &None)?;
    let later = read(&*a, &bucket, "replaced").await?.expires_at;
    expect::that(later > hour_ago, "a later instant of expiry", later)?;
    absent(&*a, &bucket, "shortest").await
}

async fn an_expired_key_is_absent_for_a_write(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    let stays = set(&*a, &bucket, "stays", "1").await?;
    let mut revisions = Vec::new();
    for name in ["one", "two", "three"] {
        revisions.push(set_for(&*a, &bucket, name, TTL).await?);
    }
    past(Instant::now(), TTL).await;
    let at = put("one", "lost", KeyValueCondition::AtRevision(revisions[0]))?;
    for lost in [at, delete("two", Some(revisions[1]))?] {
        let written = b.write(&bucket, vec![put("stays", "lost", KeyValueCondition::None)?, lost]).await;
        expect::error("a write at the revision of an expired key", written, ErrorKind::Conflict)?;
    }
    holds(&*a, &bucket, "stays", "1", stays).await?;
    let writes = vec![put("one", "again", KeyValueCondition::Absent)?, delete("three", None)?];
    let given = b.write(&bucket, writes).await?;
    expect::equal("the revision of the deletion of an expired key", &given.get(1), &Some(&None))?;
    let created = expect::some("the revision of the creation", given[0])?;
    holds(&*a, &bucket, "one", "again", created).await
}

async fn deleting_absent_keys_by_a_write_changes_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    let nothing = || -> CaseResult<_> { Ok(vec![delete("never", None)?, delete("nowhere", None)?]) };
    expect::equal("the revisions", &b.write(&bucket, nothing()?).await?, &vec![None, None])?;
    expect::equal("the buckets", &buckets(&*a, 10).await?.len(), &0)?;
    let before = set(&*a, &bucket, "key", "1").await?;
    expect::equal("the revisions", &b.write(&bucket, nothing()?).await?, &vec![None, None])?;
    let mut events = a.watch(&bucket, "", before).await?;
    let last = set(&*a, &bucket, "last", "1").await?;
    expect::equal("the events", &events_until(&mut events, last).await?.len(), &1)
}

/// Checks that the write fails with the position of its lost condition, and that nothing changed.
async fn lost(
    stores: &Handles<dyn KeyValueStore>,
    bucket: &BucketName,
    writes: Vec<KeyValueWrite>,
    position: u64,
) -> CaseResult {
    let before = listed(&*stores.a, bucket, "", 100).await?;
    let what = format!("a write whose condition {position} is lost");
    let error = expect::error(&what, stores.b.write(bucket, writes).await, ErrorKind::Conflict)?;
    let named = error.context().iter().find(|(name, _)| *name == "write").map(|(_, value)| *value);
    expect::equal("the position in the error", &named, &Some(ContextValue::from(position)))?;
    expect::equal("the keys", &listed(&*stores.a, bucket, "", 100).await?, &before)
}

async fn a_write_with_a_lost_condition_changes_nothing(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let kept = set(&*stores.a, &bucket, "kept", "1").await?;
    let old = set(&*stores.a, &bucket, "key", "1").await?;
    let now = set(&*stores.a, &bucket, "key", "2").await?;
    let refused = [
        put("key", "lost", KeyValueCondition::Absent)?,
        put("key", "lost", KeyValueCondition::AtRevision(old))?,
        put("key", "lost", KeyValueCondition::AtRevision(Revision::ZERO))?,
        put("key", "lost", KeyValueCondition::AtRevision(Revision::new(now.get() + 1)))?,
        put("never", "lost", KeyValueCondition::AtRevision(now))?,
        delete("key", Some(old))?,
        delete("key", Some(Revision::new(u64::MAX)))?,
        delete("never", Some(now))?,
    ];
    for write in refused {
        for position in 0..3 {
            let mut writes = vec![put("new", "lost", KeyValueCondition::None)?, delete("kept", None)?];
            writes.insert(position, write.clone());
            lost(&stores, &bucket, writes, larder_kernel::check::size(position)).await?;
        }
    }
    let elsewhere = super::support::bucket("nowhere")?;
    let writes = vec![put("new", "lost", KeyValueCondition::None)?, delete("never", Some(now))?];
    lost(&stores, &elsewhere, writes, 1).await?;
    expect::equal("the buckets", &buckets(&*stores.a, 10).await?.len(), &1)?;
    holds(&*stores.a, &bucket, "key", "2", now).await?;
    holds(&*stores.a, &bucket, "kept", "1", kept).await?;
    // No refused write took a revision or left an event.
    let mut events = stores.a.watch(&bucket, "", now).await?;
    let last = set(&*stores.a, &bucket, "last", "1").await?;
    expect::equal("the events", &events_until(&mut events, last).await?.len(), &1)
}

async fn the_first_lost_condition_is_named(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("conditional")?;
    for name in ["one", "two", "three"] {
        set(&*stores.a, &bucket, name, "1").await?;
    }
    let writes = vec![
        put("new", "lost", KeyValueCondition::None)?,
        put("three", "lost", KeyValueCondition::Absent)?,
        delete("one", Some(Revision::ZERO))?,
        put("two", "lost", KeyValueCondition::Absent)?,
    ];
    lost(&stores, &bucket, writes.clone(), 1).await?;
    lost(&stores, &bucket, writes.into_iter().rev().collect(), 0).await
}

async fn a_write_returns_its_revisions_in_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    for name in ["m", "c"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let before = set(&*a, &bucket, "z", "1").await?;
    let mut events = b.watch(&bucket, "", before).await?;
    // Neither the order of the keys nor that of the kinds is the order of the writes.
    let writes = vec![
        put("z", "2", KeyValueCondition::None)?,
        delete("m", None)?,
        delete("never", None)?,
        put("a", "2", KeyValueCondition::None)?,
        delete("c", None)?,
        put("n", "2", KeyValueCondition::None)?,
    ];
    let given = b.write(&bucket, writes).await?;
    let changed: Vec<bool> = given.iter().map(Option::is_some).collect();
    expect::equal("the writes with a revision", &changed, &vec![true, true, false, true, true, true])?;
    let given: Vec<Revision> = given.into_iter().flatten().collect();
    expect::that(given.is_sorted_by(|left, right| left < right), "growing revisions", &given)?;
    expect::that(given[0] > before, format!("revisions over {before}"), &given)?;
    let seen = events_until(&mut events, given[4]).await?;
    let delivered: Vec<(&str, Revision, bool)> = seen
        .iter()
        .map(|event| (event.key.as_str(), event.revision, event.kind == KeyValueEventKind::Deleted))
        .collect();
    let expected = [("z", false), ("m", true), ("a", false), ("c", true), ("n", false)];
    let expected: Vec<_> =
        expected.into_iter().zip(&given).map(|((name, gone), at)| (name, *at, gone)).collect();
    expect::equal("the events", &delivered, &expected)?;
    let next = set(&*a, &bucket, "next", "1").await?;
    expect::that(next > given[4], format!("a revision over {}", given[4]), next)
}

async fn a_write_of_1000_keys_is_stored(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("wide")?;
    set(&*a, &bucket, "other", "1").await?;
    let name = |number: usize| format!("key-{number:04}");
    for round in ["first", "second"] {
        let writes = (0..BATCH_KEYS_MAX).map(|number| put(&name(number), round, KeyValueCondition::None));
        let given = a.write(&bucket, writes.collect::<CaseResult<_>>()?).await?;
        let given: Vec<Revision> = given.into_iter().flatten().collect();
        expect::equal("the number of revisions", &given.len(), &BATCH_KEYS_MAX)?;
        let found = listed(&*b, &bucket, "key-", 10_000).await?;
        let found: Vec<(String, Revision)> =
            found.into_iter().map(|item| (item.key.into(), item.revision)).collect();
        let expected: Vec<(String, Revision)> = (0..).map(name).zip(given).collect();
        expect::that(found == expected, "every key with its revision", found.first())?;
        holds(&*b, &bucket, &name(BATCH_KEYS_MAX - 1), round, expected[BATCH_KEYS_MAX - 1].1).await?;
    }
    let writes = (0..BATCH_KEYS_MAX).map(|number| delete(&name(number), None));
    a.write(&bucket, writes.collect::<CaseResult<_>>()?).await?;
    expect::equal("the keys", &names(&*b, &bucket, "").await?, &vec!["other".to_owned()])
}

async fn a_write_of_16_mib_is_stored(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("heavy")?;
    let name = |number: usize| format!("key-{number}");
    let keys: usize = (0..5).map(|number| name(number).len()).sum();
    let whole = BATCH_VALUES_BYTES_MAX - keys;
    let value = |number: usize| {
        let size = if number < 3 { VALUE_BYTES_MAX } else { (whole - 3 * VALUE_BYTES_MAX) / 2 };
        Bytes::from(vec![b'a' + u8::try_from(number).unwrap_or(0); size + whole % 2 * (number / 4)])
    };
    let write = |number| Ok(KeyValueWrite::put(key(&name(number))?, value(number), Default::default()));
    let writes: Vec<KeyValueWrite> = (0..5).map(write).collect::<CaseResult<_>>()?;
    let bytes: usize = writes.iter().map(KeyValueWrite::size_bytes).sum();
    expect::equal("the bytes of the write", &bytes, &BATCH_VALUES_BYTES_MAX)?;
    a.write(&bucket, writes).await?;
    for number in 0..5 {
        let found = read(&*b, &bucket, &name(number)).await?.value;
        expect::that(found == value(number), format!("the value {number}"), found.len())?;
    }
    Ok(())
}

async fn a_write_at_a_revision_of_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let [lost, now] = written_again(&stores, &bucket, 2).await?;
    expect::equal("the number of the revision", &now.get(), &lost.get())?;
    for write in [put("one", "late", KeyValueCondition::AtRevision(lost))?, delete("one", Some(lost))?] {
        let written = stores.b.write(&bucket, vec![put("two", "2", KeyValueCondition::None)?, write]).await;
        expect::error("a write at a revision from before the erasure", written, ErrorKind::Conflict)?;
        holds(&*stores.a, &bucket, "one", "new 1", now).await?;
        absent(&*stores.a, &bucket, "two").await?;
    }
    let number = put("one", "number", KeyValueCondition::AtRevision(Revision::new(now.get())))?;
    let given = expect::some("a revision", stores.b.write(&bucket, vec![number]).await?[0])?;
    expect::equal("the generation", &given.generation(), &now.generation())?;
    let removed = stores.b.write(&bucket, vec![delete("one", Some(given))?]).await?;
    expect::equal(
        "the generation of a deletion",
        &removed[0].and_then(Revision::generation),
        &now.generation(),
    )
}
