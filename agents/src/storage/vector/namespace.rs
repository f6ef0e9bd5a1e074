//! The collections of a namespace, and their locks.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use larder_kernel::check::size;
use larder_kernel::storage::vector::PreparedDocument;
use larder_kernel::{CollectionInfo, CollectionName, PutMode, PutReport, Result};

use super::matrix::Rows;
use super::row::{Record, Row};
use crate::internal::offload::{self, WAIT_STEPS, readers_wait, writers_wait};
use crate::storage::MemoryBackend;

/// The cost of freeing a document, in steps.
const DROP_STEPS: usize = 64;

pub(super) type Collections = BTreeMap<CollectionName, RwLock<Rows>>;

/// The collections of a namespace. Writers of a collection hold the outer lock for reading, so a collection
/// that is removed has no writer. Searches hold neither lock while they score.
///
/// A deletion may hold its lock for a long time, so other callers wait for it on a thread that may block.
#[derive(Default)]
pub(super) struct NamespaceState {
    collections: RwLock<Collections>,
}

// A thread that panics under a lock has not changed anything: every step that can fail comes before the first
// change.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn row(document: PreparedDocument) -> Row {
    let PreparedDocument { id, content, embedding, metadata, .. } = document;
    Row::new(embedding, Record { id, content, metadata })
}

impl NamespaceState {
    /// Runs `look` on a collection. Returns `None` if it does not exist.
    pub(super) async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        collection: &CollectionName,
        look: impl FnOnce(&Rows) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        if !self.lookers_wait(collection) {
            return Ok(self.look_now(collection, look));
        }
        self.look_through(operation, collection, WAIT_STEPS, look).await
    }

    /// Runs `look` on a collection, in about `steps` steps. Returns `None` if it does not exist.
    pub(super) async fn look_through<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        collection: &CollectionName,
        steps: usize,
        look: impl FnOnce(&Rows) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        let steps = if self.lookers_wait(collection) { WAIT_STEPS } else { steps };
        let (state, collection) = (Arc::clone(self), collection.clone());
        offload::run(operation, steps, move || Ok(state.look_now(&collection, look))).await
    }

    /// Runs `change` on a collection, in about `steps` steps. Returns `None` if it does not exist.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        collection: &CollectionName,
        steps: usize,
        change: impl FnOnce(&mut Rows) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        let steps = if self.changers_wait(collection) { WAIT_STEPS } else { steps };
        let (state, collection) = (Arc::clone(self), collection.clone());
        let work = move || Ok(read(&state.collections).get(&collection).map(|rows| change(&mut write(rows))));
        offload::run(operation, steps, work).await
    }

    /// Writes documents to a collection, and creates it if it does not exist.
    pub(super) async fn put(
        self: &Arc<Self>,
        operation: &'static str,
        backend: &MemoryBackend,
        collection: &CollectionName,
        documents: Vec<PreparedDocument>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let steps = documents.iter().map(|document| document.embedding.dimensions()).sum();
        let steps = if self.changers_wait(collection) { WAIT_STEPS } else { steps };
        let (state, backend, collection) = (Arc::clone(self), backend.clone(), collection.clone());
        offload::run(operation, steps, move || state.put_now(&backend, &collection, documents, mode)).await
    }

    /// Removes collections and frees them.
    pub(super) async fn take_out<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        backend: &MemoryBackend,
        take: impl FnOnce(&mut Collections) -> (T, Vec<RwLock<Rows>>) + Send + 'static,
    ) -> Result<T> {
        let steps = match self.collections.try_write() {
            Ok(collections) => {
                let documents: usize = collections.values().map(|rows| read(rows).len()).sum();
                documents.saturating_mul(DROP_STEPS)
            }
            Err(_) => WAIT_STEPS,
        };
        let (state, backend) = (Arc::clone(self), backend.clone());
        let work = move || {
            let (answer, gone) = take(&mut write(&state.collections));
            gone.iter().for_each(|rows| backend.release(read(rows).bytes()));
            Ok(answer)
        };
        offload::run(operation, steps, work).await
    }

    /// Returns up to `limit` collections after one.
    pub(super) async fn list(
        self: &Arc<Self>,
        operation: &'static str,
        after: Option<CollectionName>,
        limit: usize,
    ) -> Result<Vec<CollectionInfo>> {
        let waits = readers_wait(&self.collections) || read(&self.collections).values().any(readers_wait);
        let state = Arc::clone(self);
        let info = |(collection, rows): (&CollectionName, &RwLock<Rows>)| {
            let rows = read(rows);
            CollectionInfo::new(collection.clone(), rows.dimensions(), size(rows.len()))
        };
        let work = move || {
            let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let collections = read(&state.collections);
            let range = collections.range::<CollectionName, _>((start, Bound::Unbounded));
            Ok(range.take(limit).map(info).collect())
        };
        offload::run(operation, if waits { WAIT_STEPS } else { 0 }, work).await
    }

    /// Returns `true` if a read of a collection would have to wait for a writer.
    fn lookers_wait(&self, collection: &CollectionName) -> bool {
        readers_wait(&self.collections) || read(&self.collections).get(collection).is_some_and(readers_wait)
    }

    /// Returns `true` if a change of a collection would have to wait.
    fn changers_wait(&self, collection: &CollectionName) -> bool {
        if readers_wait(&self.collections) {
            return true;
        }
        let there = read(&self.collections).get(collection).map(writers_wait);
        there.unwrap_or_else(|| writers_wait(&self.collections))
    }

    fn look_now<T>(&self, collection: &CollectionName, look: impl FnOnce(&Rows) -> T) -> Option<T> {
        read(&self.collections).get(collection).map(|rows| look(&read(rows)))
    }

    fn put_now(
        &self,
        backend: &MemoryBackend,
        collection: &CollectionName,
        documents: Vec<PreparedDocument>,
        mode: PutMode,
    ) -> Result<PutReport> {
        // `prepare` ensures that the batch is not empty and has one dimension.
        let Some(first) = documents.first() else { return Ok(PutReport::default()) };
        let dimensions = first.embedding.dimensions();
        // Codes are computed before any lock is taken.
        let documents: Vec<Row> = documents.into_iter().map(row).collect();
        let collections = read(&self.collections);
        if let Some(rows) = collections.get(collection) {
            return write(rows).put(backend, documents, mode);
        }
        drop(collections);
        let mut collections = write(&self.collections);
        if let Some(rows) = collections.get(collection) {
            return write(rows).put(backend, documents, mode);
        }
        let mut rows = Rows::new(backend, dimensions)?;
        let report = rows.put(backend, documents, mode).inspect_err(|_| backend.release(rows.bytes()))?;
        collections.insert(collection.clone(), RwLock::new(rows));
        Ok(report)
    }
}
