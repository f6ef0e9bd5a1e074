//! Queries whose products with a panel of rows are computed together.

use super::simd::{LINE_CODES, Line, Slack};
use super::sq8::Code;

/// Queries with their codes in the layout of a step.
#[derive(Debug)]
pub(super) struct QueryGroup<const Q: usize> {
    pub(super) codes: Vec<[Line; Q]>,
    pub(super) slack: [Slack; Q],
}

impl<const Q: usize> QueryGroup<Q> {
    /// Groups up to `Q` codes. Unused slots have no effect.
    pub(super) fn of(codes: &[Code]) -> Self {
        let depth = codes.first().map_or(0, |code| code.lines().count());
        let mut lines = vec![[Line([0; LINE_CODES]); Q]; depth];
        let mut slack = [Slack { scale: 0.0, bias: 0, factor: 0.0, rest: 0.0 }; Q];
        for (at, code) in codes.iter().enumerate().take(Q) {
            slack[at] = code.slack();
            for (lines, line) in lines.iter_mut().zip(code.lines()) {
                lines[at] = line;
            }
        }
        Self { codes: lines, slack }
    }

    pub(super) fn codes(&self) -> &[[Line; Q]] {
        &self.codes
    }

    /// Returns a row's score by its codes with one of the queries.
    #[inline(always)]
    pub(super) fn score(&self, query: usize, dot: i32, scale: f32) -> f32 {
        self.slack[query].score(dot, scale)
    }
}
