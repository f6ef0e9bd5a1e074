//! A row on its way into a block, and what belongs to it besides its numbers.

use std::sync::Arc;

use larder_kernel::{DocumentId, Embedding, Metadata};

use super::sq8::Code;

/// What a row carries beside its embedding.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: DocumentId,
    pub(super) content: String,
    pub(super) metadata: Metadata,
}

/// A row's embedding, on its way into a block.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) embedding: Embedding,
    pub(super) tail: Tail,
}

/// What a block keeps of a row beside the numbers.
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

/// One over the length, in 64-bit arithmetic, so that short and long embeddings lose nothing.
pub(super) fn norm_inverse(numbers: &[f32]) -> f64 {
    let squared: f64 = numbers.iter().map(|number| f64::from(*number) * f64::from(*number)).sum();
    squared.sqrt().recip()
}
