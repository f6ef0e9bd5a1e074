//! The inner loops for the instruction sets of x86-64 processors.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_cvtepu8_epi16,
    _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_dpbusd_epi32,
    _mm512_load_si512, _mm512_reduce_add_epi32, _mm512_setzero_si512,
};

use super::prefetch::prefetch_ahead;
use super::{Dots, Line, PANEL_ROWS, Slack};

/// The number of a panel's rows that are multiplied in parallel.
const ROWS_AT_ONCE: usize = 4;

#[target_feature(enable = "avx2")]
pub(super) fn dot_avx2<const IN_ORDER: bool>(left: &[f32], right: &[f32]) -> f64 {
    super::dot::<IN_ORDER>(left, right)
}

#[target_feature(enable = "avx512f")]
pub(super) fn dot_avx512<const IN_ORDER: bool>(left: &[f32], right: &[f32]) -> f64 {
    super::dot::<IN_ORDER>(left, right)
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
    // SAFETY: a line is 64 initialized bytes, aligned to 64.
    unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast()) }
}

#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) fn tile_vnni<const Q: usize>(panel: &[Line], queries: &[[Line; Q]], dots: &mut [Dots; Q]) {
    let depth = queries.len();
    if Q == 1 {
        // A single query waits for memory, which is fastest in memory order.
        for (at, row) in panel.chunks_exact(depth).enumerate().take(PANEL_ROWS) {
            let mut sums = [_mm512_setzero_si512(); 2];
            let (pairs, rest) = row.as_chunks::<2>();
            let (query_pairs, query_rest) = queries.as_chunks::<2>();
            for (pair, query) in pairs.iter().zip(query_pairs) {
                pair.iter().for_each(prefetch_ahead);
                sums[0] = _mm512_dpbusd_epi32(sums[0], load(&pair[0]), load(&query[0][0]));
                sums[1] = _mm512_dpbusd_epi32(sums[1], load(&pair[1]), load(&query[1][0]));
            }
            for (line, query) in rest.iter().zip(query_rest) {
                prefetch_ahead(line);
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

/// Loads sixteen codes of a line.
#[target_feature(enable = "avx2")]
fn load_quarter(quarter: &[u8; 16]) -> __m128i {
    // SAFETY: sixteen initialized bytes; no alignment is required.
    unsafe { _mm_loadu_si128(std::ptr::from_ref(quarter).cast()) }
}

#[target_feature(enable = "avx2")]
pub(super) fn product_avx2<const Q: usize>(row: &[Line], queries: &[[Line; Q]], query: usize) -> i32 {
    let mut sums = _mm256_setzero_si256();
    for (line, queries) in row.iter().zip(queries) {
        for (codes, others) in line.0.as_chunks::<16>().0.iter().zip(queries[query].0.as_chunks::<16>().0) {
            let codes = _mm256_cvtepu8_epi16(load_quarter(codes));
            let others = _mm256_cvtepi8_epi16(load_quarter(others));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(codes, others));
        }
    }
    let mut eight = [0_i32; 8];
    // SAFETY: eight 32-bit integers are 32 writable bytes; no alignment is required.
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
