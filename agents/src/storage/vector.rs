//! Vectors in memory: exact cosine search over matrices.

mod block;
mod candidates;
mod coarse;
mod columns;
mod index;
mod ivf;
mod matrix;
mod namespace;
mod query;
mod query_group;
mod row;
mod row_set;
mod search;
mod search_batch;
mod simd;
mod sq8;
#[cfg(test)]
mod tests;
mod topk;

use std::collections::HashSet;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::vector::{check_dimension, check_ids, check_search, check_search_batch, prepare};
use larder_kernel::{
    Capabilities, CollectionInfo, CollectionName, Document, DocumentId, Durability, Embedder, Error,
    ErrorKind, Filter, Namespace, Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest,
    Store, VectorStore,
};

use self::block::Block;
use self::matrix::Rows;
use self::namespace::{Collections, NamespaceState};
use self::query::{Query, filter_steps};
use self::search::SearchOptions;
use self::search_batch::SearchBatch;
use self::simd::Level;
use super::MemoryBackend;
use super::backend::default_namespace;
use super::offload::{self, WAIT_STEPS};

/// Where fewer than one in so many rows count for a query, only those are looked at, one by one.
const SPARSE_SHARE: usize = 4;

/// A [`VectorStore`] in memory.
///
/// Every search is exact, unless [`with_approximate_search`](Self::with_approximate_search) says otherwise. Searches read a snapshot, so that they hold up no write, and wait only for one that is under
/// way when they begin. Long work, and waiting, is done on threads of its own. A writer copies at most the 2 MiB of
/// embeddings around each row that a search still reads.
///
/// # Search algorithm
/// Beside each embedding lies a code of one byte a number. From codes follow an upper and a lower bound of each score
/// (Cauchy and Schwarz over what rounding left out); rows whose upper bound is below the lower bounds of enough others
/// are left out, and the rest are scored in full. So the answer is that of a full search to the bit, while most of the
/// bytes stay unread. Where bounds tell little apart, as among near duplicates, more rows are scored, at worst all.
///
/// A field that a filter names gets a column: the rows of each block by the field's value. Columns are made by the first
/// filter that names the field, and made anew for blocks in which more than 32 rows were written since; later filters
/// cost a binary search for each block, and scoring costs what matches. A block has columns of 32 fields at most; further
/// fields are looked at row by row.
///
/// # Complexity
/// A search reads a byte of each number and all bytes of the rows that its bounds leave; with a filter that fewer than
/// one in four rows satisfy, that of those rows and nothing of the others, beside O(documents ÷ 1,024) for the blocks. A
/// batch reads the codes once for four queries, and those of a block from the cache for the next four. A put of n
/// documents and a deletion of n cost O(n × dimensions).
///
/// # Memory
/// Five bytes a number (four of the embedding, one of its code) and a fixed share a document. Columns are not counted:
/// about two bytes a document and field, and each different value once for a block. Embeddings of fewer than 32 numbers
/// have no codes, and are always scored in full.
///
/// # Source
/// Bounds from codes before vectors are the VA-file of Weber, Schek and Blott, *A Quantitative Analysis and Performance
/// Study for Similarity-Search Methods in High-Dimensional Spaces* (VLDB 1998), here with bounds of whole rows.
///
/// ```
/// use larder_agents::storage::InMemoryVectorStore;
/// use larder_kernel::{CollectionName, Document, DocumentId, Embedding, PutMode, SearchRequest, VectorStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryVectorStore::new();
/// let notes = CollectionName::new("notes")?;
/// let document = |id: &str, text: &str, numbers: [f32; 2]| -> larder_kernel::Result<Document> {
///     Ok(Document::new(DocumentId::new(id)?, text).with_embedding(Embedding::new(numbers)?))
/// };
/// let documents = vec![document("a", "north", [0.0, 1.0])?, document("b", "east", [1.0, 0.0])?];
/// store.put(&notes, documents, PutMode::Upsert).await?;
///
/// let request = SearchRequest::new(Embedding::new([0.1, 0.9])?).with_limit(1);
/// assert_eq!(store.search(&notes, &request).await?[0].content, "north");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryVectorStore {
    backend: MemoryBackend,
    namespace: Namespace,
    state: Arc<NamespaceState>,
    embedder: Option<Arc<dyn Embedder>>,
    options: SearchOptions,
}

impl InMemoryVectorStore {
    /// A store in a backend of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// The store of a namespace at a backend.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let options = SearchOptions { level: Level::best(), first_pass: true, threads, approximate: false };
        Self {
            state: backend.namespace_state(&namespace),
            backend: backend.clone(),
            namespace,
            embedder: None,
            options,
        }
    }

    /// Sets how many threads one long search may use, at least one; unless set, as many as there are cores.
    ///
    /// A search begins further threads only where each has some milliseconds of work.
    #[must_use]
    pub fn with_search_threads(mut self, threads: NonZero<usize>) -> Self {
        self.options.threads = threads.get();
        self
    }

    /// Sets whether searches of this handle may leave out rows by bounds from 8-bit codes; unless set, they do.
    ///
    /// The answers of exact searches are the same to the bit. Without the codes a search reads the whole of every embedding,
    /// four times the bytes, and none is approximate: a reference to measure by.
    #[must_use]
    pub fn with_first_pass(mut self, first_pass: bool) -> Self {
        self.options.first_pass = first_pass;
        self
    }

    /// Lets searches without a filter look at a part of a large collection only, and so miss some of the best rows.
    ///
    /// A collection of 10,000 documents or more gets an index then: cells of like vectors, as many as the square root of the
    /// documents. A search looks at the cells nearest to it, as far around as it took to find 99 % of the nearest neighbours of
    /// the collection's own vectors when the cells were made: of the nearest 10 for a limit up to 10, of the nearest 100 for one up
    /// to 100. Queries that are unlike the documents find fewer.
    ///
    /// The first search that finds a collection large has its cells made on a thread of its own, as does one that finds
    /// more written and deleted since than half of what there was; until they are there, searches are exact, or go by the
    /// cells before them. What is written later is found at once: a block's rows are divided anew by the first search after
    /// one in 32 of them was written. Searches stay exact where a filter is given, for limits above 100, where cells are near that
    /// hold a quarter of the rows, as among vectors that lie in no groups, and for embeddings of fewer than 32 numbers.
    /// Where cells hold fewer hits of a least score than the limit, the search is done again, exactly. So an answer always has
    /// min(limit, matches) hits.
    ///
    /// # Complexity
    /// A search reads a byte of each number of √documents centers and of the rows in the cells within reach. Making the cells
    /// compares a sample of 64 rows a cell with all centers, up to nine times, 256 rows with all rows, and each row with all
    /// centers: documents × √documents × dimensions. While it is at work, writers copy the blocks that they write to.
    ///
    /// # Memory
    /// Two bytes a number of each center; two bytes a row, and for each block of rows two bytes a cell. None of it is counted.
    ///
    /// # Source
    /// The inverted file of Sivic and Zisserman, *Video Google* (ICCV 2003), with the query's own bound on cells of Chen et al.,
    /// *SPANN* (NeurIPS 2021).
    #[must_use]
    pub fn with_approximate_search(mut self) -> Self {
        self.options.approximate = true;
        self
    }

    /// Makes the index of a collection now, however small it is, and waits until it is ready. Says whether searches use it
    /// then: not where the collection is empty, has fewer than 32 dimensions, or where a search by it would be no quicker.
    ///
    /// There is no need to call this: a search that finds a collection large and without an index has it made.
    ///
    /// # Errors
    /// `Unsupported` where searches are exact, as this handle has not been told
    /// [`with_approximate_search`](Self::with_approximate_search), or to do without a first pass.
    ///
    /// # Cancellation
    /// Once begun, the index is made all the same.
    pub async fn build_index(&self, collection: &CollectionName) -> Result<bool> {
        const OPERATION: &str = "vectors.build_index";
        if !self.options.has_index() {
            let message = "searches of this store are exact; open it with approximate search";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, message));
        }
        let look = |rows: &Rows| (rows.dimensions(), rows.snapshot(), rows.index());
        let found = self.state.look(OPERATION, collection, look).await?;
        let Some((dimensions, blocks, index)) = found else { return Ok(false) };
        let level = self.options.level;
        offload::run(OPERATION, WAIT_STEPS, move || Ok(index.make(level, &blocks, dimensions))).await
    }

    /// Lets an embedder compute the embeddings that documents lack.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    async fn run_searches(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let look = |rows: &Rows| (rows.dimensions(), rows.snapshot(), rows.index(), rows.copy_steps());
        let found = self.state.look(operation, collection, look).await?;
        let Some((dimensions, blocks, index, copy_steps)) = found else {
            return Ok(vec![Vec::new(); requests.len()]);
        };
        for request in requests {
            check_dimension(operation, request.embedding.dimensions(), dimensions)?;
        }
        let options = self.options;
        let ivf = (options.approximate && options.first_pass)
            .then(|| index.ivf_for(options.level, &blocks, dimensions));
        let queries = requests.iter().map(Query::new).collect();
        SearchBatch { options, blocks, queries, ivf: ivf.flatten(), copy_steps }.run(operation).await
    }
}

impl Default for InMemoryVectorStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryVectorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryVectorStore")
            .field("embedder", &self.embedder.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryVectorStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    async fn erase(&self) -> Result<()> {
        let take = |collections: &mut Collections| ((), std::mem::take(collections).into_values().collect());
        self.state.take_out("vectors.erase", &self.backend, take).await
    }
}

/// The documents at the given rows, made away from the runtime where they are many.
async fn documents(
    operation: &'static str,
    places: Vec<Option<(Arc<Block>, usize)>>,
) -> Result<Vec<Option<Document>>> {
    let mut steps = 0;
    for (block, row) in places.iter().flatten() {
        steps += block.copy_steps(*row);
        if offload::is_long(steps) {
            break;
        }
    }
    let make = |found: &Option<(Arc<Block>, usize)>| {
        found.as_ref().map(|(block, row)| block.document(*row)).transpose()
    };
    offload::run(operation, steps, move || places.iter().map(make).collect()).await
}

#[async_trait]
impl VectorStore for InMemoryVectorStore {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let documents = prepare(documents, self.embedder.as_deref()).await?;
        self.state.put("vectors.put", &self.backend, collection, documents, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        check_ids("vectors.get", ids)?;
        let wanted = ids.to_vec();
        let find = move |rows: &Rows| wanted.iter().map(|id| rows.find(id)).collect::<Vec<_>>();
        let Some(places) = self.state.look("vectors.get", collection, find).await? else {
            return Ok(vec![None; ids.len()]);
        };
        documents("vectors.get", places).await
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        check_search("vectors.search", request)?;
        let answers = self.run_searches("vectors.search", collection, std::slice::from_ref(request)).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        const OPERATION: &str = "vectors.search_batch";
        check_search_batch(requests)?;
        self.run_searches(OPERATION, collection, requests).await
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        const OPERATION: &str = "vectors.delete";
        check_ids(OPERATION, ids)?;
        let dimensions = self.state.look(OPERATION, collection, Rows::dimensions).await?;
        let Some(dimensions) = dimensions else { return Ok(0) };
        let ids: HashSet<DocumentId> = ids.iter().cloned().collect();
        // Each hole is filled with another row.
        let steps = ids.len().saturating_mul(dimensions);
        let backend = self.backend.clone();
        let delete = move |rows: &mut Rows| rows.delete(&backend, &ids);
        Ok(self.state.change(OPERATION, collection, steps, delete).await?.unwrap_or(0))
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        const OPERATION: &str = "vectors.delete_matching";
        filter.check(OPERATION)?;
        // Every document is looked at, and each hole is filled with another row.
        let look = filter_steps(filter);
        let steps = move |rows: &Rows| rows.len().saturating_mul(look + rows.dimensions());
        let Some(steps) = self.state.look(OPERATION, collection, steps).await? else { return Ok(0) };
        let (backend, filter) = (self.backend.clone(), filter.clone());
        let delete = move |rows: &mut Rows| {
            let ids = rows.matching(&filter);
            rows.delete(&backend, &ids)
        };
        Ok(self.state.change(OPERATION, collection, steps, delete).await?.unwrap_or(0))
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        const OPERATION: &str = "vectors.count";
        let Some(filter) = filter else {
            let count = self.state.look(OPERATION, collection, |rows| size(rows.len())).await?;
            return Ok(count.unwrap_or(0));
        };
        filter.check(OPERATION)?;
        let found = self.state.look(OPERATION, collection, |rows| (rows.len(), rows.snapshot())).await?;
        let Some((count, blocks)) = found else { return Ok(0) };
        let steps = count.saturating_mul(filter_steps(filter));
        let filter = filter.clone();
        let matching = move || Ok(size(blocks.iter().map(|block| block.matching(&filter).len()).sum()));
        offload::run(OPERATION, steps, matching).await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        const OPERATION: &str = "vectors.list";
        page.check(OPERATION)?;
        let PageRequest { after, limit } = page;
        let look = move |rows: &Rows| rows.page(after.as_ref(), limit + 1);
        let places = self.state.look(OPERATION, collection, look).await?;
        let Some(places) = places else { return Ok(Page::empty()) };
        let places = places.into_iter().map(Some).collect();
        let items = documents(OPERATION, places).await?.into_iter().flatten().collect();
        Ok(Page::from_surplus(items, limit, |document: &Document| document.id.clone()))
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        const OPERATION: &str = "vectors.list_collections";
        page.check(OPERATION)?;
        let items = self.state.list(OPERATION, page.after, page.limit + 1).await?;
        Ok(Page::from_surplus(items, page.limit, |item: &CollectionInfo| item.collection.clone()))
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        let name = collection.clone();
        let take = move |collections: &mut Collections| {
            let gone = collections.remove(&name);
            (gone.is_some(), gone.into_iter().collect())
        };
        self.state.take_out("vectors.drop_collection", &self.backend, take).await
    }
}
