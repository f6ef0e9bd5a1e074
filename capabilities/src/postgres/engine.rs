//! The connections of one open database, and the way to have work done on them.
//!
//! A connection is closed if the future of its job is dropped: a transaction that it was about to begin, or was in, ends
//! with it, and no other job gets it. So no call needs an extra round trip to the server before or after it.

mod connect;
mod notify;
mod pool;
pub(super) mod sweep;

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Row};
use tokio::sync::OwnedSemaphorePermit;

use super::config::{Migrate, PostgresConfig};
use super::failure::{Failure, Fallible};
use super::history::AppendBatcher;
use super::schema;
use super::task::ClaimBatcher;
use super::vector::IndexBuilder;
use crate::health::Pool;
use connect::connect;
use notify::Notifier;
use pool::{IdlePool, PooledConnection};
use sweep::Sweeper;

const OPEN: &str = "postgres.open";
/// How often a call is run again whose connection is lost and that cannot have happened: the server may have been
/// started anew since the connection was last used.
const LOST_MAX: u32 = 1;
/// The oldest server with all that the schema uses.
pub(crate) const SERVER_VERSION_MIN: i32 = 140_000;
/// How often a transaction is run that the server ended for the sake of others.
const ATTEMPTS_MAX: u32 = 10;
/// What the client allows beyond the server's own timeouts before it takes the server for gone.
const GRACE: Duration = Duration::from_secs(5);
const SILENT: &str = "the database did not answer in time; check its host, port and load, or raise `acquire_timeout_ms` \
                      or `statement_timeout_ms`";

/// A handle on the connections of one open database. They close when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    notifier: Notifier,
    indexes: IndexBuilder,
    claims: ClaimBatcher,
    appends: AppendBatcher,
    sweeper: Sweeper,
    durability: Durability,
    migrate: Migrate,
    call_timeout: Duration,
}

/// Where connections come from.
enum Source {
    /// A pool of the engine's own.
    Own(Arc<IdlePool>),
    /// The caller's, who may have left anything on its connections and wants each back after its call.
    Foreign(PgPool),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("durability", &self.inner.durability).finish_non_exhaustive()
    }
}

impl Engine {
    /// Connects, brings the schema up to date and reads the server's settings.
    pub(crate) async fn open(config: PostgresConfig) -> Result<Self> {
        Self::open_with_pool(config, None).await
    }

    /// The same on the caller's pool, if there is one.
    pub(crate) async fn open_with_pool(config: PostgresConfig, given: Option<PgPool>) -> Result<Self> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let connect = config.connect.clone().disable_statement_logging().options([
            ("statement_timeout", ms(config.statement_timeout)),
            ("lock_timeout", ms(config.lock_timeout)),
            ("idle_in_transaction_session_timeout", ms(config.idle_in_transaction_timeout)),
            // Single statements are transactions, too; where the default is stricter, writers that meet would be refused.
            ("default_transaction_isolation", "read committed".to_owned()),
        ]);
        // Not through the pool, which tries again and again and then only says that time is up.
        let call_timeout = config.statement_timeout.saturating_add(GRACE);
        let durability = examine(&connect, &config, call_timeout)
            .await
            .map_err(|failure| failure.into_error(OPEN).with_outcome(Outcome::NotApplied))?;
        let source = given.map_or_else(
            || {
                let pool = PgPoolOptions::new()
                    .max_connections(config.pool_size)
                    .acquire_timeout(config.acquire_timeout)
                    .test_before_acquire(false)
                    .connect_lazy_with(connect.clone());
                Source::Own(Arc::new(IdlePool::new(pool)))
            },
            Source::Foreign,
        );
        let indexes = IndexBuilder::new(connect.clone(), &config);
        let notifier = Notifier::new(connect);
        let migrate = config.migrate;
        let (claims, appends, sweeper) = (ClaimBatcher::default(), AppendBatcher::default(), Sweeper::new());
        let inner =
            Inner { source, notifier, indexes, claims, appends, sweeper, durability, migrate, call_timeout };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What every store on this database declares.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.inner.durability).with(Capability::MultiProcess)
    }

    /// What to do about a schema that lacks something.
    pub(crate) fn migrate(&self) -> Migrate {
        self.inner.migrate
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.inner.notifier
    }

    pub(crate) fn indexes(&self) -> &IndexBuilder {
        &self.inner.indexes
    }

    pub(crate) fn claims(&self) -> &ClaimBatcher {
        &self.inner.claims
    }

    pub(crate) fn appends(&self) -> &AppendBatcher {
        &self.inner.appends
    }

    /// Runs a job that only reads. `context` is what the job borrows from its caller.
    pub(crate) async fn read<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let result = self.run(operation, context, job, LOST_MAX).await;
        result.map_err(|error| error.with_outcome(Outcome::NotApplied).with_idempotent(true))
    }

    /// Runs a job of one statement, which is its own transaction and so costs one round trip. It is run again where
    /// the server ended it for the sake of others.
    pub(crate) async fn statement<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        // If the connection is lost, the statement may have happened.
        let result = self.run(operation, context, job, 0).await;
        if result.is_ok() {
            self.inner.sweeper.start(self);
        }
        result
    }

    /// Runs a job of one statement, again where the server ended it for the sake of others, and so many times where the
    /// connection is lost.
    async fn run<A, T, F>(&self, operation: &'static str, context: &A, job: F, mut lost: u32) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let mut attempt = 1;
        loop {
            let mut lease = self.lease(operation).await?;
            let answer = within(self.inner.call_timeout, operation, job(&mut lease, context)).await;
            let result = answer.inspect_err(|_| lease.taint())?;
            lease.release(&result);
            match result {
                Err(failure) if failure.is_lost_connection() && lost > 0 => {
                    lost -= 1;
                    continue;
                }
                Err(failure) if failure.is_serialization() && attempt < ATTEMPTS_MAX => pause(attempt).await,
                result => return result.map_err(|failure| failure.into_error(operation)),
            }
            attempt += 1;
        }
    }

    /// Runs a job inside one transaction, which is committed when the job succeeds. It is run again, as a whole, where
    /// the server ended it for the sake of others.
    pub(crate) async fn transaction<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let (mut attempt, mut lost) = (1, LOST_MAX);
        loop {
            let mut lease = self.lease(operation).await?;
            let call = async {
                let begin = lease.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED");
                let mut transaction = begin.await.map_err(|error| (Failure::from(error), false))?;
                match job(&mut transaction, context).await {
                    Ok(value) => {
                        transaction.commit().await.map_err(|error| (Failure::from(error), true))?;
                        Ok(value)
                    }
                    Err(failure) => match transaction.rollback().await {
                        Ok(()) => Err((failure, false)),
                        // The transaction ends with its connection, which nobody gets again.
                        Err(error) => Err((Failure::from(error), false)),
                    },
                }
            };
            let answer = within(self.inner.call_timeout, operation, call).await;
            let result = answer.inspect_err(|_| lease.taint())?;
            let (result, committing) = match result {
                Ok(value) => (Ok(value), false),
                Err((failure, committing)) => (Err(failure), committing),
            };
            lease.release(&result);
            match result {
                Err(failure) if failure.is_serialization() && attempt < ATTEMPTS_MAX => pause(attempt).await,
                // Before the commit is sent nothing can have happened.
                Err(failure) if !committing && failure.is_lost_connection() && lost > 0 => {
                    lost -= 1;
                    continue;
                }
                Err(failure) if !committing => {
                    return Err(failure.into_error(operation).with_outcome(Outcome::NotApplied));
                }
                result => return result.map_err(|failure| failure.into_error(operation)),
            }
            attempt += 1;
        }
    }

    /// Runs a job that only reads, all of it in the state that its first statement finds.
    pub(crate) async fn snapshot<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        T: Send,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>> + Sync,
    {
        let result = self
            .transaction(operation, &(context, &job), |connection, &(context, job)| {
                Box::pin(async move {
                    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                        .execute(&mut *connection)
                        .await?;
                    job(connection, context).await
                })
            })
            .await;
        result.map_err(|error| error.with_idempotent(true))
    }

    async fn lease(&self, operation: &'static str) -> Result<Lease> {
        let refused = |error| Failure::from(error).into_error(operation).with_outcome(Outcome::NotApplied);
        match &self.inner.source {
            Source::Own(pool) => match pool.acquire().await {
                Ok((connection, permit)) => {
                    Ok(Lease { leased: Some(Leased::Own(Arc::clone(pool), connection, permit)) })
                }
                // The pool gives up on an unreachable server with the same error as on a lack of connections.
                Err(sqlx::Error::PoolTimedOut) if pool.is_unreachable() => {
                    Err(Error::new(
                        ErrorKind::Unavailable,
                        operation,
                        "the database cannot be reached; check that its server runs, or raise `acquire_timeout_ms`",
                    )
                    .with_outcome(Outcome::NotApplied))
                }
                Err(error) => Err(refused(error)),
            },
            Source::Foreign(pool) => {
                let leased = Leased::Foreign(pool.acquire().await.map_err(refused)?);
                let mut lease = Lease { leased: Some(leased) };
                // Ends a transaction that was left open; without one the server does not even warn.
                let ended = sqlx::raw_sql("BEGIN; ROLLBACK").execute(&mut *lease);
                within(self.inner.call_timeout, operation, ended).await?.map_err(refused)?;
                Ok(lease)
            }
        }
    }

    /// How many connections there are, and how many of them are in use.
    pub(crate) fn pool(&self) -> Pool {
        match &self.inner.source {
            Source::Own(pool) => pool.status(),
            Source::Foreign(pool) => {
                let open = pool.size();
                let idle = u32::try_from(pool.num_idle()).unwrap_or(open);
                let max = Some(pool.options().get_max_connections());
                Pool { open, in_use: Some(open.saturating_sub(idle)), max, closed: pool.is_closed() }
            }
        }
    }

    /// Closes the connections, for every clone.
    pub(crate) async fn close(self) {
        self.inner.notifier.stop();
        self.inner.indexes.stop();
        self.inner.sweeper.stop();
        if let Source::Own(pool) = &self.inner.source {
            pool.close().await;
        }
    }
}

/// A connection that one job uses. Dropped in the middle of the job, it is closed and not returned to the pool.
struct Lease {
    leased: Option<Leased>,
}

enum Leased {
    Own(Arc<IdlePool>, PooledConnection, OwnedSemaphorePermit),
    Foreign(PoolConnection<sqlx::Postgres>),
}

impl Lease {
    /// Closes the idle connections: after one was lost or got no answer, the others most likely are lost too.
    fn taint(&self) {
        if let Some(Leased::Own(pool, ..)) = &self.leased {
            pool.close_idle();
        }
    }

    /// Ends the lease. A failure that is not the server's own answer leaves the connection in an unknown state.
    fn release<T>(mut self, result: &Fallible<T>) {
        if let Err(failure) = result
            && failure.is_lost_connection()
        {
            self.taint();
            return;
        }
        let clean =
            matches!(result, Ok(_) | Err(Failure::Contract(_) | Failure::Database(sqlx::Error::Database(_))));
        if clean {
            match self.leased.take() {
                Some(Leased::Own(pool, connection, permit)) => pool.release(connection, permit),
                // Its own drop returns it.
                Some(Leased::Foreign(_)) | None => {}
            }
        }
    }
}

impl Deref for Lease {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.leased {
            Some(Leased::Own(_, connection, _)) => &connection.inner,
            Some(Leased::Foreign(connection)) => connection,
            None => unreachable!("only the end of the lease takes the connection"),
        }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.leased {
            Some(Leased::Own(_, connection, _)) => &mut connection.inner,
            Some(Leased::Foreign(connection)) => connection,
            None => unreachable!("only the end of the lease takes the connection"),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.leased.take() {
            Some(Leased::Own(_, connection, _permit)) => connection.close(),
            Some(Leased::Foreign(connection)) => pool::close(connection),
            None => {}
        }
    }
}

/// Waits a little, longer each time and not the same for all.
async fn pause(attempt: u32) {
    let jitter =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| u64::from(now.subsec_nanos() % 5_000));
    let micros = 2_000_u64.saturating_mul(1 << attempt.min(6)).saturating_add(jitter);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// The answer, unless the server stays silent for longer than it can.
pub(crate) async fn within<T>(
    limit: Duration,
    operation: &'static str,
    answer: impl Future<Output = T>,
) -> Result<T> {
    tokio::time::timeout(limit, answer).await.map_err(|_| silent(operation))
}

fn silent(operation: &'static str) -> Error {
    Error::new(ErrorKind::Timeout, operation, SILENT)
}

/// Connects as any call will, refuses a database that the stores do not work on, brings its schema up to date, and
/// answers what a commit survives.
async fn examine(
    options: &PgConnectOptions,
    config: &PostgresConfig,
    call_timeout: Duration,
) -> Fallible<Durability> {
    let options = options.clone();
    let open = move || {
        let options = options.clone();
        async move { PgConnection::connect_with(&options).await }
    };
    let connected = connect(config.acquire_timeout, open).await;
    let mut connection = connected.ok_or_else(|| silent(OPEN))??;
    let durability = within(call_timeout, OPEN, probe(&mut connection)).await??;
    if !within(call_timeout, OPEN, schema::is_newest(&mut connection)).await?? {
        let migrating = schema::migrate(&mut connection, config.migrate);
        within(config.migrate_timeout, OPEN, migrating).await??;
    }
    let _ = tokio::time::timeout(GRACE, connection.close()).await;
    Ok(durability)
}

/// Refuses a server that the schema does not work on, and reads what a commit survives.
async fn probe(connection: &mut PgConnection) -> Fallible<Durability> {
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
            current_setting('fsync')::bool, current_setting('synchronous_commit') <> 'off'",
    )
    .fetch_one(connection)
    .await?;
    let version: i32 = row.try_get(0)?;
    if version < SERVER_VERSION_MIN {
        return Err(Error::new(
            ErrorKind::Unsupported,
            OPEN,
            "the server is older than PostgreSQL 14; upgrade it",
        )
        .with_context("server_version", i64::from(version))
        .into());
    }
    if row.try_get::<String, _>(1)? != "UTF8" {
        return Err(Error::new(
            ErrorKind::Unsupported,
            OPEN,
            "the database's encoding is not UTF8; create it with `ENCODING 'UTF8'`",
        )
        .into());
    }
    Ok(match (row.try_get(2)?, row.try_get(3)?) {
        (true, true) => Durability::Power,
        // The commit is with the operating system, which outlives the server's processes.
        (false, true) => Durability::Process,
        (_, false) => Durability::None,
    })
}
