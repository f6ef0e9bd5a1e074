//! The writes, each inside one transaction.

use larder_kernel::storage::vector::{PreparedDocument, check_dimension};
use larder_kernel::{
    CollectionName, DocumentId, Error, Filter, Metadata, MetadataMode, MetadataReport, MetadataUpdate,
    Namespace, PutMode, PutReport,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::PUT;
use super::read::{Collection, collection};
use super::score::{norm, to_bytes};
use crate::sqlite::failure::Fallible;
use crate::sqlite::value::{self, metadata_text};

/// Writes validated documents, all of one dimension.
pub(super) fn put(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    documents: &[PreparedDocument],
    mode: PutMode,
) -> Fallible<PutReport> {
    let Some(first) = documents.first() else { return Ok(PutReport::default()) };
    let found = found_or_made(connection, namespace, name, first.embedding.dimensions())?;
    check_dimension(PUT, first.embedding.dimensions(), found.dimensions)?;
    let replaces = match mode {
        PutMode::Upsert => true,
        PutMode::IfAbsent => false,
        _ => return Err(Error::unknown_value(PUT, "mode").into()),
    };
    let mut report = PutReport::default();
    let mut inserted = 0_usize;
    for document in documents {
        if insert(connection, found.key, document)? {
            inserted += 1;
        } else if !replaces {
            report.ignored.push(document.id.clone());
            continue;
        } else {
            replace(connection, found.key, document)?;
        }
        report.written.push(document.id.clone());
    }
    add_to_count(connection, found.key, value::length(inserted))?;
    Ok(report)
}

fn found_or_made(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    dimensions: usize,
) -> Fallible<Collection> {
    if let Some(found) = collection(connection, namespace, name)? {
        return Ok(found);
    }
    connection
        .prepare_cached(
            "INSERT INTO collections (namespace, name, dimensions, documents) VALUES (?1, ?2, ?3, 0)",
        )?
        .execute(params![namespace.as_str(), name.as_str(), value::length(dimensions)])?;
    Ok(Collection { key: connection.last_insert_rowid(), dimensions, documents: 0 })
}

/// Inserts the document and returns true if it is new.
fn insert(connection: &Connection, collection: i64, document: &PreparedDocument) -> Fallible<bool> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO documents (collection, id, metadata, content) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (collection, id) DO NOTHING",
        )?
        .execute(params![
            collection,
            document.id.as_str(),
            metadata_text(&document.metadata)?,
            document.content.as_bytes()
        ])?;
    if inserted == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO embeddings (key, collection, id, norm, embedding) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            connection.last_insert_rowid(),
            collection,
            document.id.as_str(),
            norm(&document.embedding),
            to_bytes(&document.embedding)
        ])?;
    Ok(true)
}

fn replace(connection: &Connection, collection: i64, document: &PreparedDocument) -> Fallible<()> {
    let key: i64 = connection
        .prepare_cached(
            "UPDATE documents SET metadata = ?3, content = ?4 WHERE collection = ?1 AND id = ?2
             RETURNING key",
        )?
        .query_row(
            params![
                collection,
                document.id.as_str(),
                metadata_text(&document.metadata)?,
                document.content.as_bytes()
            ],
            |row| row.get(0),
        )?;
    connection
        .prepare_cached("UPDATE embeddings SET norm = ?2, embedding = ?3 WHERE key = ?1")?
        .execute(params![key, norm(&document.embedding), to_bytes(&document.embedding)])?;
    Ok(())
}

fn add_to_count(connection: &Connection, collection: i64, by: i64) -> Fallible<()> {
    if by != 0 {
        connection
            .prepare_cached("UPDATE collections SET documents = documents + ?2 WHERE key = ?1")?
            .execute(params![collection, by])?;
    }
    Ok(())
}

/// Applies updates of metadata. The row of a document includes its text, but not its embedding.
pub(super) fn update_metadata(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    updates: &[MetadataUpdate],
    mode: MetadataMode,
) -> Fallible<MetadataReport> {
    let Some(found) = collection(connection, namespace, name)? else {
        return Ok(MetadataReport::of(updates, |_| false));
    };
    let mut write = connection.prepare_cached("UPDATE documents SET metadata = ?2 WHERE key = ?1")?;
    let mut report = MetadataReport::default();
    for update in updates {
        let Some((key, stored)) = stored_metadata(connection, found.key, &update.id)? else {
            report.missing.push(update.id.clone());
            continue;
        };
        write.execute(params![key, metadata_text(&update.apply(&stored, mode)?)?])?;
        report.updated.push(update.id.clone());
    }
    Ok(report)
}

/// Returns the row and the metadata of a document.
fn stored_metadata(
    connection: &Connection,
    collection: i64,
    id: &DocumentId,
) -> Fallible<Option<(i64, Metadata)>> {
    let mut statement =
        connection.prepare_cached("SELECT key, metadata FROM documents WHERE collection = ?1 AND id = ?2")?;
    let mut rows = statement.query(params![collection, id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((row.get(0)?, value::metadata(row, 1)?)))
}

/// Deletes documents by id and returns the number of existing ones.
pub(super) fn delete(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    ids: &[DocumentId],
) -> Fallible<u64> {
    let Some(found) = collection(connection, namespace, name)? else { return Ok(0) };
    let mut statement =
        connection.prepare_cached("DELETE FROM documents WHERE collection = ?1 AND id = ?2")?;
    let mut deleted = 0;
    for id in ids {
        deleted += statement.execute(params![found.key, id.as_str()])?;
    }
    add_to_count(connection, found.key, -value::length(deleted))?;
    Ok(larder_kernel::check::size(deleted))
}

/// Deletes the matching documents and returns their number.
pub(super) fn delete_matching(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
    filter: &Filter,
) -> Fallible<u64> {
    let Some(found) = collection(connection, namespace, name)? else { return Ok(0) };
    let mut matching = Vec::new();
    {
        let mut statement =
            connection.prepare_cached("SELECT key, metadata FROM documents WHERE collection = ?1")?;
        let mut rows = statement.query([found.key])?;
        while let Some(row) = rows.next()? {
            if filter.matches(&value::metadata(row, 1)?) {
                matching.push(row.get::<_, i64>(0)?);
            }
        }
    }
    let mut statement = connection.prepare_cached("DELETE FROM documents WHERE key = ?1")?;
    for key in &matching {
        statement.execute([key])?;
    }
    add_to_count(connection, found.key, -value::length(matching.len()))?;
    Ok(larder_kernel::check::size(matching.len()))
}

/// Deletes a collection with its documents and returns true if it existed.
pub(super) fn drop_collection(
    connection: &Connection,
    namespace: &Namespace,
    name: &CollectionName,
) -> Fallible<bool> {
    let key: Option<i64> = connection
        .prepare_cached("DELETE FROM collections WHERE namespace = ?1 AND name = ?2 RETURNING key")?
        .query_row(params![namespace.as_str(), name.as_str()], |row| row.get(0))
        .optional()?;
    Ok(key.is_some())
}

/// Deletes every collection of the namespace.
pub(super) fn erase(connection: &Connection, namespace: &Namespace) -> Fallible<()> {
    connection
        .prepare_cached("DELETE FROM collections WHERE namespace = ?1")?
        .execute([namespace.as_str()])?;
    Ok(())
}
