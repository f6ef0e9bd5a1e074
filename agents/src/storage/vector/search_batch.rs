//! The searches of one call: finding their candidates and then scoring them. Both run outside the async
//! runtime if they take long.

use std::sync::Arc;

use larder_kernel::{Result, SearchHit};

use super::block::Blocks;
use super::candidates::Candidates;
use super::ivf::Ivf;
use super::query::Query;
use super::search::{Search, SearchOptions};
use crate::internal::offload;

/// Prepared searches.
pub(super) struct SearchBatch {
    pub(super) options: SearchOptions,
    pub(super) blocks: Arc<Blocks>,
    pub(super) queries: Vec<Query>,
    /// The cells for searches without a filter, which may be approximate.
    pub(super) ivf: Option<Arc<Ivf>>,
    /// The cost of copying a hit, in steps.
    pub(super) copy_steps: usize,
}

impl SearchBatch {
    /// Returns the hits of each search.
    pub(super) async fn run(mut self, operation: &'static str) -> Result<Vec<Vec<SearchHit>>> {
        let ivf = self.ivf.take();
        let first = Arc::new(self);
        let (mut hits, approximate) = first.answers(operation, ivf).await?;
        // The cells have enough rows for every limit, but maybe not enough rows with the minimum score of a
        // search.
        let short = |at: &usize| approximate[*at] && first.queries[*at].wants_more(&hits[*at]);
        let short: Vec<usize> = (0..hits.len()).filter(short).collect();
        if !short.is_empty() {
            let queries = short.iter().map(|at| first.queries[*at].clone()).collect();
            let exact = Self { blocks: Arc::clone(&first.blocks), queries, ivf: None, ..*first };
            let (found, _) = Arc::new(exact).answers(operation, None).await?;
            short.into_iter().zip(found).for_each(|(at, found)| hits[at] = found);
        }
        Ok(hits)
    }

    /// Returns the hits of each search, and `true` for each search whose hits may not be the best.
    async fn answers(
        self: &Arc<Self>,
        operation: &'static str,
        ivf: Option<Arc<Ivf>>,
    ) -> Result<(Vec<Vec<SearchHit>>, Vec<bool>)> {
        let of_query = |query: &Query| match &ivf {
            Some(ivf) if query.may_be_approximate() => query.cell_steps(&self.blocks, ivf),
            _ => query.filter_steps(&self.blocks),
        };
        let steps = self.queries.iter().map(of_query).fold(0, usize::saturating_add);
        let batch = Arc::clone(self);
        let candidates = offload::run(operation, steps, move || Ok(batch.candidates(ivf.as_ref()))).await?;
        let approximate = candidates.iter().map(|candidates| candidates.approximate).collect();
        let steps = self.search(&candidates).steps(self.copy_steps);
        let batch = Arc::clone(self);
        let hits = offload::run(operation, steps, move || Ok(batch.search(&candidates).hits())).await?;
        Ok((hits, approximate))
    }

    pub(super) fn candidates(&self, ivf: Option<&Arc<Ivf>>) -> Vec<Candidates> {
        let near = |query: &Query| {
            let ivf = ivf.filter(|_| query.may_be_approximate())?;
            Candidates::near(self.options.level, query, &self.blocks, ivf)
        };
        let candidates = |query: &Query| near(query).unwrap_or_else(|| Candidates::of(query, &self.blocks));
        self.queries.iter().map(candidates).collect()
    }

    fn search<'a>(&'a self, candidates: &'a [Candidates]) -> Search<'a> {
        Search { options: self.options, blocks: &self.blocks, queries: &self.queries, candidates }
    }
}
