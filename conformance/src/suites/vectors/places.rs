//! One rule, many places: a filter means the same in searches, counts and deletions.

use larder_kernel::{Document, Filter, PutMode, SearchRequest, VectorStore};

use super::filter_table;
use super::support::{collection, embedding, put_all, tagged};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Vectors, "VEC-024", a_search_follows_the_table_of_filters),
        case!(Vectors, "VEC-032", a_batch_of_searches_follows_the_table_of_filters),
        case!(Vectors, "VEC-036", a_deletion_follows_the_table_of_filters),
        case!(Vectors, "VEC-037", a_count_follows_the_table_of_filters),
    ]
}

fn filters() -> Vec<Filter> {
    [
        filter_table::equality(),
        filter_table::order(),
        filter_table::paths(),
        filter_table::arrays(),
        filter_table::groups(),
    ]
    .concat()
}

async fn write(store: &dyn VectorStore) -> CaseResult<Vec<Document>> {
    let stored = filter_table::stored().into_iter().enumerate();
    let documents = stored.map(|(number, metadata)| tagged(&format!("{number:03}"), &[1.0, 0.5], metadata));
    let documents = documents.collect::<CaseResult<Vec<_>>>()?;
    put_all(store, &collection("space")?, &documents).await?;
    Ok(documents)
}

/// Returns the documents that match by definition.
fn matching<'a>(documents: &'a [Document], filter: &Filter) -> Vec<&'a Document> {
    documents.iter().filter(|document| filter.matches(&document.metadata)).collect()
}

fn request(filter: &Filter) -> CaseResult<SearchRequest> {
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?).with_limit(10_000);
    Ok(request.with_filter(filter.clone()))
}

async fn a_search_follows_the_table_of_filters(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let documents = write(&*a).await?;
    for filter in filters().iter().step_by(3) {
        let hits = b.search(&collection("space")?, &request(filter)?).await?;
        let found: Vec<_> = hits.iter().map(|hit| &hit.id).collect();
        let expected: Vec<_> = matching(&documents, filter).into_iter().map(|one| &one.id).collect();
        expect::equal(&format!("the hits of {filter:?}"), &found, &expected)?;
    }
    Ok(())
}

async fn a_batch_of_searches_follows_the_table_of_filters(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let documents = write(&*a).await?;
    for filters in filters().chunks(256) {
        let requests = filters.iter().map(request).collect::<CaseResult<Vec<_>>>()?;
        let results = b.search_batch(&collection("space")?, &requests).await?;
        for (filter, hits) in filters.iter().zip(results) {
            let found: Vec<_> = hits.iter().map(|hit| &hit.id).collect();
            let expected: Vec<_> = matching(&documents, filter).into_iter().map(|one| &one.id).collect();
            expect::equal(&format!("the hits of {filter:?}"), &found, &expected)?;
        }
    }
    Ok(())
}

async fn a_count_follows_the_table_of_filters(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let documents = write(&*a).await?;
    for filter in filters() {
        let counted = usize::try_from(b.count(&collection("space")?, Some(&filter)).await?).ok();
        let expected = matching(&documents, &filter).len();
        expect::equal(&format!("the count of {filter:?}"), &counted, &Some(expected))?;
    }
    Ok(())
}

/// Every deletion is undone, so that the next filter meets all documents.
async fn a_deletion_follows_the_table_of_filters(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let (space, documents) = (collection("space")?, write(&*a).await?);
    let ids: Vec<_> = documents.iter().map(|document| document.id.clone()).collect();
    for filter in filters().iter().step_by(2) {
        let gone: Vec<Document> = matching(&documents, filter).into_iter().cloned().collect();
        let deleted = usize::try_from(a.delete_matching(&space, filter).await?).ok();
        expect::equal(&format!("deleted by {filter:?}"), &deleted, &Some(gone.len()))?;
        let left = b.get(&space, &ids).await?;
        for (document, left) in documents.iter().zip(left) {
            let expected = !filter.matches(&document.metadata);
            let what = format!("{:?} after a deletion by {filter:?}", document.metadata);
            expect::equal(&what, &left.is_some(), &expected)?;
        }
        if !gone.is_empty() {
            a.put(&space, gone, PutMode::IfAbsent).await?;
        }
    }
    Ok(())
}
