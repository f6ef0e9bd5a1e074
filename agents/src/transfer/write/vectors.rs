//! Documents of one collection, and collections without documents.

use std::sync::Arc;

use larder_kernel::{CollectionName, Document, DocumentId, Embedding, PutMode, Result, VectorStore};

use super::Change;
use crate::transfer::record::{CollectionRecord, DocumentRecord, Record};

/// A document by which a collection comes to be that holds none.
pub(crate) const PLACEHOLDER: &str = "larder-copy-1:placeholder";

/// Puts the documents of one collection in two steps at most: the new ones, and those that replace others.
pub(super) async fn write(store: &Arc<dyn VectorStore>, batch: Vec<(Change, Record)>) -> Result<()> {
    let (mut collection, mut empty) = (None, None);
    let (mut new, mut replaced) = (Vec::new(), Vec::new());
    for (change, record) in batch {
        match record {
            Record::Collection(record) => empty = Some(record),
            Record::Document(DocumentRecord { collection: name, id, content, embedding, metadata }) => {
                collection.get_or_insert(name);
                let document = Document::new(id, content).with_embedding(embedding).with_metadata(metadata);
                if change == Change::New { new.push(document) } else { replaced.push(document) }
            }
            _ => {}
        }
    }
    match (collection, empty) {
        (Some(collection), _) => {
            put(store, &collection, new, PutMode::IfAbsent).await?;
            put(store, &collection, replaced, PutMode::Upsert).await
        }
        // Nothing follows a collection but the next one: it holds no documents.
        (None, Some(empty)) => make_empty(store, &empty).await,
        (None, None) => Ok(()),
    }
}

async fn put(
    store: &Arc<dyn VectorStore>,
    collection: &CollectionName,
    documents: Vec<Document>,
    mode: PutMode,
) -> Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    store.put(collection, documents, mode).await.map(drop)
}

/// Only a document fixes the dimension of a collection, so one comes and goes.
async fn make_empty(store: &Arc<dyn VectorStore>, empty: &CollectionRecord) -> Result<()> {
    let id = DocumentId::new(PLACEHOLDER)?;
    let embedding = Embedding::new(vec![1.0; empty.dimensions])?;
    let document = Document::new(id.clone(), "").with_embedding(embedding);
    store.put(&empty.collection, vec![document], PutMode::Upsert).await?;
    store.delete(&empty.collection, &[id]).await.map(drop)
}
