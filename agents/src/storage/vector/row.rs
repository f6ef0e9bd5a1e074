//! A row that is written to a block: its numbers, and its other data.

use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::{Document, DocumentId, Embedding, Metadata};

use super::sq8::Code;

/// The number of bytes that are copied in about the time of one step.
pub(super) const BYTES_PER_STEP: u64 = 8;

/// The data of a row apart from its embedding.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: DocumentId,
    pub(super) content: String,
    pub(super) metadata: Metadata,
}

impl Record {
    /// Returns the steps for copying the document without its embedding. Metadata is copied part by part, so
    /// a byte counts as a step.
    pub(super) fn copy_steps(&self) -> usize {
        let content = usize::try_from(size(self.content.len()) / BYTES_PER_STEP).unwrap_or(usize::MAX);
        content.saturating_add(self.metadata.size_bytes())
    }

    /// Returns the document without its embedding.
    pub(super) fn document(&self) -> Document {
        Document::new(self.id.clone(), self.content.clone()).with_metadata(self.metadata.clone())
    }
}

/// A row to be written to a block.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) embedding: Embedding,
    pub(super) tail: Tail,
}

/// The data that a block keeps for a row apart from the numbers.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) norm_inverse: f64,
    pub(super) code: Code,
    pub(super) record: Arc<Record>,
}

impl Row {
    pub(super) fn new(embedding: Embedding, record: Record) -> Self {
        let norm_inverse = norm_inverse(embedding.as_slice());
        let code = Code::of(embedding.as_slice(), norm_inverse);
        Self { embedding, tail: Tail { norm_inverse, code, record: Arc::new(record) } }
    }
}

/// Returns the inverse of the length, in 64-bit arithmetic, so that short and long embeddings lose no
/// precision.
pub(super) fn norm_inverse(numbers: &[f32]) -> f64 {
    let squared: f64 = numbers.iter().map(|number| f64::from(*number) * f64::from(*number)).sum();
    squared.sqrt().recip()
}
