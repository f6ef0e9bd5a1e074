//! Fields of a JSON object in their original order and spelling.

use std::fmt;

use larder_kernel::limits::JSON_DEPTH_MAX;
use larder_kernel::{Error, Result};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::PARSE;

const TWICE: &str = "the name of a field occurs twice";

/// The fields of an object, with unique names.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// Reads an object. `what` names it in the error.
    pub(super) fn parse(json: &str, what: &'static str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| unreadable(what, &error))
    }

    /// Removes a field.
    pub(super) fn take(&mut self, name: &str) -> Option<Box<RawValue>> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }

    /// Removes a field that must be a string.
    pub(super) fn take_text(&mut self, name: &str, what: &'static str) -> Result<String> {
        let value = self.take(name).ok_or_else(|| Error::invalid(PARSE, what, "missing"))?;
        text(&value).ok_or_else(|| Error::invalid(PARSE, what, "not a string"))
    }

    /// Returns a field.
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns a field that is a string.
    pub(super) fn get_text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Returns `true` if the object has only these fields: `{"<name>": "<value>"}`.
    pub(super) fn are_only(&self, name: &str, value: &str) -> bool {
        matches!(&*self.0, [(known, raw)] if known == name && text(raw).as_deref() == Some(value))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a field, unless the name exists.
    pub(super) fn push(&mut self, name: impl Into<String>, value: Box<RawValue>) {
        let name = name.into();
        if !self.has(&name) {
            self.0.push((name, value));
        }
    }

    /// Adds a field from a serializable value.
    pub(super) fn push_value(&mut self, name: impl Into<String>, value: &impl Serialize) -> Result<()> {
        self.push(name, raw(value)?);
        Ok(())
    }

    /// Adds these fields at the end, in the order of their names.
    pub(super) fn append_sorted(&mut self, mut others: Self) {
        others.0.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (name, value) in others.0 {
            self.push(name, value);
        }
    }

    /// Returns the object as one line.
    pub(super) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|_| Error::invalid(PARSE, "line", "cannot be written as JSON"))
    }
}

impl IntoIterator for Fields {
    type Item = (String, Box<RawValue>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut names = std::collections::HashSet::new();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if !names.insert(name.clone()) {
                return Err(de::Error::custom(TWICE));
            }
            fields.0.push((name, compact(&value).map_err(de::Error::custom)?));
        }
        Ok(fields)
    }
}

/// Returns the text of a string value.
pub(super) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the JSON of a value.
pub(super) fn raw(value: &impl Serialize) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value)
        .map_err(|_| Error::invalid(PARSE, "line", "cannot be written as JSON"))
}

/// Returns an error with the position of invalid JSON. It quotes nothing.
pub(super) fn unreadable(what: &'static str, error: &serde_json::Error) -> Error {
    let column = error.column();
    let twice = error.to_string().contains(TWICE);
    let reason = match error.classify() {
        serde_json::error::Category::Eof => "the JSON ends too early (complete it)".to_owned(),
        _ if twice => format!("the name of a field occurs twice, before column {column} (rename one)"),
        serde_json::error::Category::Data => format!("not the JSON of {}", shape(what)),
        _ => format!("not JSON, at column {column}"),
    };
    let error_line = error.line();
    let error = Error::invalid(PARSE, what, reason);
    if error_line > 1 { error.with_context("line", larder_kernel::check::size(error_line)) } else { error }
}

fn shape(what: &str) -> &'static str {
    if matches!(what, "tool_calls" | "content" | "parts") { "a list" } else { "an object" }
}

/// Removes whitespace between the parts of the JSON, because a line break would end the output line.
fn compact(value: &RawValue) -> serde_json::Result<Box<RawValue>> {
    let (mut within, mut escaped) = (false, false);
    let keep = |char: &char| {
        if within {
            (within, escaped) = (escaped || *char != '"', !escaped && *char == '\\');
            return true;
        }
        within = *char == '"';
        !char.is_ascii_whitespace()
    };
    RawValue::from_string(value.get().chars().filter(keep).collect())
}

/// Returns `true` if every backend returns the value in metadata unchanged. It has no NUL and no nesting
/// deeper than metadata allows. Its numbers are 64-bit integers or fractions, because a store may write
/// `1e16` or `-0.0` differently. `numbers` allows every number.
pub(super) fn is_plain(value: &Value, numbers: bool) -> bool {
    plain_at(value, numbers, 2)
}

fn plain_at(value: &Value, numbers: bool, depth: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) => true,
        Value::Number(number) => {
            numbers || number.is_i64() || number.as_f64().is_some_and(|number| number.fract() != 0.0)
        }
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => {
            depth <= JSON_DEPTH_MAX && items.iter().all(|item| plain_at(item, numbers, depth + 1))
        }
        Value::Object(map) => {
            depth <= JSON_DEPTH_MAX
                && map.iter().all(|(name, item)| !name.contains('\0') && plain_at(item, numbers, depth + 1))
        }
    }
}

/// Returns `true` if no object in a value has a name twice: the value of one would be lost.
pub(super) fn has_unique_names(json: &str, value: &Value) -> bool {
    let (mut written, mut within, mut escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b':' if !within => written += 1,
            _ => {}
        }
    }
    written == names(value)
}

/// Returns the number of names in a value.
fn names(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(names).sum(),
        Value::Object(map) => map.len() + map.values().map(names).sum::<usize>(),
        _ => 0,
    }
}

/// Returns `true` if every number is spelled as a store writes it: not `1.50`, and not with more digits than
/// a 64-bit float has.
pub(super) fn is_spelled_plainly(json: &str) -> bool {
    let (bytes, mut at) = (json.as_bytes(), 0);
    let mut within = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if within => at += 1,
            b'"' => within = !within,
            b'-' | b'0'..=b'9' if !within => {
                let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let number = &json[at..at + bytes[at..].iter().take_while(is_part).count()];
                let written = serde_json::from_str::<Value>(number).map(|number| number.to_string());
                if !written.is_ok_and(|written| written == number) {
                    return false;
                }
                at += number.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    true
}

/// Returns the value as every backend returns it: keys in order, and a whole number without a fraction or an
/// exponent.
pub(super) fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(number).unwrap_or_else(|| number.clone())),
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Object(map) => {
            let mut items: Vec<_> = map.iter().map(|(name, item)| (name.clone(), canonical(item))).collect();
            items.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(items.into_iter().collect())
        }
        other => other.clone(),
    }
}

fn whole(number: &serde_json::Number) -> Option<serde_json::Number> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)?;
    // Rust writes a float's exact value in digits, so a whole number reads as an integer if it fits into 64
    // bits.
    let digits = format!("{float:.0}");
    let integer = digits.parse::<i64>().map(serde_json::Number::from);
    integer.or_else(|_| digits.parse::<u64>().map(serde_json::Number::from)).ok()
}
