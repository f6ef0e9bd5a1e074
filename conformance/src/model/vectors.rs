//! The model of [`VectorStore`].

mod metadata;
mod operation;
mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::vector::{check_ids, prepare};
use larder_kernel::{
    Capabilities, CollectionInfo, CollectionName, Contract, Document, DocumentId, Filter, PageRequest,
    PutMode, PutReport, VectorStore,
};

use self::operation::{Operation, documents_text};
use super::compare::{Checked, Expected, Refusal, holds, same};
use super::recorder::{Recorder, id, json, json_text, optional, owned_id, page};
use super::rng::Rng;
use super::shared::page_of;
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of collections.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    collections: BTreeMap<CollectionName, Held>,
}

#[derive(Debug)]
struct Held {
    dimensions: usize,
    documents: BTreeMap<DocumentId, Document>,
}

impl Vectors {
    fn documents(&self, collection: &CollectionName) -> impl Iterator<Item = &Document> {
        self.collections.get(collection).into_iter().flat_map(|held| held.documents.values())
    }

    fn document(&self, collection: &CollectionName, id: &DocumentId) -> Option<Document> {
        self.collections.get(collection)?.documents.get(id).cloned()
    }

    async fn put(
        &mut self,
        store: &dyn VectorStore,
        (collection, documents, mode): (&CollectionName, &[Document], PutMode),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if mode == PutMode::Upsert { "VEC-003" } else { "VEC-002" };
        recorder.call(clause, |_| {
            format!("put({}, {}, PutMode::{mode:?})", id(collection), documents_text(documents))
        });
        let expected = match prepare(documents.to_vec(), None).await {
            Err(refusal) => Err(refusal.into()),
            Ok(prepared) => {
                let dimensions = prepared.first().map_or(0, |document| document.embedding.dimensions());
                let held = self.collections.get(collection);
                if held.is_some_and(|held| held.dimensions != dimensions) {
                    let kind = larder_kernel::ErrorKind::InvalidInput;
                    Err(Refusal { kind, field: Some("embedding") })
                } else {
                    let there = |document: &Document| {
                        held.is_some_and(|held| held.documents.contains_key(&document.id))
                    };
                    let left = |document: &&Document| mode == PutMode::IfAbsent && there(document);
                    let (ignored, written): (Vec<_>, Vec<_>) = documents.iter().partition(left);
                    Ok((dimensions, written, ignored))
                }
            }
        };
        let ids = |documents: &[&Document]| documents.iter().map(|document| document.id.clone()).collect();
        let report: Expected<PutReport> = match &expected {
            Ok((_, written, ignored)) => Ok(PutReport::new(ids(written), ids(ignored))),
            Err(refusal) => Err(*refusal),
        };
        let got = store.put(collection, documents.to_vec(), mode).await;
        same(recorder, clause, &got, &report)?;
        if let Ok((dimensions, written, _)) = expected {
            let held = self.collections.entry(collection.clone());
            let held = held.or_insert_with(|| Held { dimensions, documents: BTreeMap::new() });
            held.documents
                .extend(written.into_iter().map(|document| (document.id.clone(), document.clone())));
        }
        Ok(())
    }

    async fn get(
        &mut self,
        store: &dyn VectorStore,
        (collection, ids): (&CollectionName, &[DocumentId]),
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-013", |_| format!("get({}, &[{}])", id(collection), list(ids)));
        let expected: Vec<_> = ids.iter().map(|id| self.document(collection, id)).collect();
        let got = store.get(collection, ids).await;
        same(recorder, "VEC-013", &got, &Ok(expected.clone()))?;
        let bits = |documents: &[Option<Document>]| -> Vec<Option<Vec<u32>>> {
            documents.iter().map(|document| document.as_ref().map(bits_of)).collect()
        };
        let got = got.unwrap_or_default();
        let assertion = || {
            let numbers = "embedding.as_slice().iter().map(|number| number.to_bits()).collect::<Vec<_>>()";
            let found = format!("found.and_then(|found| found.embedding).map(|embedding| {numbers})");
            let got = format!(
                "{}.unwrap().into_iter().map(|found| {found}).collect::<Vec<_>>()",
                recorder.answer()
            );
            format!("assert_eq!({got}, of::<Vec<Option<Vec<u32>>>>({}));", json_text(&bits(&expected)))
        };
        let want = || format!("the bits {:?}", bits(&expected));
        holds("VEC-001", bits(&got) == bits(&expected), want, &bits(&got), assertion)
    }

    async fn delete(
        &mut self,
        store: &dyn VectorStore,
        (collection, ids): (&CollectionName, &[DocumentId]),
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-034", |_| format!("delete({}, &[{}])", id(collection), list(ids)));
        let before = self.documents(collection).count();
        if let Some(held) = self.collections.get_mut(collection) {
            held.documents.retain(|id, _| !ids.contains(id));
        }
        let gone = size(before - self.documents(collection).count());
        let expected = check_ids("vectors.delete", ids).map(|()| gone).map_err(Into::into);
        same(recorder, "VEC-034", &store.delete(collection, ids).await, &expected)
    }

    async fn delete_matching(
        &mut self,
        store: &dyn VectorStore,
        (collection, filter): (&CollectionName, &Filter),
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-036", |_| format!("delete_matching({}, &{})", id(collection), json(filter)));
        let expected: Expected<u64> = match filter.check("vectors.delete_matching") {
            Err(refusal) => Err(refusal.into()),
            Ok(()) => {
                let before = self.documents(collection).count();
                if let Some(held) = self.collections.get_mut(collection) {
                    held.documents.retain(|_, document| !filter.matches(&document.metadata));
                }
                Ok(size(before - self.documents(collection).count()))
            }
        };
        same(recorder, "VEC-036", &store.delete_matching(collection, filter).await, &expected)
    }

    async fn count(
        &mut self,
        store: &dyn VectorStore,
        (collection, filter): (&CollectionName, Option<&Filter>),
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-037", |_| {
            let filter = optional(filter, |filter| format!("&{}", json(filter)));
            format!("count({}, {filter})", id(collection))
        });
        let matching = |document: &&Document| filter.is_none_or(|filter| filter.matches(&document.metadata));
        let count = size(self.documents(collection).filter(matching).count());
        let checked = filter.map_or(Ok(()), |filter| filter.check("vectors.count"));
        let expected = checked.map(|()| count).map_err(Into::into);
        same(recorder, "VEC-037", &store.count(collection, filter).await, &expected)
    }

    async fn list(
        &mut self,
        store: &dyn VectorStore,
        (collection, request): (&CollectionName, &PageRequest<DocumentId>),
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-038", |_| format!("list({}, {})", id(collection), page(request, owned_id)));
        let documents = self.documents(collection).cloned();
        let expected = request
            .check("vectors.list")
            .map(|()| page_of(documents, request, |document| document.id.clone()))
            .map_err(Into::into);
        same(recorder, "VEC-038", &store.list(collection, request.clone()).await, &expected)
    }

    async fn list_collections(
        &mut self,
        store: &dyn VectorStore,
        request: &PageRequest<CollectionName>,
        recorder: &mut Recorder,
    ) -> Checked {
        recorder.call("VEC-039", |_| format!("list_collections({})", page(request, owned_id)));
        let all = self.collections.iter().map(|(collection, held)| {
            CollectionInfo::new(collection.clone(), held.dimensions, size(held.documents.len()))
        });
        let expected = request
            .check("vectors.list_collections")
            .map(|()| page_of(all, request, |info| info.collection.clone()))
            .map_err(Into::into);
        same(recorder, "VEC-039", &store.list_collections(request.clone()).await, &expected)
    }

    async fn drop_collection(
        &mut self,
        store: &dyn VectorStore,
        collection: &CollectionName,
        recorder: &mut Recorder,
    ) -> Checked {
        let there = self.collections.remove(collection).is_some();
        let clause = if there { "VEC-040" } else { "VEC-042" };
        recorder.call(clause, |_| format!("drop_collection({})", id(collection)));
        same(recorder, clause, &store.drop_collection(collection).await, &Ok(there))
    }

    async fn erase(&mut self, store: &dyn VectorStore, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        same(recorder, "STORE-006", &store.erase().await, &Ok(()))?;
        *self = Self::default();
        Ok(())
    }
}

fn bits_of(document: &Document) -> Vec<u32> {
    let embedding = document.embedding.as_ref();
    embedding.into_iter().flat_map(|embedding| embedding.as_slice()).map(|number| number.to_bits()).collect()
}

fn list(ids: &[DocumentId]) -> String {
    ids.iter().map(owned_id).collect::<Vec<_>>().join(", ")
}

#[async_trait]
impl Subject for Vectors {
    const CONTRACT: Contract = Contract::Vectors;
    const FIELD: &'static str = "vectors";
    type Store = dyn VectorStore;
    type Operation = Operation;

    fn new(_declared: &Capabilities) -> Self {
        Self::default()
    }

    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>> {
        stores.vectors()
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Put { collection, documents, mode } => {
                self.put(store, (collection, documents, *mode), recorder).await
            }
            Operation::UpdateMetadata { collection, updates, mode } => {
                self.update_metadata(store, (collection, updates, *mode), recorder).await
            }
            Operation::ListMatching { collection, filter, page } => {
                self.list_matching(store, (collection, filter, page), recorder).await
            }
            Operation::Get { collection, ids } => self.get(store, (collection, ids), recorder).await,
            Operation::Search { collection, request } => {
                self.search(store, (collection, request), recorder).await
            }
            Operation::SearchBatch { collection, requests } => {
                self.search_batch(store, (collection, requests), recorder).await
            }
            Operation::Delete { collection, ids } => self.delete(store, (collection, ids), recorder).await,
            Operation::DeleteMatching { collection, filter } => {
                self.delete_matching(store, (collection, filter), recorder).await
            }
            Operation::Count { collection, filter } => {
                self.count(store, (collection, filter.as_ref()), recorder).await
            }
            Operation::List { collection, page } => self.list(store, (collection, page), recorder).await,
            Operation::Collections { page } => self.list_collections(store, page, recorder).await,
            Operation::Drop { collection } => self.drop_collection(store, collection, recorder).await,
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.list_collections(store, &PageRequest::first(10_000), recorder).await?;
        let collections: Vec<CollectionName> = self.collections.keys().cloned().collect();
        for collection in collections {
            self.list(store, (&collection, &PageRequest::first(10_000)), recorder).await?;
            let ids: Vec<_> = self.documents(&collection).map(|document| document.id.clone()).collect();
            self.get(store, (&collection, &ids), recorder).await?;
        }
        Ok(())
    }
}
