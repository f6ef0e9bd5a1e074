//! The reads by id and in order, each one statement or one snapshot.

use std::collections::HashMap;

use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, Namespace, Page, PageRequest,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::embedding::from_bytes;
use super::prefilter::prefilter;
use crate::postgres::decode;
use crate::postgres::encode::length;
use crate::postgres::failure::{Fallible, corrupt};

/// The number of metadata rows that a filter reads at a time.
const FILTERED_ROWS: usize = 5_000;

/// Returns the dimension in a column.
pub(super) fn dimensions(row: &PgRow, column: usize) -> Fallible<usize> {
    usize::try_from(row.try_get::<i32, _>(column)?).map_err(|_| corrupt("postgres.read").into())
}

/// Returns a document from the columns id, content, metadata and embedding.
fn document(row: &PgRow) -> Fallible<Document> {
    Ok(Document {
        id: decode::id(row, 0)?,
        content: decode::text(row, 1)?,
        metadata: decode::metadata(row, 2)?,
        embedding: Some(from_bytes(row.try_get(3)?).ok_or_else(|| corrupt("postgres.read"))?),
    })
}

/// Returns the documents with these ids, in their order.
pub(super) async fn get(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    ids: &[DocumentId],
) -> Fallible<Vec<Option<Document>>> {
    let rows = sqlx::query(
        "SELECT id, content, metadata, embedding FROM larder.documents
         WHERE namespace = $1 AND collection = $2 AND id = ANY($3)",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(ids.iter().map(DocumentId::as_str).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let document = document(row)?;
        found.insert(document.id.clone(), document);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

macro_rules! filtered {
    ($condition:literal) => {
        concat!(
            "SELECT id, metadata FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id > $3",
            $condition,
            " ORDER BY id LIMIT $4"
        )
    };
}

/// Returns the ids of the matching documents. The server excludes some documents, and the filters decide
/// about the rest. The connection must be inside one snapshot; otherwise the caller must check the documents
/// again.
pub(super) async fn matching(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filters: &[&Filter],
) -> Fallible<Vec<Vec<String>>> {
    let mut matching = vec![Vec::new(); filters.len()];
    let mut after = String::new();
    let condition = prefilter(filters);
    let sql = match condition {
        None => filtered!(""),
        Some(_) => filtered!(" AND metadata::jsonb @@ $5::text::jsonpath"),
    };
    loop {
        let query = sqlx::query(sql)
            .bind(namespace.as_str())
            .bind(collection.as_str())
            .bind(&after)
            .bind(length(FILTERED_ROWS));
        let query = match &condition {
            None => query,
            Some(condition) => query.bind(condition),
        };
        let rows = query.fetch_all(&mut *connection).await?;
        for row in &rows {
            let id: String = row.try_get(0)?;
            let metadata = decode::metadata(row, 1)?;
            for (filter, matching) in filters.iter().zip(&mut matching) {
                if filter.matches(&metadata) {
                    matching.push(id.clone());
                }
            }
            after = id;
        }
        if rows.len() < FILTERED_ROWS {
            return Ok(matching);
        }
    }
}

/// Returns the number of documents.
pub(super) async fn count(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
) -> Fallible<u64> {
    let row = sqlx::query("SELECT count(*) FROM larder.documents WHERE namespace = $1 AND collection = $2")
        .bind(namespace.as_str())
        .bind(collection.as_str())
        .fetch_one(connection)
        .await?;
    decode::unsigned(&row, 0)
}

/// Returns the number of matching documents. The connection must be inside one snapshot.
pub(super) async fn count_matching(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filter: &Filter,
) -> Fallible<u64> {
    let matching = matching(connection, namespace, collection, &[filter]).await?;
    Ok(matching.iter().map(|ids| larder_kernel::check::size(ids.len())).sum())
}

/// Returns one page of documents.
pub(super) async fn list(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    page: &PageRequest<DocumentId>,
) -> Fallible<Page<Document, DocumentId>> {
    let rows = sqlx::query(
        "SELECT id, content, metadata, embedding FROM larder.documents
         WHERE namespace = $1 AND collection = $2 AND id > $3 ORDER BY id LIMIT $4",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(page.after.as_ref().map_or("", DocumentId::as_str))
    .bind(length(page.limit.saturating_add(1)))
    .fetch_all(connection)
    .await?;
    let documents = rows.iter().map(document).collect::<Fallible<Vec<_>>>()?;
    Ok(Page::from_surplus(documents, page.limit, |document| document.id.clone()))
}

/// Returns one page of collections.
pub(super) async fn list_collections(
    connection: &mut PgConnection,
    namespace: &Namespace,
    page: &PageRequest<CollectionName>,
) -> Fallible<Page<CollectionInfo, CollectionName>> {
    let rows = sqlx::query(
        "SELECT c.name, c.dimensions,
                (SELECT count(*) FROM larder.documents d WHERE d.namespace = c.namespace AND d.collection = \
                c.name)
         FROM larder.collections c WHERE c.namespace = $1 AND c.name > $2 ORDER BY c.name LIMIT $3",
    )
    .bind(namespace.as_str())
    .bind(page.after.as_ref().map_or("", CollectionName::as_str))
    .bind(length(page.limit.saturating_add(1)))
    .fetch_all(connection)
    .await?;
    let mut collections = Vec::with_capacity(rows.len());
    for row in &rows {
        collections.push(CollectionInfo {
            collection: decode::id(row, 0)?,
            dimensions: dimensions(row, 1)?,
            documents: decode::unsigned(row, 2)?,
        });
    }
    Ok(Page::from_surplus(collections, page.limit, |info| info.collection.clone()))
}
