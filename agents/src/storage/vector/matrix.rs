//! The rows of one collection, in blocks that searches share.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::storage::vector::check_dimension;
use larder_kernel::{DocumentId, Error, Filter, Metadata, PutMode, PutReport, Result};

use super::block::{Block, Blocks};
use super::index::Index;
use super::row::{BYTES_PER_STEP, Record, Row};
use super::row_set::BLOCK_ROWS_MAX;
use super::simd::PANEL_ROWS;
use crate::storage::MemoryBackend;

const PUT: &str = "vectors.put";

/// The quota share of one document, apart from its id, text, metadata and embedding.
const RECORD_BYTES: u64 = 128;
/// The quota share of a number: four bytes of the embedding, one of its code.
const NUMBER_BYTES: u64 = 5;
/// The quota share of a collection, apart from its documents. It covers the name of at most 512 bytes.
const COLLECTION_BYTES: u64 = 1024;
/// The number of floats in a full block, 2 MiB. A writer copies at most one block that a search still reads.
const BLOCK_NUMBERS: usize = 512 * 1024;
const BLOCK_ROWS_MIN: usize = PANEL_ROWS;

/// A collection: blocks without gaps, which readers share. Writers copy a block only while it is shared.
#[derive(Debug)]
pub(super) struct Rows {
    dimensions: usize,
    block_rows: usize,
    blocks: Arc<Blocks>,
    places: BTreeMap<DocumentId, usize>,
    bytes: u64,
    index: Arc<Index>,
}

impl Rows {
    /// Creates an empty collection, and reserves its share at the backend.
    pub(super) fn new(backend: &MemoryBackend, dimensions: usize) -> Result<Self> {
        backend.try_reserve(PUT, COLLECTION_BYTES)?;
        let block_rows = (BLOCK_NUMBERS / dimensions.max(1)).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS_MAX);
        // Blocks consist of whole panels.
        let block_rows = block_rows / PANEL_ROWS * PANEL_ROWS;
        Ok(Self {
            dimensions,
            block_rows,
            blocks: Arc::default(),
            places: BTreeMap::new(),
            bytes: COLLECTION_BYTES,
            index: Arc::default(),
        })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the average steps for copying a hit's document.
    pub(super) fn copy_steps(&self) -> usize {
        let numbers = size(self.len() * self.dimensions) * NUMBER_BYTES;
        let texts = self.bytes.saturating_sub(COLLECTION_BYTES + numbers);
        usize::try_from(texts / BYTES_PER_STEP / size(self.len().max(1))).unwrap_or(usize::MAX)
    }

    /// Returns the quota share of the collection, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a snapshot of the rows. Later writes do not change it.
    pub(super) fn snapshot(&self) -> Arc<Blocks> {
        self.blocks.clone()
    }

    pub(super) fn index(&self) -> Arc<Index> {
        Arc::clone(&self.index)
    }

    /// Returns the number of a document's row, counted over all blocks.
    pub(super) fn index_of(&self, id: &DocumentId) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Replaces the data of rows apart from their embeddings, if the quota permits it.
    pub(super) fn set_records(
        &mut self,
        operation: &'static str,
        backend: &MemoryBackend,
        records: Vec<(usize, Record)>,
    ) -> Result<()> {
        let freed = records.iter().map(|(index, _)| self.counted_at(*index)).sum();
        let counted = |record: &Record| self.counted(&record.id, &record.content, &record.metadata);
        let needed = records.iter().map(|(_, record)| counted(record)).sum();
        backend.exchange(operation, freed, needed)?;
        self.bytes = self.bytes + needed - freed;
        let rows_max = self.block_rows;
        for (index, record) in records {
            self.block_mut(index / rows_max).set_record(index % rows_max, Arc::new(record));
        }
        Ok(())
    }

    /// Returns the location of a document: its current block, and the row in it.
    pub(super) fn find(&self, id: &DocumentId) -> Option<(Arc<Block>, usize)> {
        self.places.get(id).map(|index| self.block_at(*index))
    }

    /// Returns up to `count` documents after an id, in the byte order of ids.
    pub(super) fn page(&self, after: Option<&DocumentId>, count: usize) -> Vec<(Arc<Block>, usize)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.places
            .range::<DocumentId, _>((start, Bound::Unbounded))
            .take(count)
            .map(|(_, index)| self.block_at(*index))
            .collect()
    }

    fn block_at(&self, index: usize) -> (Arc<Block>, usize) {
        (self.blocks[index / self.block_rows].clone(), index % self.block_rows)
    }

    pub(super) fn record(&self, index: usize) -> &Arc<Record> {
        self.blocks[index / self.block_rows].record(index % self.block_rows)
    }

    /// Returns a block for writing. Copies it first if a search still reads it.
    fn block_mut(&mut self, block: usize) -> &mut Block {
        Arc::make_mut(&mut Arc::make_mut(&mut self.blocks)[block])
    }

    fn counted(&self, id: &DocumentId, content: &str, metadata: &Metadata) -> u64 {
        let text = id.as_str().len() + content.len() + metadata.size_bytes();
        RECORD_BYTES + size(text) + size(self.dimensions) * NUMBER_BYTES
    }

    fn counted_at(&self, index: usize) -> u64 {
        let record = self.record(index);
        self.counted(&record.id, &record.content, &record.metadata)
    }

    /// Writes a batch. Everything that can fail comes before the first change.
    pub(super) fn put(
        &mut self,
        backend: &MemoryBackend,
        rows: Vec<Row>,
        mode: PutMode,
    ) -> Result<PutReport> {
        for row in &rows {
            check_dimension(PUT, row.embedding.dimensions(), self.dimensions)?;
        }
        let replaces = match mode {
            PutMode::Upsert => true,
            PutMode::IfAbsent => false,
            _ => return Err(Error::unknown_value(PUT, "mode")),
        };
        let mut report = PutReport::default();
        let mut write = Vec::with_capacity(rows.len());
        let (mut freed, mut needed) = (0, 0);
        for row in rows {
            let record = &row.tail.record;
            let there = self.places.get(&record.id).copied();
            if there.is_some() && !replaces {
                report.ignored.push(record.id.clone());
                continue;
            }
            freed += there.map_or(0, |index| self.counted_at(index));
            needed += self.counted(&record.id, &record.content, &record.metadata);
            report.written.push(record.id.clone());
            write.push(row);
        }
        backend.exchange(PUT, freed, needed)?;
        self.bytes = self.bytes + needed - freed;
        for row in &write {
            self.write(row);
        }
        Ok(report)
    }

    fn write(&mut self, row: &Row) {
        self.index.note_change();
        let rows_max = self.block_rows;
        if let Some(index) = self.places.get(&row.tail.record.id).copied() {
            self.block_mut(index / rows_max).set(index % rows_max, row.embedding.as_slice(), &row.tail);
            return;
        }
        let index = self.places.len();
        if index / rows_max == self.blocks.len() {
            Arc::make_mut(&mut self.blocks).push(Arc::new(Block::new(self.dimensions)));
        }
        self.block_mut(index / rows_max).push(row.embedding.as_slice(), &row.tail, rows_max);
        self.places.insert(row.tail.record.id.clone(), index);
    }

    /// Removes a document, if it exists. The last row takes its place.
    fn remove(&mut self, id: &DocumentId) -> Option<u64> {
        let index = self.places.remove(id)?;
        self.index.note_change();
        let counted = self.counted_at(index);
        // `places` now has one document less, so its length is the index of the last row.
        let last = self.places.len();
        if index != last {
            // The row is copied out first, because a reference to its block would make the write below copy
            // the whole block.
            let (numbers, tail) = self.blocks[last / self.block_rows].copy(last % self.block_rows);
            self.places.insert(tail.record.id.clone(), index);
            let row = index % self.block_rows;
            self.block_mut(index / self.block_rows).set(row, &numbers, &tail);
        }
        self.block_mut(last / self.block_rows).pop();
        if last.is_multiple_of(self.block_rows) {
            Arc::make_mut(&mut self.blocks).pop();
        }
        Some(counted)
    }

    /// Deletes documents by their ids and returns the number that existed.
    pub(super) fn delete(&mut self, backend: &MemoryBackend, ids: &HashSet<DocumentId>) -> u64 {
        let (mut deleted, mut freed) = (0, 0);
        for counted in ids.iter().filter_map(|id| self.remove(id)) {
            deleted += 1;
            freed += counted;
        }
        self.bytes -= freed;
        backend.release(freed);
        deleted
    }

    /// Returns up to `count` matching documents after an id, in the byte order of ids.
    pub(super) fn matching_page(
        &self,
        filter: &Filter,
        after: Option<&DocumentId>,
        count: usize,
    ) -> Vec<Arc<Record>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let following = self.places.range::<DocumentId, _>((start, Bound::Unbounded));
        following
            .map(|(_, index)| self.record(*index))
            .filter(|record| filter.matches(&record.metadata))
            .take(count)
            .cloned()
            .collect()
    }

    /// Returns the ids of the matching documents.
    pub(super) fn matching(&self, filter: &Filter) -> HashSet<DocumentId> {
        let ids = |block: &Arc<Block>| {
            let ids = |row| block.record(row).id.clone();
            block.matching(filter).rows().into_iter().map(ids).collect::<Vec<_>>()
        };
        self.blocks.iter().flat_map(ids).collect()
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::Embedding;

    use super::*;

    #[test]
    fn a_deletion_copies_no_block_without_readers() {
        let backend = MemoryBackend::new();
        let mut rows = Rows::new(&backend, 2).unwrap();
        let id = |number: u8| DocumentId::new(format!("d{number}")).unwrap();
        let embedding = |number: u8| Embedding::new([1.0, f32::from(number)]).unwrap();
        let row = |number: u8| {
            let record = Record { id: id(number), content: String::new(), metadata: Metadata::default() };
            Row::new(embedding(number), record)
        };
        rows.put(&backend, (0..5).map(row).collect(), PutMode::Upsert).unwrap();
        let before = Arc::as_ptr(&rows.blocks[0]);
        assert_eq!(rows.delete(&backend, &HashSet::from([id(1)])), 1);
        assert_eq!(Arc::as_ptr(&rows.blocks[0]), before);
        let (block, row) = rows.find(&id(4)).unwrap();
        assert_eq!((row, block.document(row).unwrap().embedding), (1, Some(embedding(4))));
    }
}
