//! Listings of keys and buckets.

use larder_kernel::{BucketInfo, BucketName, Key, KeyRevision, KeyValueStore, PageRequest};

use super::support::{bucket, buckets, key, listed, names, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

async fn write_all(store: &dyn KeyValueStore, bucket: &BucketName, all: &[&str]) -> CaseResult {
    for name in all {
        set(store, bucket, name, "1").await?;
    }
    Ok(())
}

/// Returns the required listing of these names with the prefix.
fn expected(all: &[&str], prefix: &str) -> Vec<String> {
    let mut with: Vec<String> =
        all.iter().filter(|name| name.starts_with(prefix)).map(|name| (*name).to_owned()).collect();
    with.sort_unstable();
    with
}

pub(super) async fn exactly_the_keys_with_the_prefix_are_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("prefixes")?;
    let longest = "p".repeat(512);
    // The characters at the end of Unicode are where a computed upper bound would be.
    let all = [
        "a",
        "ab",
        "abc",
        "ac",
        "b",
        "A",
        "AB",
        "aé",
        "ae\u{301}",
        "a\u{d7ff}",
        "a\u{e000}x",
        "a\u{ffff}",
        "a\u{10ffff}",
        "a\u{10ffff}\u{10ffff}",
        "é",
        " a",
        "bab",
        &longest,
    ];
    write_all(&*a, &bucket, &all).await?;
    let prefixes = [
        "",
        "a",
        "ab",
        "abc",
        "abcd",
        "A",
        "aé",
        "ae",
        "é",
        "e",
        " ",
        "b",
        "z",
        "a\u{10ffff}",
        "a\u{ffff}",
        "p",
        &longest,
    ];
    for prefix in prefixes {
        let what = format!("keys with prefix {:?}", prefix.chars().take(8).collect::<String>());
        expect::equal(&what, &names(&*b, &bucket, prefix).await?, &expected(&all, prefix))?;
    }
    let nowhere = super::support::bucket("nowhere")?;
    expect::equal("keys of an absent bucket", &names(&*b, &nowhere, "").await?, &Vec::new())
}

pub(super) async fn listed_keys_carry_their_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    set(&*a, &bucket, "one", "old").await?;
    let two = set(&*a, &bucket, "two", "1").await?;
    let one = set(&*b, &bucket, "one", "new").await?;
    let expected = vec![KeyRevision::new(key("one")?, one), KeyRevision::new(key("two")?, two)];
    expect::equal("keys and revisions", &listed(&*b, &bucket, "", 10).await?, &expected)?;
    expect::equal("keys and revisions", &listed(&*a, &bucket, "", 1).await?, &expected)
}

pub(super) async fn keys_are_listed_in_byte_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("order")?;
    // Written in another order. Collations would ignore case and punctuation, a numeric order would sort
    // numbers by value, and UTF-16 would sort the crab before the last characters of the basic plane.
    let all = [
        "b", "B", "a", "Z", "é", "e\u{301}", "z", "10", "9", "010", "a b", "a-b", "a_b", "ab", "aB", "a",
        " ", "~", "!", "🦀", "\u{ffff}", "\u{e000}", "ß", "ss", "İ", "i", "\u{1}", "a\u{1}", "ü", "A",
    ];
    write_all(&*a, &bucket, &all).await?;
    let mut sorted = expected(&all, "");
    sorted.dedup();
    expect::equal("the keys", &names(&*b, &bucket, "").await?, &sorted)?;
    let single: Vec<String> =
        listed(&*b, &bucket, "", 1).await?.into_iter().map(|item| item.key.into()).collect();
    expect::equal("the keys one by one", &single, &sorted)
}

pub(super) async fn paging_returns_each_key_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("pages")?;
    for number in 0..11 {
        set(&*a, &bucket, &format!("in-{number:02}"), "1").await?;
    }
    write_all(&*a, &bucket, &["a", "in", "io", "z"]).await?;
    for (prefix, count) in [("in-", 11), ("in", 12), ("", 15), ("x", 0)] {
        let whole = listed(&*b, &bucket, prefix, 10_000).await?;
        expect::equal("number of keys", &whole.len(), &count)?;
        for limit in [1, 2, 3, 5, count.max(2) - 1, count.max(1), count + 1] {
            let what = format!("prefix {prefix:?} in pages of {limit}");
            expect::equal(&what, &listed(&*b, &bucket, prefix, limit).await?, &whole)?;
        }
        let exact = b.list(&bucket, prefix, PageRequest::first(count)).await?;
        expect::equal("what follows a page that holds all", &exact.next, &None)?;
    }
    let nothing = b.list(&bucket, "", PageRequest::first(0)).await?;
    expect::that(nothing.items.is_empty(), "nothing for a limit of 0", &nothing.items)?;
    let first = b.list(&bucket, "in-", PageRequest::first(10)).await?;
    expect::that(first.next.is_some(), "a page to follow", &first.next)
}

pub(super) async fn a_page_begins_after_a_key_that_need_not_exist(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("pages")?;
    write_all(&*a, &bucket, &["a1", "b", "b1", "b2", "b3", "c1"]).await?;
    let table: [(&str, &str, &[&str]); 9] = [
        ("", "b1", &["b2", "b3", "c1"]),
        ("", "b11", &["b2", "b3", "c1"]),
        ("", "a", &["a1", "b", "b1", "b2", "b3", "c1"]),
        ("", "z", &[]),
        ("b", "a1", &["b", "b1", "b2", "b3"]),
        ("b", "b", &["b1", "b2", "b3"]),
        ("b", "b2", &["b3"]),
        ("b", "b3", &[]),
        ("b", "c", &[]),
    ];
    for (prefix, after, rest) in table {
        let page = b.list(&bucket, prefix, PageRequest::after(key(after)?, 10)).await?;
        let got: Vec<&str> = page.items.iter().map(|item| item.key.as_str()).collect();
        expect::equal(&format!("prefix {prefix:?} after {after:?}"), &&*got, &rest)?;
    }
    Ok(())
}

pub(super) async fn paging_during_writes_returns_remaining_keys_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("pages")?;
    for number in 0..20 {
        set(&*a, &bucket, &format!("{number:02}"), "1").await?;
    }
    let (mut seen, mut page) = (Vec::new(), PageRequest::<Key>::first(3));
    for round in 0..100_usize {
        let part = b.list(&bucket, "", page).await?;
        seen.extend(part.items.into_iter().map(|item| String::from(item.key)));
        let Some(next) = part.next else { break };
        // The odd keys are deleted, including the last key of the page; the even ones are rewritten and stay.
        let ended: usize = next.as_str().get(..2).and_then(|digits| digits.parse().ok()).unwrap_or_default();
        a.delete(&bucket, &key(&format!("{:02}", ended | 1))?, None).await?;
        set(&*a, &bucket, &format!("{:02}", ended & !1), "2").await?;
        set(&*a, &bucket, &format!("00-{round}"), "1").await?;
        page = PageRequest::after(next, 3);
    }
    let even: Vec<String> = (0..20).step_by(2).map(|number| format!("{number:02}")).collect();
    let stayed: Vec<String> = seen.iter().filter(|name| even.contains(name)).cloned().collect();
    expect::equal("the keys that stayed throughout", &stayed, &even)?;
    expect::that(seen.is_sorted_by(|left, right| left < right), "each key once, in order", &seen)
}

pub(super) async fn deleted_keys_are_not_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    write_all(&*a, &bucket, &["a", "b", "c", "d"]).await?;
    for name in ["b", "d"] {
        a.delete(&bucket, &key(name)?, None).await?;
    }
    let rest = vec!["a".to_owned(), "c".to_owned()];
    expect::equal("the keys", &names(&*b, &bucket, "").await?, &rest)?;
    expect::equal("keys with the prefix", &names(&*b, &bucket, "b").await?, &Vec::new())?;
    let page = b.list(&bucket, "", PageRequest::first(2)).await?;
    expect::equal(
        "a full page, and the existence of a next page",
        &(page.items.len(), page.next),
        &(2, None),
    )?;
    set(&*b, &bucket, "b", "again").await?;
    expect::equal("the keys", &names(&*a, &bucket, "").await?, &expected(&["a", "b", "c"], ""))
}

pub(super) async fn special_characters_of_a_prefix_are_data(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("special")?;
    let all = [
        "plain", "%", "%a", "a%b", "a_b", "axb", "axxb", "_", "__", "*", "*a", "a*b", "[", "[a]", "a[b",
        "a]b", "?", "a?b", "\\", "\\%", "a\\b", "^a", "$", "{a}", "a{b", "'", "a'b", "\"", "a.b", ".*",
        "a|b", "(a", "\n", "a\nb", "a/b", ":", "a:b", "#a",
    ];
    write_all(&*a, &bucket, &all).await?;
    let prefixes = [
        "%", "%a", "a%", "a_", "_", "__", "*", "a*", "[", "[a", "[a-z]", "a[", "?", "a?", "\\", "\\%", "a\\",
        "^", "$", "{", "a{", "'", "a'", "\"", ".", "a.", ".*", "a|", "(", "\n", "a\n", "a/", ":", "#", "%%",
        "a%b%",
    ];
    for prefix in prefixes {
        let what = format!("keys with prefix {prefix:?}");
        expect::equal(&what, &names(&*b, &bucket, prefix).await?, &expected(&all, prefix))?;
    }
    Ok(())
}

pub(super) async fn buckets_are_listed_once_with_their_number_of_keys(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let wanted = [("B", 1_u64), ("a", 3), ("a:b", 1), ("b", 2), ("é", 1), ("\u{ffff}", 1), ("🦀", 2)];
    for (name, keys) in wanted.iter().rev() {
        for number in 0..*keys {
            // A rewritten key is counted once.
            set(&*a, &bucket(name)?, &format!("key-{number}"), "1").await?;
            set(&*b, &bucket(name)?, &format!("key-{number}"), "2").await?;
        }
    }
    let mut expected = Vec::new();
    for (name, keys) in wanted {
        expected.push(BucketInfo::new(bucket(name)?, keys));
    }
    for limit in [1, 2, 3, 6, 7, 8, 10_000] {
        expect::equal(&format!("buckets in pages of {limit}"), &buckets(&*b, limit).await?, &expected)?;
    }
    let exact = b.list_buckets(PageRequest::first(7)).await?;
    expect::equal("what follows a page that holds all", &exact.next, &None)?;
    let nothing = b.list_buckets(PageRequest::first(0)).await?;
    expect::that(nothing.items.is_empty(), "nothing for a limit of 0", &nothing.items)?;
    let after = b.list_buckets(PageRequest::after(bucket("a0")?, 2)).await?;
    expect::equal("the page after a missing bucket", &after.items.as_slice(), &&expected[2..4])
}

pub(super) async fn an_emptied_bucket_is_not_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (emptied, rest) = (bucket("emptied")?, bucket("rest")?);
    write_all(&*a, &emptied, &["a", "b"]).await?;
    write_all(&*a, &rest, &["a", "b"]).await?;
    for (bucket, name) in [(&emptied, "a"), (&emptied, "b"), (&rest, "b")] {
        a.delete(bucket, &key(name)?, None).await?;
    }
    let left = BucketInfo::new(rest.clone(), 1);
    expect::equal("the buckets", &buckets(&*b, 10).await?, &vec![left.clone()])?;
    expect::equal("the buckets one by one", &buckets(&*b, 1).await?, &vec![left.clone()])?;
    set(&*b, &emptied, "a", "again").await?;
    let again = BucketInfo::new(emptied, 1);
    expect::equal("the buckets", &buckets(&*a, 10).await?, &vec![again, left])
}
