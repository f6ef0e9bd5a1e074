//! The searches of one call: what they look at, and then the scores, both away from the runtime where they take long.

use std::sync::Arc;

use larder_kernel::{Result, SearchHit};

use super::cells::Cells;
use super::matrix::Blocks;
use super::query::Query;
use super::scope::Scope;
use super::search::{Search, Way};
use crate::storage::offload;

/// Searches that are made ready.
pub(super) struct Call {
    pub(super) way: Way,
    pub(super) blocks: Arc<Blocks>,
    pub(super) queries: Vec<Query>,
    /// The cells by which those without a filter may be approximate.
    pub(super) cells: Option<Arc<Cells>>,
    /// What copying a hit costs, in steps.
    pub(super) copy_steps: usize,
}

impl Call {
    /// The hits of each search.
    pub(super) async fn run(mut self, operation: &'static str) -> Result<Vec<Vec<SearchHit>>> {
        let cells = self.cells.take();
        let first = Arc::new(self);
        let (mut hits, approximate) = first.answers(operation, cells).await?;
        // Cells have rows for every limit, but not as many that score as well as a search may demand.
        let short = |at: &usize| approximate[*at] && first.queries[*at].wants_more(&hits[*at]);
        let short: Vec<usize> = (0..hits.len()).filter(short).collect();
        if !short.is_empty() {
            let queries = short.iter().map(|at| first.queries[*at].clone()).collect();
            let exact = Self { blocks: Arc::clone(&first.blocks), queries, cells: None, ..*first };
            let (found, _) = Arc::new(exact).answers(operation, None).await?;
            short.into_iter().zip(found).for_each(|(at, found)| hits[at] = found);
        }
        Ok(hits)
    }

    /// The hits of each search, and whether they may not be the best ones.
    async fn answers(
        self: &Arc<Self>,
        operation: &'static str,
        cells: Option<Arc<Cells>>,
    ) -> Result<(Vec<Vec<SearchHit>>, Vec<bool>)> {
        let of_query = |query: &Query| match &cells {
            Some(cells) if query.may_be_approximate() => query.cell_steps(&self.blocks, cells),
            _ => query.filter_steps(&self.blocks),
        };
        let steps = self.queries.iter().map(of_query).fold(0, usize::saturating_add);
        let call = Arc::clone(self);
        let scopes = offload::run(operation, steps, move || Ok(call.scopes(cells.as_ref()))).await?;
        let approximate = scopes.iter().map(|scope| scope.approximate).collect();
        let steps = self.search(&scopes).steps(self.copy_steps);
        let call = Arc::clone(self);
        let hits = offload::run(operation, steps, move || Ok(call.search(&scopes).hits())).await?;
        Ok((hits, approximate))
    }

    pub(super) fn scopes(&self, cells: Option<&Arc<Cells>>) -> Vec<Scope> {
        let near = |query: &Query| {
            let cells = cells.filter(|_| query.may_be_approximate())?;
            Scope::near(self.way.level, query, &self.blocks, cells)
        };
        let scope = |query: &Query| near(query).unwrap_or_else(|| Scope::of(query, &self.blocks));
        self.queries.iter().map(scope).collect()
    }

    fn search<'a>(&'a self, scopes: &'a [Scope]) -> Search<'a> {
        Search { way: self.way, blocks: &self.blocks, queries: &self.queries, scopes }
    }
}
