//! Listings with a filter.

use larder_kernel::{
    CollectionName, Document, DocumentId, Filter, Metadata, PageRequest, PutMode, VectorStore,
};

use super::filter_table;
use super::support::{collection, document, id, ids, put_all, random_documents, sorted, tagged};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

/// Returns every matching document, page by page, and checks that each page is full, advances and names a
/// next page only if a document follows.
async fn listed(
    store: &dyn VectorStore,
    collection: &CollectionName,
    filter: &Filter,
    limit: usize,
) -> CaseResult<Vec<Document>> {
    let mut all: Vec<Document> = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let page = store.list_matching(collection, filter, request.clone()).await?;
        let full = if page.next.is_some() { page.items.len() == limit } else { page.items.len() <= limit };
        expect::that(full, format!("a full page of {limit}, or the last"), page.items.len())?;
        let ended = request.after.is_some() && page.items.is_empty();
        expect::that(!ended, "a document after a page with a next page", &request.after)?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page after this one", &next)?;
        request = PageRequest::after(next, limit);
    }
}

fn without_embedding(document: &Document) -> Document {
    document.clone().with_embedding(None)
}

fn expected(documents: &[Document], filter: &Filter) -> Vec<Document> {
    let matching = documents.iter().filter(|document| filter.matches(&document.metadata));
    matching.map(without_embedding).collect()
}

fn names(documents: &[Document]) -> Vec<&DocumentId> {
    documents.iter().map(|document| &document.id).collect()
}

pub(super) async fn a_listing_follows_the_table_of_filters(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let stored = filter_table::stored().into_iter().enumerate();
    let documents = stored.map(|(number, metadata)| tagged(&format!("{number:03}"), &[1.0, 0.5], metadata));
    let documents = documents.collect::<CaseResult<Vec<_>>>()?;
    put_all(&*a, &space, &documents).await?;
    let filters = [
        filter_table::equality(),
        filter_table::order(),
        filter_table::paths(),
        filter_table::arrays(),
        filter_table::groups(),
    ];
    for filter in filters.concat().iter().step_by(2) {
        let found = b.list_matching(&space, filter, PageRequest::default()).await?;
        let expected = expected(&documents, filter);
        expect::equal(&format!("the documents of {filter:?}"), &names(&found.items), &names(&expected))?;
        expect::equal(&format!("the next page of {filter:?}"), &found.next, &None)?;
    }
    Ok(())
}

pub(super) async fn listed_documents_have_text_and_metadata(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let mut documents = sorted(random_documents(&context, 30, 8)?);
    for (number, document) in documents.iter_mut().enumerate() {
        document.metadata = Metadata::new().with("number", number).with("even", number % 2 == 0);
        document.content = format!("\0text {number} é");
    }
    put_all(&*a, &notes, &documents).await?;
    for filter in [Filter::eq("even", true), Filter::all([]), Filter::any([])] {
        let found = b.list_matching(&notes, &filter, PageRequest::first(100)).await?;
        expect::equal(&format!("{filter:?}"), &found.items, &expected(&documents, &filter))?;
    }
    let nowhere = b.list_matching(&collection("absent")?, &Filter::all([]), PageRequest::default()).await?;
    expect::equal("in a missing collection", &(nowhere.items, nowhere.next), &(Vec::new(), None))
}

pub(super) async fn pages_of_any_size_return_each_match_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    put_all(&*a, &collection("notes2")?, &[document("0", &[1.0])?]).await?;
    let mut documents = sorted(random_documents(&context, 240, 2)?);
    for (number, document) in documents.iter_mut().enumerate() {
        document.metadata = Metadata::new().with("seventh", number % 7 == 3).with("number", number);
    }
    put_all(&*a, &notes, &documents).await?;
    for filter in [Filter::eq("seventh", true), Filter::eq("seventh", false), Filter::gte("number", 239)] {
        let expected = expected(&documents, &filter);
        for limit in [1, 3, 34, 35, 10_000] {
            let found = listed(&*b, &notes, &filter, limit).await?;
            expect::equal(&format!("pages of {limit}, {filter:?}"), &names(&found), &names(&expected))?;
        }
        let exact = b.list_matching(&notes, &filter, PageRequest::first(expected.len())).await?;
        expect::equal("what follows the page that holds all", &exact.next, &None)?;
        let none = b.list_matching(&notes, &filter, PageRequest::first(0)).await?;
        expect::equal("a limit of 0", &(none.items.len(), none.next), &(0, None))?;
    }
    let between = id(&format!("{}!", documents[10].id))?;
    let page = b.list_matching(&notes, &Filter::eq("seventh", true), PageRequest::after(between, 2)).await?;
    let following = [&documents[17].id, &documents[24].id];
    expect::equal("after a missing id", &names(&page.items), &following.to_vec())?;
    let past = PageRequest::after(documents[239].id.clone(), 3);
    expect::equal("after the last", &b.list_matching(&notes, &Filter::all([]), past).await?.items.len(), &0)
}

pub(super) async fn paging_through_matches_continues_during_changes(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let keep = |name: &str, kept: bool| tagged(name, &[1.0], Metadata::new().with("kept", kept));
    let mut stable = Vec::new();
    for number in 0..20 {
        stable.push(keep(&format!("m{number:02}"), true)?);
        let batch = [
            stable[number].clone(),
            keep(&format!("m{number:02}-gone"), true)?,
            keep(&format!("m{number:02}-other"), false)?,
        ];
        put_all(&*a, &notes, &batch).await?;
    }
    let filter = Filter::eq("kept", true);
    let (mut seen, mut request) = (Vec::new(), PageRequest::first(3));
    for step in 0..100 {
        let page = b.list_matching(&notes, &filter, request).await?;
        seen.extend(page.items.into_iter().map(|one| one.id));
        let Some(next) = page.next else { break };
        a.delete(&notes, &ids(&[format!("m{:02}-gone", step % 20)])?).await?;
        let fresh = vec![keep(&format!("a{step}"), true)?, keep(&format!("{next}~{step}"), true)?];
        a.put(&notes, fresh, PutMode::Upsert).await?;
        request = PageRequest::after(next, 3);
        expect::that(step < 99, "an end of the pages", "100 pages")?;
    }
    for one in &stable {
        let times = seen.iter().filter(|id| **id == one.id).count();
        expect::equal(&format!("visits of {}", one.id), &times, &1)?;
    }
    let ascending = seen.windows(2).all(|pair| pair[0] < pair[1]);
    expect::that(ascending, "documents in byte order", &seen)?;
    let strangers = seen.iter().filter(|id| id.as_str().ends_with("-other")).count();
    expect::equal("documents that do not match", &strangers, &0)
}
