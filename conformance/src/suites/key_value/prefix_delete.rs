//! Deletions by prefix.

use std::time::Duration;

use larder_kernel::limits::BATCH_KEYS_MAX;
use larder_kernel::{
    BucketName, KeyValueCondition, KeyValueEventKind, KeyValueStore, KeyValueStoreExt, PrefixDeletion,
};

use super::batch_write::put;
use super::support::{bucket, buckets, events_until, holds, key, names, next, set, set_for};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-064", exactly_the_keys_with_the_prefix_are_deleted),
        case!(KeyValue, "KV-064", the_first_1000_keys_with_the_prefix_are_deleted),
        case!(KeyValue, "KV-065", each_deletion_by_prefix_takes_a_revision),
        case!(KeyValue, "KV-066", a_deletion_by_prefix_counts_existing_keys_only),
        case!(KeyValue, "KV-066", special_characters_of_a_deleted_prefix_are_data),
    ]
}

async fn exactly_the_keys_with_the_prefix_are_deleted(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let all = ["a", "a/1", "a/2", "a/2/x", "a/\u{10ffff}", "a0", "A/1", "b", "ba/1", "é"];
    for prefix in ["", "a", "a/", "a/2", "a/\u{10ffff}", "b", "é", "e", "q"] {
        let bucket = bucket(&format!("prefix {prefix}"))?;
        for name in all {
            set(&*a, &bucket, name, name).await?;
        }
        let (gone, mut rest): (Vec<&str>, Vec<&str>) =
            all.into_iter().partition(|name| name.starts_with(prefix));
        rest.sort_unstable();
        let expected = PrefixDeletion::new(larder_kernel::check::size(gone.len()), false);
        let what = format!("the deletion of {prefix:?}");
        expect::equal(&what, &b.delete_prefix(&bucket, prefix).await?, &expected)?;
        let rest: Vec<String> = rest.into_iter().map(str::to_owned).collect();
        expect::equal("the keys that stay", &names(&*a, &bucket, "").await?, &rest)?;
        let again = b.delete_prefix(&bucket, prefix).await?;
        expect::equal("the second deletion", &again, &PrefixDeletion::default())?;
        // The revisions of an emptied bucket continue.
        let before = set(&*a, &bucket, "a/1", "again").await?;
        expect::that(before.get() > larder_kernel::check::size(all.len()), "a later revision", before)?;
    }
    Ok(())
}

async fn fill(store: &dyn KeyValueStore, bucket: &BucketName, prefix: &str, count: usize) -> CaseResult {
    for start in (0..count).step_by(BATCH_KEYS_MAX) {
        let end = count.min(start + BATCH_KEYS_MAX);
        let writes =
            (start..end).map(|number| put(&format!("{prefix}{number:04}"), "1", KeyValueCondition::None));
        store.write(bucket, writes.collect::<CaseResult<_>>()?).await?;
    }
    Ok(())
}

async fn the_first_1000_keys_with_the_prefix_are_deleted(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("many")?;
    fill(&*a, &bucket, "in/", 2 * BATCH_KEYS_MAX + 1).await?;
    for name in ["i", "io"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let step = larder_kernel::check::size(BATCH_KEYS_MAX);
    let deleted = b.delete_prefix(&bucket, "in/").await?;
    expect::equal("the first deletion", &deleted, &PrefixDeletion::new(step, true))?;
    let rest = names(&*a, &bucket, "in/").await?;
    let expected: Vec<String> =
        (BATCH_KEYS_MAX..=2 * BATCH_KEYS_MAX).map(|number| format!("in/{number:04}")).collect();
    expect::that(rest == expected, "the last keys in byte order", rest.first())?;
    a.delete(&bucket, &key("in/2000")?, None).await?;
    // Exactly as many as one call deletes: nothing remains.
    let deleted = b.delete_prefix(&bucket, "in/").await?;
    expect::equal("the last deletion", &deleted, &PrefixDeletion::new(step, false))?;
    let rest = ["i", "io"].map(str::to_owned).to_vec();
    expect::equal("the keys that stay", &names(&*a, &bucket, "").await?, &rest)?;
    fill(&*a, &bucket, "in/", BATCH_KEYS_MAX + 1).await?;
    expect::equal("all of them", &b.delete_all(&bucket, "in/").await?, &(step + 1))?;
    expect::equal("the keys that stay", &names(&*a, &bucket, "").await?, &rest)
}

async fn each_deletion_by_prefix_takes_a_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("watched")?;
    for name in ["in/c", "in/a", "out", "in/b"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let before = set(&*a, &bucket, "in/aa", "1").await?;
    let mut live = a.watch(&bucket, "", before).await?;
    b.delete_prefix(&bucket, "in/").await?;
    let last = set(&*b, &bucket, "last", "1").await?;
    let mut late = b.watch(&bucket, "", before).await?;
    for events in [&mut live, &mut late] {
        let seen = events_until(events, last).await?;
        let told: Vec<(&str, bool)> =
            seen.iter().map(|event| (event.key.as_str(), event.kind == KeyValueEventKind::Deleted)).collect();
        let expected = vec![("in/a", true), ("in/aa", true), ("in/b", true), ("in/c", true), ("last", false)];
        expect::equal("the events", &told, &expected)?;
        let generation = seen.iter().all(|event| event.revision.generation() == before.generation());
        expect::that(generation, "the generation in each revision", &seen)?;
    }
    Ok(())
}

async fn a_deletion_by_prefix_counts_existing_keys_only(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, other) = (bucket("counted")?, bucket("counted-2")?);
    let nowhere = super::support::bucket("nowhere")?;
    expect::equal("an absent bucket", &b.delete_prefix(&nowhere, "").await?, &PrefixDeletion::default())?;
    for name in ["in/1", "in/2", "in/deleted"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let kept = set(&*a, &other, "in/1", "1").await?;
    set_for(&*a, &bucket, "in/0", Duration::from_millis(1)).await?;
    a.delete(&bucket, &key("in/deleted")?, None).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    expect::equal("the deletion", &b.delete_prefix(&bucket, "in/").await?, &PrefixDeletion::new(2, false))?;
    holds(&*a, &other, "in/1", "1", kept).await?;
    let before = set(&*a, &bucket, "out", "1").await?;
    // Nothing is left to delete, so the second call takes no revision and creates no event.
    let mut events = b.watch(&bucket, "", before).await?;
    expect::equal("the second", &b.delete_prefix(&bucket, "in/").await?, &PrefixDeletion::default())?;
    let last = set(&*a, &bucket, "out", "2").await?;
    let event = next(&mut events, "of the next put").await?;
    expect::equal("the revision of the event", &event.revision, &last)?;
    let left: Vec<(String, u64)> =
        buckets(&*b, 10).await?.into_iter().map(|info| (info.bucket.into(), info.keys)).collect();
    let expected = vec![("counted".to_owned(), 1), ("counted-2".to_owned(), 1)];
    expect::equal("the buckets", &left, &expected)
}

async fn special_characters_of_a_deleted_prefix_are_data(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("special")?;
    let all = [
        "plain", "%a", "a%b", "a_b", "axb", "*a", "a*b", "[a]", "a[b", "?a", "a?b", "\\a", "a\\b", "'a",
        "a'b", "A_b", "ä", "a\nb", "{a}",
    ];
    for name in all {
        set(&*a, &bucket, name, name).await?;
    }
    let mut rest: Vec<String> = all.map(str::to_owned).to_vec();
    rest.sort_unstable();
    for prefix in
        ["%", "_", "a_", "*", "a*", "[", "[a-z]", "a[", "?", "a?", "\\", "a\\", "'", "a%", "{", "A_"]
    {
        let before = rest.len();
        rest.retain(|name| !name.starts_with(prefix));
        let deleted = b.delete_prefix(&bucket, prefix).await?.deleted;
        let expected = larder_kernel::check::size(before - rest.len());
        expect::equal(&format!("the keys deleted with prefix {prefix:?}"), &deleted, &expected)?;
        expect::equal("the keys that stay", &names(&*a, &bucket, "").await?, &rest)?;
    }
    Ok(())
}
