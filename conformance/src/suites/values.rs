//! Values that backends are known to parse, trim, round or normalize. Every field that stores text gets every
//! text, and every map of metadata gets every number.

use std::fmt::Debug;
use std::time::Duration;

use larder_kernel::Metadata;
use serde_json::{Value, json};

use crate::case::CaseResult;
use crate::expect;

/// Texts that look like something else.
pub(crate) const TEXTS: &[&str] = &[
    // JSON, which a backend may parse and write again.
    "{\"a\":1}",
    "{ \"b\" : 1.0, \"a\" : [ ] }",
    "{\"a\":1,\"a\":2}",
    "[1, 2]",
    "[]",
    "\"quoted\"",
    "\"\\u0041\"",
    "\\u0041",
    "null",
    "true",
    // Numbers, which a backend may parse and round.
    "0",
    "-0.0",
    "007",
    "1.0",
    "1e16",
    "12345678901234567890",
    "0.1000000000000000055",
    "NaN",
    "Infinity",
    "0x1F",
    // Dates, encodings and placeholders.
    "2026-01-01T00:00:00Z",
    "SGVsbG8=",
    "%41",
    "a+b",
    "&amp;<b>",
    "$1 ?1 :name %s {}",
    "'; --",
    // Whitespace and letters that are trimmed or folded.
    "a  b",
    "MiXeD",
    "e\u{301} \u{e9} \u{1f980}",
    "\u{feff}x",
    " padded ",
    "a\r\nb\n",
    "a\tb",
];

/// Returns numbers that a backend may round, or store as another type.
pub(crate) fn numbers() -> Vec<Value> {
    vec![
        json!(0),
        json!(-1),
        json!(1.5),
        json!(0.1 + 0.2),
        json!(1e16),
        json!(123_456_789.123_456_79),
        json!(9_007_199_254_740_993_u64),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(f64::MAX),
        json!(f64::MIN_POSITIVE),
        json!(5e-324),
    ]
}

/// Returns metadata with each text as a value, each text as a name, and each number.
pub(crate) fn metadata() -> Vec<Metadata> {
    let texts = TEXTS.iter().flat_map(|text| {
        [
            Metadata::new().with("value", *text),
            Metadata::new().with(*text, 1),
            Metadata::new().with("nested", json!({ *text: [*text] })),
        ]
    });
    let numbers = numbers().into_iter().map(|number| Metadata::new().with("number", number));
    texts.chain(numbers).collect()
}

const DAY: Duration = Duration::from_secs(86_400);

/// Times to live and leases from minutes to years. Each needs more bits than the one before, in seconds,
/// milliseconds or microseconds.
pub(crate) const LIVES: &[Duration] = &[
    Duration::from_secs(90),
    Duration::from_secs(3_599),
    Duration::from_secs(25 * 3_600),
    DAY.saturating_mul(25),
    DAY.saturating_mul(50),
    DAY.saturating_mul(366),
    DAY.saturating_mul(365 * 69),
];

/// Checks that the items are equal, one by one, so that a failure shows the first that differs.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) -> CaseResult {
    expect::equal(&format!("{what}: the number of items"), &found.len(), &expected.len())?;
    found.iter().zip(expected).try_for_each(|(found, expected)| expect::equal(what, found, expected))
}

/// Returns the names of the fields of a value's JSON form.
#[cfg(test)]
pub(crate) fn fields_of<T: serde::Serialize>(value: &T) -> std::collections::BTreeSet<String> {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}
