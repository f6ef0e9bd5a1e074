//! The reads by id and in order, each within one snapshot.

use larder_kernel::storage::vector::check_dimension;
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, Namespace, Page, PageRequest,
};
use rusqlite::{Connection, Row, params};

use super::score::from_bytes;
use crate::sqlite::failure::{Fallible, corrupt};
use crate::sqlite::value;

/// The row of a collection, read before its documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Collection {
    pub(super) key: i64,
    pub(super) dimensions: usize,
    pub(super) documents: u64,
}

impl Collection {
    /// Rejects an embedding of another dimension.
    pub(super) fn check(&self, operation: &'static str, dimensions: usize) -> Fallible<()> {
        Ok(check_dimension(operation, dimensions, self.dimensions)?)
    }
}

fn dimensions(row: &Row<'_>, column: usize) -> Fallible<usize> {
    let number: i64 = row.get(column)?;
    usize::try_from(number).map_err(|_| corrupt("sqlite.read").into())
}

/// Returns the collection of that name.
pub(super) fn collection(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
) -> Fallible<Option<Collection>> {
    let mut statement = connection.prepare_cached(
        "SELECT key, dimensions, documents FROM collections WHERE namespace = ?1 AND name = ?2",
    )?;
    let mut rows = statement.query(params![namespace.as_str(), name.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Collection {
        key: row.get(0)?,
        dimensions: dimensions(row, 1)?,
        documents: value::unsigned(row, 2)?,
    }))
}

/// Returns a document from the columns content, metadata and embedding.
fn document(row: &Row<'_>, id: DocumentId) -> Fallible<Document> {
    let bytes = row.get_ref(2)?.as_blob().map_err(|_| corrupt("sqlite.read"))?;
    Ok(Document::new(id, value::text(row, 0)?)
        .with_metadata(value::metadata(row, 1)?)
        .with_embedding(from_bytes(bytes).ok_or_else(|| corrupt("sqlite.read"))?))
}

/// Returns the documents with these ids, in their order.
pub(super) fn get(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    ids: &[DocumentId],
) -> Fallible<Vec<Option<Document>>> {
    let Some(found) = collection(connection, namespace, name)? else { return Ok(vec![None; ids.len()]) };
    let mut statement = connection.prepare_cached(
        "SELECT d.content, d.metadata, e.embedding FROM documents d JOIN embeddings e ON e.key = d.key
         WHERE d.collection = ?1 AND d.id = ?2",
    )?;
    let mut documents = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query(params![found.key, id.as_str()])?;
        documents.push(rows.next()?.map(|row| document(row, id.clone())).transpose()?);
    }
    Ok(documents)
}

/// Returns the number of documents, or of matching documents.
pub(super) fn count(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    filter: Option<&Filter>,
) -> Fallible<u64> {
    let Some(found) = collection(connection, namespace, name)? else { return Ok(0) };
    let Some(filter) = filter else { return Ok(found.documents) };
    let mut statement = connection.prepare_cached("SELECT metadata FROM documents WHERE collection = ?1")?;
    let mut rows = statement.query([found.key])?;
    let mut matching = 0;
    while let Some(row) = rows.next()? {
        matching += u64::from(filter.matches(&value::metadata(row, 0)?));
    }
    Ok(matching)
}

/// Returns one page of documents.
pub(super) fn list(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    page: &PageRequest<DocumentId>,
) -> Fallible<Page<Document, DocumentId>> {
    let Some(found) = collection(connection, namespace, name)? else { return Ok(Page::empty()) };
    let mut statement = connection.prepare_cached(
        "SELECT d.content, d.metadata, e.embedding, d.id FROM documents d JOIN embeddings e ON e.key = d.key
         WHERE d.collection = ?1 AND d.id > ?2 ORDER BY d.id LIMIT ?3",
    )?;
    let after = page.after.as_ref().map_or("", DocumentId::as_str);
    let mut rows = statement.query(params![found.key, after, value::length(page.limit) + 1])?;
    let mut documents = Vec::new();
    while let Some(row) = rows.next()? {
        documents.push(document(row, value::id(row, 3)?)?);
    }
    Ok(Page::from_surplus(documents, page.limit, |document| document.id.clone()))
}

/// Returns one page of matching documents, without their embeddings. Scans documents in the order of ids
/// until it has the page and the next document.
pub(super) fn list_matching(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    filter: &Filter,
    page: &PageRequest<DocumentId>,
) -> Fallible<Page<Document, DocumentId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let Some(found) = collection(connection, namespace, name)? else { return Ok(Page::empty()) };
    let mut statement = connection.prepare_cached(
        "SELECT id, metadata, content FROM documents WHERE collection = ?1 AND id > ?2 ORDER BY id",
    )?;
    let after = page.after.as_ref().map_or("", DocumentId::as_str);
    let mut rows = statement.query(params![found.key, after])?;
    let mut documents = Vec::new();
    while documents.len() <= page.limit {
        let Some(row) = rows.next()? else { break };
        let metadata = value::metadata(row, 1)?;
        // SQLite reads the text from its pages only if the metadata matches.
        if filter.matches(&metadata) {
            documents.push(Document::new(value::id(row, 0)?, value::text(row, 2)?).with_metadata(metadata));
        }
    }
    Ok(Page::from_surplus(documents, page.limit, |document| document.id.clone()))
}

/// Returns one page of collections.
pub(super) fn list_collections(
    connection: &Connection,
    namespace: &Namespace,
    page: &PageRequest<CollectionName>,
) -> Fallible<Page<CollectionInfo, CollectionName>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, dimensions, documents FROM collections WHERE namespace = ?1 AND name > ?2
         ORDER BY name LIMIT ?3",
    )?;
    let after = page.after.as_ref().map_or("", CollectionName::as_str);
    let mut rows = statement.query(params![namespace.as_str(), after, value::length(page.limit) + 1])?;
    let mut collections = Vec::new();
    while let Some(row) = rows.next()? {
        collections.push(CollectionInfo::new(
            value::id(row, 0)?,
            dimensions(row, 1)?,
            value::unsigned(row, 2)?,
        ));
    }
    Ok(Page::from_surplus(collections, page.limit, |info| info.collection.clone()))
}

/// Returns the text and the metadata of a found document.
pub(super) fn content(connection: &Connection, key: i64) -> Fallible<(String, larder_kernel::Metadata)> {
    let mut statement =
        connection.prepare_cached("SELECT content, metadata FROM documents WHERE key = ?1")?;
    let mut rows = statement.query([key])?;
    let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
    Ok((value::text(row, 0)?, value::metadata(row, 1)?))
}
