//! A dump of all readable data of a vector store, and sample data.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Metadata, PageRequest, PutMode, VectorStore,
};
use serde_json::{Value, json};

use super::support;
use crate::case::{CaseResult, Failure, implemented};
use crate::expect;
use crate::suites::known;

const PAGE: usize = 64;

/// Reads all data of the namespace: each collection with its documents, in the order of the listings.
pub(crate) async fn dump(store: &dyn VectorStore) -> CaseResult<Value> {
    let mut collections = Vec::new();
    let mut request = PageRequest::first(PAGE);
    loop {
        let Some(page) = implemented(store.list_collections(request.clone()).await)? else {
            return known_collections(store).await;
        };
        for info in page.items {
            let documents = documents(store, &info.collection).await?;
            let counted = implemented(store.count(&info.collection, None).await)?;
            collections.push(json!({
                "collection": value(&info)?,
                "count": counted,
                "documents": value(&documents)?,
            }));
        }
        let Some(next) = page.next else { break };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page of collections after this one", &next)?;
        request = PageRequest::after(next, PAGE);
    }
    let mut all = json!({ "collections": collections });
    all.sort_all_objects();
    Ok(all)
}

/// Reads the collections that the suite writes, from a store that cannot list them yet.
async fn known_collections(store: &dyn VectorStore) -> CaseResult<Value> {
    let mut names: Vec<String> = ["notes", "plans", "new", "their"].map(str::to_owned).into();
    names.extend(
        known::marked(|marker| ["notes", "plans", "emptied"].map(|name| format!("{marker}-{name}")))
            .flatten(),
    );
    let mut collections = Vec::new();
    for name in names {
        let collection = CollectionName::new(&name)?;
        let documents = documents(store, &collection).await?;
        let counted = implemented(store.count(&collection, None).await)?;
        if !documents.is_empty() {
            collections
                .push(json!({ "collection": name, "count": counted, "documents": value(&documents)? }));
        }
    }
    let mut all = json!({ "collections": collections });
    all.sort_all_objects();
    Ok(all)
}

/// Reads a collection, or the documents in it that the suite writes if the store cannot list yet.
async fn documents(store: &dyn VectorStore, collection: &CollectionName) -> CaseResult<Vec<Document>> {
    if implemented(store.list(collection, PageRequest::first(1)).await)?.is_some() {
        return support::list_all(store, collection, PAGE).await;
    }
    let mut names: Vec<String> = ["a", "b", "c", "d", "their", "bad", "new"].map(str::to_owned).into();
    names.extend(
        known::marked(|marker| ["a", "b", "c", "é", "gone"].map(|name| format!("{marker}-{name}"))).flatten(),
    );
    let found = store.get(collection, &support::ids(&names)?).await?;
    Ok(found.into_iter().flatten().collect())
}

fn value(of: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(of).map_err(|error| Failure::Engine(format!("the dump as JSON: {error}")))
}

/// Writes two collections of different dimensions and an emptied one. Ids, texts and metadata contain
/// `marker`. A deletion that the store does not implement yet is left out.
pub(crate) async fn populate(store: &dyn VectorStore, marker: &str) -> CaseResult {
    let notes = CollectionName::new(format!("{marker}-notes"))?;
    let one = |name: &str, values: Vec<f32>| -> CaseResult<Document> {
        let metadata = Metadata::new().with("marker", marker).with(format!("{marker}-key"), json!([name, 1]));
        Ok(Document::new(DocumentId::new(format!("{marker}-{name}"))?, format!("{marker} text of {name}"))
            .with_embedding(Embedding::new(values)?)
            .with_metadata(metadata))
    };
    let first =
        vec![one("a", vec![1.0, 0.0, 0.0])?, one("b", vec![0.0, 0.5, 0.0])?, one("c", vec![1.0, 2.0, 3.0])?];
    store.put(&notes, first, PutMode::IfAbsent).await?;
    let plans = CollectionName::new(format!("{marker}-plans"))?;
    store
        .put(&plans, vec![one("a", vec![0.25, -0.5])?, one("é", vec![-1.0, 0.125])?], PutMode::Upsert)
        .await?;
    let emptied = CollectionName::new(format!("{marker}-emptied"))?;
    let gone = one("gone", vec![1.0])?;
    store.put(&emptied, vec![gone.clone()], PutMode::Upsert).await?;
    implemented(store.delete(&emptied, &[gone.id]).await)?;
    Ok(())
}
