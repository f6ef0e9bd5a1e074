//! Embeddings in 8 bits per number, and the exact bounds that follow from them.
//!
//! A row's direction `u`, of length one, is `s·c + e`: a scale, codes from -127 to 127, and a remainder. With
//! a query's direction `v = t·d + f` the score is
//!
//! ```text
//! <u, v> = s·t·<c, d> + <s·c, f> + <e, v>
//! ```
//!
//! and by the Cauchy–Schwarz inequality the last two terms are at most `|s·c|·|f| + |e|·|v|`, with `|s·c| <=
//! 1 + |e|`. The lengths of `e` and `f` are known exactly, so every score is between two known bounds. A
//! search can therefore skip rows and still be exact. The same idea with other codes is the VA-file of Weber,
//! Schek and Blott, *A Quantitative Analysis and Performance Study for Similarity-Search Methods in
//! High-Dimensional Spaces* (VLDB 1998).

use super::simd::{DOT_ERROR, LINE_CODES, Line, PANEL_ROWS, Slack, prefetch};

/// The smallest dimension with codes. Codes of shorter embeddings would be about as long as the numbers.
pub(super) const CODED_DIMENSIONS_MIN: usize = 32;

/// The largest code.
const CODE_MAX: f64 = 127.0;
/// The stored form of the code 0.
const ZERO: u8 = 128;
/// The largest rounding error of a bound. It covers the score's own dot product, its last step to `f32`, the
/// lengths, and a dozen steps in `f32` on numbers up to 4.
const ROUNDING: f64 = DOT_ERROR + 64.0 / 16_777_216.0;
/// The error of a missing row: its bound is below every score.
const ABSENT: f32 = f32::NEG_INFINITY;

/// A direction in 8 bits per number.
#[derive(Debug)]
pub(super) struct Code {
    codes: Vec<i8>,
    scale: f32,
    /// The length of the remainder, rounded up.
    error: f32,
}

impl Code {
    /// Computes the code of `numbers`, scaled to length one by `norm_inverse`.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn of(numbers: &[f32], norm_inverse: f64) -> Self {
        let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        // A direction has a number of at least 1/√16000, so the scale is a normal number.
        let scale = (f64::from(largest) * norm_inverse / CODE_MAX) as f32;
        let steps = norm_inverse / f64::from(scale);
        let mut codes = Vec::with_capacity(numbers.len());
        let mut left_over = 0.0;
        for number in numbers {
            let exact = f64::from(*number) * steps;
            let code = exact.round_ties_even().clamp(-CODE_MAX, CODE_MAX);
            left_over += (exact - code) * (exact - code);
            codes.push(code as i8);
        }
        // The rounding error of 16,000 additions in 64 bits and of the last step is far below one millionth.
        let error = (left_over.sqrt() * f64::from(scale) * 1.000_001) as f32;
        Self { codes, scale, error }
    }

    /// Returns the signed codes in lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.codes.chunks(LINE_CODES).map(|codes| {
            let mut line = Line([0; LINE_CODES]);
            for (place, code) in line.0.iter_mut().zip(codes) {
                *place = code.cast_unsigned();
            }
            line
        })
    }

    /// Returns the relation between products of these codes and scores.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn slack(&self) -> Slack {
        let bias = self.codes.iter().map(|code| i32::from(*code) * i32::from(ZERO)).sum();
        let error = f64::from(self.error);
        Slack {
            scale: self.scale,
            bias,
            factor: ((1.0 + error) * 1.000_001) as f32,
            rest: (error + ROUNDING) as f32,
        }
    }
}

/// The codes of a block's rows, each row in its own lines, and the data for examining sixteen rows together.
#[derive(Debug, Clone, Default)]
pub(super) struct Codes {
    depth: usize,
    lines: Vec<Line>,
    scales: Vec<[f32; PANEL_ROWS]>,
    errors: Vec<[f32; PANEL_ROWS]>,
}

impl Codes {
    pub(super) fn new(dimensions: usize) -> Self {
        let depth = if dimensions < CODED_DIMENSIONS_MIN { 0 } else { dimensions.div_ceil(LINE_CODES) };
        Self { depth, ..Self::default() }
    }

    /// Writes the code of a row. `row` is at most one more than the largest row so far.
    pub(super) fn set(&mut self, row: usize, code: &Code) {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        if panel == self.scales.len() {
            let lines = self.lines.len() + self.depth * PANEL_ROWS;
            self.lines.resize(lines, Line([ZERO; LINE_CODES]));
            self.scales.push([0.0; PANEL_ROWS]);
            self.errors.push([ABSENT; PANEL_ROWS]);
        }
        let lines = &mut self.lines[row * self.depth..][..self.depth];
        for (line, codes) in lines.iter_mut().zip(code.codes.chunks(LINE_CODES)) {
            for (stored, code) in line.0.iter_mut().zip(codes) {
                *stored = code.cast_unsigned() ^ ZERO;
            }
        }
        self.scales[panel][lane] = code.scale;
        self.errors[panel][lane] = code.error;
    }

    /// Returns a copy of a row's code.
    pub(super) fn code(&self, row: usize) -> Code {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        let codes = self.signed(row).collect();
        Code { codes, scale: self.scales[panel][lane], error: self.errors[panel][lane] }
    }

    /// Returns the signed codes of a row, padded with zeros to whole lines.
    pub(super) fn signed(&self, row: usize) -> impl Iterator<Item = i8> + '_ {
        let stored = self.row(row).iter().flat_map(|line| line.0);
        stored.map(|stored| (stored ^ ZERO).cast_signed())
    }

    /// Excludes the row from searches.
    pub(super) fn clear(&mut self, row: usize) {
        self.errors[row / PANEL_ROWS][row % PANEL_ROWS] = ABSENT;
    }

    pub(super) fn panels(&self) -> usize {
        self.scales.len()
    }

    /// Returns the lines of a panel's rows, one row after the other.
    pub(super) fn panel(&self, panel: usize) -> &[Line] {
        let lines = self.depth * PANEL_ROWS;
        &self.lines[panel * lines..][..lines]
    }

    /// Returns the lines of a row.
    pub(super) fn row(&self, row: usize) -> &[Line] {
        &self.lines[row * self.depth..][..self.depth]
    }

    /// Prefetches everything that is needed to examine a row.
    pub(super) fn prefetch(&self, row: usize) {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        prefetch(self.row(row));
        prefetch(&self.scales[panel][lane..=lane]);
        prefetch(&self.errors[panel][lane..=lane]);
    }

    pub(super) fn scales(&self, panel: usize) -> &[f32; PANEL_ROWS] {
        &self.scales[panel]
    }

    pub(super) fn errors(&self, panel: usize) -> &[f32; PANEL_ROWS] {
        &self.errors[panel]
    }
}
