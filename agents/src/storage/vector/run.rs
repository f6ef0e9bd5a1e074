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
    pub(super) async fn run(self, operation: &'static str) -> Result<Vec<Vec<SearchHit>>> {
        let call = Arc::new(self);
        let hits = call.answers(operation, call.cells.as_ref()).await?;
        // Cells have rows for every limit, but not as many that score as well as a search may demand.
        let short =
            |(query, hits): (&Query, &Vec<SearchHit>)| query.may_be_approximate() && query.wants_more(hits);
        if call.cells.is_some() && call.queries.iter().zip(&hits).any(short) {
            return call.answers(operation, None).await;
        }
        Ok(hits)
    }

    async fn answers(
        self: &Arc<Self>,
        operation: &'static str,
        cells: Option<&Arc<Cells>>,
    ) -> Result<Vec<Vec<SearchHit>>> {
        let of_query = |query: &Query| match cells {
            Some(cells) if query.may_be_approximate() => query.cell_steps(&self.blocks, cells),
            _ => query.filter_steps(&self.blocks),
        };
        let steps = self.queries.iter().map(of_query).fold(0, usize::saturating_add);
        let (call, cells) = (Arc::clone(self), cells.cloned());
        let scopes = offload::run(operation, steps, move || Ok(call.scopes(cells.as_ref()))).await?;
        let steps = self.search(&scopes).steps(self.copy_steps);
        let call = Arc::clone(self);
        offload::run(operation, steps, move || Ok(call.search(&scopes).hits())).await
    }

    fn scopes(&self, cells: Option<&Arc<Cells>>) -> Vec<Scope> {
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
