//! The common parts of the contracts' operations: times, pages, metadata, filters.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use larder_kernel::{Filter, Metadata, Page, PageRequest, Result, Timestamp};
use serde_json::{Value, json};

use super::compare::{Checked, Mismatch, holds, is_trouble, wrong};
use super::recorder::Recorder;
use super::rng::Rng;

/// The largest difference between a store's clock and the suite's.
const CLOCKS_APART_US: i64 = 10 * 60 * 1_000_000;
/// Times to live that do not end while a script runs.
const TTLS: [Duration; 3] =
    [Duration::from_secs(86_400), Duration::from_millis(3_600_001), Duration::from_secs(100 * 365 * 86_400)];
/// Invalid times to live.
const BAD_TTLS: [Duration; 3] =
    [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(100 * 365 * 86_400 + 1)];
/// Page limits; the last is invalid.
const LIMITS: [usize; 8] = [10_000, 1, 2, 3, 0, 5, 9_999, 10_001];

/// Draws a time to live, sometimes an invalid one.
pub(super) fn ttl(rng: &mut Rng<'_>) -> Duration {
    if rng.one_in(12) { rng.of(&BAD_TTLS) } else { rng.of(&TTLS) }
}

/// Draws a limit, sometimes an invalid one.
pub(super) fn limit(rng: &mut Rng<'_>) -> usize {
    rng.of(&LIMITS)
}

/// Returns `true` if an instant is the end of a time to live that begins now.
pub(super) fn is_due(at: Timestamp, ttl: Duration) -> bool {
    let due = Timestamp::now().saturating_add(ttl);
    (at.as_micros() - due.as_micros()).abs() <= CLOCKS_APART_US
}

/// Returns `true` if an instant is now.
pub(super) fn is_now(at: Timestamp) -> bool {
    is_due(at, Duration::ZERO)
}

/// Returns a page of a listing of all these items, in order.
pub(super) fn page_of<T, K: Ord + Clone>(
    items: impl IntoIterator<Item = T>,
    request: &PageRequest<K>,
    key: impl Fn(&T) -> K,
) -> Page<T, K> {
    let follows = |item: &T| request.after.as_ref().is_none_or(|after| key(item) > *after);
    let mut items: Vec<T> = items.into_iter().filter(follows).collect();
    let more = items.len() > request.limit;
    items.truncate(request.limit);
    let next = if more { items.last().map(&key) } else { None };
    Page::new(items, next)
}

/// Draws a request for a page: its limit and its start.
pub(super) fn request<K>(rng: &mut Rng<'_>, key: impl FnOnce(&mut Rng<'_>) -> K) -> PageRequest<K> {
    let limit = limit(rng);
    let after = (rng.below(3) > 0).then(|| key(rng));
    PageRequest::first(limit).with_after(after)
}

/// A stream, which has no printable content.
pub(super) struct Streamed<T>(pub(super) BoxStream<'static, Result<T>>);

impl<T> fmt::Debug for Streamed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stream")
    }
}

/// Returns the first events of a stream, which must be `count` events with no further one ready.
pub(super) async fn backlog<T: fmt::Debug>(
    mut events: BoxStream<'static, Result<T>>,
    count: usize,
    clause: &'static str,
    recorder: &Recorder,
) -> Checked<Vec<T>> {
    let mut told = Vec::new();
    while told.len() < count {
        match tokio::time::timeout(recorder.wait_max, events.next()).await {
            Ok(Some(Ok(event))) => told.push(event),
            Ok(Some(Err(error))) if is_trouble(&error) => {
                return Err(Mismatch::Trouble(format!("{error:?}")));
            }
            other => {
                let got = format!("{} of them, {told:?}, and then {other:?}", told.len());
                let assertion = format!("assert_eq!({}.len(), {count});", recorder.answer());
                return Err(wrong(clause, format!("{count} events"), got, assertion));
            }
        }
    }
    if recorder.dumping {
        // A further read that is then dropped costs some stores a connection; the operations of the script
        // test it.
        return Ok(told);
    }
    let more = tokio::time::timeout(recorder.quiet, events.next()).await.ok();
    let none = || recorder.no_more_than(count);
    holds(clause, more.is_none(), || format!("no more than {count} events"), &more, none)?;
    Ok(told)
}

/// Returns values that some backend might confuse.
fn values() -> Vec<Value> {
    vec![
        json!(1),
        json!(true),
        json!("1"),
        json!(1.0),
        json!(1.5),
        json!(null),
        json!(0),
        json!(-0.0),
        json!(false),
        json!("a"),
        json!("A"),
        json!("é"),
        json!("e\u{301}"),
        json!(""),
        json!([1]),
        json!([1, 2]),
        json!({}),
        json!({"k": 1}),
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992_i64),
        json!(u64::MAX),
        json!(1e300),
        json!("%"),
        json!("'\"\\"),
    ]
}

/// Keys that some backend might interpret as a path.
const KEYS: [&str; 6] = ["k", "K", "k.k", "$k", "", "é"];

fn key(rng: &mut Rng<'_>) -> &'static str {
    rng.of(&KEYS)
}

/// Draws metadata of up to two keys, sometimes invalid.
pub(super) fn metadata(rng: &mut Rng<'_>) -> Metadata {
    match rng.below(16) {
        0..4 => Metadata::new(),
        4..10 => Metadata::new().with(key(rng), rng.of(&values())),
        10..15 => Metadata::new().with("k", rng.of(&values())).with(key(rng), rng.of(&values())),
        _ => Metadata::new().with("k", "\0"),
    }
}

/// Draws a filter of one or two conditions, sometimes invalid.
pub(super) fn filter(rng: &mut Rng<'_>) -> Filter {
    let (one, value) = (key(rng), rng.of(&values()));
    match rng.below(18) {
        0 | 1 => Filter::eq(one, value),
        2 => Filter::ne(one, value),
        3 => Filter::gt(one, value),
        4 => Filter::gte(one, value),
        5 => Filter::lt(one, value),
        6 => Filter::lte(one, value),
        7 => Filter::is_in(one, [value, json!("a")]),
        8 => Filter::exists(one),
        9 => Filter::contains_key(one, "k"),
        10 => !Filter::eq(one, value),
        11 => Filter::eq(one, value) | Filter::exists("K"),
        12 => Filter::exists(one) & Filter::ne("k", value),
        13 => Filter::eq([one, "k"], value),
        14 => Filter::contains_any(one, [value, json!(2)]),
        15 => Filter::contains_all(one, [value, json!(1)]),
        16 => !Filter::contains_any(one, [json!(1.0)]),
        _ => Filter::eq(one, "\0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_cursor_only_if_another_page_follows() {
        let page =
            |after, limit| page_of([1, 2, 3], &PageRequest::first(limit).with_after(after), |item| *item);
        assert_eq!(page(None, 2), Page::new(vec![1, 2], Some(2)));
        assert_eq!(page(Some(2), 2), Page::new(vec![3], None));
        assert_eq!(page(None, 0), Page::new(vec![], None));
    }
}
