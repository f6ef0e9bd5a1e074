//! The inner loops of a search, in the instructions that the processor at hand has.
//!
//! Two of them: the dot product of 32-bit floats, which makes every score, and the dot products of 8-bit codes, from
//! which the first pass takes its bounds. Each level of instructions gives the same bits as the plain one: the floats
//! are added in one fixed order without fused steps, and the codes are integers. So an answer does not depend on the
//! machine.
//!
//! This module, with its parts, has all `unsafe` code of the crate. It needs three kinds: calls of functions that are
//! compiled for instructions which were just found to be there, loads and stores of whole registers from and to arrays of
//! exactly their size, and prefetches.
#![allow(unsafe_code)]

mod prefetch;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub(super) use prefetch::prefetch;
use prefetch::prefetch_ahead;

/// Rows that are judged together.
pub(super) const PANEL_ROWS: usize = 16;
/// Codes of one row that lie together, a cache line.
pub(super) const LINE_CODES: usize = 64;
/// Running sums of a dot product: as many as hide the latency of an addition in the widest registers.
const LANES: usize = 64;
/// Products summed in 32-bit arithmetic before the sum moves to 64 bits: 16 for each lane.
const PIECE: usize = LANES * 16;
/// Numbers in a cache line.
const LINE_NUMBERS: usize = 16;
/// What the rounding of [`dot`] is at most, as a part of the product of both lengths: 16 products and additions in a
/// lane, six additions of lanes, one rounding of a product, each half of 2^-23, and as much again for good measure.
pub(super) const DOT_ERROR: f64 = 48.0 / 16_777_216.0;

/// Codes of one row, or of a query.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; LINE_CODES]);

/// The dot products of the rows of a panel with one query.
pub(super) type Dots = [i32; PANEL_ROWS];

/// Sets of instructions that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What every processor has.
    Plain,
    /// AVX2, of processors that also have fused steps.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with its dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Level {
    /// The best level of this processor.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().last().copied().unwrap_or(Self::Plain))
    }

    /// The levels of this processor, the best last.
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

    /// The dot product of two slices of one length, to within [`DOT_ERROR`] of the product of their lengths.
    pub(super) fn dot(self, left: &[f32], right: &[f32]) -> f64 {
        self.dot_of::<false>(left, right)
    }

    /// The same to the bit, and memory is asked ahead for what follows on the left side.
    pub(super) fn dot_in_order(self, left: &[f32], right: &[f32]) -> f64 {
        self.dot_of::<true>(left, right)
    }

    fn dot_of<const IN_ORDER: bool>(self, left: &[f32], right: &[f32]) -> f64 {
        match self {
            Self::Plain => dot::<IN_ORDER>(left, right),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::dot_avx2::<IN_ORDER>(left, right) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::dot_avx512::<IN_ORDER>(left, right) },
        }
    }

    /// The dot products of the rows of a panel with `Q` queries, whose lines stand beside each other. The codes of rows
    /// count from 128, those of queries are signed.
    pub(super) fn tile<const Q: usize>(self, panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
        match self {
            Self::Plain => tile(panel, queries, dots),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::tile_avx2(panel, queries, dots) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::tile_vnni(panel, queries, dots) },
        }
    }

    /// The dot product of one row's codes with one query's.
    pub(super) fn product(self, row: &[Line], query: &[[Line; 1]]) -> i32 {
        match self {
            Self::Plain => product(row, query, 0),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::product_avx2(row, query, 0) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::product_vnni(row, query) },
        }
    }

    /// Upper bounds of the scores of a panel's rows, and the greatest of them.
    pub(super) fn bound(
        self,
        dots: &Dots,
        scales: &[f32; PANEL_ROWS],
        errors: &[f32; PANEL_ROWS],
        query: &Slack,
    ) -> (f32, [f32; PANEL_ROWS]) {
        match self {
            Self::Plain => bound(dots, scales, errors, query),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::bound_avx2(dots, scales, errors, query) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::bound_avx512(dots, scales, errors, query) },
        }
    }
}

/// What a query's own codes say about the distance between a product of codes and a score.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slack {
    /// What stands for one step of the query's codes.
    pub(super) scale: f32,
    /// What the codes of rows, counting from 128, add to every product.
    pub(super) bias: i32,
    /// By how much a row's own error counts.
    pub(super) factor: f32,
    /// What the query's error and all rounding come to.
    pub(super) rest: f32,
}

impl Slack {
    /// The upper bound of a row's score.
    #[inline(always)]
    pub(super) fn upper(&self, dot: i32, scale: f32, error: f32) -> f32 {
        self.score(dot, scale) + self.error(error)
    }

    /// What a row scores by its codes.
    #[inline(always)]
    pub(super) fn score(&self, dot: i32, scale: f32) -> f32 {
        // Rounds past 2^24, by less than the slack allows for.
        #[allow(clippy::cast_precision_loss)]
        let product = (dot - self.bias) as f32;
        product * (scale * self.scale)
    }

    /// By how much a row's score may be off, given its own error.
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

/// Adds the upper half of the lanes to the lower one until one is left.
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
