//! Collections with many documents, and many collections.

use std::collections::BTreeMap;

use larder_kernel::limits::{BATCH_DOCUMENTS_MAX, PAGE_ITEMS_MAX};
use larder_kernel::{
    CollectionName, Contract, Document, DocumentId, Filter, Metadata, MetadataMode, MetadataUpdate,
    PageRequest, PutMode, SearchHit, SearchRequest, VectorStore,
};

use super::support::{collection, embedding, id, list_all, near, tagged};
use crate::case::{CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::many::{Row, count, each};

const CONTRACT: Contract = Contract::Vectors;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("put", case!(Vectors, "VEC-002", many_existing_documents_are_ignored)),
        ("update_metadata", case!(Vectors, "VEC-045", metadata_of_many_documents_is_updated)),
        ("get", case!(Vectors, "VEC-013", many_documents_are_read_in_the_order_of_ids)),
        ("search", case!(Vectors, "VEC-023", a_search_of_many_documents_fills_its_limit)),
        ("search", case!(Vectors, "VEC-024", a_filter_finds_the_last_of_many_documents)),
        ("search_batch", case!(Vectors, "VEC-032", a_batch_of_many_searches_returns_their_results)),
        ("delete", case!(Vectors, "VEC-034", many_documents_are_deleted)),
        ("delete_matching", case!(Vectors, "VEC-036", many_matching_documents_are_deleted)),
        ("count", case!(Vectors, "VEC-037", many_documents_are_counted)),
        ("list", case!(Vectors, "VEC-038", many_documents_are_listed_once)),
        ("list_matching", case!(Vectors, "VEC-052", many_matching_documents_are_listed_once)),
        ("list_collections", case!(Vectors, "VEC-039", many_collections_are_listed_once)),
        ("drop_collection", case!(Vectors, "VEC-040", a_collection_of_many_documents_is_dropped)),
        ("erase", case!(Vectors, "STORE-006", erasing_many_documents_leaves_none)),
    ]
}

fn name(number: usize) -> String {
    format!("d{number:06}")
}

/// Returns a document whose embedding points in another direction than all others. Only the last is rare.
fn document(number: usize, many: usize) -> CaseResult<Document> {
    let turn = f64::from(u32::try_from(number).unwrap_or_default()) * 2.399_963;
    #[allow(clippy::cast_possible_truncation)]
    let values = [turn.cos() as f32, turn.sin() as f32];
    let even = number.is_multiple_of(2);
    let metadata = Metadata::new().with("even", even).with("rare", number + 1 == many);
    tagged(&name(number), &values, metadata)
}

fn all(many: usize) -> CaseResult<Vec<Document>> {
    (0..many).map(|number| document(number, many)).collect()
}

async fn fill(store: &dyn VectorStore, collection: &CollectionName, many: usize) -> CaseResult {
    for batch in all(many)?.chunks(BATCH_DOCUMENTS_MAX) {
        let report = store.put(collection, batch.to_vec(), PutMode::IfAbsent).await?;
        expect::equal("documents written", &report.written.len(), &batch.len())?;
    }
    Ok(())
}

/// One collection with many documents, and many collections with one.
async fn large(context: &Context) -> CaseResult<(Handles<dyn VectorStore>, CollectionName, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move {
        let store = &*context.vectors().await?.a;
        fill(store, &collection("long")?, many).await?;
        each(0..many, |number| async move {
            let collection = collection(&format!("many-{number:06}"))?;
            store.put(&collection, vec![document(0, many)?], PutMode::IfAbsent).await?;
            Ok(())
        })
        .await
    };
    Ok((context.large(CONTRACT, "many", load).await?.vectors().await?, collection("long")?, many))
}

/// Returns a new collection with many documents, and its stores.
async fn long(context: &Context) -> CaseResult<(Handles<dyn VectorStore>, CollectionName, usize)> {
    let (stores, collection, many) = (context.vectors().await?, collection("long")?, context.many(CONTRACT));
    fill(&*stores.a, &collection, many).await?;
    Ok((stores, collection, many))
}

/// Checks that the hits are the best of these documents: each with its own score, and at each rank the score
/// of the rank.
fn best(what: &str, hits: &[SearchHit], documents: &[Document], request: &SearchRequest) -> CaseResult {
    let matching = documents
        .iter()
        .filter(|document| request.filter.as_ref().is_none_or(|filter| filter.matches(&document.metadata)));
    let score = |document: &Document| document.embedding.as_ref()?.cosine(&request.embedding);
    let mut own: BTreeMap<&DocumentId, f64> =
        matching.filter_map(|document| Some((&document.id, score(document)?))).collect();
    let mut scores: Vec<f64> = own.values().copied().collect();
    scores.sort_by(|left, right| right.total_cmp(left));
    scores.truncate(request.limit);
    expect::equal(&format!("{what}: the number of hits"), &hits.len(), &scores.len())?;
    for (hit, ranked) in hits.iter().zip(scores) {
        near(&format!("{what}: the score of the rank"), hit.score, ranked)?;
        let score = own.remove(&hit.id);
        near(
            &format!("{what}: the hit's own score"),
            hit.score,
            expect::some("a matching hit, once", score)?,
        )?;
    }
    Ok(())
}

async fn many_existing_documents_are_ignored(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    for batch in all(many)?.chunks(BATCH_DOCUMENTS_MAX) {
        let report = stores.b.put(&collection, batch.to_vec(), PutMode::IfAbsent).await?;
        let counts = (report.written.len(), report.ignored.len());
        expect::equal("documents written and ignored", &counts, &(0, batch.len()))?;
    }
    Ok(())
}

async fn metadata_of_many_documents_is_updated(context: Context) -> CaseResult {
    let (stores, collection, many) = long(&context).await?;
    let ids = (0..many).map(|number| id(&name(number))).collect::<CaseResult<Vec<_>>>()?;
    for batch in ids.chunks(BATCH_DOCUMENTS_MAX) {
        let metadata = Metadata::new().with("seen", true);
        let updates = batch.iter().map(|id| MetadataUpdate::new(id.clone(), metadata.clone()));
        let report = stores.a.update_metadata(&collection, updates.collect(), MetadataMode::Merge).await?;
        expect::equal("documents updated", &(report.updated.len(), report.missing.len()), &(batch.len(), 0))?;
    }
    let seen = Filter::eq("seen", true) & Filter::exists("even");
    expect::equal("documents with the key", &stores.b.count(&collection, Some(&seen)).await?, &count(many))
}

async fn many_documents_are_read_in_the_order_of_ids(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let ids = (0..many).rev().map(|number| id(&name(number))).collect::<CaseResult<Vec<_>>>()?;
    for asked in ids.chunks(PAGE_ITEMS_MAX) {
        let found = stores.b.get(&collection, asked).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|document| document.id).collect();
        expect::equal("the number of documents read", &found.len(), &asked.len())?;
        expect::that(found == asked, "the documents in the order of the ids", found.first())?;
    }
    Ok(())
}

async fn a_search_of_many_documents_fills_its_limit(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let documents = all(many)?;
    for limit in [10, 2_049, 10_000] {
        let request = SearchRequest::new(embedding(&[0.6, 0.8])?).with_limit(limit);
        let hits = stores.b.search(&collection, &request).await?;
        best(&format!("limit {limit}"), &hits, &documents, &request)?;
    }
    Ok(())
}

async fn a_filter_finds_the_last_of_many_documents(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let documents = all(many)?;
    // The rare document is opposite to the query, behind all others.
    let last = expect::some("a document", documents.last().and_then(|last| last.embedding.clone()))?;
    let opposite: Vec<f32> = last.as_slice().iter().map(|value| -value).collect();
    for filter in [Filter::eq("rare", true), Filter::eq("even", true), Filter::ne("rare", true)] {
        let request = SearchRequest::new(embedding(&opposite)?).with_limit(10_000).with_filter(filter);
        let hits = stores.b.search(&collection, &request).await?;
        best(&format!("{:?}", request.filter), &hits, &documents, &request)?;
    }
    Ok(())
}

async fn a_batch_of_many_searches_returns_their_results(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let documents = all(many)?;
    let request = |number: usize| {
        let limit = if number == 0 { 10_000 } else { 1 };
        let embedded = document(number, many)?.embedding;
        Ok(SearchRequest::new(expect::some("an embedding", embedded)?).with_limit(limit))
    };
    let requests = (0..32).map(request).collect::<CaseResult<Vec<_>>>()?;
    let results = stores.b.search_batch(&collection, &requests).await?;
    expect::equal("the number of results", &results.len(), &requests.len())?;
    for (number, (hits, request)) in results.iter().zip(&requests).enumerate() {
        best(&format!("search {number}"), hits, &documents, request)?;
    }
    Ok(())
}

async fn many_documents_are_deleted(context: Context) -> CaseResult {
    let (stores, collection, many) = long(&context).await?;
    let ids = (0..many).map(|number| id(&name(number))).collect::<CaseResult<Vec<_>>>()?;
    for asked in ids.chunks(PAGE_ITEMS_MAX) {
        expect::equal("deleted", &stores.a.delete(&collection, asked).await?, &count(asked.len()))?;
    }
    expect::equal("what remains", &list_all(&*stores.b, &collection, 10_000).await?.len(), &0)
}

async fn many_matching_documents_are_deleted(context: Context) -> CaseResult {
    let (stores, collection, many) = long(&context).await?;
    let common = Filter::eq("rare", false);
    expect::equal("deleted", &stores.a.delete_matching(&collection, &common).await?, &count(many - 1))?;
    let left = list_all(&*stores.b, &collection, 10_000).await?;
    let left: Vec<_> = left.iter().map(|document| document.id.as_str()).collect();
    expect::equal("what remains", &left, &vec![name(many - 1).as_str()])
}

async fn many_documents_are_counted(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let counts = [
        (None, many),
        (Some(Filter::eq("even", true)), many.div_ceil(2)),
        (Some(Filter::eq("rare", false)), many - 1),
        (Some(Filter::eq("rare", true)), 1),
    ];
    for (filter, expected) in counts {
        let counted = stores.b.count(&collection, filter.as_ref()).await?;
        expect::equal(&format!("the count of {filter:?}"), &counted, &count(expected))?;
    }
    Ok(())
}

async fn many_documents_are_listed_once(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let found = list_all(&*stores.b, &collection, limit).await?;
        expect::equal("the number of documents", &found.len(), &many)?;
        let ordered = found.iter().enumerate().all(|(number, one)| one.id.as_str() == name(number));
        expect::that(ordered, "each document once, in byte order", found.first().map(|one| &one.id))?;
    }
    let page = stores.b.list(&collection, PageRequest::first(10_000)).await?;
    expect::equal("the documents of the longest page", &page.items.len(), &many.min(10_000))
}

async fn many_matching_documents_are_listed_once(context: Context) -> CaseResult {
    let (stores, collection, many) = large(&context).await?;
    let filters = [
        (Filter::eq("rare", false), many - 1, 0),
        (Filter::eq("even", true), many.div_ceil(2), 0),
        (Filter::eq("rare", true), 1, many - 1),
    ];
    for (filter, expected, first) in filters {
        for limit in [10_000, 977] {
            let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
            loop {
                let part = stores.b.list_matching(&collection, &filter, page).await?;
                found.extend(part.items.into_iter().map(|document| document.id));
                let Some(next) = part.next else { break };
                page = PageRequest::after(next, limit);
            }
            expect::equal(&format!("the number of {filter:?}"), &found.len(), &expected)?;
            let ordered = found.windows(2).all(|pair| pair[0] < pair[1]);
            expect::that(ordered, "each document once, in byte order", found.first())?;
            expect::equal("the first", &found.first().map(DocumentId::as_str), &Some(name(first).as_str()))?;
        }
    }
    Ok(())
}

async fn many_collections_are_listed_once(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
        loop {
            let part = stores.b.list_collections(page).await?;
            found.extend(part.items);
            let Some(next) = part.next else { break };
            page = PageRequest::after(next, limit);
        }
        expect::equal("the number of collections", &found.len(), &(many + 1))?;
        let ordered = found.windows(2).all(|pair| pair[0].collection < pair[1].collection);
        expect::that(ordered, "each collection once, in byte order", found.first())?;
        let documents = found.iter().find(|info| info.collection == long).map(|info| info.documents);
        expect::equal("the documents of the long collection", &documents, &Some(count(many)))?;
    }
    Ok(())
}

async fn a_collection_of_many_documents_is_dropped(context: Context) -> CaseResult {
    let (stores, collection, _) = long(&context).await?;
    expect::equal("the reported existence", &stores.a.drop_collection(&collection).await?, &true)?;
    expect::equal("documents", &list_all(&*stores.b, &collection, 10_000).await?.len(), &0)?;
    expect::equal("the count", &stores.b.count(&collection, None).await?, &0)
}

async fn erasing_many_documents_leaves_none(context: Context) -> CaseResult {
    let (stores, collection, _) = long(&context).await?;
    stores.a.erase().await?;
    expect::equal("documents", &list_all(&*stores.b, &collection, 10_000).await?.len(), &0)?;
    let collections = stores.b.list_collections(PageRequest::first(10)).await?.items;
    expect::equal("collections", &collections, &Vec::new())
}
