//! The store and the embedder of a document's knowledge base.

use std::sync::Arc;

use larder_kernel::{Embedder, VectorStore};

/// The store to search for summaries, and the embedder of the questions.
#[derive(Debug, Clone)]
pub(crate) struct Knowledge {
    pub(super) store: Arc<dyn VectorStore>,
    pub(super) embedder: Arc<dyn Embedder>,
}
