//! Writes of the documents of one collection, and of empty collections.

use std::sync::Arc;

use larder_kernel::{CollectionName, Document, DocumentId, Embedding, PutMode, Result, VectorStore};

use super::Change;
use crate::transfer::record::{CollectionRecord, DocumentRecord, Record};

/// The id of a document that is written for a moment to create an empty collection.
pub(crate) const PLACEHOLDER: &str = "larder-copy-1:placeholder";

/// Writes the documents of one collection in at most two calls: new documents, and replacements.
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
        // A collection that is followed only by the next one has no documents.
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

/// Creates an empty collection. Only a document fixes its dimension, so a placeholder is written and deleted.
async fn make_empty(store: &Arc<dyn VectorStore>, empty: &CollectionRecord) -> Result<()> {
    let id = DocumentId::new(PLACEHOLDER)?;
    let embedding = Embedding::new(vec![1.0; empty.dimensions])?;
    let document = Document::new(id.clone(), "").with_embedding(embedding);
    store.put(&empty.collection, vec![document], PutMode::Upsert).await?;
    store.delete(&empty.collection, &[id]).await.map(drop)
}
