//! The versions of the schema: the oldest version that this program opens, and the migrations to the newest.

use larder_kernel::{Error, ErrorKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::config::Migrate;
use super::failure::Fallible;
use super::format::{BASELINE, formats};
use super::session::{Mode, leave_nothing};
use crate::format::Formats;

/// The statements that create the version `BASELINE` in an empty database.
const BASELINE_TABLES: [&str; 4] = [
    include_str!("../../migrations/postgres/0012_baseline_1_threads.sql"),
    include_str!("../../migrations/postgres/0012_baseline_2_messages.sql"),
    include_str!("../../migrations/postgres/0012_baseline_3_key_value.sql"),
    include_str!("../../migrations/postgres/0012_baseline_4_vectors_graph_tasks.sql"),
];

/// The migration to the version after the baseline.
pub(crate) const GENERATIONS: &str = include_str!("../../migrations/postgres/0013_generations.sql");
/// The migration that adds the key-value functions for several keys.
const KEY_VALUE_BATCHES: &str = include_str!("../../migrations/postgres/0014_key_value_batches.sql");
const APPEND_IF_LAST: &str = include_str!("../../migrations/postgres/0015_append_if_last.sql");
const REMOVALS: &str = include_str!("../../migrations/postgres/0016_removals.sql");
const FENCES: &str = include_str!("../../migrations/postgres/0017_fences.sql");
const RELATIONSHIP_REVISIONS: &str =
    include_str!("../../migrations/postgres/0018_relationship_revisions.sql");
const BLOBS: &str = include_str!("../../migrations/postgres/0019_blobs.sql");
const MESSAGE_UPDATES: &str = include_str!("../../migrations/postgres/0020_message_updates.sql");

const OPERATION: &str = "postgres.open";

/// The format that this program writes: the baseline and the migrations after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    /// Each migration upgrades the schema from the version `BASELINE` plus its index to the next.
    pub(crate) migrations: &'static [&'static str],
}

impl Schema {
    pub(crate) const CURRENT: Self = Self {
        migrations: &[
            GENERATIONS,
            KEY_VALUE_BATCHES,
            APPEND_IF_LAST,
            REMOVALS,
            FENCES,
            RELATIONSHIP_REVISIONS,
            BLOBS,
            MESSAGE_UPDATES,
        ],
    };

    /// Returns the versions that this program supports. They are the format numbers of databases.
    pub(crate) fn formats(self) -> Formats {
        let steps = i64::try_from(self.migrations.len()).unwrap_or(i64::MAX - BASELINE);
        formats(BASELINE + steps)
    }

    /// Returns the statements of the newest version: the baseline, and the migrations after it.
    pub(crate) fn statements(self) -> impl Iterator<Item = &'static str> {
        BASELINE_TABLES.into_iter().chain(self.migrations.iter().copied())
    }

    /// Returns true if the schema has the newest version.
    pub(crate) async fn is_newest(self, connection: &mut PgConnection) -> Fallible<bool> {
        Ok(version(connection).await? == self.formats().newest)
    }

    /// Upgrades the schema to the newest version, or rejects it. Processes that open a new database at the
    /// same time wait for each other, and one of them migrates.
    ///
    /// `begin` begins a transaction whose isolation level is `READ COMMITTED`: a process that waited for
    /// another's migration must see it.
    pub(crate) async fn migrate(
        self,
        connection: &mut PgConnection,
        migrate: Migrate,
        begin: String,
        mode: Mode,
    ) -> Fallible<()> {
        let mut transaction = connection.begin_with(AssertSqlSafe(begin)).await?;
        // A migration may take longer than a statement or a wait for a lock is allowed.
        sqlx::raw_sql("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            .execute(&mut *transaction)
            .await?;
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(1282565234, 1)").execute(&mut *transaction).await?;
        let (found, formats) = (version(&mut transaction).await?, self.formats());
        if found != 0 {
            formats.check(OPERATION, found)?;
        }
        if found < formats.newest {
            if migrate == Migrate::Check {
                let message = "the schema is missing or older; open the database once with `migrate=auto`";
                return Err(Error::new(ErrorKind::Unsupported, OPERATION, message)
                    .with_context("format", found)
                    .with_context("format_supported", formats.newest)
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
            // Waits for the writes that have checked the version. Later ones wait for this transaction.
            sqlx::raw_sql("LOCK TABLE larder.schema_version IN ACCESS EXCLUSIVE MODE")
                .execute(&mut *transaction)
                .await?;
            let (baseline, done) = match usize::try_from(found - BASELINE) {
                Ok(done) => (&[][..], done),
                Err(_) => (&BASELINE_TABLES[..], 0),
            };
            for migration in baseline.iter().chain(self.migrations.iter().skip(done)) {
                sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
            }
            sqlx::query(
                "INSERT INTO larder.schema_version (version) VALUES ($1)
                 ON CONFLICT (only_row) DO UPDATE SET version = excluded.version",
            )
            .bind(formats.newest)
            .execute(&mut *transaction)
            .await?;
        }
        leave_nothing(&mut transaction, mode).await?;
        transaction.commit().await?;
        Ok(())
    }
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
