//! The inner loops of a search, in the instructions that the processor at hand has.
//!
//! Two of them: the dot product of 32-bit floats, which makes every score, and the dot products of 8-bit codes, from
//! which the first pass takes its bounds. Each level of instructions gives the same bits as the plain one: the floats
//! are added in one fixed order without fused steps, and the codes are integers. So an answer does not depend on the
//! machine.
//!
//! This is the one room of the crate with `unsafe` code. It needs two kinds: calls of functions that are compiled for
//! instructions which were just found to be there, and loads of whole vectors from arrays of exactly their size.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// Rows whose codes lie together.
pub(super) const PANEL_ROWS: usize = 16;
/// Panels that one step of the first pass takes, where there are as many.
pub(super) const PANELS_AT_ONCE: usize = 4;
/// Codes of one row that lie together.
pub(super) const GROUP: usize = 4;
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

/// Four codes each of sixteen rows: a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; PANEL_ROWS * GROUP]);

/// The dot products of the rows of a panel with one query.
pub(super) type Dots = [i32; PANEL_ROWS];

/// Sets of instructions that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What every processor has.
    Plain,
    /// AVX2.
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
            if is_x86_feature_detected!("avx2") {
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

    /// The dot products of `P` panels with `Q` queries. A panel's lines follow each other, as do the panels; the
    /// queries' groups of four codes stand beside each other. Codes of rows count from 128.
    pub(super) fn tile<const P: usize, const Q: usize>(
        self,
        panels: &[Line],
        queries: &[[i32; Q]],
        dots: &mut [[Dots; Q]; P],
    ) {
        match self {
            Self::Plain => tile(panels, queries, dots),
            // SAFETY: the level was found on this processor by `all`, the only place that makes it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::tile_avx2(panels, queries, dots) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::tile_vnni(panels, queries, dots) },
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

fn tile<const P: usize, const Q: usize>(panels: &[Line], queries: &[[i32; Q]], dots: &mut [[Dots; Q]; P]) {
    for (panel, dots) in panels.chunks_exact(queries.len()).zip(dots) {
        *dots = [[0; PANEL_ROWS]; Q];
        for (line, queries) in panel.iter().zip(queries) {
            let (rows, _) = line.0.as_chunks::<GROUP>();
            for (query, dots) in queries.iter().zip(&mut *dots) {
                let codes = query.to_le_bytes().map(|code| i32::from(code.cast_signed()));
                for (dot, row) in dots.iter_mut().zip(rows) {
                    let product = |at: usize| i32::from(row[at]) * codes[at];
                    *dot += (product(0) + product(1)) + (product(2) + product(3));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_set1_epi32, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_cvtepu8_epi16, _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256,
        _mm512_dpbusd_epi32, _mm512_load_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_storeu_si512,
    };

    use super::{Dots, Line, PANEL_ROWS, Slack};

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

    #[target_feature(enable = "avx512f")]
    fn store(dots: &mut Dots, sums: __m512i) {
        // SAFETY: sixteen integers of 32 bits are 64 bytes, which may be written; no alignment is asked for.
        unsafe { _mm512_storeu_si512(std::ptr::from_mut(dots).cast(), sums) }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn tile_vnni<const P: usize, const Q: usize>(
        panels: &[Line],
        queries: &[[i32; Q]],
        dots: &mut [[Dots; Q]; P],
    ) {
        let depth = queries.len();
        let mut panel = [panels; P];
        for (at, panel) in panel.iter_mut().enumerate() {
            *panel = &panels[at * depth..][..depth];
        }
        let mut sums = [[_mm512_setzero_si512(); Q]; P];
        for at in 0..depth {
            let mut rows = [_mm512_setzero_si512(); P];
            for p in 0..P {
                rows[p] = load(&panel[p][at]);
            }
            for q in 0..Q {
                let codes = _mm512_set1_epi32(queries[at][q]);
                for p in 0..P {
                    sums[p][q] = _mm512_dpbusd_epi32(sums[p][q], rows[p], codes);
                }
            }
        }
        for p in 0..P {
            for q in 0..Q {
                store(&mut dots[p][q], sums[p][q]);
            }
        }
    }

    /// Sixteen bytes of a line: four rows.
    #[target_feature(enable = "avx2")]
    fn load_quarter(quarter: &[u8; 16]) -> __m128i {
        // SAFETY: sixteen initialised bytes; no alignment is asked for.
        unsafe { _mm_loadu_si128(std::ptr::from_ref(quarter).cast()) }
    }

    /// The dot products of four rows from their halves, which stand beside each other.
    #[target_feature(enable = "avx2")]
    fn join(sums: __m256i) -> [i32; 4] {
        let mut halves = [0_i32; 8];
        // SAFETY: eight integers of 32 bits are 32 bytes, which may be written; no alignment is asked for.
        unsafe { _mm256_storeu_si256(std::ptr::from_mut(&mut halves).cast(), sums) };
        [halves[0] + halves[1], halves[2] + halves[3], halves[4] + halves[5], halves[6] + halves[7]]
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn tile_avx2<const P: usize, const Q: usize>(
        panels: &[Line],
        queries: &[[i32; Q]],
        dots: &mut [[Dots; Q]; P],
    ) {
        for (panel, dots) in panels.chunks_exact(queries.len()).zip(dots) {
            for (q, dots) in dots.iter_mut().enumerate() {
                let mut sums = [_mm256_setzero_si256(); 4];
                for (line, queries) in panel.iter().zip(queries) {
                    let codes = _mm256_cvtepi8_epi16(_mm_set1_epi32(queries[q]));
                    let (quarters, _) = line.0.as_chunks::<16>();
                    for (sum, quarter) in sums.iter_mut().zip(quarters) {
                        let rows = _mm256_cvtepu8_epi16(load_quarter(quarter));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(rows, codes));
                    }
                }
                let (quarters, _) = dots.as_chunks_mut::<4>();
                for (quarter, sum) in quarters.iter_mut().zip(sums) {
                    *quarter = join(sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::vector::tests::numbers;

    #[test]
    fn every_level_gives_the_bits_of_the_plain_one() {
        for dimensions in [1, 2, 15, 16, 63, 64, 65, 384, 768, 1_023, 1_024, 1_025, 3_000] {
            let (left, right) = (numbers(1, dimensions), numbers(2, dimensions));
            let expected = dot(&left, &right);
            let exact: f64 = left.iter().zip(&right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let norms = left.iter().chain(&right).map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
            assert!((expected - exact).abs() <= DOT_ERROR * norms);
            for level in Level::all() {
                assert_eq!(level.dot(&left, &right).to_bits(), expected.to_bits(), "{level:?} {dimensions}");
            }
        }
        let mut state = 1_u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        for depth in [1, 3, 16, 4_000] {
            let panels: Vec<Line> = (0..2 * depth).map(|_| Line(std::array::from_fn(|_| byte()))).collect();
            let queries: Vec<[i32; 3]> = (0..depth)
                .map(|_| std::array::from_fn(|_| i32::from_le_bytes([byte(), 127, 129, byte()])))
                .collect();
            let mut expected = [[[0; PANEL_ROWS]; 3]; 2];
            tile(&panels, &queries, &mut expected);
            for level in Level::all() {
                let mut dots = [[[7; PANEL_ROWS]; 3]; 2];
                level.tile(&panels, &queries, &mut dots);
                assert_eq!(dots, expected, "{level:?} {depth}");
                let slack = Slack { scale: 0.01, bias: 5, factor: 1.1, rest: 0.1 };
                let (scales, errors) = ([0.5; PANEL_ROWS], std::array::from_fn(|row| 0.1 * row as f32));
                let of = |level: Level| level.bound(&dots[0][0], &scales, &errors, &slack);
                assert_eq!(of(level), of(Level::Plain));
            }
        }
    }
}
