//! Building and removing the indexes of large collections.
//!
//! With `vector_index=hnsw` a large collection gets two indexes: one over its embeddings, one over its
//! metadata. The first search that would benefit starts a task that builds them on a separate connection,
//! without blocking writers. Searches stay exact until the indexes are ready. A lock admits one building
//! process at a time. A process that dies during a build leaves an invalid index behind, which the next
//! process removes and builds again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::{CollectionName, Error, ErrorKind, Namespace, Outcome};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::task::JoinHandle;

use super::read::dimensions;
use crate::postgres::config::{Migrate, PostgresConfig, VectorIndex};
use crate::postgres::encode::integer;
use crate::postgres::failure::{Failure, Fallible};
use crate::postgres::session::Mode;

/// The pause of a process after a failed build, or after another process held the lock.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// The interval at which a call that waits for the lock tries to take it.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// More edges and a wider search for them than pgvector's defaults, for the recall in clustered data.
const BUILD_OPTIONS: &str = "m = 24, ef_construction = 128";

/// Returns the type in which pgvector indexes embeddings of this dimension; `None` if it cannot.
pub(super) fn indexed_type(dimensions: usize) -> Option<IndexedType> {
    match dimensions {
        1..=2_000 => Some(IndexedType::Vector),
        2_001..=4_000 => Some(IndexedType::HalfVector),
        _ => None,
    }
}

/// A type of pgvector that supports an index.
#[derive(Debug, Clone, Copy)]
pub(super) enum IndexedType {
    /// 32-bit floats.
    Vector,
    /// 16-bit floats.
    HalfVector,
}

impl fmt::Display for IndexedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vector => "vector",
            Self::HalfVector => "halfvec",
        })
    }
}

/// The setting for indexes, and the task that builds them.
pub(crate) struct IndexBuilder {
    connect: PgConnectOptions,
    mode: Mode,
    index: VectorIndex,
    rows_min: u64,
    migrate: Migrate,
    connect_timeout: Duration,
    work: Mutex<Work>,
}

#[derive(Default)]
struct Work {
    task: Option<JoinHandle<Fallible<()>>>,
    /// The instant until which no other task starts. A task that succeeds removes the pause.
    pause: Arc<Mutex<Option<Instant>>>,
}

/// A collection in the database's catalog.
struct Catalog {
    dimensions: usize,
    /// The table that stores the rows: a partition if the tables are partitioned.
    table: Option<String>,
    rows: i64,
    hnsw: Option<bool>,
    gin: Option<bool>,
}

impl IndexBuilder {
    pub(crate) fn new(connect: PgConnectOptions, mode: Mode, config: &PostgresConfig) -> Self {
        Self {
            connect,
            mode,
            index: config.vector_index,
            rows_min: config.vector_index_rows_min,
            migrate: config.migrate,
            connect_timeout: config.acquire_timeout,
            work: Mutex::default(),
        }
    }

    /// Returns true if searches may use an index.
    pub(super) fn is_on(&self) -> bool {
        self.index == VectorIndex::Hnsw
    }

    /// Returns the number of documents from which a collection is large.
    pub(super) fn rows_min(&self) -> i64 {
        integer(self.rows_min)
    }

    /// Starts a task that builds the indexes of a collection and removes those of dropped collections. Does
    /// nothing while a task runs, during the pause after a failure, with `migrate=check`, and behind a
    /// pooler.
    pub(super) fn start(&self, namespace: &Namespace, collection: Option<&CollectionName>) {
        if !self.is_on() || self.migrate == Migrate::Check || self.mode == Mode::Pooled {
            return;
        }
        let mut work = lock(&self.work);
        let paused = lock(&work.pause).is_some_and(|until| Instant::now() < until);
        if work.task.as_ref().is_some_and(|task| !task.is_finished()) || (collection.is_some() && paused) {
            return;
        }
        let pause = Arc::clone(&work.pause);
        *lock(&pause) = Some(Instant::now() + RETRY_PAUSE);
        let (connect, rows_min) = (self.connect.clone(), self.rows_min());
        let (namespace, collection) = (namespace.clone(), collection.cloned());
        work.task = Some(tokio::spawn(async move {
            let mut connection = PgConnection::connect_with(&connect).await?;
            if take_lock(&mut connection).await? {
                if let Some(collection) = collection {
                    build(&mut connection, &namespace, &collection, rows_min).await?;
                }
                remove_orphans(&mut connection).await?;
                lock(&pause).take();
            }
            Ok(connection.close().await?)
        }));
    }

    /// Builds the indexes of a collection of any size. Returns true if it has them afterwards.
    pub(super) async fn build(&self, namespace: &Namespace, collection: &CollectionName) -> Fallible<bool> {
        if !self.is_on() {
            let message = "the database was opened without `vector_index=hnsw`; open it with this parameter";
            return Err(Error::new(ErrorKind::Unsupported, super::BUILD_INDEX, message).into());
        }
        if self.mode == Mode::Pooled {
            let message = "a pooler in transaction mode keeps no lock for the time that an index takes; \
                           build it with a URL that names the server itself";
            return Err(Error::new(ErrorKind::Unsupported, super::BUILD_INDEX, message).into());
        }
        let connecting = PgConnection::connect_with(&self.connect);
        let connected = tokio::time::timeout(self.connect_timeout, connecting).await;
        let mut connection = connected.map_err(|_| silent())??;
        // A wait inside the server would delay the very index build that it waits for.
        while !take_lock(&mut connection).await? {
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        let made = build(&mut connection, namespace, collection, 1).await.map_err(name_owner)?;
        connection.close().await?;
        Ok(made)
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.work).task.take() {
            task.abort();
        }
    }
}

impl Drop for IndexBuilder {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn silent() -> Error {
    let message =
        "the database did not respond in time; check its host, port and load, or raise `acquire_timeout_ms`";
    Error::new(ErrorKind::Timeout, super::BUILD_INDEX, message).with_outcome(Outcome::NotApplied)
}

/// Adds advice to the error: no grant gives the right to index a table, only ownership does.
fn name_owner(failure: Failure) -> Failure {
    match failure {
        Failure::Database(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
            let message = "only the owner of the table `larder.documents` can index it; open the database as \
                           the owner with `vector_index=hnsw`";
            Error::new(ErrorKind::PermissionDenied, super::BUILD_INDEX, message).into()
        }
        failure => failure,
    }
}

/// Takes the lock of index builders, if it is free. It is released with the connection.
async fn take_lock(connection: &mut PgConnection) -> Fallible<bool> {
    sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut *connection).await?;
    Ok(sqlx::query_scalar("SELECT pg_try_advisory_lock(1282565234, 3)").fetch_one(connection).await?)
}

async fn read_catalog(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    rows_min: i64,
) -> Fallible<Option<Catalog>> {
    let row = sqlx::query(
        "SELECT c.dimensions,
            (SELECT d.tableoid::regclass::text FROM larder.documents d
             WHERE d.namespace = c.namespace AND d.collection = c.name LIMIT 1),
            (SELECT count(*) FROM (SELECT FROM larder.documents d
             WHERE d.namespace = c.namespace AND d.collection = c.name LIMIT $3) found),
            (SELECT x.indisvalid FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
             WHERE i.relnamespace = 'larder'::regnamespace
                AND i.relname = larder.index_name('hnsw', c.namespace, c.name, c.dimensions)),
            (SELECT x.indisvalid FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
             WHERE i.relnamespace = 'larder'::regnamespace
                AND i.relname = larder.index_name('gin', c.namespace, c.name, c.dimensions))
         FROM larder.collections c WHERE c.namespace = $1 AND c.name = $2",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .bind(rows_min)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Catalog {
        dimensions: dimensions(&row, 0)?,
        table: row.try_get(1)?,
        rows: row.try_get(2)?,
        hnsw: row.try_get(3)?,
        gin: row.try_get(4)?,
    }))
}

/// Builds the missing indexes of a collection with at least this many documents. The caller holds the lock.
async fn build(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
    rows_min: i64,
) -> Fallible<bool> {
    let Some(catalog) = read_catalog(connection, namespace, collection, rows_min).await? else {
        return Ok(false);
    };
    let (Some(table), Some(kind)) = (&catalog.table, indexed_type(catalog.dimensions)) else {
        return Ok(false);
    };
    if catalog.rows < rows_min {
        return Ok(false);
    }
    let hnsw = format!(
        "hnsw ((direction::{kind}({})) {kind}_cosine_ops) WITH ({BUILD_OPTIONS})",
        catalog.dimensions
    );
    let mut changed = false;
    let gin = "gin ((metadata::jsonb) jsonb_path_ops)".to_owned();
    // A collection that was dropped and created again may have another dimension, which the old index must
    // not include.
    let of_size = format!(" AND octet_length(embedding) = {}", catalog.dimensions * size_of::<f32>());
    // Searches check for the index over embeddings, so it is built last: if it exists, the other exists too.
    for (name, valid, definition, condition) in
        [("gin", catalog.gin, gin, ""), ("hnsw", catalog.hnsw, hnsw, &*of_size)]
    {
        if valid == Some(true) {
            continue;
        }
        // The server formats the names and literals, because only it has the exact quoting rules.
        let statements: Vec<String> = sqlx::query_scalar(
            "SELECT unnest(ARRAY[format('DROP INDEX CONCURRENTLY IF EXISTS larder.%I', name),
                 format('CREATE INDEX CONCURRENTLY %I ON %s USING %s
                         WHERE namespace = %L AND collection = %L%s',
                        name, $4, $5, $1, $2, $6)])
             FROM larder.index_name($7, $1, $2, $3) name",
        )
        .bind(namespace.as_str())
        .bind(collection.as_str())
        .bind(i32::try_from(catalog.dimensions).unwrap_or(i32::MAX))
        .bind(table)
        .bind(definition)
        .bind(condition)
        .bind(name)
        .fetch_all(&mut *connection)
        .await?;
        for statement in statements {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
        }
        changed = true;
    }
    if changed {
        // Without statistics the planner rates any plan as good as the indexes.
        let analyze = format!("ANALYZE {table} (namespace, collection, metadata)");
        sqlx::raw_sql(AssertSqlSafe(analyze)).execute(connection).await?;
    }
    Ok(true)
}

/// Removes the indexes of collections that were dropped, or created again with another dimension. The caller
/// holds the lock.
async fn remove_orphans(connection: &mut PgConnection) -> Fallible<()> {
    let statements: Vec<String> = sqlx::query_scalar(
        r"SELECT format('DROP INDEX CONCURRENTLY IF EXISTS larder.%I', i.relname) FROM pg_catalog.pg_class i
          WHERE i.relnamespace = 'larder'::regnamespace AND i.relkind = 'i'
            AND i.relname ~ '^documents_(hnsw|gin)_'
            AND NOT EXISTS (SELECT FROM larder.collections c, unnest(ARRAY['hnsw', 'gin']) kind
                            WHERE i.relname = larder.index_name(kind, c.namespace, c.name, c.dimensions))",
    )
    .fetch_all(&mut *connection)
    .await?;
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}
