//! The knowledge base that the memory settings of an agent search.

use std::sync::Arc;

use async_trait::async_trait;
use larder::Stores;
use larder::memory::InMemoryVectorStore;
use larder_kernel::{Embedder, Embedding, Result, VectorStore};

use super::model::Models;
use crate::inspect::first;
use crate::output;

/// The store and the embedder of a knowledge base.
pub(super) type Knowledge = (Arc<dyn VectorStore>, Arc<dyn Embedder>);

/// Returns a knowledge base without summaries.
pub(super) fn empty() -> Knowledge {
    (Arc::new(InMemoryVectorStore::new()), Arc::new(Fixed))
}

impl Models {
    /// Returns the knowledge base in this collection, or an empty one if it cannot be searched. Says why.
    pub(super) async fn knowledge(&self, stores: &Stores, collection: &str) -> Result<Knowledge> {
        if !self.embeds() {
            output::note(
                "the knowledge base is not searched \
                 (add --model-url, --model and --embedding-model to search it)",
            );
            return Ok(empty());
        }
        let vectors = stores.set().vectors()?;
        let listed = first(usize::MAX, async |page| vectors.list_collections(page).await).await?;
        match listed.items.iter().find(|info| info.collection.as_str() == collection) {
            Some(info) => Ok((vectors, self.embedder(info.dimensions)?)),
            None => {
                output::note("the knowledge base is empty");
                Ok(empty())
            }
        }
    }
}

/// The embedder of a knowledge base that is empty.
#[derive(Debug)]
struct Fixed;

#[async_trait]
impl Embedder for Fixed {
    fn dimensions(&self) -> usize {
        1
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        texts.iter().map(|_| Embedding::new(vec![1.0])).collect()
    }
}
