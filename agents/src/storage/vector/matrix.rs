//! The rows of one collection: embeddings in matrices, and what belongs to each row.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::storage::vector::{PreparedDocument, check_dimension};
use larder_kernel::{Document, DocumentId, Embedding, Filter, Metadata, PutMode, PutReport, Result};
use ndarray::{Array2, ArrayView1, Axis, Slice};

use crate::storage::MemoryPlace;

const PUT: &str = "vectors.put";

/// What one document is counted for beyond its id, text, metadata and embedding.
const RECORD_BYTES: u64 = 128;
/// What a collection is counted for beyond its documents; so large because the name is at most 512 bytes.
const COLLECTION_BYTES: u64 = 1024;
/// Numbers in a full block: 1 MiB of them. A writer copies at most one block that a search still reads.
const BLOCK_NUMBERS: usize = 256 * 1024;
const BLOCK_ROWS_MIN: usize = 16;
const BLOCK_ROWS_MAX: usize = 1024;

/// What a row carries beside its embedding.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: DocumentId,
    pub(super) content: String,
    pub(super) metadata: Metadata,
}

/// A run of rows: one matrix, row-major, whose rows beyond `records` are spare.
#[derive(Debug, Clone)]
pub(super) struct Block {
    matrix: Array2<f32>,
    norms_inverse: Vec<f64>,
    pub(super) records: Vec<Arc<Record>>,
}

impl Block {
    fn new(dimensions: usize) -> Self {
        Self { matrix: Array2::zeros((0, dimensions)), norms_inverse: Vec::new(), records: Vec::new() }
    }

    pub(super) fn row(&self, row: usize) -> ArrayView1<'_, f32> {
        self.matrix.row(row)
    }

    pub(super) fn norm_inverse(&self, row: usize) -> f64 {
        self.norms_inverse[row]
    }

    fn push(&mut self, numbers: &ArrayView1<'_, f32>, norm_inverse: f64, record: Arc<Record>) {
        let row = self.records.len();
        if row == self.matrix.nrows() {
            let mut larger = Array2::zeros(((row * 2).max(8), self.matrix.ncols()));
            larger.slice_axis_mut(Axis(0), Slice::from(..row)).assign(&self.matrix);
            self.matrix = larger;
        }
        self.matrix.row_mut(row).assign(numbers);
        self.norms_inverse.push(norm_inverse);
        self.records.push(record);
    }

    fn set(&mut self, row: usize, numbers: &ArrayView1<'_, f32>, norm_inverse: f64, record: Arc<Record>) {
        self.matrix.row_mut(row).assign(numbers);
        self.norms_inverse[row] = norm_inverse;
        self.records[row] = record;
    }

    fn pop(&mut self) {
        self.norms_inverse.pop();
        self.records.pop();
    }

    /// The document of a row, its embedding bit for bit.
    pub(super) fn document(&self, row: usize) -> Result<Document> {
        let record = &self.records[row];
        let embedding = Embedding::new(self.row(row).to_vec())?;
        Ok(Document::new(record.id.clone(), record.content.clone())
            .with_embedding(embedding)
            .with_metadata(record.metadata.clone()))
    }
}

/// One over the length, in 64-bit arithmetic, so that short and long embeddings lose nothing.
pub(super) fn norm_inverse(numbers: &[f32]) -> f64 {
    let squared: f64 = numbers.iter().map(|number| f64::from(*number) * f64::from(*number)).sum();
    squared.sqrt().recip()
}

/// A collection: blocks that readers share and writers copy only while shared, without holes.
#[derive(Debug)]
pub(super) struct Rows {
    dimensions: usize,
    block_rows: usize,
    blocks: Vec<Arc<Block>>,
    places: BTreeMap<DocumentId, usize>,
    bytes: u64,
}

impl Rows {
    /// An empty collection whose own share is reserved at the place.
    pub(super) fn new(place: &MemoryPlace, dimensions: usize) -> Result<Self> {
        place.try_reserve(PUT, COLLECTION_BYTES)?;
        let block_rows = (BLOCK_NUMBERS / dimensions.max(1)).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS_MAX);
        Ok(Self {
            dimensions,
            block_rows,
            blocks: Vec::new(),
            places: BTreeMap::new(),
            bytes: COLLECTION_BYTES,
        })
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// What is counted for the collection at its place.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rows as they are now; later writes do not show in it.
    pub(super) fn snapshot(&self) -> Vec<Arc<Block>> {
        self.blocks.clone()
    }

    /// Where a document is: its block as it is now, and the row in it.
    pub(super) fn find(&self, id: &DocumentId) -> Option<(Arc<Block>, usize)> {
        self.places.get(id).map(|index| self.block_at(*index))
    }

    /// Up to `count` documents whose ids come after one, in the byte order of ids.
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

    fn record(&self, index: usize) -> &Record {
        &self.blocks[index / self.block_rows].records[index % self.block_rows]
    }

    fn counted(&self, id: &DocumentId, content: &str, metadata: &Metadata) -> u64 {
        let text = id.as_str().len() + content.len() + metadata.size_bytes();
        RECORD_BYTES + size(text) + size(self.dimensions) * 4
    }

    fn counted_at(&self, index: usize) -> u64 {
        let record = self.record(index);
        self.counted(&record.id, &record.content, &record.metadata)
    }

    /// Writes a batch: everything that can refuse it comes before the first change.
    pub(super) fn put(
        &mut self,
        place: &MemoryPlace,
        documents: Vec<PreparedDocument>,
        mode: PutMode,
    ) -> Result<PutReport> {
        for document in &documents {
            check_dimension(PUT, document.embedding.dimensions(), self.dimensions)?;
        }
        let mut report = PutReport::default();
        let mut write = Vec::with_capacity(documents.len());
        let (mut freed, mut needed) = (0, 0);
        for document in documents {
            let there = self.places.get(&document.id).copied();
            if there.is_some() && mode == PutMode::IfAbsent {
                report.ignored.push(document.id);
                continue;
            }
            freed += there.map_or(0, |index| self.counted_at(index));
            needed += self.counted(&document.id, &document.content, &document.metadata);
            report.written.push(document.id.clone());
            write.push(document);
        }
        if needed > freed {
            place.try_reserve(PUT, needed - freed)?;
        } else {
            place.release(freed - needed);
        }
        self.bytes = self.bytes + needed - freed;
        for document in write {
            self.write(document);
        }
        Ok(report)
    }

    fn write(&mut self, document: PreparedDocument) {
        let PreparedDocument { id, content, embedding, metadata } = document;
        let numbers = ArrayView1::from(embedding.as_slice());
        let norm_inverse = norm_inverse(embedding.as_slice());
        let record = Arc::new(Record { id: id.clone(), content, metadata });
        if let Some(index) = self.places.get(&id) {
            let block = Arc::make_mut(&mut self.blocks[index / self.block_rows]);
            block.set(index % self.block_rows, &numbers, norm_inverse, record);
            return;
        }
        let index = self.places.len();
        if index / self.block_rows == self.blocks.len() {
            self.blocks.push(Arc::new(Block::new(self.dimensions)));
        }
        Arc::make_mut(&mut self.blocks[index / self.block_rows]).push(&numbers, norm_inverse, record);
        self.places.insert(id, index);
    }

    /// Removes a document, if it is there; the last row takes its place.
    fn remove(&mut self, id: &DocumentId) -> Option<u64> {
        let index = self.places.remove(id)?;
        let counted = self.counted_at(index);
        // One document fewer stands in `places`, so its length is the index of the last row.
        let last = self.places.len();
        if index != last {
            // The row is copied out first: holding on to its block would make the write below copy the whole of it.
            let (block, row) = (&self.blocks[last / self.block_rows], last % self.block_rows);
            let (numbers, norm_inverse) = (block.row(row).to_owned(), block.norm_inverse(row));
            let record = block.records[row].clone();
            self.places.insert(record.id.clone(), index);
            let target = Arc::make_mut(&mut self.blocks[index / self.block_rows]);
            target.set(index % self.block_rows, &numbers.view(), norm_inverse, record);
        }
        Arc::make_mut(&mut self.blocks[last / self.block_rows]).pop();
        if last.is_multiple_of(self.block_rows) {
            self.blocks.pop();
        }
        Some(counted)
    }

    /// Deletes documents by their ids, and says how many were there.
    pub(super) fn delete(&mut self, place: &MemoryPlace, ids: &HashSet<DocumentId>) -> u64 {
        let (mut deleted, mut freed) = (0, 0);
        for counted in ids.iter().filter_map(|id| self.remove(id)) {
            deleted += 1;
            freed += counted;
        }
        self.bytes -= freed;
        place.release(freed);
        deleted
    }

    /// The ids of the documents that match.
    pub(super) fn matching(&self, filter: &Filter) -> HashSet<DocumentId> {
        let records = self.blocks.iter().flat_map(|block| &block.records);
        records.filter(|record| filter.matches(&record.metadata)).map(|record| record.id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_copies_no_block_that_nobody_reads() {
        let place = MemoryPlace::new();
        let mut rows = Rows::new(&place, 2).unwrap();
        let document = |number: u8| PreparedDocument {
            id: DocumentId::new(format!("d{number}")).unwrap(),
            content: String::new(),
            embedding: Embedding::new([1.0, f32::from(number)]).unwrap(),
            metadata: Metadata::default(),
        };
        rows.put(&place, (0..5).map(document).collect(), PutMode::Upsert).unwrap();
        let before = Arc::as_ptr(&rows.blocks[0]);
        assert_eq!(rows.delete(&place, &HashSet::from([document(1).id])), 1);
        assert_eq!(Arc::as_ptr(&rows.blocks[0]), before);
        let (block, row) = rows.find(&document(4).id).unwrap();
        assert_eq!((row, block.document(row).unwrap().embedding), (1, Some(document(4).embedding)));
    }
}
