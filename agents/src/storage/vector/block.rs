//! A block of rows: their embeddings as a matrix and as codes, and the other data of each row.

use std::sync::Arc;

use larder_kernel::{Document, Embedding, Filter, Result};
use ndarray::{Array2, ArrayView1, Axis, Slice};

use super::columns::Columns;
use super::ivf::{Ivf, Membership};
use super::row::{Record, Tail};
use super::row_set::RowSet;
use super::simd::Level;
use super::sq8::Codes;

/// The largest number of rows written since the columns were built that a search examines one by one. If
/// there are more, the columns are rebuilt.
const STALE_ROWS_MAX: usize = 32;

/// A block of rows. The matrix is row-major, and its rows beyond `records` are unused.
#[derive(Debug, Clone)]
pub(super) struct Block {
    matrix: Array2<f32>,
    norms_inverse: Vec<f64>,
    codes: Codes,
    records: Vec<Arc<Record>>,
    columns: Columns,
    membership: Membership,
    /// The rows that were written since the columns were built.
    stale: Vec<usize>,
}

/// The blocks of a collection at one point in time.
pub(super) type Blocks = Vec<Arc<Block>>;

impl Block {
    pub(super) fn new(dimensions: usize) -> Self {
        Self {
            matrix: Array2::zeros((0, dimensions)),
            norms_inverse: Vec::new(),
            codes: Codes::new(dimensions),
            records: Vec::new(),
            columns: Columns::default(),
            membership: Membership::default(),
            stale: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the numbers of a row.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        let dimensions = self.matrix.ncols();
        // The matrix is row-major and never sliced, so it always has a slice.
        &self.matrix.as_slice().unwrap_or_default()[row * dimensions..][..dimensions]
    }

    pub(super) fn norm_inverse(&self, row: usize) -> f64 {
        self.norms_inverse[row]
    }

    pub(super) fn codes(&self) -> &Codes {
        &self.codes
    }

    pub(super) fn record(&self, row: usize) -> &Arc<Record> {
        &self.records[row]
    }

    /// Appends a row to a block with a capacity of `rows_max`.
    pub(super) fn push(&mut self, numbers: &[f32], tail: &Tail, rows_max: usize) {
        let at = self.records.len();
        if at == self.matrix.nrows() {
            let rows = (at * 2).max(8).min(rows_max.max(at + 1));
            let mut larger = Array2::zeros((rows, self.matrix.ncols()));
            larger.slice_axis_mut(Axis(0), Slice::from(..at)).assign(&self.matrix);
            self.matrix = larger;
        }
        self.touch(at);
        self.matrix.row_mut(at).assign(&ArrayView1::from(numbers));
        self.norms_inverse.push(tail.norm_inverse);
        self.codes.set(at, &tail.code);
        self.records.push(tail.record.clone());
    }

    pub(super) fn set(&mut self, at: usize, numbers: &[f32], tail: &Tail) {
        self.touch(at);
        self.matrix.row_mut(at).assign(&ArrayView1::from(numbers));
        self.norms_inverse[at] = tail.norm_inverse;
        self.codes.set(at, &tail.code);
        self.records[at] = tail.record.clone();
    }

    /// Replaces the data of a row apart from its embedding.
    pub(super) fn set_record(&mut self, at: usize, record: Arc<Record>) {
        self.outdate_columns(at);
        self.records[at] = record;
    }

    pub(super) fn pop(&mut self) {
        let Some(last) = self.records.len().checked_sub(1) else { return };
        self.touch(last);
        self.norms_inverse.pop();
        self.codes.clear(last);
        self.records.pop();
    }

    /// Marks a row as changed since the columns and cells were computed.
    fn touch(&mut self, row: usize) {
        self.membership.touch(row, self.records.len());
        self.outdate_columns(row);
    }

    /// Marks a row as changed since the columns were computed.
    fn outdate_columns(&mut self, row: usize) {
        if self.columns.is_empty() || self.stale.contains(&row) {
            return;
        }
        self.stale.push(row);
        if self.stale.len() > STALE_ROWS_MAX {
            self.columns = Columns::default();
            self.stale.clear();
        }
    }

    /// Returns `true` if a filter can skip most of the rows.
    pub(super) fn covers(&self, filter: &Filter) -> bool {
        self.columns.cover(filter)
    }

    /// Returns the rows whose metadata matches a filter.
    pub(super) fn matching(&self, filter: &Filter) -> RowSet {
        let mut rows = self.columns.matching(filter, &self.records);
        for row in self.stale.iter().copied().filter(|row| *row < self.records.len()) {
            rows.set(row, filter.matches(&self.records[row].metadata));
        }
        rows
    }

    /// Returns `true` if the rows of these cells are known.
    pub(super) fn is_divided(&self, ivf: &Arc<Ivf>) -> bool {
        self.membership.is_of(ivf)
    }

    /// Computes the rows of each cell.
    pub(super) fn divide(&self, level: Level, ivf: &Arc<Ivf>) {
        self.membership.divide(level, ivf, &self.codes, self.len());
    }

    /// Returns the rows in some of the cells, and the rows that were written since the cells were computed.
    pub(super) fn in_cells(&self, level: Level, ivf: &Arc<Ivf>, chosen: &[usize]) -> RowSet {
        let known = self.membership.rows(ivf, chosen).or_else(|| {
            self.divide(level, ivf);
            self.membership.rows(ivf, chosen)
        });
        // A concurrent search may have requested other cells; then all rows are examined.
        known.unwrap_or(RowSet::first(self.len())).and(RowSet::first(self.len()))
    }

    /// Copies a row.
    pub(super) fn copy(&self, row: usize) -> (Vec<f32>, Tail) {
        let tail = Tail {
            norm_inverse: self.norm_inverse(row),
            code: self.codes.code(row),
            record: self.records[row].clone(),
        };
        (self.row(row).to_vec(), tail)
    }

    /// Returns the steps for copying the document of a row.
    pub(super) fn copy_steps(&self, row: usize) -> usize {
        self.matrix.ncols() + self.records[row].copy_steps()
    }

    /// Returns the document of a row. Its embedding is bit-identical.
    pub(super) fn document(&self, row: usize) -> Result<Document> {
        let embedding = Embedding::new(self.row(row).to_vec())?;
        Ok(self.records[row].document().with_embedding(embedding))
    }
}
