//! The versions of the schema: the oldest version that this program opens, and the migrations to the newest.

use larder_kernel::{Error, ErrorKind};
use sqlx::{Connection, PgConnection};

use super::config::Migrate;
use super::failure::Fallible;

/// The oldest version that this program opens. The baseline statements create it in an empty database.
const BASELINE: i64 = 10;
const BASELINE_TABLES: [&str; 4] = [
    include_str!("../../migrations/postgres/0010_baseline_1_threads.sql"),
    include_str!("../../migrations/postgres/0010_baseline_2_messages.sql"),
    include_str!("../../migrations/postgres/0010_baseline_3_key_value.sql"),
    include_str!("../../migrations/postgres/0010_baseline_4_vectors_graph_tasks.sql"),
];

/// Each migration upgrades the schema from the version `BASELINE` plus its index to the next.
const MIGRATIONS: [&str; 0] = [];

const OPERATION: &str = "postgres.open";
/// The advice for a database of a version before the baseline.
pub(crate) const TOO_OLD: &str = "the schema is too old for this release to upgrade; write the database to \
                                  an archive with `larder dump` of the release before, then read the archive \
                                  with `larder load` into a new database";

/// Returns the version that this program reads and writes.
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).map_or(i64::MAX, |steps| BASELINE + steps)
}

/// Returns true if this program cannot upgrade a schema of this version. Version 0 is a database without the
/// schema.
pub(crate) fn is_too_old(version: i64) -> bool {
    version != 0 && version < BASELINE
}

/// Returns true if the schema has the newest version.
pub(crate) async fn is_newest(connection: &mut PgConnection) -> Fallible<bool> {
    Ok(version(connection).await? == newest())
}

/// Upgrades the schema to the newest version, or rejects it. Processes that open a new database at the same
/// time wait for each other, and one of them migrates.
pub(crate) async fn migrate(connection: &mut PgConnection, mode: Migrate) -> Fallible<()> {
    // A process that waited for another's migration must see it, whatever isolation level is the database's
    // default.
    let mut transaction = connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    // A migration may take longer than a statement or a wait for a lock is allowed.
    sqlx::raw_sql("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        .execute(&mut *transaction)
        .await?;
    sqlx::raw_sql("SELECT pg_advisory_xact_lock(1282565234, 1)").execute(&mut *transaction).await?;
    let found = version(&mut transaction).await?;
    check_version(found)?;
    if found < newest() {
        if mode == Migrate::Check {
            return Err(refused(
                found,
                "the schema is missing or older; open the database once with `migrate=auto`",
            )
            .into());
        }
        sqlx::raw_sql(
            "CREATE SCHEMA IF NOT EXISTS larder;
             CREATE TABLE IF NOT EXISTS larder.schema_version (only_row boolean PRIMARY KEY DEFAULT true \
             CHECK (only_row),
                version bigint NOT NULL)",
        )
        .execute(&mut *transaction)
        .await?;
        let (baseline, done) = match usize::try_from(found - BASELINE) {
            Ok(done) => (&[][..], done),
            Err(_) => (&BASELINE_TABLES[..], 0),
        };
        for migration in baseline.iter().chain(MIGRATIONS.iter().skip(done)) {
            sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
        }
        sqlx::query(
            "INSERT INTO larder.schema_version (version) VALUES ($1)
             ON CONFLICT (only_row) DO UPDATE SET version = excluded.version",
        )
        .bind(newest())
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// Rejects a schema of an unsupported version.
fn check_version(found: i64) -> Result<(), Error> {
    if is_too_old(found) {
        return Err(refused(found, TOO_OLD).with_context("schema_version_min", BASELINE));
    }
    if found > newest() {
        return Err(refused(
            found,
            "the schema was written by a newer version of this program; use that version or a later one",
        ));
    }
    Ok(())
}

fn refused(found: i64, message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, OPERATION, message)
        .with_context("schema_version", found)
        .with_context("schema_version_supported", newest())
}

/// Returns the version of the schema; 0 if the schema does not exist.
pub(crate) async fn version(connection: &mut PgConnection) -> Fallible<i64> {
    // Reads the catalog's rows: `to_regclass` uses a cache. After a wait for another process's migration, the
    // cache still reports that the table does not exist.
    let there: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = \
         c.relnamespace
            WHERE n.nspname = 'larder' AND c.relname = 'schema_version')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !there {
        return Ok(0);
    }
    let version: Option<i64> =
        sqlx::query_scalar("SELECT version FROM larder.schema_version").fetch_optional(connection).await?;
    Ok(version.unwrap_or(0))
}
