//! Checks and installs pgvector, and adds its column.

use larder_kernel::{Error, ErrorKind, Outcome};
use pgvector::Vector;
use sqlx::{PgConnection, Row};

use super::OPEN;
use super::embedding::{direction, from_bytes};
use crate::postgres::Migrate;
use crate::postgres::failure::{Failure, Fallible, corrupt};

/// The oldest version that has the searches and index types of these stores.
const VERSION_MIN: [u32; 3] = [0, 8, 0];
/// The key of the lock under which one of several processes adds the column.
const LOCK: i64 = 0x6c61_7264_7665_6374;
/// The number of documents that get their direction in one transaction.
const FILLED_ROWS: i64 = 500;

/// The state of the extension in the database.
#[derive(Debug)]
struct Found {
    version: Option<String>,
    column: bool,
    /// True if every document has its direction.
    complete: bool,
    /// True if the type can be named without its schema.
    visible: bool,
}

/// The state of the database after an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Documents can be read, written and searched.
    Complete,
    /// Some documents lack their direction; the caller must run [`fill`].
    Incomplete,
    /// Nothing is prepared and nothing may be created, and there are no documents. So every read is empty.
    Empty,
}

/// The error of a call that needs what only an opening for writing prepares.
pub(super) fn unprepared(operation: &'static str) -> Error {
    let message = "the schema is not prepared for vectors; open the vectors once with `migrate=auto`";
    Error::new(ErrorKind::Unsupported, operation, message).with_outcome(Outcome::NotApplied)
}

/// Returns true if a document exists, in any namespace.
pub(super) async fn has_documents(connection: &mut PgConnection) -> Fallible<bool> {
    let any = sqlx::query_scalar("SELECT EXISTS (SELECT FROM larder.documents)");
    Ok(any.fetch_one(connection).await?)
}

/// Ensures that the extension and its column exist, and creates them if that is allowed. Runs in a
/// transaction.
pub(super) async fn ensure(connection: &mut PgConnection, migrate: Migrate) -> Fallible<Readiness> {
    let mut found = look(connection).await?;
    if found.version.is_none() || !found.complete {
        if migrate == Migrate::Check {
            if has_documents(connection).await? {
                return Err(unprepared(OPEN).into());
            }
            return Ok(Readiness::Empty);
        }
        found = look_alone(connection).await?;
    }
    if found.version.is_none() {
        install(connection).await?;
        found = look(connection).await?;
    }
    if !found.version.as_deref().is_some_and(is_new_enough) {
        return Err(refused(
            "pgvector is older than 0.8.0; install a newer one on the server and run `ALTER EXTENSION vector \
             UPDATE`",
        )
        .into());
    }
    if !found.visible {
        return Err(refused(
            "pgvector was moved to another schema after the opening; open the database again",
        )
        .into());
    }
    if !found.column {
        // Without a fixed dimension the column can hold the embeddings of every collection.
        sqlx::query("ALTER TABLE larder.documents ADD COLUMN IF NOT EXISTS direction vector")
            .execute(&mut *connection)
            .await?;
        // A search reads the column of every document that it ranks. Out-of-line storage would cost a lookup
        // for each, six times the cost of its distance.
        sqlx::query("ALTER TABLE larder.documents ALTER COLUMN direction SET STORAGE MAIN")
            .execute(connection)
            .await?;
    }
    Ok(if found.complete { Readiness::Complete } else { Readiness::Incomplete })
}

/// Computes the missing directions of some documents, or marks the column as complete if none is missing.
/// Returns true if the column is complete. Runs in a transaction. Directions are missing only after pgvector
/// was removed with all its columns.
pub(super) async fn fill(connection: &mut PgConnection) -> Fallible<bool> {
    // Before any lock on the table: two processes that both held one would deadlock.
    if look_alone(connection).await?.complete {
        return Ok(true);
    }
    let rows = sqlx::query(
        "SELECT namespace, collection, id, embedding FROM larder.documents WHERE direction IS NULL
         ORDER BY namespace, collection, id LIMIT $1 FOR UPDATE",
    )
    .bind(FILLED_ROWS)
    .fetch_all(&mut *connection)
    .await?;
    for row in &rows {
        let embedding = from_bytes(row.try_get(3)?).ok_or_else(|| corrupt(OPEN))?;
        sqlx::query(
            "UPDATE larder.documents SET direction = $4
             WHERE namespace = $1 AND collection = $2 AND id = $3",
        )
        .bind(row.try_get::<&str, _>(0)?)
        .bind(row.try_get::<&str, _>(1)?)
        .bind(row.try_get::<&str, _>(2)?)
        .bind(Vector::from(direction(&embedding).collect::<Vec<f32>>()))
        .execute(&mut *connection)
        .await?;
    }
    if !rows.is_empty() {
        return Ok(false);
    }
    sqlx::query("ALTER TABLE larder.documents ALTER COLUMN direction SET NOT NULL")
        .execute(connection)
        .await?;
    Ok(true)
}

/// Reads the state while no other process installs anything, until the transaction ends.
async fn look_alone(connection: &mut PgConnection) -> Fallible<Found> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *connection).await?;
    look(connection).await
}

async fn look(connection: &mut PgConnection) -> Fallible<Found> {
    // Reads the catalog's rows: a lookup by name caches that an object is missing, even after another process
    // has created it.
    let row = sqlx::query(
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
                EXISTS (SELECT 1 FROM pg_attribute
                        WHERE attrelid = 'larder.documents'::regclass AND attname = 'direction' AND NOT \
                        attisdropped),
                EXISTS (SELECT 1 FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
                        WHERE t.typname = 'vector' AND n.nspname = ANY (current_schemas(true))),
                EXISTS (SELECT 1 FROM pg_attribute
                        WHERE attrelid = 'larder.documents'::regclass AND attname = 'direction' AND NOT \
                        attisdropped
                            AND attnotnull)",
    )
    .fetch_one(connection)
    .await?;
    Ok(Found {
        version: row.try_get(0)?,
        column: row.try_get(1)?,
        visible: row.try_get(2)?,
        complete: row.try_get(3)?,
    })
}

async fn install(connection: &mut PgConnection) -> Fallible<()> {
    let available = sqlx::query("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        .fetch_optional(&mut *connection)
        .await?;
    if available.is_none() {
        return Err(refused("the server has no pgvector; install version 0.8.0 or newer on it").into());
    }
    match sqlx::query("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public").execute(connection).await {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
            let message =
                "the user may not add pgvector; have an administrator run `CREATE EXTENSION vector`";
            Err(Error::new(ErrorKind::PermissionDenied, OPEN, message).into())
        }
        Err(error) => Err(Failure::from(error)),
    }
}

fn refused(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, OPEN, message)
}

/// Returns true if a version such as `0.8.1` is at least the oldest supported one. A part that is not a
/// number counts as 0.
pub(crate) fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = [(); 3].map(|()| parts.next().unwrap_or(0));
    parts >= VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_compare_by_their_numbers() {
        for version in ["0.8.0", "0.8", "0.10.1", "1.0", "0.8.5"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["0.7.4", "0.5.11", "", "x"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
