//! The knowledge base that the memory settings of an agent search.

use std::sync::Arc;

use async_trait::async_trait;
use larder::Stores;
use larder::memory::InMemoryVectorStore;
use larder::session::MemoryConfig;
use larder_kernel::{CollectionName, Embedder, Embedding, PageRequest, Result, VectorStore};

use super::model::Models;
use super::profile::knowledge_base;
use crate::output;

/// The store and the embedder of a knowledge base.
type Knowledge = (Arc<dyn VectorStore>, Arc<dyn Embedder>);

impl Models {
    /// Returns the knowledge base of these settings, or an empty one if it cannot be searched. Says why.
    pub(super) async fn knowledge(&self, stores: &Stores, config: &MemoryConfig) -> Result<Knowledge> {
        let empty = || -> Knowledge { (Arc::new(InMemoryVectorStore::new()), Arc::new(Fixed)) };
        let Some(named) = knowledge_base(config) else { return Ok(empty()) };
        if !self.embeds() {
            output::note(
                "the knowledge base is not searched \
                 (add --model-url, --model and --embedding-model to search it)",
            );
            return Ok(empty());
        }
        let collection = CollectionName::new(named)?;
        let vectors = stores.set().vectors()?;
        match dimensions(&*vectors, &collection).await? {
            Some(dimensions) => Ok((vectors, self.embedder(dimensions)?)),
            None => {
                output::note("the knowledge base is empty");
                Ok(empty())
            }
        }
    }
}

async fn dimensions(vectors: &dyn VectorStore, collection: &CollectionName) -> Result<Option<usize>> {
    let mut request = PageRequest::first(1_000);
    loop {
        let page = vectors.list_collections(request).await?;
        if let Some(found) = page.items.iter().find(|info| info.collection == *collection) {
            return Ok(Some(found.dimensions));
        }
        let Some(next) = page.next else { return Ok(None) };
        request = PageRequest::after(next, 1_000);
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
