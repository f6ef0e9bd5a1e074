//! Metadata by columns: which rows of a block satisfy a filter, without a look at each.
//!
//! The first filter that names a field makes the block's column of it: the rows by the field's value, in order. From
//! then on a comparison is a binary search, and what joins comparisons works on sets of rows, 64 at a time. Columns are
//! made from the records as they are and never change; rows that are written later are looked at one by one, and when
//! they are many, the columns are made anew.
//!
//! The orders are those of [`json_compare`], which finds numbers equal exactly where `json_equal` does; arrays and
//! objects, which have none, are looked at one by one. A test holds every answer against [`Filter::matches`].

use std::cmp::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use larder_kernel::{Field, Filter, Metadata, json_compare};
use serde_json::Value;

use super::block::{BLOCK_ROWS_MAX, Record};

const WORDS: usize = BLOCK_ROWS_MAX / 64;
/// Fields that have columns in one block; a filter on yet another one looks at each row.
const COLUMNS_MAX: usize = 32;

/// A set of a block's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSet([u64; WORDS]);

impl RowSet {
    const EMPTY: Self = Self([0; WORDS]);

    /// The first `count` rows.
    pub(super) fn first(count: usize) -> Self {
        let mut set = Self::EMPTY;
        for (at, word) in set.0.iter_mut().enumerate() {
            *word = match count.saturating_sub(at * 64) {
                0 => 0,
                some @ 1..64 => (1 << some) - 1,
                _ => u64::MAX,
            };
        }
        set
    }

    pub(super) fn set(&mut self, row: usize, member: bool) {
        let bit = 1 << (row % 64);
        if member {
            self.0[row / 64] |= bit;
        } else {
            self.0[row / 64] &= !bit;
        }
    }

    pub(super) fn contains(&self, row: usize) -> bool {
        self.0[row / 64] >> (row % 64) & 1 == 1
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| usize::try_from(word.count_ones()).unwrap_or_default()).sum()
    }

    /// The rows in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| usize::try_from(left.trailing_zeros()).unwrap_or_default())?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }

    fn join(mut self, other: Self, step: fn(u64, u64) -> u64) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = step(*word, other);
        }
        self
    }

    fn and(self, other: Self) -> Self {
        self.join(other, |left, right| left & right)
    }

    fn or(self, other: Self) -> Self {
        self.join(other, |left, right| left | right)
    }

    fn without(self, other: Self) -> Self {
        self.join(other, |left, right| left & !right)
    }
}

/// The columns of a block. A copy of a block takes along those that there are, and makes further ones of its own.
#[derive(Debug, Default)]
pub(super) struct Columns(RwLock<Vec<(Field, Arc<Column>)>>);

impl Clone for Columns {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.0.read().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl Columns {
    pub(super) fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether a filter is answered without making a column first.
    pub(super) fn cover(&self, filter: &Filter) -> bool {
        let columns = self.0.read().unwrap_or_else(PoisonError::into_inner);
        covered(&columns, filter)
    }

    /// The rows that satisfy a filter, by the records that the columns were made from.
    pub(super) fn matching(&self, filter: &Filter, records: &[Arc<Record>]) -> RowSet {
        // A column may know rows that are gone by now.
        Look { columns: self, records }.rows(filter).and(RowSet::first(records.len()))
    }

    /// What `look` finds in the column of a field, made where there is none; `None` where there are too many.
    fn look_at<T>(
        &self,
        field: &Field,
        records: &[Arc<Record>],
        look: impl FnOnce(&Column) -> T,
    ) -> Option<T> {
        let column_of = |columns: &[(Field, Arc<Column>)]| columns.iter().position(|(name, _)| name == field);
        {
            let columns = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = column_of(&columns) {
                return Some(look(&columns[at].1));
            }
            if columns.len() >= COLUMNS_MAX {
                return None;
            }
        }
        let made = Arc::new(Column::of(field, records));
        let mut columns = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another search may have been faster.
        if column_of(&columns).is_none() {
            columns.push((field.clone(), made.clone()));
        }
        drop(columns);
        Some(look(&made))
    }
}

fn covered(columns: &[(Field, Arc<Column>)], filter: &Filter) -> bool {
    match filter {
        Filter::And(filters) | Filter::Or(filters) => filters.iter().all(|filter| covered(columns, filter)),
        Filter::Not(filter) => covered(columns, filter),
        Filter::Eq(field, _)
        | Filter::Ne(field, _)
        | Filter::Gt(field, _)
        | Filter::Gte(field, _)
        | Filter::Lt(field, _)
        | Filter::Lte(field, _)
        | Filter::In(field, _)
        | Filter::Exists(field)
        | Filter::ContainsKey(field, _) => columns.iter().any(|(name, _)| name == field),
        _ => false,
    }
}

/// A filter's way through the columns of a block.
struct Look<'a> {
    columns: &'a Columns,
    records: &'a [Arc<Record>],
}

impl Look<'_> {
    fn rows(&self, filter: &Filter) -> RowSet {
        let all = RowSet::first(self.records.len());
        match filter {
            Filter::And(filters) => filters.iter().fold(all, |rows, filter| {
                if rows == RowSet::EMPTY { rows } else { rows.and(self.rows(filter)) }
            }),
            Filter::Or(filters) => {
                filters.iter().fold(RowSet::EMPTY, |rows, filter| rows.or(self.rows(filter)))
            }
            Filter::Not(filter) => all.without(self.rows(filter)),
            Filter::Ne(field, value) => all.without(self.rows(&Filter::Eq(field.clone(), value.clone()))),
            Filter::Eq(field, _)
            | Filter::Gt(field, _)
            | Filter::Gte(field, _)
            | Filter::Lt(field, _)
            | Filter::Lte(field, _)
            | Filter::In(field, _)
            | Filter::Exists(field)
            | Filter::ContainsKey(field, _) => self
                .columns
                .look_at(field, self.records, |column| self.by_column(column, filter))
                .unwrap_or_else(|| self.one_by_one(all, filter)),
            // A kind of filter that is younger than this room.
            _ => self.one_by_one(all, filter),
        }
    }

    fn one_by_one(&self, rows: RowSet, filter: &Filter) -> RowSet {
        let mut matching = RowSet::EMPTY;
        for row in rows.iter().filter(|row| *row < self.records.len()) {
            matching.set(row, filter.matches(&self.records[row].metadata));
        }
        matching
    }

    fn by_column(&self, column: &Column, filter: &Filter) -> RowSet {
        match filter {
            Filter::Eq(_, value) => self.equal(column, std::slice::from_ref(value), filter),
            Filter::In(_, values) => self.equal(column, values, filter),
            Filter::Gt(_, value) => column.range(value, Ordering::is_gt),
            Filter::Gte(_, value) => column.range(value, Ordering::is_ge),
            Filter::Lt(_, value) => column.range(value, Ordering::is_lt),
            Filter::Lte(_, value) => column.range(value, Ordering::is_le),
            Filter::Exists(_) => column.present,
            _ => self.one_by_one(column.nested, filter),
        }
    }

    /// The rows whose value is one of `values`, which are those of the filter.
    fn equal(&self, column: &Column, values: &[Value], filter: &Filter) -> RowSet {
        let nested = values.iter().any(|value| value.is_array() || value.is_object());
        let rows = if nested { self.one_by_one(column.nested, filter) } else { RowSet::EMPTY };
        values.iter().fold(rows, |rows, value| rows.or(column.equal(value)))
    }
}

/// The rows of a block by the values of one field.
#[derive(Debug)]
struct Column {
    present: RowSet,
    null: RowSet,
    no: RowSet,
    yes: RowSet,
    /// Arrays and objects.
    nested: RowSet,
    numbers: Ordered,
    strings: Ordered,
}

/// The different values of one kind in ascending order, with the rows that have them.
#[derive(Debug, Default)]
struct Ordered {
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
    fn of(mut found: Vec<(&Value, u16)>) -> Self {
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
    fn around(&self, value: &Value) -> (usize, usize) {
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

    /// The rows whose values stand to `value` as asked; all have its type.
    fn range(&self, value: &Value, accept: fn(Ordering) -> bool) -> RowSet {
        let mut rows = RowSet::EMPTY;
        let (below, upto) = self.around(value);
        let parts = [
            (Ordering::Less, 0..below),
            (Ordering::Equal, below..upto),
            (Ordering::Greater, upto..self.values.len()),
        ];
        for (_, part) in parts.into_iter().filter(|(order, part)| accept(*order) && !part.is_empty()) {
            let part = usize::from(self.starts[part.start])..usize::from(self.starts[part.end]);
            for row in &self.rows[part] {
                rows.set(usize::from(*row), true);
            }
        }
        rows
    }
}

impl Column {
    fn of(field: &Field, records: &[Arc<Record>]) -> Self {
        let mut column = Self {
            present: RowSet::EMPTY,
            null: RowSet::EMPTY,
            no: RowSet::EMPTY,
            yes: RowSet::EMPTY,
            nested: RowSet::EMPTY,
            numbers: Ordered::default(),
            strings: Ordered::default(),
        };
        let (mut numbers, mut strings) = (Vec::new(), Vec::new());
        for (number, record) in (0_u16..).zip(records) {
            let row = usize::from(number);
            let Some(value) = resolve(field, &record.metadata) else { continue };
            column.present.set(row, true);
            match value {
                Value::Null => column.null.set(row, true),
                Value::Bool(false) => column.no.set(row, true),
                Value::Bool(true) => column.yes.set(row, true),
                Value::Number(_) => numbers.push((value, number)),
                Value::String(_) => strings.push((value, number)),
                Value::Array(_) | Value::Object(_) => column.nested.set(row, true),
            }
        }
        column.numbers = Ordered::of(numbers);
        column.strings = Ordered::of(strings);
        column
    }

    /// The rows whose value equals one that is neither array nor object.
    fn equal(&self, value: &Value) -> RowSet {
        match value {
            Value::Null => self.null,
            Value::Bool(false) => self.no,
            Value::Bool(true) => self.yes,
            Value::Number(_) | Value::String(_) => self.range(value, Ordering::is_eq),
            Value::Array(_) | Value::Object(_) => RowSet::EMPTY,
        }
    }

    /// The rows whose value has an order with `value` that is accepted.
    fn range(&self, value: &Value, accept: fn(Ordering) -> bool) -> RowSet {
        match value {
            Value::Number(_) => self.numbers.range(value, accept),
            Value::String(_) => self.strings.range(value, accept),
            _ => RowSet::EMPTY,
        }
    }
}

/// The value that a filter on the field looks at.
fn resolve<'a>(field: &Field, metadata: &'a Metadata) -> Option<&'a Value> {
    let (first, rest) = field.keys().split_first()?;
    rest.iter().try_fold(metadata.get(first)?, |value, key| value.as_object()?.get(key))
}

#[cfg(test)]
mod tests;
