//! Metadata columns: they find the rows of a block that match a filter without examining each row.
//!
//! The first filter on a field builds the block's column for it: the rows in the order of the field's value.
//! From then on a comparison is a binary search, and logical operators work on sets of rows, 64 at a time.
//! Columns are built from the current records and never change. Rows that are written later are examined one
//! by one. If there are many, the columns are rebuilt.
//!
//! The order is that of [`json_compare`], which treats numbers as equal exactly if `json_equal` does. Arrays
//! and objects, which have no order, are examined one by one. A test compares every result with
//! [`Filter::matches`].

mod ordered;

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use larder_kernel::{Field, Filter, Metadata};
use serde_json::Value;

use self::ordered::Ordered;
use super::row::Record;
use super::row_set::RowSet;

/// The largest number of fields with columns in one block. A filter on a further field examines each row.
const COLUMNS_MAX: usize = 32;

/// The columns of a block, in the order in which they were built. A copy of a block includes the existing
/// columns and builds further ones independently.
///
/// A chain to which searches add while others read it. A search reads it in every block, so it uses no lock.
#[derive(Debug, Default)]
pub(super) struct Columns(OnceLock<Box<Named>>);

#[derive(Debug)]
struct Named {
    field: Field,
    column: Arc<Column>,
    next: Columns,
}

impl Clone for Columns {
    fn clone(&self) -> Self {
        let copy = |Named { field, column, next }: &Named| Named {
            field: field.clone(),
            column: Arc::clone(column),
            next: next.clone(),
        };
        self.0.get().map_or_else(Self::default, |named| Self(OnceLock::from(Box::new(copy(named)))))
    }
}

impl Columns {
    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Returns `true` if a filter can be evaluated without building a column first.
    pub(super) fn cover(&self, filter: &Filter) -> bool {
        match filter {
            Filter::And(filters) | Filter::Or(filters) => filters.iter().all(|filter| self.cover(filter)),
            Filter::Not(filter) => self.cover(filter),
            Filter::Eq(field, _)
            | Filter::Ne(field, _)
            | Filter::Gt(field, _)
            | Filter::Gte(field, _)
            | Filter::Lt(field, _)
            | Filter::Lte(field, _)
            | Filter::In(field, _)
            | Filter::ContainsAny(field, _)
            | Filter::ContainsAll(field, _)
            | Filter::Exists(field)
            | Filter::ContainsKey(field, _) => self.of(field).is_some(),
            _ => false,
        }
    }

    /// Returns the rows that match a filter, by the records from which the columns were built.
    pub(super) fn matching(&self, filter: &Filter, records: &[Arc<Record>]) -> RowSet {
        // A column may contain rows that were removed since.
        Look { columns: self, records }.rows(filter).and(RowSet::first(records.len()))
    }

    fn iter(&self) -> impl Iterator<Item = &Named> {
        std::iter::successors(self.0.get(), |named| named.next.0.get()).map(|named| &**named)
    }

    /// Returns the column of a field, if it exists.
    fn of(&self, field: &Field) -> Option<&Column> {
        self.iter().find(|named| named.field == *field).map(|named| &*named.column)
    }

    /// Returns the column of a field, and builds it if needed. Returns `None` if there are too many columns.
    fn made_of(&self, field: &Field, records: &[Arc<Record>]) -> Option<&Column> {
        if let Some(column) = self.of(field) {
            return Some(column);
        }
        if self.iter().count() >= COLUMNS_MAX {
            return None;
        }
        let column = Arc::new(Column::of(field, records));
        self.add(Box::new(Named { field: field.clone(), column, next: Self::default() }));
        self.of(field)
    }

    /// Adds a column at the end, unless another search has added it.
    fn add(&self, mut named: Box<Named>) {
        let mut end = self;
        while let Err(back) = end.0.set(named) {
            named = back;
            match end.0.get() {
                Some(there) if there.field != named.field => end = &there.next,
                _ => return,
            }
        }
    }
}

/// The evaluation of a filter with the columns of a block.
struct Look<'a> {
    columns: &'a Columns,
    records: &'a [Arc<Record>],
}

impl Look<'_> {
    fn rows(&self, filter: &Filter) -> RowSet {
        match filter {
            Filter::And(filters) => filters.iter().fold(self.all(), |rows, filter| {
                if rows == RowSet::EMPTY { rows } else { rows.and(self.rows(filter)) }
            }),
            Filter::Or(filters) => {
                filters.iter().fold(RowSet::EMPTY, |rows, filter| rows.or(self.rows(filter)))
            }
            Filter::Not(filter) => self.all().without(self.rows(filter)),
            Filter::Ne(field, value) => {
                self.all().without(self.rows(&Filter::Eq(field.clone(), value.clone())))
            }
            Filter::Eq(field, _)
            | Filter::Gt(field, _)
            | Filter::Gte(field, _)
            | Filter::Lt(field, _)
            | Filter::Lte(field, _)
            | Filter::In(field, _)
            | Filter::ContainsAny(field, _)
            | Filter::ContainsAll(field, _)
            | Filter::Exists(field)
            | Filter::ContainsKey(field, _) => self
                .columns
                .made_of(field, self.records)
                .map_or_else(|| self.one_by_one(self.all(), filter), |column| self.by_column(column, filter)),
            // A kind of filter that was added later.
            _ => self.one_by_one(self.all(), filter),
        }
    }

    fn all(&self) -> RowSet {
        RowSet::first(self.records.len())
    }

    fn one_by_one(&self, rows: RowSet, filter: &Filter) -> RowSet {
        let mut matching = RowSet::EMPTY;
        rows.each(|row| {
            let matches = |record: &Arc<Record>| filter.matches(&record.metadata);
            matching.set(row, self.records.get(row).is_some_and(matches));
        });
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
            // Only arrays have elements, and only objects have keys.
            _ => self.one_by_one(column.nested, filter),
        }
    }

    /// Returns the rows whose value is one of `values`, which are those of the filter.
    fn equal(&self, column: &Column, values: &[Value], filter: &Filter) -> RowSet {
        let nested = values.iter().any(|value| value.is_array() || value.is_object());
        let mut rows = if nested { self.one_by_one(column.nested, filter) } else { RowSet::EMPTY };
        values.iter().for_each(|value| column.add_equal(value, &mut rows));
        rows
    }
}

/// The rows of a block by the values of one field.
#[derive(Debug)]
struct Column {
    present: RowSet,
    null: RowSet,
    no: RowSet,
    yes: RowSet,
    /// The rows with arrays and objects.
    nested: RowSet,
    numbers: Ordered,
    strings: Ordered,
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

    /// Adds the rows whose value equals one that is neither an array nor an object.
    fn add_equal(&self, value: &Value, rows: &mut RowSet) {
        let ordered = match value {
            Value::Null => return *rows = rows.or(self.null),
            Value::Bool(false) => return *rows = rows.or(self.no),
            Value::Bool(true) => return *rows = rows.or(self.yes),
            Value::Number(_) => &self.numbers,
            Value::String(_) => &self.strings,
            Value::Array(_) | Value::Object(_) => return,
        };
        let (below, upto) = ordered.around(value);
        ordered.add(below..upto, rows);
    }

    /// Returns the rows whose value has an accepted order relative to `value`.
    fn range(&self, value: &Value, accept: fn(Ordering) -> bool) -> RowSet {
        match value {
            Value::Number(_) => self.numbers.range(value, accept),
            Value::String(_) => self.strings.range(value, accept),
            _ => RowSet::EMPTY,
        }
    }
}

/// Returns the value that a filter on the field compares.
fn resolve<'a>(field: &Field, metadata: &'a Metadata) -> Option<&'a Value> {
    let (first, rest) = field.keys().split_first()?;
    rest.iter().try_fold(metadata.get(first)?, |value, key| value.as_object()?.get(key))
}

#[cfg(test)]
mod tests;
