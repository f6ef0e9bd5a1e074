//! The reads by id and in order.

use std::sync::Arc;

use larder_kernel::storage::vector::check_ids;
use larder_kernel::{CollectionName, Document, DocumentId, Filter, Page, PageRequest, Result};

use super::block::Block;
use super::matrix::Rows;
use super::namespace::NamespaceState;
use super::query::filter_steps;
use crate::internal::offload;

/// Returns the documents at the given rows. Copies many documents outside the async runtime.
async fn documents(
    operation: &'static str,
    places: Vec<Option<(Arc<Block>, usize)>>,
) -> Result<Vec<Option<Document>>> {
    let mut steps = 0;
    for (block, row) in places.iter().flatten() {
        steps += block.copy_steps(*row);
        if offload::is_long(steps) {
            break;
        }
    }
    let make = |found: &Option<(Arc<Block>, usize)>| {
        found.as_ref().map(|(block, row)| block.document(*row)).transpose()
    };
    offload::run(operation, steps, move || places.iter().map(make).collect()).await
}

/// Returns the documents with these ids, in their order.
pub(super) async fn get(
    state: &Arc<NamespaceState>,
    collection: &CollectionName,
    ids: &[DocumentId],
) -> Result<Vec<Option<Document>>> {
    const OPERATION: &str = "vectors.get";
    check_ids(OPERATION, ids)?;
    let wanted = ids.to_vec();
    let find = move |rows: &Rows| wanted.iter().map(|id| rows.find(id)).collect::<Vec<_>>();
    let Some(places) = state.look(OPERATION, collection, find).await? else {
        return Ok(vec![None; ids.len()]);
    };
    documents(OPERATION, places).await
}

/// Returns one page of documents.
pub(super) async fn list(
    state: &Arc<NamespaceState>,
    collection: &CollectionName,
    page: PageRequest<DocumentId>,
) -> Result<Page<Document, DocumentId>> {
    const OPERATION: &str = "vectors.list";
    page.check(OPERATION)?;
    let PageRequest { after, limit, .. } = page;
    let look = move |rows: &Rows| rows.page(after.as_ref(), limit + 1);
    let places = state.look(OPERATION, collection, look).await?;
    let Some(places) = places else { return Ok(Page::empty()) };
    let places = places.into_iter().map(Some).collect();
    let items = documents(OPERATION, places).await?.into_iter().flatten().collect();
    Ok(Page::from_surplus(items, limit, |document: &Document| document.id.clone()))
}

/// Returns one page of matching documents, without their embeddings.
pub(super) async fn list_matching(
    state: &Arc<NamespaceState>,
    collection: &CollectionName,
    filter: &Filter,
    page: PageRequest<DocumentId>,
) -> Result<Page<Document, DocumentId>> {
    const OPERATION: &str = "vectors.list_matching";
    page.check(OPERATION)?;
    filter.check(OPERATION)?;
    let PageRequest { after, limit, .. } = page;
    if limit == 0 {
        return Ok(Page::empty());
    }
    let Some(count) = state.look(OPERATION, collection, Rows::len).await? else { return Ok(Page::empty()) };
    // The page may end early, but a rare match is found only after many documents.
    let (steps, filter) = (count.saturating_mul(filter_steps(filter)), filter.clone());
    let look = move |rows: &Rows| rows.matching_page(&filter, after.as_ref(), limit + 1);
    let found = state.look_through(OPERATION, collection, steps, look).await?.unwrap_or_default();
    let steps = found.iter().map(|record| record.copy_steps()).fold(0, usize::saturating_add);
    let copy = move || Ok(found.iter().map(|record| record.document()).collect());
    let items = offload::run(OPERATION, steps, copy).await?;
    Ok(Page::from_surplus(items, limit, |document: &Document| document.id.clone()))
}
