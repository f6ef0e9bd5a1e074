//! Filters over metadata, in searches, counts and deletions.

use larder_kernel::{
    CollectionName, Document, Filter, Metadata, PutMode, SearchHit, SearchRequest, VectorStore,
};

use super::filter_table;
use super::support::{
    collection, document, embedding, ids, list_all, put_all, same_documents, sorted, tagged,
};
use crate::case::{CaseResult, implemented};
use crate::context::{Context, Handles};
use crate::expect;

fn documents() -> CaseResult<Vec<Document>> {
    let stored = filter_table::stored().into_iter().enumerate();
    stored.map(|(number, metadata)| tagged(&format!("{number:03}"), &[1.0, 0.5], metadata)).collect()
}

/// Returns the ids that match by definition, in order.
fn matching<'a>(documents: &'a [Document], filter: &Filter) -> Vec<&'a str> {
    let matching = documents.iter().filter(|document| filter.matches(&document.metadata));
    matching.map(|document| document.id.as_str()).collect()
}

/// Compares the results; a failure names the filter and the stored data of missing and unexpected ids.
fn compare(filter: &Filter, got: &[&str], documents: &[Document]) -> CaseResult {
    let expected = matching(documents, filter);
    if got == expected.as_slice() {
        return Ok(());
    }
    let of = |id: &str| documents.iter().find(|one| one.id.as_str() == id).map(|one| &one.metadata);
    let surplus: Vec<_> = got.iter().filter(|id| !expected.contains(id)).map(|id| of(id)).collect();
    let missing: Vec<_> = expected.iter().filter(|id| !got.contains(id)).map(|id| of(id)).collect();
    Err(expect::broken(
        format!("{filter:?} to match {} documents in the order of their ids", expected.len()),
        format!("{} of them; surplus: {surplus:?}; missing: {missing:?}", got.len()),
    ))
}

async fn searches_follow(context: Context, filters: Vec<Filter>) -> CaseResult {
    searches_of_follow(context, documents()?, filters).await
}

async fn searches_of_follow(context: Context, documents: Vec<Document>, filters: Vec<Filter>) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    put_all(&*a, &space, &documents).await?;
    for filters in filters.chunks(256) {
        let query = SearchRequest::new(embedding(&[1.0, 0.0])?).with_limit(10_000);
        let requests: Vec<_> =
            filters.iter().map(|filter| query.clone().with_filter(filter.clone())).collect();
        let answers = search_all(&*b, &space, &requests).await?;
        expect::equal("answers", &answers.len(), &filters.len())?;
        for (number, (filter, answer)) in filters.iter().zip(&answers).enumerate() {
            let got: Vec<_> = answer.iter().map(|hit| hit.id.as_str()).collect();
            compare(filter, &got, &documents)?;
            // A batch may have a separate filter implementation, so some filters are searched singly, too.
            if number % 8 == 0 {
                let single = b.search(&space, &requests[number]).await?;
                compare(filter, &single.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), &documents)?;
            }
        }
    }
    Ok(())
}

/// Searches in one batch, or one by one if the store does not implement batches yet.
async fn search_all(
    store: &dyn VectorStore,
    space: &CollectionName,
    requests: &[SearchRequest],
) -> CaseResult<Vec<Vec<SearchHit>>> {
    if let Some(answers) = implemented(store.search_batch(space, requests).await)? {
        return Ok(answers);
    }
    let mut answers = Vec::new();
    for request in requests {
        answers.push(store.search(space, request).await?);
    }
    Ok(answers)
}

pub(super) async fn filters_distinguish_types(context: Context) -> CaseResult {
    searches_follow(context, filter_table::equality()).await
}

pub(super) async fn filters_order_numbers_and_strings_only(context: Context) -> CaseResult {
    searches_follow(context, filter_table::order()).await
}

pub(super) async fn filters_take_paths_literally(context: Context) -> CaseResult {
    searches_follow(context, filter_table::paths()).await
}

pub(super) async fn filters_examine_the_elements_of_arrays(context: Context) -> CaseResult {
    searches_follow(context, filter_table::arrays()).await
}

pub(super) async fn filters_combine(context: Context) -> CaseResult {
    searches_follow(context, filter_table::groups()).await
}

pub(super) async fn filters_at_their_limits_work(context: Context) -> CaseResult {
    // Every seventh document, because ten thousand operands for each document are slow.
    let some = documents()?.into_iter().step_by(7).collect();
    searches_of_follow(context, some, filter_table::at_limits()).await
}

pub(super) async fn counts_cover_matching_documents(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    expect::equal("in a missing collection", &b.count(&space, None).await?, &0)?;
    let nothing = b.count(&space, Some(&Filter::all([]))).await?;
    expect::equal("in a missing collection, filtered", &nothing, &0)?;
    let documents = documents()?;
    put_all(&*a, &space, &documents).await?;
    put_all(&*a, &collection("other")?, &[document("000", &[1.0])?]).await?;
    expect::equal("all", &usize::try_from(b.count(&space, None).await?).ok(), &Some(documents.len()))?;
    let filters =
        [filter_table::equality(), filter_table::order(), filter_table::paths(), filter_table::groups()];
    for filter in filters.concat().iter().step_by(3) {
        let got = usize::try_from(b.count(&space, Some(filter)).await?).ok();
        expect::equal(&format!("the count of {filter:?}"), &got, &Some(matching(&documents, filter).len()))?;
    }
    a.delete(&space, &ids(&["000", "001", "not there"])?).await?;
    expect::equal(
        "after a deletion",
        &usize::try_from(b.count(&space, None).await?).ok(),
        &Some(documents.len() - 2),
    )?;
    a.put(&space, vec![documents[0].clone(), documents[5].clone()], PutMode::Upsert).await?;
    expect::equal(
        "after an upsert",
        &usize::try_from(b.count(&space, None).await?).ok(),
        &Some(documents.len() - 1),
    )
}

pub(super) async fn exactly_the_matching_documents_are_deleted(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let other = collection("other")?;
    let mut left = documents()?;
    put_all(&*a, &space, &left).await?;
    put_all(&*a, &other, &left).await?;
    let whole = left.clone();
    let filters = [
        Filter::any([]),
        Filter::eq("v", true),
        Filter::eq("v", 1),
        Filter::eq("v", 1),
        Filter::contains_key("v", "a"),
        Filter::eq("v", json_null()),
        Filter::is_in("v", ["a", "%"]),
        Filter::gt("v", 1) & Filter::lt("v", 100),
        Filter::eq(["v", "0"], "in"),
        !Filter::exists("v") & Filter::exists("a.b"),
    ];
    for filter in filters {
        let before = left.len();
        left.retain(|document| !filter.matches(&document.metadata));
        let deleted = usize::try_from(a.delete_matching(&space, &filter).await?).ok();
        expect::equal(&format!("deleted by {filter:?}"), &deleted, &Some(before - left.len()))?;
        same_documents(&format!("left by {filter:?}"), &list_all(&*b, &space, 1_000).await?, &left)?;
    }
    let rest = usize::try_from(a.delete_matching(&space, &Filter::all([])).await?).ok();
    expect::equal("deleted by the filter that matches all", &rest, &Some(left.len()))?;
    expect::equal("left", &b.count(&space, None).await?, &0)?;
    same_documents("the other collection", &list_all(&*b, &other, 1_000).await?, &sorted(whole))?;
    let nowhere = a.delete_matching(&collection("not there")?, &Filter::all([])).await?;
    expect::equal("deleted from a missing collection", &nowhere, &0)
}

fn json_null() -> serde_json::Value {
    serde_json::Value::Null
}

/// Checks that a filter uses the metadata after an upsert, not the previous one.
pub(super) async fn filters_see_replaced_metadata(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let with =
        |value: i32| tagged("a", &[1.0, 0.5], Metadata::new().with("v", value).with(format!("k{value}"), 1));
    a.put(&space, vec![with(1)?], PutMode::Upsert).await?;
    a.put(&space, vec![with(2)?], PutMode::Upsert).await?;
    for (filter, count) in [
        (Filter::eq("v", 1), 0),
        (Filter::eq("v", 2), 1),
        (Filter::exists("k1"), 0),
        (Filter::exists("k2"), 1),
        (Filter::ne("v", 1), 1),
    ] {
        let request = SearchRequest::new(embedding(&[1.0, 0.0])?).with_filter(filter.clone());
        expect::equal(&format!("hits of {filter:?}"), &b.search(&space, &request).await?.len(), &count)?;
    }
    Ok(())
}
