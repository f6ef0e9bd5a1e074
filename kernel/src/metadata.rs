//! Metadata and properties: a JSON object with fixed rules for size, content and equality.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::check;
use crate::error::{Error, Result};
use crate::limits::{JSON_DEPTH_MAX, METADATA_BYTES_MAX};

/// A JSON object that callers attach to messages, documents, entities, relationships and tasks.
///
/// The limits are 32 levels and 64 KiB; in a message, the limit of the message replaces 64 KiB. Keys and
/// strings contain no NUL character. Metadata is read back equal by [`json_equal`]; the order of keys is not
/// preserved.
///
/// ```
/// use larder_kernel::Metadata;
///
/// let metadata = Metadata::new().with("tenant", "acme").with("priority", 3);
/// assert_eq!(metadata.get("tenant").and_then(|value| value.as_str()), Some("acme"));
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metadata(Map<String, Value>);

impl Metadata {
    /// Creates an empty object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a key.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces a key in place. Returns the previous value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.0.insert(key.into(), value.into())
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns `true` if the object has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of keys at the top level.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns a reference to the JSON object.
    #[must_use]
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns the JSON object.
    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Returns the size in bytes: all keys and strings, plus 8 for each number, boolean, null, nested array
    /// and nested object. An array item counts at least 8, so the size covers documents of many empty values.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value_size_bytes(value)).sum()
    }

    /// Checks the size, depth and content for `operation`. Errors name the object `field`.
    ///
    /// # Errors
    /// `InvalidInput` naming the field and the limit.
    pub fn check(&self, operation: &'static str, field: &'static str) -> Result<()> {
        self.check_content(operation, field)?;
        check::at_most(operation, field, self.size_bytes(), METADATA_BYTES_MAX)
    }

    /// Performs [`Self::check`] without the limit of the size.
    pub(crate) fn check_content(&self, operation: &'static str, field: &'static str) -> Result<()> {
        for (key, value) in &self.0 {
            check::no_nul(operation, field, key)?;
            check_value(operation, field, value, 2)?;
        }
        Ok(())
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        maps_equal(&self.0, &other.0)
    }
}

pub(crate) fn check_value(
    operation: &'static str,
    field: &'static str,
    value: &Value,
    depth: usize,
) -> Result<()> {
    let nested = |depth| check::at_most(operation, field, depth, JSON_DEPTH_MAX);
    match value {
        Value::String(text) => check::no_nul(operation, field, text),
        Value::Array(items) => {
            nested(depth)?;
            items.iter().try_for_each(|item| check_value(operation, field, item, depth + 1))
        }
        Value::Object(map) => {
            nested(depth)?;
            map.iter().try_for_each(|(key, item)| {
                check::no_nul(operation, field, key)?;
                check_value(operation, field, item, depth + 1)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

pub(crate) fn value_size_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => 8 + items.iter().map(|item| value_size_bytes(item).max(8)).sum::<usize>(),
        Value::Object(map) => {
            8 + map.iter().map(|(key, item)| key.len() + value_size_bytes(item)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// Compares two JSON values for equality. Every filter and every round trip uses this definition.
///
/// Values of different types are never equal: `true` is not `1`, `"1"` is not `1`, and `null` equals only
/// `null`. Numbers are equal if they are the same real number, regardless of notation: `1` equals `1.0`, and
/// `0` equals `-0.0`. Strings are compared byte by byte, without Unicode normalization. Arrays are equal if
/// their elements are equal in order. Objects are equal if they have the same keys with equal values.
/// Substrings, subsets and single elements do not match.
#[must_use]
pub fn json_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right) == Some(Ordering::Equal),
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| json_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => maps_equal(left, right),
        _ => false,
    }
}

fn maps_equal(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.len() == right.len()
        && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| json_equal(value, other)))
}

/// Orders two JSON values. The comparing filters use this order: numbers by value, strings by their UTF-8
/// bytes.
///
/// Any other pair, mixed types included, has no order and matches no comparison.
#[must_use]
pub fn json_compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        _ => None,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (as_integer(left), as_integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(left), None) => compare_integer_with_float(left, right.as_f64()?),
        (None, Some(right)) => compare_integer_with_float(right, left.as_f64()?).map(Ordering::reverse),
        (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn as_integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares exactly, because 64-bit integers beyond 2^53 have no exact counterpart among floats.
#[allow(clippy::cast_possible_truncation)]
fn compare_integer_with_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() >= 1e30 {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.floor();
    // Within ±1e30, the floor converts to `i128` without loss.
    Some(integer.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal }))
}

/// Returns the JSON text of a value with the keys of every object in byte order, for digests and text
/// comparison.
///
/// # Errors
/// `Unexpected` if the value cannot be written as JSON. Valid values never cause it.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<String> {
    let unwritable =
        |_| Error::new(crate::ErrorKind::Unexpected, "json.canonical", "the value cannot be written as JSON");
    let mut value = serde_json::to_value(value).map_err(unwritable)?;
    value.sort_all_objects();
    serde_json::to_string(&value).map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equality_is_fixed_type_by_type() {
        let equal = [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (json!([1, {"a": 2}]), json!([1.0, {"a": 2.0}])),
            (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1})),
        ];
        for (left, right) in equal {
            assert!(json_equal(&left, &right), "{left} should equal {right}");
        }
        let different = [
            (json!(true), json!(1)),
            (json!("1"), json!(1)),
            (json!(null), json!(false)),
            (json!([1]), json!(1)),
            (json!([1, 2]), json!([2, 1])),
            (json!({"a": 1}), json!({"a": 1, "b": null})),
            (json!("é"), json!("e\u{301}")),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0)),
            (json!(u64::MAX), json!(18_446_744_073_709_551_616.0)),
        ];
        for (left, right) in different {
            assert!(!json_equal(&left, &right), "{left} should differ from {right}");
        }
    }

    #[test]
    fn order_exists_only_among_numbers_and_among_strings() {
        assert_eq!(json_compare(&json!(-1), &json!(-0.5)), Some(Ordering::Less));
        assert_eq!(json_compare(&json!(-1), &json!(-1.5)), Some(Ordering::Greater));
        assert_eq!(json_compare(&json!(1e300), &json!(5)), Some(Ordering::Greater));
        assert_eq!(json_compare(&json!("Z"), &json!("a")), Some(Ordering::Less));
        assert_eq!(json_compare(&json!("a"), &json!(1)), None);
        assert_eq!(json_compare(&json!(false), &json!(true)), None);
    }

    #[test]
    fn checks_name_the_field_and_the_limit() {
        let mut deep = json!(1);
        for _ in 0..JSON_DEPTH_MAX {
            deep = json!([deep]);
        }
        let error = Metadata::new().with("k", deep).check("test", "metadata").unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("metadata"), Some(32)));
        assert!(Metadata::new().with("k\0", 1).check("test", "metadata").is_err());
        assert!(Metadata::new().with("k", json!([{"x": "\0"}])).check("test", "metadata").is_err());
        let big = Metadata::new().with("k", "x".repeat(METADATA_BYTES_MAX));
        assert_eq!(big.check("test", "metadata").unwrap_err().actual(), Some(65_537));
        for empty in [json!([]), json!({}), json!("")] {
            let many = Metadata::new().with("k", vec![empty; 10_000]);
            assert_eq!(many.check("test", "metadata").unwrap_err().actual(), Some(80_009));
        }
    }
}
