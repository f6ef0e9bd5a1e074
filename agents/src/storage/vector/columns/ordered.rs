//! The rows of a block in the order of a field's values of one type.

use std::cmp::Ordering;
use std::ops::Range;

use larder_kernel::json_compare;
use serde_json::Value;

use super::RowSet;

/// The distinct values of one type in ascending order, with their rows.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// The common prefix of all strings.
    prefix: Vec<u8>,
    /// A number for each value, in the same order except for ties. A search reads these, because they are
    /// contiguous.
    keys: Vec<u64>,
    values: Vec<Value>,
    /// The start of the rows of each value, and the end of the last value's rows.
    starts: Vec<u16>,
    rows: Vec<u16>,
}

fn order(left: &Value, right: &Value) -> Ordering {
    json_compare(left, right).unwrap_or(Ordering::Equal)
}

/// Returns the length of the common prefix of two texts, in bytes.
fn common(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The number of bytes of a text in its key.
const KEY_BYTES: usize = 7;

/// Returns a number that is not greater for a smaller value of the same type, all of whose texts begin with
/// `prefix`. Two different texts have different numbers if the part after the prefix fits into a key.
fn key(value: &Value, prefix: usize) -> u64 {
    match value {
        Value::String(text) => {
            let mut first = [0; KEY_BYTES + 1];
            let rest = text.as_bytes().get(prefix..).unwrap_or_default();
            for (place, byte) in first.iter_mut().zip(&rest[..rest.len().min(KEY_BYTES)]) {
                *place = *byte;
            }
            // If two texts have the same beginning, the shorter one comes first.
            first[KEY_BYTES] = u8::try_from(rest.len().min(KEY_BYTES + 1)).unwrap_or(u8::MAX);
            u64::from_be_bytes(first)
        }
        // Rounding keeps the order; adding zero merges both zeros.
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
        // The common prefix of the first and the last text is common to all texts between them.
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

    /// Returns the number of values that are less than `value`, and that are not greater. All have its type.
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
        // The values are scattered in memory. If the key is decisive, none of them is read.
        if value.as_str().is_some_and(|text| text.len() - self.prefix.len() <= KEY_BYTES) {
            return (first, first + same);
        }
        let values = &self.values[first..first + same];
        let below = values.partition_point(|found| order(found, value).is_lt());
        let upto = below + usize::from(values.get(below).is_some_and(|found| order(found, value).is_eq()));
        (first + below, first + upto)
    }

    /// Adds the rows of a range of values.
    pub(super) fn add(&self, values: Range<usize>, rows: &mut RowSet) {
        if !values.is_empty() {
            let part = usize::from(self.starts[values.start])..usize::from(self.starts[values.end]);
            self.rows[part].iter().for_each(|row| rows.set(usize::from(*row), true));
        }
    }

    /// Returns the rows whose values have an accepted order relative to `value`. All have its type.
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
