//! Where a document's knowledge base is.

use std::sync::Arc;

use larder_kernel::{Embedder, VectorStore};

/// Where summaries are searched, and what embeds the questions.
#[derive(Debug, Clone)]
pub(crate) struct Knowledge {
    pub(super) store: Arc<dyn VectorStore>,
    pub(super) embedder: Arc<dyn Embedder>,
}
