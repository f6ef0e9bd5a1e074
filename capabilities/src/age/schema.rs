//! The extension, the table of graphs, and the graph of a namespace.

use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::postgres::Migrate;
use crate::postgres::engine::Engine;
use crate::postgres::failure::{Failure, Fallible};
use larder_agents::internal::hex;

const OPEN: &str = "age.open";
/// The oldest supported version.
const VERSION_MIN: [u32; 2] = [1, 5];
/// The key of the lock under which one of several processes creates the schema.
const LOCK: i64 = 0x6c61_7264_6167_6531;

/// AGE's SQL functions name its operators without their schema.
pub(super) const SEARCH_PATH: &str = "SET LOCAL search_path = pg_catalog, ag_catalog";

/// The graph of a namespace, with the name that AGE uses. Graph names are Postgres identifiers, so they
/// cannot equal the namespaces.
#[derive(Debug, Clone)]
pub(super) struct GraphName {
    /// The name: only letters, digits and `_`, so that it needs no quotes in a statement.
    pub(super) name: String,
    /// The key of the lock under which the graph is created and dropped.
    lock: i64,
}

impl GraphName {
    pub(super) fn of(namespace: &Namespace) -> Self {
        let digest = Sha256::digest(namespace.as_str().as_bytes());
        let name = format!("larder_{}", hex(&digest[..20]));
        let mut lock = [0; 8];
        lock.copy_from_slice(&digest[..8]);
        Self { name, lock: i64::from_be_bytes(lock) }
    }

    /// Takes the lock, so that one transaction at a time creates or drops the graph. Returns true if the
    /// graph exists.
    async fn hold(&self, connection: &mut PgConnection) -> Fallible<bool> {
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.lock).execute(&mut *connection).await?;
        sqlx::raw_sql(SEARCH_PATH).execute(&mut *connection).await?;
        let found = sqlx::query("SELECT 1 FROM ag_catalog.ag_graph WHERE name::text = $1")
            .bind(&self.name)
            .fetch_optional(connection)
            .await?;
        Ok(found.is_some())
    }
}

/// Creates the graph of a namespace if it does not exist.
pub(super) async fn make_graph(
    connection: &mut PgConnection,
    namespace: &Namespace,
    graph: &GraphName,
) -> Fallible<()> {
    if !look(connection).await?.is_prepared() {
        return Err(unprepared("graph.write").into());
    }
    if graph.hold(connection).await? {
        return Ok(());
    }
    let name = &graph.name;
    sqlx::raw_sql(AssertSqlSafe(format!(
        r#"SELECT ag_catalog.create_graph('{name}');
           SELECT ag_catalog.create_vlabel('{name}', 'Entity');
           SELECT ag_catalog.create_elabel('{name}', 'Relationship');
           CREATE UNIQUE INDEX larder_entities ON {name}."Entity"
               ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C");
           CREATE INDEX larder_entities_by_type ON {name}."Entity"
               ((ag_catalog.agtype_object_field_text(properties, 'type')) COLLATE "C",
                (ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C");
           CREATE INDEX larder_entities_in_cypher ON {name}."Entity"
               (ag_catalog.agtype_access_operator(VARIADIC ARRAY[properties, '"id"'::ag_catalog.agtype]));
           CREATE UNIQUE INDEX larder_relationships ON {name}."Relationship"
               ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C");
           CREATE INDEX larder_relationships_by_type ON {name}."Relationship"
               ((ag_catalog.agtype_object_field_text(properties, 'type')) COLLATE "C",
                (ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C");
           -- Newer versions of AGE make these three themselves.
           CREATE UNIQUE INDEX IF NOT EXISTS "Entity_pkey" ON {name}."Entity" (id);
           CREATE INDEX IF NOT EXISTS "Relationship_start_id_idx" ON {name}."Relationship" (start_id);
           CREATE INDEX IF NOT EXISTS "Relationship_end_id_idx" ON {name}."Relationship" (end_id);"#
    )))
    .execute(&mut *connection)
    .await?;
    sqlx::query("INSERT INTO larder.age_graphs (namespace, graph) VALUES ($1, $2)")
        .bind(namespace.as_str())
        .bind(name)
        .execute(connection)
        .await?;
    Ok(())
}

/// Drops the graph of a namespace.
pub(super) async fn drop_graph(
    connection: &mut PgConnection,
    namespace: &Namespace,
    graph: &GraphName,
) -> Fallible<()> {
    if !look(connection).await?.is_prepared() {
        return Ok(());
    }
    if graph.hold(connection).await? {
        sqlx::query("SELECT ag_catalog.drop_graph($1::text::name, true)")
            .bind(&graph.name)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("DELETE FROM larder.age_graphs WHERE namespace = $1")
        .bind(namespace.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns true if a statement failed because its graph does not exist: it was never created, or it was
/// dropped.
pub(super) fn is_absent(failure: &Failure) -> bool {
    matches!(failure, Failure::Database(sqlx::Error::Database(error))
        if matches!(error.code().as_deref(), Some("42P01" | "3F000")))
}

/// Treats a missing graph as an empty one.
pub(super) fn or_empty<T: Default>(result: Fallible<T>) -> Fallible<T> {
    match result {
        Err(failure) if is_absent(&failure) => Ok(T::default()),
        result => result,
    }
}

/// Ensures that the extension and the table of graphs exist, and creates them if that is allowed.
pub(super) async fn ensure(engine: &Engine) -> Result<()> {
    let migrate = engine.migrate();
    let ensured = engine
        .transaction(OPEN, &migrate, |connection, migrate| Box::pin(ensure_in(connection, *migrate)))
        .await;
    // The next opening finds the parts that are done.
    ensured.map_err(|error| error.with_idempotent(true))
}

async fn ensure_in(connection: &mut PgConnection, migrate: Migrate) -> Fallible<()> {
    let mut found = look(connection).await?;
    if !found.is_prepared() {
        if migrate == Migrate::Check {
            // Without the table of graphs no graph exists, so that every read is empty.
            return if found.table { Err(unprepared(OPEN).into()) } else { Ok(()) };
        }
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *connection).await?;
        found = look(connection).await?;
    }
    if found.version.is_none() {
        install(connection, found.available).await?;
        found = look(connection).await?;
    }
    if !found.version.as_deref().is_some_and(is_new_enough) {
        return Err(refused(
            "AGE is older than 1.5.0; install a newer one on the server and run `ALTER EXTENSION age UPDATE`",
        )
        .into());
    }
    if !found.table {
        sqlx::raw_sql(
            r#"CREATE TABLE IF NOT EXISTS larder.age_graphs (
                   namespace TEXT COLLATE "C" PRIMARY KEY, graph TEXT COLLATE "C" NOT NULL UNIQUE)"#,
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}

fn unprepared(operation: &'static str) -> Error {
    let message = "the database is not prepared for AGE; open it once with `migrate=auto`";
    Error::new(ErrorKind::Unsupported, operation, message).with_outcome(Outcome::NotApplied)
}

/// The state of the extension in the database.
pub(super) struct Found {
    pub(super) version: Option<String>,
    pub(super) available: bool,
    pub(super) table: bool,
}

impl Found {
    pub(super) fn is_prepared(&self) -> bool {
        self.version.is_some() && self.table
    }
}

pub(super) async fn look(connection: &mut PgConnection) -> Fallible<Found> {
    let row = sqlx::query(
        "SELECT (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'age'),
                EXISTS (SELECT FROM pg_catalog.pg_available_extensions WHERE name = 'age'),
                EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = \
                c.relnamespace
                        WHERE n.nspname = 'larder' AND c.relname = 'age_graphs')",
    )
    .fetch_one(connection)
    .await?;
    Ok(Found { version: row.try_get(0)?, available: row.try_get(1)?, table: row.try_get(2)? })
}

async fn install(connection: &mut PgConnection, available: bool) -> Fallible<()> {
    if !available {
        return Err(refused("the server has no Apache AGE; install version 1.5.0 or newer on it").into());
    }
    match sqlx::raw_sql("CREATE EXTENSION IF NOT EXISTS age").execute(connection).await {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
            let message = "the user may not add AGE; have an administrator run `CREATE EXTENSION age`";
            Err(Error::new(ErrorKind::PermissionDenied, OPEN, message).into())
        }
        Err(error) => Err(error.into()),
    }
}

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, OPEN, message)
}

/// Returns true if a version such as `1.6.0` is at least the oldest supported one. A part that is not a
/// number counts as 0.
pub(super) fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = [(); 2].map(|()| parts.next().unwrap_or(0));
    parts >= VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        for version in ["1.5.0", "1.5", "1.10.1", "2.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["1.4.0", "0.7.0", "", "x"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }

    #[test]
    fn each_namespace_has_a_name_that_is_valid_in_a_statement() {
        let names = ["a", "A", "a\"; DROP TABLE x; --", "é", "e\u{301}"];
        let mut graphs: Vec<_> =
            names.iter().map(|name| GraphName::of(&Namespace::new(name).unwrap()).name).collect();
        for graph in &graphs {
            assert_eq!(graph.len(), 47);
            assert!(
                graph.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            );
        }
        graphs.sort();
        graphs.dedup();
        assert_eq!(graphs.len(), names.len());
    }
}
