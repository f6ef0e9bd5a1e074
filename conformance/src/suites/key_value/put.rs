//! Writes with and without a condition, and reads.

use bytes::Bytes;
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::{ErrorKind, KeyValueStoreExt, Revision};

use super::support::{absent, bucket, bytes, holds, key, names, read, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn values_read_back_byte_for_byte(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("values")?;
    let values: [&[u8]; 11] = [
        b"",
        b"\0",
        b"a\0b\0",
        &[0xFF, 0xFE, 0x80, 0xC3, 0x28],
        &std::array::from_fn::<u8, 256, _>(|byte| u8::try_from(byte).unwrap_or_default()),
        b" leading and trailing ",
        b"line\r\nline\n",
        b"true",
        b"0001",
        "e\u{301} \u{e9} 🦀".as_bytes(),
        b"{\"b\":1.0,\"a\":[ ]}",
    ];
    for (number, value) in values.iter().enumerate() {
        a.set(&bucket, &key(&format!("value-{number}"))?, Bytes::copy_from_slice(value)).await?;
    }
    for (number, value) in values.iter().enumerate() {
        let entry = read(&*b, &bucket, &format!("value-{number}")).await?;
        expect::equal("the value", &&*entry.value, value)?;
    }
    Ok(())
}

pub(super) async fn a_value_at_the_limit_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, key) = (bucket("values")?, key("large")?);
    let value: Vec<u8> = (0..251_u8).cycle().take(VALUE_BYTES_MAX).collect();
    a.set(&bucket, &key, Bytes::from(value.clone())).await?;
    let entry = expect::some("the key", b.get(&bucket, &key).await?)?;
    expect::equal("the length", &entry.value.len(), &value.len())?;
    expect::that(entry.value == value, "the same bytes", "other bytes of the same length")
}

pub(super) async fn each_write_gets_a_greater_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    let first = set(&*a, &bucket, "one", "1").await?;
    expect::that(first > Revision::ZERO, "a revision over 0", first)?;
    let mut revisions = vec![
        first,
        set(&*b, &bucket, "two", "1").await?,
        set(&*a, &bucket, "one", "2").await?,
        a.put_at(&bucket, &key("one")?, bytes("3"), read(&*b, &bucket, "one").await?.revision).await?,
        b.create(&bucket, &key("three")?, bytes("1")).await?,
        // Writing the same value again is a normal write.
        set(&*b, &bucket, "three", "1").await?,
    ];
    a.delete(&bucket, &key("three")?, None).await?;
    revisions.push(set(&*b, &bucket, "two", "2").await?);
    for name in ["one", "two"] {
        b.delete(&bucket, &key(name)?, None).await?;
    }
    revisions.push(set(&*a, &bucket, "four", "1").await?);
    expect::that(revisions.is_sorted_by(|left, right| left < right), "revisions that grow", &revisions)
}

pub(super) async fn a_deletion_takes_a_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    let put = set(&*a, &bucket, "gone", "1").await?;
    let mut events = b.watch(&bucket, "", put).await?;
    a.delete(&bucket, &key("gone")?, None).await?;
    let deleted = super::support::next(&mut events, "of the deletion").await?.revision;
    let later = set(&*a, &bucket, "other", "1").await?;
    expect::that(put < deleted && deleted < later, "put < deletion < later put", (put, deleted, later))
}

pub(super) async fn a_put_without_condition_replaces(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("replaced")?;
    set(&*a, &bucket, "key", "a long first value").await?;
    let second = set(&*b, &bucket, "key", "second").await?;
    holds(&*a, &bucket, "key", "second", second).await?;
    let third = set(&*a, &bucket, "key", "").await?;
    holds(&*b, &bucket, "key", "", third).await?;
    expect::equal("the keys", &names(&*b, &bucket, "").await?, &vec!["key".to_owned()])
}

pub(super) async fn creating_an_existing_key_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("created")?;
    for (name, value) in [("plain", "first"), ("empty", "")] {
        let revision = set(&*a, &bucket, name, value).await?;
        let again = b.create(&bucket, &key(name)?, bytes("second")).await;
        expect::error("creating a present key", again, ErrorKind::Conflict)?;
        let same = a.create(&bucket, &key(name)?, bytes(value)).await;
        expect::error("creating it with the same value", same, ErrorKind::Conflict)?;
        holds(&*a, &bucket, name, value, revision).await?;
        holds(&*b, &bucket, name, value, revision).await?;
    }
    Ok(())
}

pub(super) async fn creating_an_absent_key_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("created")?;
    set(&*a, &bucket, "key-longer", "other").await?;
    let revision = a.create(&bucket, &key("key")?, bytes("first")).await?;
    holds(&*b, &bucket, "key", "first", revision).await?;
    b.delete(&bucket, &key("key")?, None).await?;
    let again = a.create(&bucket, &key("key")?, bytes("second")).await?;
    holds(&*b, &bucket, "key", "second", again).await
}

pub(super) async fn a_put_at_the_revision_replaces(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let first = set(&*a, &bucket, "key", "1").await?;
    // A write of another key changes the bucket's revision, and not the key's.
    set(&*a, &bucket, "other", "1").await?;
    let second = b.put_at(&bucket, &key("key")?, bytes("2"), first).await?;
    holds(&*a, &bucket, "key", "2", second).await?;
    let third = a.put_at(&bucket, &key("key")?, bytes("3"), second).await?;
    holds(&*b, &bucket, "key", "3", third).await
}

pub(super) async fn a_put_at_another_revision_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let old = set(&*a, &bucket, "key", "1").await?;
    let now = set(&*a, &bucket, "key", "2").await?;
    let other = set(&*a, &bucket, "other", "1").await?;
    let wrong = [old, other, Revision::ZERO, Revision::new(now.get() + 1), Revision::new(u64::MAX)];
    for at in wrong {
        let put = b.put_at(&bucket, &key("key")?, bytes("lost"), at).await;
        expect::error(&format!("a put at {at} of a key at {now}"), put, ErrorKind::Conflict)?;
        holds(&*a, &bucket, "key", "2", now).await?;
    }
    holds(&*b, &bucket, "other", "1", other).await
}

pub(super) async fn a_put_at_a_revision_of_an_absent_key_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let deleted = set(&*a, &bucket, "deleted", "1").await?;
    a.delete(&bucket, &key("deleted")?, None).await?;
    for at in [Revision::ZERO, deleted, Revision::new(deleted.get() + 1)] {
        for name in ["deleted", "never"] {
            let put = b.put_at(&bucket, &key(name)?, bytes("lost"), at).await;
            expect::error(&format!("a put at {at} of an absent key"), put, ErrorKind::Conflict)?;
            absent(&*a, &bucket, name).await?;
        }
    }
    let elsewhere = super::support::bucket("conditional-never")?;
    let put = b.put_at(&elsewhere, &key("key")?, bytes("lost"), deleted).await;
    expect::error("a put at a revision into an absent bucket", put, ErrorKind::Conflict)?;
    expect::equal("the buckets", &super::support::buckets(&*a, 10).await?, &Vec::new())
}

pub(super) async fn buckets_are_separate(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (one, two) = (bucket("bucket")?, bucket("bucket-2")?);
    let in_one = set(&*a, &one, "shared", "of one").await?;
    absent(&*b, &two, "shared").await?;
    let in_two = b.create(&two, &key("shared")?, bytes("of two")).await?;
    set(&*a, &one, "only", "1").await?;
    holds(&*b, &one, "shared", "of one", in_one).await?;
    holds(&*a, &two, "shared", "of two", in_two).await?;
    expect::equal("keys of the second", &names(&*a, &two, "").await?, &vec!["shared".to_owned()])?;
    b.delete(&one, &key("shared")?, None).await?;
    holds(&*a, &two, "shared", "of two", in_two).await?;
    expect::equal("keys of the first", &names(&*b, &one, "").await?, &vec!["only".to_owned()])
}

pub(super) async fn the_latest_value_and_revision_are_read(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("latest")?;
    for round in 0..5 {
        let (writer, reader) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let value = format!("round {round}");
        // The reader has read before, so that a stale cache would be detected.
        let revision = set(&**writer, &bucket, "key", &value).await?;
        holds(&**reader, &bucket, "key", &value, revision).await?;
        holds(&**writer, &bucket, "key", &value, revision).await?;
    }
    Ok(())
}

pub(super) async fn a_missing_key_reads_as_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("present")?;
    absent(&*b, &bucket, "key").await?;
    set(&*a, &bucket, "key", "1").await?;
    for name in ["ke", "key2", "KEY", "key "] {
        absent(&*b, &bucket, name).await?;
    }
    absent(&*b, &super::support::bucket("absent")?, "key").await?;
    // A read creates nothing.
    expect::equal("the buckets", &super::support::buckets(&*a, 10).await?.len(), &1)
}
