//! Updates of metadata. Postgres writes a new version of the row, which keeps its stored text and embedding.

use std::collections::HashMap;

use larder_kernel::{CollectionName, DocumentId, MetadataMode, MetadataReport, MetadataUpdate, Namespace};
use sqlx::PgConnection;

use super::write::hold;
use crate::postgres::decode;
use crate::postgres::encode::metadata_text;
use crate::postgres::failure::Fallible;

/// Applies updates. The documents are locked in the order of their ids before their metadata is read, so
/// concurrent merges follow one another.
pub(super) async fn update(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    updates: &[MetadataUpdate],
    mode: MetadataMode,
) -> Fallible<MetadataReport> {
    if hold(connection, namespace, collection).await?.is_none() {
        return Ok(MetadataReport::of(updates, |_| false));
    }
    let rows = sqlx::query(
        "SELECT id, metadata FROM larder.documents WHERE namespace = $1 AND collection = $2 AND id = ANY($3)
         ORDER BY id FOR NO KEY UPDATE",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(updates.iter().map(|update| update.id.as_str()).collect::<Vec<_>>())
    .fetch_all(&mut *connection)
    .await?;
    let by_id: HashMap<&DocumentId, &MetadataUpdate> =
        updates.iter().map(|update| (&update.id, update)).collect();
    let mut written: HashMap<DocumentId, String> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let id: DocumentId = decode::id(row, 0)?;
        if let Some(update) = by_id.get(&id) {
            written.insert(id, metadata_text(&update.apply(&decode::metadata(row, 1)?, mode)?)?);
        }
    }
    let (ids, texts): (Vec<&str>, Vec<&str>) =
        written.iter().map(|(id, text)| (id.as_str(), text.as_str())).unzip();
    sqlx::query(
        "UPDATE larder.documents d SET metadata = given.metadata
         FROM unnest($3::text[], $4::text[]) AS given (id, metadata)
         WHERE d.namespace = $1 AND d.collection = $2 AND d.id = given.id AND d.id = ANY($3)",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(ids)
    .bind(texts)
    .execute(connection)
    .await?;
    Ok(MetadataReport::of(updates, |id| written.contains_key(id)))
}
