//! In-memory vectors with exact cosine search.

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
mod read;
mod row;
mod row_set;
mod search;
mod search_batch;
mod simd;
mod sq8;
#[cfg(test)]
mod tests;
mod topk;
mod update;

use std::collections::HashSet;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::vector::{
    check_dimension, check_ids, check_metadata_updates, check_search, check_search_batch, prepare,
};
use larder_kernel::{
    Capabilities, CollectionInfo, CollectionName, Document, DocumentId, Durability, Embedder, Error,
    ErrorKind, Filter, MetadataMode, MetadataReport, MetadataUpdate, Namespace, OptionSet, Page, PageRequest,
    PutMode, PutReport, RequestOption, Result, SearchHit, SearchRequest, Store, VectorStore,
};

use self::matrix::Rows;
use self::namespace::{Collections, NamespaceState};
use self::query::{Query, filter_steps};
use self::search::SearchOptions;
use self::search_batch::SearchBatch;
use self::simd::Level;
use super::MemoryBackend;
use super::backend::default_namespace;
use crate::internal::offload::{self, WAIT_STEPS};

/// If fewer than one in this many rows match a filter, the search examines only those, one by one.
const SPARSE_SHARE: usize = 4;
/// The cost of an update of metadata apart from its bytes, in steps.
const UPDATE_STEPS: usize = 64;

/// An in-memory [`VectorStore`].
///
/// Every search is exact, unless you enable [`with_approximate_search`](Self::with_approximate_search). A
/// search reads a snapshot, so it never blocks a write, and it waits only for a write that is in progress
/// when it begins. Long work and waiting run on separate threads. A writer copies at most the 2 MiB of
/// embeddings around each row that a search still reads.
///
/// # Search algorithm
/// The store keeps a code of one byte per number for each embedding. The codes give an upper and a lower
/// bound of each score (Cauchy–Schwarz over the rounding error). A row is skipped if its upper bound is below
/// the lower bounds of enough other rows; the remaining rows are scored in full. The result is therefore
/// bit-identical to that of a full search, while most of the bytes stay unread. If the bounds are close, as
/// among near duplicates, more rows are scored, at worst all.
///
/// A field that a filter names gets a column: the rows of each block by the field's value. The first filter
/// on a field builds its columns. They are rebuilt for blocks in which more than 32 rows were written since.
/// Later filters cost a binary search for each block, and scoring costs only the matching rows. A block has
/// columns for at most 32 fields; for further fields each row is examined.
///
/// # Complexity
/// A search reads one byte of each number, and all bytes of the rows that the bounds leave. If fewer than one
/// in four rows match a filter, the search reads only those rows, plus O(documents ÷ 1,024) for the blocks. A
/// batch reads the codes once for four queries, and those of a block from the cache for the next four. A put
/// or a deletion of n documents costs O(n × dimensions).
///
/// # Memory
/// The store uses five bytes per number (four for the embedding, one for its code) and a fixed share per
/// document. Columns are not counted in the quota. They use about two bytes per document and field, and each
/// distinct value once per block. Embeddings of fewer than 32 numbers have no codes and are always scored in
/// full.
///
/// # Source
/// Filtering by bounds from codes is the VA-file of Weber, Schek and Blott, *A Quantitative Analysis and
/// Performance Study for Similarity-Search Methods in High-Dimensional Spaces* (VLDB 1998), here with bounds
/// of whole rows.
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
    /// Creates a store in a new backend.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of a namespace on a backend.
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

    /// Sets the number of threads for one long search, at least one. The default is the number of cores.
    ///
    /// A search starts further threads only if each has some milliseconds of work.
    #[must_use]
    pub fn with_search_threads(mut self, threads: NonZero<usize>) -> Self {
        self.options.threads = threads.get();
        self
    }

    /// Allows searches of this handle to skip rows by bounds from 8-bit codes, or forbids it. The default
    /// allows it.
    ///
    /// The results of exact searches are bit-identical either way. Without the codes a search reads the whole
    /// of every embedding, four times as many bytes, and no search is approximate. Use it as a reference for
    /// measurements.
    #[must_use]
    pub fn with_first_pass(mut self, first_pass: bool) -> Self {
        self.options.first_pass = first_pass;
        self
    }

    /// Allows searches without a filter to examine only a part of a large collection. They may miss some of
    /// the best rows.
    ///
    /// A collection of 10,000 documents or more then gets an index: cells of similar vectors, as many as the
    /// square root of the number of documents. A search examines the nearest cells. Its reach is measured
    /// when the cells are built, so that it finds 99% of the nearest neighbors of the collection's own
    /// vectors. The measurement uses the nearest 10 for a limit up to 10, and the nearest 100 for a limit up
    /// to 100. Queries that are unlike the documents find fewer.
    ///
    /// The first search that finds a large collection has its cells built on a separate thread. So does a
    /// search that finds that more rows were written and deleted since than half of the collection at that
    /// time. Until the cells exist, searches are exact, or use the previous cells. New writes are found
    /// immediately. The rows of a block are assigned again by the first search after one in 32 of them was
    /// written.
    ///
    /// Searches stay exact with a filter, for limits above 100, and for embeddings of fewer than 32 numbers.
    /// They also stay exact if the nearest cells contain a quarter of the rows, as for vectors without
    /// clusters. If the cells contain fewer hits of a minimum score than the limit, the search is repeated
    /// exactly. A result therefore always has min(limit, matches) hits.
    ///
    /// # Complexity
    /// A search reads one byte of each number of √documents centers and of the rows in the cells within
    /// reach. Building the cells costs documents × √documents × dimensions. It compares a sample of 64 rows
    /// per cell with all centers, up to nine times, 256 rows with all rows, and each row with all centers.
    /// During the build, writers copy the blocks that they write to.
    ///
    /// # Memory
    /// The index uses two bytes per number of each center and two bytes per row. For each block of rows it
    /// uses two bytes per cell. This memory is not counted in the quota.
    ///
    /// # Source
    /// The index is the inverted file of Sivic and Zisserman, *Video Google* (ICCV 2003). The query's own
    /// bound on cells is from Chen et al., *SPANN* (NeurIPS 2021).
    #[must_use]
    pub fn with_approximate_search(mut self) -> Self {
        self.options.approximate = true;
        self
    }

    /// Builds the index of a collection now, regardless of its size, and waits until it is ready. Returns
    /// `true` if searches will use it. They do not if the collection is empty, has fewer than 32 dimensions,
    /// or would not be searched faster.
    ///
    /// You do not have to call this: a search that finds a large collection without an index starts the
    /// build.
    ///
    /// # Errors
    /// `Unsupported` if searches of this handle are exact: without
    /// [`with_approximate_search`](Self::with_approximate_search), or with the first pass turned off.
    ///
    /// # Cancellation
    /// A build that has begun continues.
    pub async fn build_index(&self, collection: &CollectionName) -> Result<bool> {
        const OPERATION: &str = "vectors.build_index";
        if !self.options.has_index() {
            let message = "this store searches exactly; open it with approximate search";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, message));
        }
        let look = |rows: &Rows| (rows.dimensions(), rows.snapshot(), rows.index());
        let found = self.state.look(OPERATION, collection, look).await?;
        let Some((dimensions, blocks, index)) = found else { return Ok(false) };
        let level = self.options.level;
        offload::run(OPERATION, WAIT_STEPS, move || Ok(index.make(level, &blocks, dimensions))).await
    }

    /// Sets the embedder for documents without an embedding.
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

    fn options(&self) -> OptionSet {
        OptionSet::of(&[RequestOption::SearchFilter, RequestOption::SearchScoreMin])
    }

    async fn erase(&self) -> Result<()> {
        let take = |collections: &mut Collections| ((), std::mem::take(collections).into_values().collect());
        self.state.take_out("vectors.erase", &self.backend, take).await
    }
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

    async fn update_metadata(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        check_metadata_updates(&updates)?;
        let steps = updates.iter().map(|update| UPDATE_STEPS + update.metadata.size_bytes()).sum();
        let (backend, missing) = (self.backend.clone(), MetadataReport::of(&updates, |_| false));
        let update = move |rows: &mut Rows| update::update_metadata(rows, &backend, &updates, mode);
        self.state.change(update::OPERATION, collection, steps, update).await?.unwrap_or(Ok(missing))
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        read::get(&self.state, collection, ids).await
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
        // Another row fills each gap.
        let steps = ids.len().saturating_mul(dimensions);
        let backend = self.backend.clone();
        let delete = move |rows: &mut Rows| rows.delete(&backend, &ids);
        Ok(self.state.change(OPERATION, collection, steps, delete).await?.unwrap_or(0))
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        const OPERATION: &str = "vectors.delete_matching";
        filter.check(OPERATION)?;
        // Every document is examined, and another row fills each gap.
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
        read::list(&self.state, collection, page).await
    }

    async fn list_matching(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        read::list_matching(&self.state, collection, filter, page).await
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
