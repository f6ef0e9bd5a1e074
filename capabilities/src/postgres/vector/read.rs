//! The reads by id and in order, each one statement or one snapshot.

use std::collections::HashMap;

use larder_kernel::{CollectionInfo, CollectionName, Document, DocumentId, Namespace, Page, PageRequest};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::embedding::from_bytes;
use crate::postgres::decode;
use crate::postgres::encode::length;
use crate::postgres::failure::{Fallible, corrupt};

/// Returns the dimension in a column.
pub(super) fn dimensions(row: &PgRow, column: usize) -> Fallible<usize> {
    usize::try_from(row.try_get::<i32, _>(column)?).map_err(|_| corrupt("postgres.read").into())
}

/// Returns a document from the columns id, content, metadata and embedding.
fn document(row: &PgRow) -> Fallible<Document> {
    Ok(Document::new(decode::id(row, 0)?, decode::text(row, 1)?)
        .with_metadata(decode::metadata(row, 2)?)
        .with_embedding(from_bytes(row.try_get(3)?).ok_or_else(|| corrupt("postgres.read"))?))
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
        collections.push(CollectionInfo::new(
            decode::id(row, 0)?,
            dimensions(row, 1)?,
            decode::unsigned(row, 2)?,
        ));
    }
    Ok(Page::from_surplus(collections, page.limit, |info| info.collection.clone()))
}
