//! Updates of metadata.

use std::sync::Arc;

use larder_kernel::limits::{BATCH_DOCUMENTS_MAX, METADATA_BYTES_MAX};
use larder_kernel::{
    Document, Filter, Metadata, MetadataMode, MetadataReport, MetadataUpdate, PageRequest, SearchRequest,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::support::{
    collection, document, embedding, holds, id, ids, joined, put_all, random_documents, read, same_document,
    same_documents, sorted, tagged,
};
use crate::case::{CaseResult, implemented};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::values;

const MODES: [MetadataMode; 2] = [MetadataMode::Replace, MetadataMode::Merge];

fn update(name: &str, metadata: Metadata) -> CaseResult<MetadataUpdate> {
    Ok(MetadataUpdate::new(id(name)?, metadata))
}

fn before() -> Metadata {
    Metadata::new().with("kept", json!([1, {"deep": true}])).with("changed", 1).with("é", "old")
}

fn given() -> Metadata {
    Metadata::new().with("changed", json!({"inner": [1.5]})).with("é", json!(null)).with("new", "x")
}

/// Updates documents of odd embeddings and texts, and checks every part of them.
async fn updates_change_only_metadata(
    context: Context,
    mode: MetadataMode,
    expected: Metadata,
) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let mut documents = sorted(random_documents(&context, 12, 33)?);
    for (number, document) in documents.iter_mut().enumerate() {
        document.metadata = before().with("number", number);
        document.content = format!("text\0 of {number} é\u{1f980}");
    }
    documents.push(tagged("~short", &[1e-18; 33], before())?);
    documents.push(tagged("~signed", &[-0.0, f32::MIN_POSITIVE / 2.0, 0.1].repeat(11), before())?);
    put_all(&*a, &notes, &documents).await?;
    let other = collection("other")?;
    put_all(&*a, &other, &documents).await?;
    let whole = documents.clone();
    let changed: Vec<usize> = (0..documents.len()).rev().step_by(2).collect();
    let updates = changed.iter().map(|at| MetadataUpdate::new(documents[*at].id.clone(), given()));
    let report = a.update_metadata(&notes, updates.collect(), mode).await?;
    let named: Vec<_> = changed.iter().map(|at| documents[*at].id.clone()).collect();
    expect::equal("the report", &report, &MetadataReport::new(named, Vec::new()))?;
    for at in changed {
        let number = documents[at].metadata.get("number").cloned();
        documents[at].metadata = expected.clone();
        if let (MetadataMode::Merge, Some(number)) = (mode, number) {
            documents[at].metadata.insert("number", number);
        }
    }
    let asked: Vec<_> = documents.iter().map(|document| document.id.clone()).collect();
    let found: Vec<Document> = b.get(&notes, &asked).await?.into_iter().flatten().collect();
    same_documents("after the update", &found, &documents)?;
    holds("the documents listed", &*b, &notes, 5, &documents).await?;
    holds("the other collection", &*b, &other, 100, &whole).await
}

pub(super) async fn replacing_metadata_leaves_text_and_embedding(context: Context) -> CaseResult {
    updates_change_only_metadata(context, MetadataMode::Replace, given()).await
}

pub(super) async fn merging_metadata_keeps_other_keys(context: Context) -> CaseResult {
    let merged = given().with("kept", json!([1, {"deep": true}]));
    updates_change_only_metadata(context, MetadataMode::Merge, merged).await
}

/// Every shape of metadata reads back from an update as it does from a put.
pub(super) async fn updated_metadata_reads_back_equal(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let all = values::metadata();
    let name = |number: usize| format!("{number:04}");
    let documents = (0..all.len()).map(|number| document(&name(number), &[1.0, 0.5]));
    let mut documents = documents.collect::<CaseResult<Vec<_>>>()?;
    put_all(&*a, &notes, &documents).await?;
    for (number, metadata) in all.iter().enumerate() {
        documents[number].metadata = metadata.clone();
    }
    for (batch, mode) in documents.chunks(BATCH_DOCUMENTS_MAX / 4).zip(MODES.into_iter().cycle()) {
        let updates = batch.iter().map(|one| MetadataUpdate::new(one.id.clone(), one.metadata.clone()));
        a.update_metadata(&notes, updates.collect(), mode).await?;
    }
    let asked: Vec<_> = documents.iter().map(|document| document.id.clone()).collect();
    let found: Vec<_> = b.get(&notes, &asked).await?.into_iter().flatten().collect();
    expect::equal("the number of documents", &found.len(), &documents.len())?;
    found.iter().zip(&documents).try_for_each(|(found, expected)| same_document("read", found, expected))
}

pub(super) async fn missing_documents_are_reported_and_not_created(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let (notes, absent) = (collection("notes")?, collection("absent")?);
    let kept = tagged("kept", &[1.0, 2.0], before())?;
    put_all(&*a, &notes, std::slice::from_ref(&kept)).await?;
    for mode in MODES {
        let updates = vec![update("z", given())?, update("kept", given())?, update("Kept", given())?];
        let report = a.update_metadata(&notes, updates.clone(), mode).await?;
        let expected = MetadataReport::new(ids(&["kept"])?, ids(&["z", "Kept"])?);
        expect::equal("the report", &report, &expected)?;
        let report = a.update_metadata(&absent, updates, mode).await?;
        let expected = MetadataReport::new(Vec::new(), ids(&["z", "kept", "Kept"])?);
        expect::equal("the report of a missing collection", &report, &expected)?;
    }
    expect::equal("missing documents", &b.get(&notes, &ids(&["z", "Kept"])?).await?, &vec![None, None])?;
    expect::equal("documents", &b.count(&notes, None).await?, &1)?;
    if let Some(listed) = implemented(b.list_collections(PageRequest::default()).await)? {
        let names: Vec<_> = listed.items.into_iter().map(|info| info.collection).collect();
        expect::equal("collections", &names, &vec![notes.clone()])?;
    }
    a.delete(&notes, std::slice::from_ref(&kept.id)).await?;
    let report = b.update_metadata(&notes, vec![update("kept", given())?], MetadataMode::Merge).await?;
    expect::equal("the report after a deletion", &report.missing, &vec![kept.id])
}

pub(super) async fn updates_are_visible_completely_or_not_at_all(context: Context) -> CaseResult {
    const BATCH: usize = 50;
    const ROUNDS: usize = 20;
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let names: Vec<String> = (0..BATCH).map(|number| format!("d{number:02}")).collect();
    let documents = names.iter().map(|name| tagged(name, &[1.0], Metadata::new().with("round", 0)));
    put_all(&*a, &notes, &documents.collect::<CaseResult<Vec<_>>>()?).await?;
    let asked = ids(&names)?;
    let mut tasks: JoinSet<CaseResult> = JoinSet::new();
    let (store, space, updated) = (Arc::clone(&a), notes.clone(), asked.clone());
    tasks.spawn(async move {
        for round in 1..=ROUNDS {
            let metadata = Metadata::new().with("round", round);
            let updates = updated.iter().map(|id| MetadataUpdate::new(id.clone(), metadata.clone()));
            store.update_metadata(&space, updates.collect(), MODES[round % 2]).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    let (store, space) = (Arc::clone(&b), notes.clone());
    let reads = asked.clone();
    tasks.spawn(async move {
        for _ in 0..ROUNDS * 2 {
            let found = store.get(&space, &reads).await?;
            let rounds: Vec<_> = found.into_iter().flatten().map(|one| one.metadata).collect();
            let whole = rounds.len() == BATCH && rounds.windows(2).all(|pair| pair[0] == pair[1]);
            expect::that(whole, "the metadata of one batch", &rounds)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    joined(tasks).await?;
    let last = read(&*b, &notes, &asked[BATCH - 1]).await?.metadata;
    expect::equal("the last batch", &last, &Metadata::new().with("round", ROUNDS))
}

pub(super) async fn a_merge_over_the_limit_changes_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let large = |name: &str| Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
    let documents = ["a", "b", "c"].map(|name| tagged(name, &[1.0, 2.0], large("first")));
    let documents = documents.into_iter().collect::<CaseResult<Vec<_>>>()?;
    put_all(&*a, &notes, &documents).await?;
    for place in 0..3 {
        let mut batch = vec![update("a", given())?, update("c", large("first"))?];
        batch.insert(place, update("b", large("second"))?);
        let refused = a.update_metadata(&notes, batch, MetadataMode::Merge).await;
        let error = expect::invalid("a merge over the limit", refused, "document.metadata")?;
        expect::that(error.limit().is_some(), "the limit in the error", &error)?;
        holds("after the refusal", &*b, &notes, 10, &documents).await?;
    }
    let fits = vec![update("b", large("second"))?];
    a.update_metadata(&notes, fits, MetadataMode::Replace).await?;
    expect::equal("what fits", &read(&*b, &notes, &id("b")?).await?.metadata, &large("second"))
}

pub(super) async fn concurrent_merges_lose_no_key(context: Context) -> CaseResult {
    const WORKERS: usize = 6;
    const ROUNDS: usize = 5;
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    put_all(&*a, &notes, &[document("e", &[1.0, 0.5])?, document("f", &[0.5, 1.0])?]).await?;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, notes) = (Arc::clone(if worker % 2 == 0 { &a } else { &b }), notes.clone());
        workers.spawn(async move {
            for round in 0..ROUNDS {
                // Every other worker names the documents in the other order.
                let key = Metadata::new().with(format!("{worker}-{round}"), round);
                let mut batch = vec![update("e", key.clone())?, update("f", key)?];
                batch.rotate_left(worker % 2);
                store.update_metadata(&notes, batch, MetadataMode::Merge).await?;
            }
            Ok(())
        });
    }
    joined(workers).await?;
    for name in ["e", "f"] {
        let found = read(&*b, &notes, &id(name)?).await?;
        expect::equal(&format!("keys of {name}"), &found.metadata.len(), &(WORKERS * ROUNDS))?;
    }
    Ok(())
}

/// Checks each method with a filter before and after an update, so that a copy of the metadata that serves
/// filters must follow.
pub(super) async fn filters_see_updated_metadata(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let documents = (0..40_u8).map(|number| {
        let metadata = Metadata::new().with("state", "old").with("number", number);
        tagged(&format!("d{number:02}"), &[1.0, f32::from(number) / 10.0], metadata)
    });
    put_all(&*a, &notes, &documents.collect::<CaseResult<Vec<_>>>()?).await?;
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?).with_limit(100);
    let with = |state: &str| Filter::eq("state", state);
    let scores = b.search(&notes, &request).await?;
    // A filter may build an index of the field, which the update must reach.
    expect::equal(
        "hits before",
        &b.search(&notes, &request.clone().with_filter(with("old"))).await?.len(),
        &40,
    )?;
    let names: Vec<String> = (0..40).step_by(3).map(|number| format!("d{number:02}")).collect();
    let updates = names.iter().map(|name| update(name, Metadata::new().with("state", "new")));
    a.update_metadata(&notes, updates.collect::<CaseResult<_>>()?, MetadataMode::Merge).await?;
    let after = b.search(&notes, &request).await?;
    let plain = |hits: &[larder_kernel::SearchHit]| {
        hits.iter().map(|hit| (hit.id.clone(), hit.score.to_bits())).collect::<Vec<_>>()
    };
    expect::equal("the scores of all", &plain(&after), &plain(&scores))?;
    for (filter, count) in [(with("new"), 14), (with("old"), 26), (with("new") & Filter::lt("number", 9), 3)]
    {
        let request = request.clone().with_filter(filter.clone());
        expect::equal(&format!("hits of {filter:?}"), &b.search(&notes, &request).await?.len(), &count)?;
        if let Some(batch) = implemented(b.search_batch(&notes, &[request.clone(), request]).await)? {
            let lengths: Vec<_> = batch.iter().map(Vec::len).collect();
            expect::equal(&format!("hits of a batch of {filter:?}"), &lengths, &vec![count, count])?;
        }
        let counted = usize::try_from(b.count(&notes, Some(&filter)).await?).ok();
        expect::equal(&format!("the count of {filter:?}"), &counted, &Some(count))?;
        let page = implemented(b.list_matching(&notes, &filter, PageRequest::first(100)).await)?;
        let listed = page.map_or(count, |page| page.items.len());
        expect::equal(&format!("documents listed by {filter:?}"), &listed, &count)?;
    }
    expect::equal("deleted", &a.delete_matching(&notes, &with("new")).await?, &14)?;
    expect::equal("left", &b.count(&notes, None).await?, &26)
}
