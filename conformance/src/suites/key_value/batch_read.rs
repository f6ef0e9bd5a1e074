//! Reads of several keys: `get_many` and `list_entries`.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, VALUE_BYTES_MAX};
use larder_kernel::{
    BucketName, Key, KeyValueItem, KeyValueQuery, KeyValueStore, KeyValueStoreExt, PageRequest,
};

use super::support::{bucket, key, read, set, set_for};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

const HOUR: Duration = Duration::from_secs(3600);
/// More pages than any listing of these cases has.
const PAGES_MAX: usize = 5_000;
/// The number of the largest values that one answer holds.
const FULL: usize = BATCH_VALUES_BYTES_MAX / VALUE_BYTES_MAX;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-053", get_many_returns_what_get_returns),
        case!(KeyValue, "KV-053", get_many_of_1000_keys_is_in_the_order_of_the_keys),
        case!(KeyValue, "KV-055", get_many_ends_at_16_mib),
        case!(KeyValue, "KV-067", list_entries_follows_the_table_of_ranges),
        case!(KeyValue, "KV-068", items_carry_what_get_returns),
        case!(KeyValue, "KV-069", entries_are_listed_in_order_and_in_reverse),
        case!(KeyValue, "KV-069", paging_returns_each_entry_once_in_both_orders),
        case!(KeyValue, "KV-069", paging_entries_during_writes_returns_remaining_keys_once),
        case!(KeyValue, "KV-070", a_page_of_entries_ends_at_16_mib),
    ]
}

fn keys(names: &[&str]) -> CaseResult<Vec<Key>> {
    names.iter().map(|name| key(name)).collect()
}

async fn get_many_returns_what_get_returns(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("many")?;
    for name in ["one", "two", "empty", "é", "deleted"] {
        set(&*a, &bucket, name, if name == "empty" { "" } else { name }).await?;
    }
    set_for(&*a, &bucket, "brief", HOUR).await?;
    set_for(&*a, &bucket, "expired", Duration::from_millis(1)).await?;
    a.delete(&bucket, &key("deleted")?, None).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let asked = keys(&["two", "never", "brief", "one", "expired", "é", "deleted", "empty", "two", "on"])?;
    let found = b.get_many(&bucket, &asked).await?;
    expect::equal("what follows", &found.next, &None)?;
    let mut expected = Vec::new();
    for key in &asked {
        expected.push(a.get(&bucket, key).await?);
    }
    expect::equal("the entries", &found.items, &expected)?;
    let there: Vec<bool> = expected.iter().map(Option::is_some).collect();
    let right = vec![true, false, true, true, false, true, false, true, true, false];
    expect::equal("the existing keys", &there, &right)?;
    let nothing = b.get_many(&bucket, &[]).await?;
    expect::equal("the entries of no key", &(nothing.items.len(), nothing.next), &(0, None))?;
    let nowhere = super::support::bucket("nowhere")?;
    let found = b.get_many(&nowhere, &asked[..2]).await?;
    expect::equal("the entries of an absent bucket", &found.items, &vec![None, None])
}

async fn get_many_of_1000_keys_is_in_the_order_of_the_keys(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("many")?;
    for number in (0..60).map(|number| number * 7) {
        set(&*a, &bucket, &format!("key-{number}"), &number.to_string()).await?;
    }
    let numbers = (0..BATCH_KEYS_MAX).rev();
    let asked: Vec<Key> =
        numbers.clone().map(|number| key(&format!("key-{number}"))).collect::<CaseResult<_>>()?;
    let found = b.get_many(&bucket, &asked).await?;
    expect::equal("the number of entries", &(found.items.len(), found.next), &(BATCH_KEYS_MAX, None))?;
    for (number, entry) in numbers.zip(found.items) {
        let text = entry.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
        let written = number % 7 == 0 && number < 60 * 7;
        expect::equal(&format!("the entry {number}"), &text, &written.then(|| number.to_string()))?;
    }
    Ok(())
}

/// Writes one more of the largest values than fit into one answer.
async fn fill(store: &dyn KeyValueStore, bucket: &BucketName) -> CaseResult<Vec<Key>> {
    let mut keys = Vec::new();
    for number in 0..=FULL {
        let name = key(&format!("key-{number}"))?;
        store.set(bucket, &name, large(number)).await?;
        keys.push(name);
    }
    Ok(keys)
}

fn large(number: usize) -> Bytes {
    Bytes::from(vec![b'a' + u8::try_from(number).unwrap_or(0); VALUE_BYTES_MAX])
}

async fn get_many_ends_at_16_mib(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("heavy")?;
    let mut asked = fill(&*a, &bucket).await?;
    asked.insert(1, key("absent")?);
    let (mut values, mut calls) = (Vec::new(), 0);
    while values.len() < asked.len() {
        let part = b.get_many(&bucket, &asked[values.len()..]).await?;
        let bytes: usize = part.items.iter().flatten().map(|entry| entry.value.len()).sum();
        expect::that(bytes <= BATCH_VALUES_BYTES_MAX, "at most 16 MiB of values", bytes)?;
        expect::that(!part.items.is_empty(), "at least one item", calls)?;
        let rest = asked.len() - values.len() - part.items.len();
        let next = (rest > 0).then_some(part.items.len());
        expect::equal("the position of the next key", &part.next, &next)?;
        values.extend(part.items.into_iter().map(|entry| entry.map(|entry| entry.value)));
        calls += 1;
    }
    expect::that(calls > 1, "more than one call", calls)?;
    let mut expected: Vec<Option<Bytes>> = (0..=FULL).map(|number| Some(large(number))).collect();
    expected.insert(1, None);
    expect::that(values == expected, "every value", values.len())
}

/// Returns all entries that the query selects, read in pages of `limit`.
pub(super) async fn entries(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    query: &KeyValueQuery,
    limit: usize,
) -> CaseResult<Vec<KeyValueItem>> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
    for _ in 0..PAGES_MAX {
        let part = store.list_entries(bucket, query, page).await?;
        expect::that(part.items.len() <= limit, format!("a page of at most {limit}"), part.items.len())?;
        found.extend(part.items);
        match part.next {
            Some(next) => page = PageRequest::after(next, limit),
            None => return Ok(found),
        }
    }
    Err(expect::broken("the listing to end", format!("{PAGES_MAX} pages and more")))
}

async fn names(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    query: &KeyValueQuery,
) -> CaseResult<Vec<String>> {
    Ok(entries(store, bucket, query, 10_000).await?.into_iter().map(|item| item.key.into()).collect())
}

/// Keys and bounds at which a fold, a pattern or a computed end would differ.
const NAMES: &[&str] = &[
    "A",
    "a",
    "a%b",
    "a_b",
    "ab",
    "abc",
    "axb",
    "aé",
    "a\u{d7ff}",
    "a\u{e000}",
    "a\u{ffff}",
    "a\u{10ffff}",
    "a\u{10ffff}x",
    "b",
    "ba",
    "z",
    "é",
    "🦀",
];
const PREFIXES: &[&str] = &["", "a", "a_", "ab", "a\u{10ffff}", "a\u{d7ff}", "B", "q"];
const BOUNDS: &[Option<&str>] = &[
    None,
    Some("A"),
    Some("a"),
    Some("ab"),
    Some("abb"),
    Some("a\u{ffff}"),
    Some("b"),
    Some("zz"),
    Some("🦀"),
];

async fn list_entries_follows_the_table_of_ranges(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("ranges")?;
    for name in NAMES {
        set(&*a, &bucket, name, name).await?;
    }
    let mut sorted = NAMES.to_vec();
    sorted.sort_unstable();
    for prefix in PREFIXES {
        for from in BOUNDS {
            for to in BOUNDS {
                let selected = |name: &&&str| {
                    name.starts_with(prefix)
                        && from.is_none_or(|from| **name >= from)
                        && to.is_none_or(|to| **name < to)
                };
                let mut expected: Vec<String> =
                    sorted.iter().filter(selected).map(|name| (*name).to_owned()).collect();
                let query = KeyValueQuery::prefix(*prefix)
                    .with_from(from.map(Key::new).transpose()?)
                    .with_to(to.map(Key::new).transpose()?);
                let what = format!("prefix {prefix:?} from {from:?} to {to:?}");
                expect::equal(&what, &names(&*b, &bucket, &query).await?, &expected)?;
                expected.reverse();
                let reversed = names(&*b, &bucket, &query.descending()).await?;
                expect::equal(&format!("{what} in reverse"), &reversed, &expected)?;
            }
        }
    }
    let longest = "p".repeat(512);
    set(&*a, &bucket, &longest, "1").await?;
    let found = names(&*b, &bucket, &KeyValueQuery::prefix(longest.clone()).descending()).await?;
    expect::equal("keys with the longest prefix", &found, &vec![longest])?;
    let nowhere = super::support::bucket("nowhere")?;
    expect::equal(
        "keys of an absent bucket",
        &names(&*b, &nowhere, &KeyValueQuery::prefix("")).await?,
        &vec![],
    )
}

async fn items_carry_what_get_returns(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("items")?;
    for name in ["one", "two", "deleted"] {
        set(&*a, &bucket, name, "old").await?;
    }
    set(&*a, &bucket, "one", "new").await?;
    set(&*a, &bucket, "empty", "").await?;
    set_for(&*a, &bucket, "brief", HOUR).await?;
    set_for(&*a, &bucket, "expired", Duration::from_millis(1)).await?;
    a.delete(&bucket, &key("deleted")?, None).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut expected = Vec::new();
    for name in ["brief", "empty", "one", "two"] {
        let entry = read(&*a, &bucket, name).await?;
        let item = KeyValueItem::new(key(name)?, entry.revision).with_expires_at(entry.expires_at);
        expected.push(item.with_value(Some(entry.value)));
    }
    expect::that(expected[0].expires_at.is_some(), "the instant of expiry", &expected[0])?;
    let (all, every) = (KeyValueQuery::prefix(""), 10);
    for query in [all.clone(), all.descending()] {
        let with = entries(&*b, &bucket, &query.clone().with_values(), every).await?;
        expect::equal("the items with values", &with, &expected)?;
        let bare: Vec<KeyValueItem> =
            expected.iter().cloned().map(|item| item.with_value(None::<Bytes>)).collect();
        expect::equal("the items without", &entries(&*b, &bucket, &query, every).await?, &bare)?;
        expected.reverse();
    }
    Ok(())
}

async fn entries_are_listed_in_order_and_in_reverse(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("order")?;
    // Collations would ignore case and punctuation, and a numeric order would sort numbers by value.
    let mut all = vec![
        "b", "B", "a", "Z", "é", "e\u{301}", "z", "10", "9", "010", "a b", "a-b", "a_b", "ab", "aB", " ",
        "~", "🦀", "\u{ffff}", "\u{e000}", "ß", "ss",
    ];
    for name in &all {
        set(&*a, &bucket, name, "1").await?;
    }
    all.sort_unstable();
    let mut expected: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
    let query = KeyValueQuery::prefix("");
    expect::equal("the keys", &names(&*b, &bucket, &query).await?, &expected)?;
    expected.reverse();
    expect::equal("the keys in reverse", &names(&*b, &bucket, &query.descending()).await?, &expected)
}

async fn paging_returns_each_entry_once_in_both_orders(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("pages")?;
    for number in 0..11 {
        set(&*a, &bucket, &format!("in-{number:02}"), &number.to_string()).await?;
    }
    for name in ["a", "in", "io", "z"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let within = KeyValueQuery::prefix("in-").with_from(key("in-02")?).with_to(key("in-09")?);
    for query in [KeyValueQuery::prefix(""), KeyValueQuery::prefix("in-").with_values(), within] {
        for query in [query.clone(), query.descending()] {
            let whole = entries(&*b, &bucket, &query, 10_000).await?;
            for limit in [1, 2, 3, whole.len() - 1, whole.len(), whole.len() + 1] {
                let what = format!("{query:?} in pages of {limit}");
                expect::equal(&what, &entries(&*b, &bucket, &query, limit).await?, &whole)?;
            }
            let exact = b.list_entries(&bucket, &query, PageRequest::first(whole.len())).await?;
            expect::equal("what follows a page that holds all", &exact.next, &None)?;
            let nothing = b.list_entries(&bucket, &query, PageRequest::first(0)).await?;
            expect::that(nothing.items.is_empty(), "nothing for a limit of 0", &nothing.items)?;
        }
    }
    // The key after which a page begins need not exist, and may be outside of the range.
    let all = KeyValueQuery::prefix("in-");
    for (query, after, first) in [
        (all.clone(), "in-021", Some("in-03")),
        (all.clone(), "a", Some("in-00")),
        (all.clone(), "q", None),
        (all.clone().descending(), "in-021", Some("in-02")),
        (all.clone().descending(), "q", Some("in-10")),
        (all.descending(), "a", None),
    ] {
        let page = b.list_entries(&bucket, &query, PageRequest::after(key(after)?, 1)).await?;
        let found = page.items.first().map(|item| item.key.as_str());
        expect::equal(&format!("{query:?} after {after:?}"), &found, &first)?;
    }
    Ok(())
}

async fn paging_entries_during_writes_returns_remaining_keys_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    for (name, query) in [("up", KeyValueQuery::prefix("")), ("down", KeyValueQuery::prefix("").descending())]
    {
        let bucket = bucket(name)?;
        for number in 0..20 {
            set(&*a, &bucket, &format!("{number:02}"), "1").await?;
        }
        let (mut seen, mut page) = (Vec::new(), PageRequest::<Key>::first(3));
        for round in 0..PAGES_MAX {
            let part = b.list_entries(&bucket, &query, page).await?;
            seen.extend(part.items.into_iter().map(|item| String::from(item.key)));
            let Some(next) = part.next else { break };
            // The odd keys are deleted, including the last key of the page; the even ones are rewritten.
            let digits = next.as_str().get(..2).and_then(|digits| digits.parse::<usize>().ok());
            let ended = digits.unwrap_or_default();
            a.delete(&bucket, &key(&format!("{:02}", ended | 1))?, None).await?;
            set(&*a, &bucket, &format!("{:02}", ended & !1), "2").await?;
            set(&*a, &bucket, &format!("{}-{round}", if name == "up" { "00" } else { "99" }), "1").await?;
            page = PageRequest::after(next, 3);
        }
        if name == "down" {
            seen.reverse();
        }
        let even: Vec<String> = (0..20).step_by(2).map(|number| format!("{number:02}")).collect();
        let stayed: Vec<String> = seen.iter().filter(|name| even.contains(name)).cloned().collect();
        expect::equal("the keys that stayed throughout", &stayed, &even)?;
        expect::that(seen.is_sorted_by(|left, right| left < right), "each key once, in order", &seen)?;
    }
    Ok(())
}

async fn a_page_of_entries_ends_at_16_mib(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("heavy")?;
    fill(&*a, &bucket).await?;
    let expected: Vec<(String, Bytes)> =
        (0..=FULL).map(|number| (format!("key-{number}"), large(number))).collect();
    let (mut found, mut page, mut pages) = (Vec::new(), PageRequest::first(100), 0);
    let query = KeyValueQuery::prefix("").with_values();
    loop {
        let part = b.list_entries(&bucket, &query, page).await?;
        let bytes: usize = part.items.iter().filter_map(|item| item.value.as_ref()).map(Bytes::len).sum();
        expect::that(bytes <= BATCH_VALUES_BYTES_MAX, "at most 16 MiB of values", bytes)?;
        expect::that(!part.items.is_empty(), "at least one item", pages)?;
        found.extend(part.items.into_iter().filter_map(|item| Some((String::from(item.key), item.value?))));
        pages += 1;
        let Some(next) = part.next else { break };
        page = PageRequest::after(next, 100);
    }
    expect::that(pages > 1, "more than one page", pages)?;
    expect::that(found == expected, "every value once", found.len())?;
    // Without the values, the page holds all keys.
    let bare = b.list_entries(&bucket, &KeyValueQuery::prefix(""), PageRequest::first(100)).await?;
    expect::equal("the keys of a page without values", &(bare.items.len(), bare.next), &(FULL + 1, None))
}
