//! Collections in order, each with its documents.

use std::sync::Arc;

use larder_kernel::{
    CollectionInfo, CollectionName, Contract, Document, DocumentId, Error, ErrorKind, Result, VectorStore,
};

use super::pages::Pages;
use crate::transfer::missing::Skips;
use crate::transfer::record::{CollectionRecord, DocumentRecord, Record};

const COLLECTIONS: usize = 500;
/// The number of documents in memory; each may have over 1 MiB.
const DOCUMENTS: usize = 100;

pub(crate) struct VectorScan {
    store: Arc<dyn VectorStore>,
    collections: Pages<CollectionInfo, CollectionName>,
    current: Option<(CollectionName, Pages<Document, DocumentId>)>,
    skips: Skips,
}

impl VectorScan {
    pub(super) fn new(store: &Arc<dyn VectorStore>, skips: &Skips) -> Self {
        let listed = Arc::clone(store);
        let collections = Pages::new(COLLECTIONS, move |page| {
            let store = Arc::clone(&listed);
            Box::pin(async move { store.list_collections(page).await })
        });
        let place = |after: Option<&CollectionName>| match after {
            Some(name) => format!("the collections after {name}"),
            None => "all collections".to_owned(),
        };
        let collections = collections.skipping(skips, Contract::Vectors, place);
        Self { store: Arc::clone(store), collections, current: None, skips: skips.clone() }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        if let Some((collection, documents)) = &mut self.current {
            if let Some(document) = documents.next().await? {
                return moved(collection.clone(), document).map(Some);
            }
            self.current = None;
        }
        let Some(info) = self.collections.next().await? else { return Ok(None) };
        let (store, collection) = (Arc::clone(&self.store), info.collection.clone());
        let documents = Pages::new(DOCUMENTS, move |page| {
            let (store, collection) = (Arc::clone(&store), collection.clone());
            Box::pin(async move { store.list(&collection, page).await })
        });
        let name = info.collection.clone();
        let documents = documents.skipping(&self.skips, Contract::Vectors, move |after| match after {
            Some(id) => format!("the documents of the collection {name} after {id}"),
            None => format!("the documents of the collection {name}"),
        });
        self.current = Some((info.collection.clone(), documents));
        let CollectionInfo { collection, dimensions, .. } = info;
        Ok(Some(Record::Collection(CollectionRecord { collection, dimensions })))
    }
}

fn moved(collection: CollectionName, document: Document) -> Result<Record> {
    let Document { id, content, embedding, metadata, .. } = document;
    let embedding = embedding.ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            "transfer.walk",
            "a document reads back without its embedding; run the conformance suite on the backend",
        )
    })?;
    Ok(Record::Document(DocumentRecord { collection, id, content, embedding, metadata }))
}
