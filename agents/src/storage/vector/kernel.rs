//! The inner loops of a search, in the instructions that the processor at hand has.
//!
//! Two of them: the dot product of 32-bit floats, which makes every score, and the dot products of 8-bit codes, from
//! which the first pass takes its bounds. Each level of instructions gives the same bits as the plain one: the floats
//! are added in one fixed order without fused steps, and the codes are integers. So an answer does not depend on the
//! machine.
//!
//! This and `limits` are the rooms of the crate with `unsafe` code. It needs three kinds: calls of functions that are
//! compiled for instructions which were just found to be there, loads and stores of whole registers from and to arrays of
//! exactly their size, and prefetches.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Rows that are judged together.
pub(super) const PANEL_ROWS: usize = 16;
/// Codes of one row that lie together, a cache line.
pub(super) const LINE_CODES: usize = 64;
/// Rows of a panel that are multiplied side by side.
#[cfg(target_arch = "x86_64")]
const ROWS_AT_ONCE: usize = 4;
/// Running sums of a dot product: as many as hide the latency of an addition in the widest registers.
const LANES: usize = 64;
/// Products summed in 32-bit arithmetic before the sum moves to 64 bits: 16 for each lane.
const PIECE: usize = LANES * 16;
/// Numbers in a cache line.
#[cfg(target_arch = "x86_64")]
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
        match self {
            Self::Plain => dot(left, right),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::dot_avx2(left, right) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::dot_avx512(left, right) },
        }
    }

    /// Asks for numbers that will be needed soon: rows that lie far apart would else be waited for one by one.
    pub(super) fn fetch(self, numbers: &[f32]) {
        #[cfg(target_arch = "x86_64")]
        for line in numbers.chunks(LINE_NUMBERS) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: every processor of this kind has the instruction; it is a hint, which reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = numbers;
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

    /// Asks for codes that will be needed soon.
    pub(super) fn fetch_codes(self, lines: &[Line]) {
        #[cfg(target_arch = "x86_64")]
        for line in lines {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: every processor of this kind has the instruction; it is a hint, which reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = lines;
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

#[inline(always)]
fn dot(left: &[f32], right: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (left, right) in left.chunks(PIECE).zip(right.chunks(PIECE)) {
        let mut lanes = [0.0_f32; LANES];
        let (left, left_rest) = left.as_chunks::<LANES>();
        let (right, right_rest) = right.as_chunks::<LANES>();
        for (left, right) in left.iter().zip(right) {
            for lane in 0..LANES {
                lanes[lane] += left[lane] * right[lane];
            }
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
        // Rounds past 2^24, by less than the slack allows for.
        #[allow(clippy::cast_precision_loss)]
        let product = (dots[row] - query.bias) as f32;
        upper[row] = product * (scales[row] * query.scale) + (errors[row] * query.factor + query.rest);
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16,
        _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_dpbusd_epi32,
        _mm512_load_si512, _mm512_reduce_add_epi32, _mm512_setzero_si512,
    };

    use super::{Dots, Line, PANEL_ROWS, ROWS_AT_ONCE, Slack};

    #[target_feature(enable = "avx2")]
    pub(super) fn dot_avx2(left: &[f32], right: &[f32]) -> f64 {
        super::dot(left, right)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn dot_avx512(left: &[f32], right: &[f32]) -> f64 {
        super::dot(left, right)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn bound_avx2(
        dots: &Dots,
        scales: &[f32; PANEL_ROWS],
        errors: &[f32; PANEL_ROWS],
        query: &Slack,
    ) -> (f32, [f32; PANEL_ROWS]) {
        super::bound(dots, scales, errors, query)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn bound_avx512(
        dots: &Dots,
        scales: &[f32; PANEL_ROWS],
        errors: &[f32; PANEL_ROWS],
        query: &Slack,
    ) -> (f32, [f32; PANEL_ROWS]) {
        super::bound(dots, scales, errors, query)
    }

    #[target_feature(enable = "avx512f")]
    fn load(line: &Line) -> __m512i {
        // SAFETY: a line is 64 initialised bytes, aligned to 64.
        unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn tile_vnni<const Q: usize>(panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
        let depth = queries.len();
        if Q == 1 {
            // One query waits for memory, which comes fastest in the order in which it lies.
            for (at, row) in panel.chunks_exact(depth).enumerate().take(PANEL_ROWS) {
                let mut sums = [_mm512_setzero_si512(); 2];
                let (pairs, rest) = row.as_chunks::<2>();
                let (query_pairs, query_rest) = queries.as_chunks::<2>();
                for (pair, query) in pairs.iter().zip(query_pairs) {
                    sums[0] = _mm512_dpbusd_epi32(sums[0], load(&pair[0]), load(&query[0][0]));
                    sums[1] = _mm512_dpbusd_epi32(sums[1], load(&pair[1]), load(&query[1][0]));
                }
                for (line, query) in rest.iter().zip(query_rest) {
                    sums[0] = _mm512_dpbusd_epi32(sums[0], load(line), load(&query[0]));
                }
                dots[0][at] = _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]));
            }
            return;
        }
        for first in (0..PANEL_ROWS).step_by(ROWS_AT_ONCE) {
            let mut rows = [panel; ROWS_AT_ONCE];
            for (at, row) in rows.iter_mut().enumerate() {
                *row = &panel[(first + at) * depth..][..depth];
            }
            let mut sums = [[_mm512_setzero_si512(); Q]; ROWS_AT_ONCE];
            for at in 0..depth {
                let mut lines = [_mm512_setzero_si512(); ROWS_AT_ONCE];
                for row in 0..ROWS_AT_ONCE {
                    lines[row] = load(&rows[row][at]);
                }
                for query in 0..Q {
                    let codes = load(&queries[at][query]);
                    for row in 0..ROWS_AT_ONCE {
                        sums[row][query] = _mm512_dpbusd_epi32(sums[row][query], lines[row], codes);
                    }
                }
            }
            for row in 0..ROWS_AT_ONCE {
                for query in 0..Q {
                    dots[query][first + row] = _mm512_reduce_add_epi32(sums[row][query]);
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn product_vnni(row: &[Line], query: &[[Line; 1]]) -> i32 {
        let mut sum = _mm512_setzero_si512();
        for (line, query) in row.iter().zip(query) {
            sum = _mm512_dpbusd_epi32(sum, load(line), load(&query[0]));
        }
        _mm512_reduce_add_epi32(sum)
    }

    /// Sixteen codes of a line.
    #[target_feature(enable = "avx2")]
    fn load_quarter(quarter: &[u8; 16]) -> __m128i {
        // SAFETY: sixteen initialised bytes; no alignment is asked for.
        unsafe { _mm_loadu_si128(std::ptr::from_ref(quarter).cast()) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn product_avx2<const Q: usize>(row: &[Line], queries: &[[Line; Q]], query: usize) -> i32 {
        let mut sums = _mm256_setzero_si256();
        for (line, queries) in row.iter().zip(queries) {
            for (codes, others) in line.0.as_chunks::<16>().0.iter().zip(queries[query].0.as_chunks::<16>().0)
            {
                let codes = _mm256_cvtepu8_epi16(load_quarter(codes));
                let others = _mm256_cvtepi8_epi16(load_quarter(others));
                sums = _mm256_add_epi32(sums, _mm256_madd_epi16(codes, others));
            }
        }
        let mut eight = [0_i32; 8];
        // SAFETY: eight integers of 32 bits are 32 bytes, which may be written; no alignment is asked for.
        unsafe { _mm256_storeu_si256(std::ptr::from_mut(&mut eight).cast(), sums) };
        eight.iter().sum()
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn tile_avx2<const Q: usize>(panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
        for (at, row) in panel.chunks_exact(queries.len()).enumerate().take(PANEL_ROWS) {
            for (query, dots) in dots.iter_mut().enumerate() {
                dots[at] = product_avx2(row, queries, query);
            }
        }
    }
}

#[cfg(test)]
mod tests;
