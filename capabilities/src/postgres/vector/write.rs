//! The writes, each inside one transaction. Documents are locked in the order of their ids, after their
//! collection.

use std::collections::HashSet;

use larder_kernel::storage::vector::{PreparedDocument, check_dimension};
use larder_kernel::{CollectionName, DocumentId, Error, Filter, Namespace, PutMode, PutReport};
use sqlx::{PgConnection, Row, Statement};

use super::embedding::to_bytes;
use super::matching::matching;
use super::read::dimensions;
use super::statement::vectors;
use super::{PUT, Scope};
use crate::postgres::decode;
use crate::postgres::encode::metadata_text;
use crate::postgres::failure::Fallible;

/// The maximum bytes of texts and numbers in one statement. A larger batch uses several statements.
const STATEMENT_BYTES: usize = 8 * 1024 * 1024;

macro_rules! insert {
    ($conflict:literal) => {
        concat!(
            r#"INSERT INTO larder.documents
                   (namespace, collection, id, metadata, content, embedding, direction)
               SELECT $1, $2, given.id, given.metadata, given.content, given.embedding, given.direction
               FROM unnest($3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::vector[])
                   AS given (id, metadata, content, embedding, direction)
               ORDER BY given.id COLLATE "C"
               ON CONFLICT (namespace, collection, id) DO "#,
            $conflict,
            " RETURNING id"
        )
    };
}

const INSERT_ABSENT: &str = insert!("NOTHING");
const UPSERT: &str = insert!(
    "UPDATE SET metadata = excluded.metadata, content = excluded.content, embedding = excluded.embedding,
                direction = excluded.direction"
);

/// Writes validated documents, all of one dimension.
pub(super) async fn put(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    documents: &[PreparedDocument],
    mode: PutMode,
) -> Fallible<PutReport> {
    let Some(first) = documents.first() else { return Ok(PutReport::default()) };
    let (namespace, collection) = (scope.namespace, scope.collection);
    let given = first.embedding.dimensions();
    check_dimension(PUT, given, found_or_made(connection, namespace, collection, given).await?)?;
    let mut sorted: Vec<&PreparedDocument> = documents.iter().collect();
    sorted.sort_unstable_by(|left, right| left.id.cmp(&right.id));
    let mut written: HashSet<DocumentId> = HashSet::with_capacity(documents.len());
    for batch in statements(&sorted) {
        let sql = match mode {
            PutMode::IfAbsent => INSERT_ABSENT,
            PutMode::Upsert => UPSERT,
            _ => return Err(Error::unknown_value(PUT, "mode").into()),
        };
        insert(connection, scope, batch, sql, &mut written).await?;
    }
    let mut report = PutReport::default();
    for document in documents {
        let ids = if written.contains(&document.id) { &mut report.written } else { &mut report.ignored };
        ids.push(document.id.clone());
    }
    Ok(report)
}

/// Splits a batch where a statement would carry too many bytes.
fn statements<'d>(documents: &'d [&'d PreparedDocument]) -> Vec<&'d [&'d PreparedDocument]> {
    let (mut statements, mut rest, mut count, mut bytes) = (Vec::new(), documents, 0, 0_usize);
    for document in documents {
        bytes += document.content.len() + document.embedding.dimensions() * 2 * size_of::<f32>();
        count += 1;
        if bytes >= STATEMENT_BYTES {
            let (full, remaining) = rest.split_at(count);
            statements.push(full);
            (rest, count, bytes) = (remaining, 0, 0);
        }
    }
    if !rest.is_empty() {
        statements.push(rest);
    }
    statements
}

async fn insert(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    documents: &[&PreparedDocument],
    sql: &'static str,
    written: &mut HashSet<DocumentId>,
) -> Fallible<()> {
    let metadata =
        documents.iter().map(|document| metadata_text(&document.metadata)).collect::<Fallible<Vec<_>>>()?;
    let statement = scope.statements.describe(connection, sql).await?;
    let rows = statement
        .query()
        .bind(scope.namespace.as_str())
        .bind(scope.collection.as_str())
        .bind(documents.iter().map(|document| document.id.as_str()).collect::<Vec<_>>())
        .bind(metadata)
        .bind(documents.iter().map(|document| document.content.as_bytes()).collect::<Vec<_>>())
        .bind(documents.iter().map(|document| to_bytes(&document.embedding)).collect::<Vec<_>>())
        .bind(vectors(&statement, 7, documents.iter().map(|document| &document.embedding)))
        .fetch_all(connection)
        .await;
    for row in &scope.statements.checked(rows)? {
        written.insert(decode::id(row, 0)?);
    }
    Ok(())
}

/// Returns the dimension of the collection, which is created if it is missing. The collection stays until the
/// transaction ends.
async fn found_or_made(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    given: usize,
) -> Fallible<usize> {
    loop {
        if let Some(dimensions) = hold(connection, namespace, collection).await? {
            return Ok(dimensions);
        }
        // Another client may create it concurrently, or create and drop it: then the lookup is repeated.
        let made = sqlx::query(
            "INSERT INTO larder.collections (namespace, name, dimensions) VALUES ($1, $2, $3) ON CONFLICT DO \
             NOTHING",
        )
        .bind(namespace.as_str())
        .bind(collection.as_str())
        .bind(i32::try_from(given).unwrap_or(i32::MAX))
        .execute(&mut *connection)
        .await?;
        if made.rows_affected() > 0 {
            return Ok(given);
        }
    }
}

/// Protects the collection from being dropped until the transaction ends, and returns its dimension.
pub(super) async fn hold(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
) -> Fallible<Option<usize>> {
    let found = sqlx::query(
        "SELECT dimensions FROM larder.collections WHERE namespace = $1 AND name = $2 FOR KEY SHARE",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .fetch_optional(connection)
    .await?;
    found.map(|row| dimensions(&row, 0)).transpose()
}

/// Deletes documents by id and returns the number of existing ones.
pub(super) async fn delete(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    ids: &[DocumentId],
) -> Fallible<u64> {
    if hold(connection, namespace, collection).await?.is_none() {
        return Ok(0);
    }
    // The array is read once; a plan without statistics would read a subquery again for each row.
    let gone = sqlx::query(
        "DELETE FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY(ARRAY(
             SELECT id FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY($3)
             ORDER BY id FOR UPDATE))",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(ids.iter().map(DocumentId::as_str).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(gone.rows_affected())
}

/// Deletes the matching documents and returns their number. Candidates are locked and matched again, so that
/// a document that was replaced concurrently stays.
pub(super) async fn delete_matching(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    filter: &Filter,
) -> Fallible<u64> {
    if hold(connection, namespace, collection).await?.is_none() {
        return Ok(0);
    }
    let candidates = matching(connection, namespace, collection, &[filter]).await?.concat();
    if candidates.is_empty() {
        return Ok(0);
    }
    let rows = sqlx::query(
        "SELECT id, metadata FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY($3)
         ORDER BY id FOR UPDATE",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(candidates)
    .fetch_all(&mut *connection)
    .await?;
    let mut ids: Vec<String> = Vec::with_capacity(rows.len());
    for row in &rows {
        if filter.matches(&decode::metadata(row, 1)?) {
            ids.push(row.try_get(0)?);
        }
    }
    let gone =
        sqlx::query("DELETE FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY($3)")
            .bind(namespace.as_str())
            .bind(collection.as_str())
            .bind(ids)
            .execute(connection)
            .await?;
    Ok(gone.rows_affected())
}

/// Deletes a collection with its documents and returns true if it existed.
pub(super) async fn drop_collection(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
) -> Fallible<bool> {
    let gone = sqlx::query("DELETE FROM larder.collections WHERE namespace = $1 AND name = $2")
        .bind(namespace.as_str())
        .bind(collection.as_str())
        .execute(connection)
        .await?;
    Ok(gone.rows_affected() > 0)
}

/// Deletes every collection of the namespace.
pub(super) async fn erase(connection: &mut PgConnection, namespace: &Namespace) -> Fallible<()> {
    sqlx::query("SELECT 1 FROM larder.collections WHERE namespace = $1 ORDER BY name FOR UPDATE")
        .bind(namespace.as_str())
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM larder.collections WHERE namespace = $1")
        .bind(namespace.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
