//! Keys with a time to live.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_kernel::limits::TTL_MS_MAX;
use larder_kernel::{
    BucketName, ErrorKind, KeyValueCondition, KeyValueEvent, KeyValueEventKind, KeyValuePutOptions,
    KeyValueStore, KeyValueStoreExt, Revision,
};
use tokio::time::sleep;

use super::support::{
    absent, bucket, buckets, bytes, events_until, holds, key, listed, names, past, read, set, set_for,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles, in_time};
use crate::expect;
use crate::suites::values::LIVES;

const TTL: Duration = Duration::from_millis(250);
const HOUR: Duration = Duration::from_secs(3600);

/// Writes a key that the other handle sees, waits until it has expired, and returns it with its revision.
async fn expired(stores: &Handles<dyn KeyValueStore>, bucket: &BucketName) -> CaseResult<(String, Revision)> {
    let (name, revision, written) = in_time(TTL, |attempt| {
        let (a, b, bucket) = (Arc::clone(&stores.a), Arc::clone(&stores.b), bucket.clone());
        async move {
            let name = format!("brief-{attempt}");
            let revision = set_for(&*a, &bucket, &name, TTL).await?;
            let written = Instant::now();
            holds(&*b, &bucket, &name, &name, revision).await?;
            Ok((name, revision, written))
        }
    })
    .await?;
    past(written, TTL).await;
    Ok((name, revision))
}

pub(super) async fn an_expired_key_reads_as_absent(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    let stays = set(&*stores.a, &bucket, "stays", "1").await?;
    let (name, _) = expired(&stores, &bucket).await?;
    absent(&*stores.b, &bucket, &name).await?;
    absent(&*stores.a, &bucket, &name).await?;
    holds(&*stores.b, &bucket, "stays", "1", stays).await
}

pub(super) async fn the_shortest_and_the_longest_time_to_live_are_kept(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    let longest = set_for(&*a, &bucket, "longest", Duration::from_millis(TTL_MS_MAX)).await?;
    // A fraction of a millisecond does not count.
    let fraction = Duration::from_millis(TTL_MS_MAX) + Duration::from_micros(999);
    set_for(&*a, &bucket, "fraction", fraction).await?;
    set_for(&*a, &bucket, "shortest", Duration::from_millis(1)).await?;
    past(Instant::now(), Duration::from_millis(1)).await;
    absent(&*b, &bucket, "shortest").await?;
    holds(&*b, &bucket, "longest", "longest", longest).await?;
    read(&*b, &bucket, "fraction").await?;
    expect::equal("the keys", &names(&*b, &bucket, "longest").await?.len(), &1)
}

pub(super) async fn a_put_without_a_time_to_live_removes_the_earlier_one(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    let (stays, kept, written) = in_time(TTL, |attempt| {
        let (a, b, bucket) = (Arc::clone(&a), Arc::clone(&b), bucket.clone());
        async move {
            let (stays, kept) = (format!("stays-{attempt}"), format!("kept-{attempt}"));
            set_for(&*a, &bucket, &stays, TTL).await?;
            let revision = set_for(&*a, &bucket, &kept, TTL).await?;
            let written = Instant::now();
            set(&*b, &bucket, &stays, "for good").await?;
            b.put_at(&bucket, &key(&kept)?, bytes("for good"), revision).await?;
            Ok((stays, kept, written))
        }
    })
    .await?;
    past(written, TTL).await;
    for name in [stays, kept] {
        for store in [&a, &b] {
            let entry = read(&**store, &bucket, &name).await?;
            let got = (entry.value, entry.expires_at);
            expect::equal("value and time to live", &got, &(bytes("for good"), None))?;
        }
    }
    Ok(())
}

pub(super) async fn a_put_with_another_time_to_live_replaces_it(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    set_for(&*a, &bucket, "prolonged", TTL).await?;
    set_for(&*a, &bucket, "shortened", HOUR).await?;
    let prolonged = set_for(&*b, &bucket, "prolonged", HOUR).await?;
    set_for(&*b, &bucket, "shortened", TTL).await?;
    past(Instant::now(), TTL).await;
    holds(&*a, &bucket, "prolonged", "prolonged", prolonged).await?;
    absent(&*a, &bucket, "shortened").await
}

pub(super) async fn an_expired_key_can_be_created(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    let (name, before) = expired(&stores, &bucket).await?;
    let revision = stores.b.create(&bucket, &key(&name)?, bytes("again")).await?;
    expect::that(revision > before, format!("a revision over {before}"), revision)?;
    holds(&*stores.a, &bucket, &name, "again", revision).await?;
    expect::equal("time to live", &read(&*stores.b, &bucket, &name).await?.expires_at, &None)
}

pub(super) async fn an_expired_key_is_at_no_revision(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    let (name, before) = expired(&stores, &bucket).await?;
    let key = key(&name)?;
    let put = stores.b.put_at(&bucket, &key, bytes("late"), before).await;
    expect::error("a put at the revision of an expired key", put, ErrorKind::Conflict)?;
    let deleted = stores.b.delete(&bucket, &key, Some(before)).await;
    expect::error("a deletion at the revision of an expired key", deleted, ErrorKind::Conflict)?;
    absent(&*stores.a, &bucket, &name).await
}

pub(super) async fn deleting_an_expired_key_returns_false(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    let (name, _) = expired(&stores, &bucket).await?;
    let there = stores.a.delete(&bucket, &key(&name)?, None).await?;
    expect::equal("the reported existence of the expired key", &there, &false)
}

pub(super) async fn revisions_continue_after_an_expiry(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    let (name, before) = expired(&stores, &bucket).await?;
    // The bucket contains only its counter.
    absent(&*stores.a, &bucket, &name).await?;
    let other = set(&*stores.b, &bucket, "other", "1").await?;
    let again = set(&*stores.a, &bucket, &name, "1").await?;
    expect::that(before < other && other < again, "growing revisions", (before, other, again))
}

pub(super) async fn instants_of_minutes_to_years_are_read(context: Context) -> CaseResult {
    const CLOCKS_APART: Duration = Duration::from_secs(600);
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("long")?;
    for (number, life) in LIVES.iter().enumerate() {
        let (name, now) = (number.to_string(), larder_kernel::Timestamp::now());
        set_for(&*a, &bucket, &name, *life).await?;
        let mut events = b.watch(&bucket, &name, Revision::ZERO).await?;
        let event = super::support::next(&mut events, "of the put").await?;
        let of_event = match event.kind {
            KeyValueEventKind::Put { expires_at, .. } => expires_at,
            KeyValueEventKind::Deleted => None,
            _ => return Err(expect::broken("a put", format!("{event:?}"))),
        };
        let read = expect::some("the instant", read(&*b, &bucket, &name).await?.expires_at)?;
        expect::equal("the instant of the event", &of_event, &Some(read))?;
        let expected = now.saturating_add(*life).as_micros();
        let apart = Duration::from_micros(read.as_micros().abs_diff(expected));
        expect::that(apart < CLOCKS_APART, format!("an instant {life:?} from {now:?}"), read)?;
    }
    Ok(())
}

pub(super) async fn the_instant_of_expiry_is_read(context: Context) -> CaseResult {
    /// The largest difference between the clocks of the suite and of the store.
    const CLOCKS_APART: Duration = Duration::from_secs(600);
    /// Rounding to the millisecond, at both ends.
    const ROUNDING_MICROS: i64 = 2_000;
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    set(&*a, &bucket, "for good", "1").await?;
    expect::equal("time to live", &read(&*b, &bucket, "for good").await?.expires_at, &None)?;

    let begun = Instant::now();
    let now = larder_kernel::Timestamp::now();
    set_for(&*a, &bucket, "one hour", HOUR).await?;
    sleep(Duration::from_millis(20)).await;
    set_for(&*a, &bucket, "two hours", HOUR * 2).await?;
    let elapsed = i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX);
    let one = expect::some("the instant", read(&*b, &bucket, "one hour").await?.expires_at)?;
    let two = expect::some("the instant", read(&*b, &bucket, "two hours").await?.expires_at)?;
    expect::equal("the instant read again", &read(&*a, &bucket, "one hour").await?.expires_at, &Some(one))?;
    let apart = one.as_micros() - now.saturating_add(HOUR).as_micros();
    expect::that(
        Duration::from_micros(apart.unsigned_abs()) < CLOCKS_APART,
        "an instant in one hour",
        (now, one),
    )?;
    let hour = i64::try_from(HOUR.as_micros()).unwrap_or(i64::MAX);
    let more = two.as_micros() - one.as_micros() - hour;
    let least = 20_000 - ROUNDING_MICROS;
    expect::that(
        (least..=elapsed.saturating_add(ROUNDING_MICROS)).contains(&more),
        format!("instants an hour and {least} to {elapsed} microseconds apart"),
        (one, two),
    )
}

pub(super) async fn expired_keys_are_not_listed(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("brief")?;
    set(&*stores.a, &bucket, "a", "1").await?;
    set(&*stores.a, &bucket, "z", "1").await?;
    expired(&stores, &bucket).await?;
    let expected = vec!["a".to_owned(), "z".to_owned()];
    expect::equal("the keys", &names(&*stores.b, &bucket, "").await?, &expected)?;
    expect::equal("keys with the prefix", &names(&*stores.b, &bucket, "brief").await?, &Vec::new())?;
    let paged: Vec<String> =
        listed(&*stores.a, &bucket, "", 1).await?.into_iter().map(|item| item.key.into()).collect();
    expect::equal("the keys one by one", &paged, &expected)
}

pub(super) async fn expired_keys_are_not_counted(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let (mixed, brief) = (bucket("mixed")?, bucket("brief")?);
    set(&*stores.a, &mixed, "stays", "1").await?;
    expired(&stores, &brief).await?;
    expired(&stores, &mixed).await?;
    let found = buckets(&*stores.b, 10).await?;
    expect::equal("the buckets", &found, &vec![larder_kernel::BucketInfo::new(mixed, 1)])
}

pub(super) async fn an_expiry_creates_no_event(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    let put = set_for(&*a, &bucket, "brief", TTL).await?;
    past(Instant::now(), TTL).await;
    let first = super::support::next(&mut events, "of the put").await?;
    expect::equal("the revision", &first.revision, &put)?;
    // A read triggers a store's handling of expired keys.
    absent(&*a, &bucket, "brief").await?;
    absent(&*b, &bucket, "brief").await?;
    names(&*a, &bucket, "").await?;
    let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent);
    let last = a.put(&bucket, &key("last")?, bytes("1"), options).await?;
    let seen = events_until(&mut events, last).await?;
    expect::that(seen.len() == 1, "only the event of the later put", &seen)?;
    for handle in [&a, &b] {
        let mut late = handle.watch(&bucket, "", Revision::ZERO).await?;
        let told = events_until(&mut late, last).await?;
        let deletion = KeyValueEvent::new(key("brief")?, put, KeyValueEventKind::Deleted);
        expect::equal(
            "the changes before the last",
            &told.split_last().map(|(_, rest)| rest),
            &Some(&[deletion][..]),
        )?;
    }
    Ok(())
}
