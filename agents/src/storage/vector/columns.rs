//! Metadata by columns: which rows of a block satisfy a filter, without a look at each.
//!
//! The first filter that names a field makes the block's column of it: the rows by the field's value, in order. From
//! then on a comparison is a binary search, and what joins comparisons works on sets of rows, 64 at a time. Columns are
//! made from the records as they are and never change; rows that are written later are looked at one by one, and when
//! they are many, the columns are made anew.
//!
//! The orders are those of [`json_compare`], which finds numbers equal exactly where `json_equal` does; arrays and
//! objects, which have none, are looked at one by one. A test holds every answer against [`Filter::matches`].

mod ordered;

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use larder_kernel::{Field, Filter, Metadata};
use serde_json::Value;

use self::ordered::Ordered;
use super::row::Record;
use super::row_set::RowSet;

/// Fields that have columns in one block; a filter on yet another one looks at each row.
const COLUMNS_MAX: usize = 32;

/// The columns of a block, in the order in which they were made. A copy of a block takes along those that there are, and
/// makes further ones of its own.
///
/// A chain to which searches add while others read it: a search asks every block, so it takes no lock there.
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

    /// Whether a filter is answered without making a column first.
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
            | Filter::Exists(field)
            | Filter::ContainsKey(field, _) => self.of(field).is_some(),
            _ => false,
        }
    }

    /// The rows that satisfy a filter, by the records that the columns were made from.
    pub(super) fn matching(&self, filter: &Filter, records: &[Arc<Record>]) -> RowSet {
        // A column may know rows that are gone by now.
        Look { columns: self, records }.rows(filter).and(RowSet::first(records.len()))
    }

    fn iter(&self) -> impl Iterator<Item = &Named> {
        std::iter::successors(self.0.get(), |named| named.next.0.get()).map(|named| &**named)
    }

    /// The column of a field, where there is one.
    fn of(&self, field: &Field) -> Option<&Column> {
        self.iter().find(|named| named.field == *field).map(|named| &*named.column)
    }

    /// The column of a field, made where there is none; `None` where there are too many.
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

    /// Adds a column at the end, unless another search was faster.
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

/// A filter's way through the columns of a block.
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
            | Filter::Exists(field)
            | Filter::ContainsKey(field, _) => self
                .columns
                .made_of(field, self.records)
                .map_or_else(|| self.one_by_one(self.all(), filter), |column| self.by_column(column, filter)),
            // A kind of filter that is younger than this room.
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
            _ => self.one_by_one(column.nested, filter),
        }
    }

    /// The rows whose value is one of `values`, which are those of the filter.
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
    /// Arrays and objects.
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

    /// Adds the rows whose value equals one that is neither array nor object.
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
