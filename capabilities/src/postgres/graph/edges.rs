//! The writes of relationships, inside one transaction. Their ends are locked first, and then the
//! relationships in the order of their ids.

use std::collections::HashMap;

use larder_kernel::{GraphWritten, Namespace, Relationship, RelationshipWrite};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::upsert::{self, Existing, are_plain, check_ends, ends, in_order, written};
use crate::postgres::decode;
use crate::postgres::encode::metadata_text;
use crate::postgres::failure::Fallible;

/// Writes relationships whose ends exist and stay until the transaction ends.
pub(super) async fn write(
    connection: &mut PgConnection,
    namespace: &Namespace,
    writes: &[RelationshipWrite],
    operation: &'static str,
) -> Fallible<Vec<GraphWritten>> {
    let relationships: Vec<&Relationship> = writes.iter().map(|write| &write.relationship).collect();
    hold_ends(connection, namespace, &relationships, operation).await?;
    if are_plain(writes) {
        let rows = insert(connection, namespace, &relationships, REPLACE).await?;
        return in_order(operation, writes, &written(&rows)?);
    }
    let rows = insert(connection, namespace, &relationships, HOLD).await?;
    let mut written = written(&rows)?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(row.try_get::<&str, _>(0)?, decode::metadata(row, 3)?);
    }
    let changed = upsert::changed(writes, &written, &stored)?;
    let changed: Vec<&Relationship> = changed.iter().collect();
    let rows = update(connection, namespace, &changed).await?;
    written.extend(upsert::written(&rows)?);
    in_order(operation, writes, &written)
}

/// Replaces the existing relationships.
const REPLACE: Existing = (
    "relationship_type = excluded.relationship_type, source = excluded.source, target = excluded.target,
     properties = excluded.properties, revision = nextval('larder.entity_revisions')",
    "",
);
/// Locks the existing relationships, leaves them as they are, and returns their properties.
const HOLD: Existing = ("revision = relationships.revision", ", properties");

/// Inserts the relationships that do not exist.
async fn insert(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[&Relationship],
    (set, returned): Existing,
) -> Fallible<Vec<PgRow>> {
    let sql = format!(
        r#"INSERT INTO larder.relationships (namespace, id, relationship_type, source, target, properties)
           SELECT $1, given.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
               AS given (id, kind, source, target, properties)
           ORDER BY given.id COLLATE "C"
           ON CONFLICT (namespace, id) DO UPDATE SET {set}, replaced = true
           RETURNING id, revision, NOT relationships.replaced{returned}"#
    );
    rows(connection, namespace, relationships, sql).await
}

/// Writes relationships whose rows this transaction has locked.
async fn update(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[&Relationship],
) -> Fallible<Vec<PgRow>> {
    let sql = "UPDATE larder.relationships r SET relationship_type = given.kind, source = given.source,
            target = given.target, properties = given.properties,
            revision = nextval('larder.entity_revisions')
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
            AS given (id, kind, source, target, properties)
        WHERE r.namespace = $1 AND r.id = ANY($2) AND r.id = given.id RETURNING r.id, r.revision, false";
    rows(connection, namespace, relationships, sql.to_owned()).await
}

async fn rows(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[&Relationship],
    sql: String,
) -> Fallible<Vec<PgRow>> {
    let part = |part: fn(&Relationship) -> &str| -> Vec<&str> {
        relationships.iter().map(|relationship| part(relationship)).collect()
    };
    let properties = relationships
        .iter()
        .map(|relationship| metadata_text(&relationship.properties))
        .collect::<Fallible<Vec<String>>>()?;
    Ok(sqlx::query(AssertSqlSafe(sql))
        .bind(namespace.as_str())
        .bind(part(|relationship| relationship.id.as_str()))
        .bind(part(|relationship| relationship.relationship_type.as_str()))
        .bind(part(|relationship| relationship.source.as_str()))
        .bind(part(|relationship| relationship.target.as_str()))
        .bind(properties)
        .fetch_all(connection)
        .await?)
}

/// Protects the entities at the ends from deletion, and rejects relationships with a missing end.
async fn hold_ends(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[&Relationship],
    operation: &'static str,
) -> Fallible<()> {
    let rows = sqlx::query(
        "SELECT id FROM larder.entities WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR KEY SHARE",
    )
    .bind(namespace.as_str())
    .bind(ends(relationships))
    .fetch_all(connection)
    .await?;
    check_ends(operation, relationships, &rows)
}
