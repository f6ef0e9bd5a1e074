//! The rows of a block by the values of one kind that a field has, in order.

use std::cmp::Ordering;
use std::ops::Range;

use larder_kernel::json_compare;
use serde_json::Value;

use super::RowSet;

/// The different values of one kind in ascending order, with the rows that have them.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// What all strings begin with.
    prefix: Vec<u8>,
    /// One number for each value, in the same order but for ties: a search looks at these, which lie side by side.
    keys: Vec<u64>,
    values: Vec<Value>,
    /// Where the rows of each value begin, and at last where those of the last one end.
    starts: Vec<u16>,
    rows: Vec<u16>,
}

fn order(left: &Value, right: &Value) -> Ordering {
    json_compare(left, right).unwrap_or(Ordering::Equal)
}

/// How many bytes two texts have in common at their beginnings.
fn common(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Bytes of a text that its key holds.
const KEY_BYTES: usize = 7;

/// A number that is not greater for a smaller value of the same type, all of whose texts begin with `prefix`. That of a
/// text is the same only for the same text, where what follows the prefix is not longer than a key holds.
fn key(value: &Value, prefix: usize) -> u64 {
    match value {
        Value::String(text) => {
            let mut first = [0; KEY_BYTES + 1];
            let rest = text.as_bytes().get(prefix..).unwrap_or_default();
            for (place, byte) in first.iter_mut().zip(&rest[..rest.len().min(KEY_BYTES)]) {
                *place = *byte;
            }
            // Of two that begin alike, the shorter comes first.
            first[KEY_BYTES] = u8::try_from(rest.len().min(KEY_BYTES + 1)).unwrap_or(u8::MAX);
            u64::from_be_bytes(first)
        }
        // Rounding keeps the order; adding zero makes one of both zeros.
        Value::Number(number) => {
            let bits = (number.as_f64().unwrap_or_default() + 0.0).to_bits();
            if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
        }
        _ => 0,
    }
}

impl Ordered {
    pub(super) fn of(mut found: Vec<(&Value, u16)>) -> Self {
        found.sort_by(|left, right| order(left.0, right.0));
        let text = |at: Option<&(&Value, u16)>| {
            at.and_then(|(value, _)| value.as_str()).map(str::as_bytes).unwrap_or_default().to_vec()
        };
        // What the first and the last have in common, all between them have.
        let mut prefix = text(found.first());
        prefix.truncate(common(&prefix, &text(found.last())));
        let mut ordered = Self { prefix, ..Self::default() };
        for (at, (value, row)) in (0_u16..).zip(&found) {
            if ordered.values.last().is_none_or(|last| order(last, value).is_ne()) {
                ordered.keys.push(key(value, ordered.prefix.len()));
                ordered.values.push((*value).clone());
                ordered.starts.push(at);
            }
            ordered.rows.push(*row);
        }
        ordered.starts.extend(u16::try_from(ordered.rows.len()));
        ordered
    }

    /// Which of the values are less than `value`, and which are not greater; all have its type.
    pub(super) fn around(&self, value: &Value) -> (usize, usize) {
        if let Some(text) = value.as_str()
            && !text.as_bytes().starts_with(&self.prefix)
        {
            let all = if text.as_bytes() < self.prefix.as_slice() { 0 } else { self.values.len() };
            return (all, all);
        }
        let key = key(value, self.prefix.len());
        let first = self.keys.partition_point(|found| *found < key);
        let same = self.keys[first..].partition_point(|found| *found == key);
        // The values lie apart: where the key says it all, none of them is looked at.
        if value.as_str().is_some_and(|text| text.len() - self.prefix.len() <= KEY_BYTES) {
            return (first, first + same);
        }
        let values = &self.values[first..first + same];
        let below = values.partition_point(|found| order(found, value).is_lt());
        let upto = below + usize::from(values.get(below).is_some_and(|found| order(found, value).is_eq()));
        (first + below, first + upto)
    }

    /// Adds the rows whose values are those from one on and before another.
    pub(super) fn add(&self, values: Range<usize>, rows: &mut RowSet) {
        if !values.is_empty() {
            let part = usize::from(self.starts[values.start])..usize::from(self.starts[values.end]);
            self.rows[part].iter().for_each(|row| rows.set(usize::from(*row), true));
        }
    }

    /// The rows whose values stand to `value` as asked; all have its type.
    pub(super) fn range(&self, value: &Value, accept: fn(Ordering) -> bool) -> RowSet {
        let mut rows = RowSet::EMPTY;
        let (below, upto) = self.around(value);
        let parts = [
            (Ordering::Less, 0..below),
            (Ordering::Equal, below..upto),
            (Ordering::Greater, upto..self.values.len()),
        ];
        for (_, part) in parts.into_iter().filter(|(order, _)| accept(*order)) {
            self.add(part, &mut rows);
        }
        rows
    }
}
