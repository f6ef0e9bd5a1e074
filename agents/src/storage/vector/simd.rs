//! The inner loops of a search, for the instruction set of the current processor.
//!
//! The module has two loops. The dot product of 32-bit floats computes every score. The dot products of 8-bit
//! codes give the bounds of the first pass. Every instruction set gives bit-identical results: the floats are
//! added in one fixed order without fused operations, and the codes are integers. A result therefore does not
//! depend on the machine.
//!
//! This module and its submodules contain all `unsafe` code of the crate. It is of three kinds: calls of
//! functions that are compiled for instructions that the processor was found to have, loads and stores of
//! whole registers from and to arrays of exactly their size, and prefetches.
#![allow(unsafe_code)]

mod prefetch;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub(super) use prefetch::prefetch;
use prefetch::prefetch_ahead;

/// The number of rows that are examined together.
pub(super) const PANEL_ROWS: usize = 16;
/// The number of codes of one row that are contiguous, one cache line.
pub(super) const LINE_CODES: usize = 64;
/// The number of running sums of a dot product. It hides the latency of an addition in the widest registers.
const LANES: usize = 64;
/// The number of products summed in 32-bit arithmetic before the sum moves to 64 bits: 16 for each lane.
const PIECE: usize = LANES * 16;
/// The number of floats in a cache line.
const LINE_NUMBERS: usize = 16;
/// The largest rounding error of [`dot`], as a fraction of the product of both lengths. It covers 16 products
/// and additions in a lane, six additions of lanes and one rounding of a product, each half of 2^-23, with a
/// safety factor of two.
pub(super) const DOT_ERROR: f64 = 48.0 / 16_777_216.0;

/// Codes of one row, or of a query.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; LINE_CODES]);

/// The dot products of a panel's rows with one query.
pub(super) type Dots = [i32; PANEL_ROWS];

/// The instruction sets that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// The baseline of every processor.
    Plain,
    /// AVX2, on processors that also have fused operations.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with its dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Level {
    /// Returns the best level of this processor.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().last().copied().unwrap_or(Self::Plain))
    }

    /// Returns the levels of this processor, the best last.
    pub(super) fn all() -> Vec<Self> {
        let mut levels = vec![Self::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                levels.push(Self::Vnni);
            }
        }
        levels
    }

    /// Returns the dot product of two slices of one length, to within [`DOT_ERROR`] of the product of their
    /// lengths.
    pub(super) fn dot(self, left: &[f32], right: &[f32]) -> f64 {
        self.dot_of::<false>(left, right)
    }

    /// Returns the same dot product, bit-identical, and prefetches the memory after the left slice.
    pub(super) fn dot_in_order(self, left: &[f32], right: &[f32]) -> f64 {
        self.dot_of::<true>(left, right)
    }

    fn dot_of<const IN_ORDER: bool>(self, left: &[f32], right: &[f32]) -> f64 {
        match self {
            Self::Plain => dot::<IN_ORDER>(left, right),
            // SAFETY: `all`, the only constructor of levels, found the level on this processor.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::dot_avx2::<IN_ORDER>(left, right) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::dot_avx512::<IN_ORDER>(left, right) },
        }
    }

    /// Computes the dot products of a panel's rows with `Q` queries, whose lines are interleaved. The codes
    /// of rows have an offset of 128; those of queries are signed.
    pub(super) fn tile<const Q: usize>(self, panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
        match self {
            Self::Plain => tile(panel, queries, dots),
            // SAFETY: `all`, the only constructor of levels, found the level on this processor.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::tile_avx2(panel, queries, dots) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::tile_vnni(panel, queries, dots) },
        }
    }

    /// Returns the dot product of one row's codes with one query's codes.
    pub(super) fn product(self, row: &[Line], query: &[[Line; 1]]) -> i32 {
        match self {
            Self::Plain => product(row, query, 0),
            // SAFETY: `all`, the only constructor of levels, found the level on this processor.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::product_avx2(row, query, 0) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::product_vnni(row, query) },
        }
    }

    /// Computes upper bounds of the scores of a panel's rows, and returns the greatest.
    pub(super) fn bound(
        self,
        dots: &Dots,
        scales: &[f32; PANEL_ROWS],
        errors: &[f32; PANEL_ROWS],
        query: &Slack,
    ) -> (f32, [f32; PANEL_ROWS]) {
        match self {
            Self::Plain => bound(dots, scales, errors, query),
            // SAFETY: `all`, the only constructor of levels, found the level on this processor.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::bound_avx2(dots, scales, errors, query) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::bound_avx512(dots, scales, errors, query) },
        }
    }
}

/// The relation between a product of codes and a score, for one query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slack {
    /// The value of one step of the query's codes.
    pub(super) scale: f32,
    /// The amount that the offset of 128 in the rows' codes adds to every product.
    pub(super) bias: i32,
    /// The factor of a row's own error.
    pub(super) factor: f32,
    /// The sum of the query's error and all rounding errors.
    pub(super) rest: f32,
}

impl Slack {
    /// Returns the upper bound of a row's score.
    #[inline(always)]
    pub(super) fn upper(&self, dot: i32, scale: f32, error: f32) -> f32 {
        self.score(dot, scale) + self.error(error)
    }

    /// Returns a row's score by its codes.
    #[inline(always)]
    pub(super) fn score(&self, dot: i32, scale: f32) -> f32 {
        // Above 2^24 the conversion rounds, by less than the slack allows for.
        #[allow(clippy::cast_precision_loss)]
        let product = (dot - self.bias) as f32;
        product * (scale * self.scale)
    }

    /// Returns the largest error of a row's score, given its own error.
    #[inline(always)]
    pub(super) fn error(&self, error: f32) -> f32 {
        error * self.factor + self.rest
    }
}

#[inline(always)]
fn dot<const IN_ORDER: bool>(left: &[f32], right: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (left, right) in left.chunks(PIECE).zip(right.chunks(PIECE)) {
        let mut lanes = [0.0_f32; LANES];
        let (left, left_rest) = left.as_chunks::<LANES>();
        let (right, right_rest) = right.as_chunks::<LANES>();
        for (left, right) in left.iter().zip(right) {
            if IN_ORDER {
                left.iter().step_by(LINE_NUMBERS).for_each(prefetch_ahead);
            }
            for lane in 0..LANES {
                lanes[lane] += left[lane] * right[lane];
            }
        }
        if IN_ORDER {
            left_rest.iter().step_by(LINE_NUMBERS).for_each(prefetch_ahead);
        }
        for (lane, (left, right)) in lanes.iter_mut().zip(left_rest.iter().zip(right_rest)) {
            *lane += left * right;
        }
        sum += f64::from(fold(&lanes));
    }
    sum
}

/// Adds the upper half of the lanes to the lower one until one lane remains.
#[inline(always)]
fn fold(lanes: &[f32; LANES]) -> f32 {
    let mut sixteen = [0.0_f32; 16];
    for lane in 0..16 {
        sixteen[lane] = (lanes[lane] + lanes[lane + 32]) + (lanes[lane + 16] + lanes[lane + 48]);
    }
    let mut four = [0.0_f32; 4];
    for lane in 0..4 {
        four[lane] = (sixteen[lane] + sixteen[lane + 8]) + (sixteen[lane + 4] + sixteen[lane + 12]);
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

#[inline(always)]
fn bound(
    dots: &Dots,
    scales: &[f32; PANEL_ROWS],
    errors: &[f32; PANEL_ROWS],
    query: &Slack,
) -> (f32, [f32; PANEL_ROWS]) {
    let mut upper = [0.0_f32; PANEL_ROWS];
    for row in 0..PANEL_ROWS {
        upper[row] = query.upper(dots[row], scales[row], errors[row]);
    }
    let mut eight = [0.0_f32; 8];
    for lane in 0..8 {
        eight[lane] = if upper[lane] > upper[lane + 8] { upper[lane] } else { upper[lane + 8] };
    }
    let best = eight.iter().fold(f32::NEG_INFINITY, |best, value| if *value > best { *value } else { best });
    (best, upper)
}

fn product<const Q: usize>(row: &[Line], queries: &[[Line; Q]], query: usize) -> i32 {
    let mut sum = 0;
    for (line, queries) in row.iter().zip(queries) {
        for (code, other) in line.0.iter().zip(queries[query].0) {
            sum += i32::from(*code) * i32::from(other.cast_signed());
        }
    }
    sum
}

fn tile<const Q: usize>(panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
    for (at, row) in panel.chunks_exact(queries.len()).enumerate().take(PANEL_ROWS) {
        for (query, dots) in dots.iter_mut().enumerate() {
            dots[at] = product(row, queries, query);
        }
    }
}

#[cfg(test)]
mod tests;
