//! The connections of one open database, and the jobs that run on them.
//!
//! If the future of a job is dropped, its connection is closed. A transaction that the job began, or was
//! about to begin, ends with the connection, and no other job gets that connection. So no call needs an extra
//! round trip to the server before or after it.

mod connect;
mod lease;
mod notify;
mod open;
mod pool;
pub(super) mod sweep;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};

use super::config::{Migrate, PostgresConfig};
use super::failure::{Failure, Fallible};
use crate::driver::Pool;
use lease::Source;
use notify::Notifier;
pub(super) use open::SERVER_VERSION_MIN;
use pool::IdlePool;
use sweep::Sweeper;

const OPEN: &str = "postgres.open";
/// The number of retries after a lost connection, for calls that cannot have happened. The server may have
/// restarted since the connection was last used.
const LOST_MAX: u32 = 1;
/// The maximum number of attempts of a transaction that the server aborts because of other transactions.
const ATTEMPTS_MAX: u32 = 10;
/// The client's allowance beyond the server's timeouts, after which it considers the server lost.
const GRACE: Duration = Duration::from_secs(5);
const SILENT: &str = "the database did not respond in time; check its host, port and load, or raise \
                      `acquire_timeout_ms` or `statement_timeout_ms`";

/// A handle to the connections of one open database. They close when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    source: Source,
    connect: PgConnectOptions,
    notifier: Notifier,
    sweeper: Sweeper,
    durability: Durability,
    migrate: Migrate,
    call_timeout: Duration,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("durability", &self.inner.durability).finish_non_exhaustive()
    }
}

impl Engine {
    /// Connects, upgrades the schema and reads the server's settings.
    pub(crate) async fn open(config: PostgresConfig) -> Result<Self> {
        Self::open_with_pool(config, None).await
    }

    /// As `open`, on the caller's pool if one is given.
    pub(crate) async fn open_with_pool(config: PostgresConfig, given: Option<PgPool>) -> Result<Self> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let connect = config.connect.clone().disable_statement_logging().options([
            ("statement_timeout", ms(config.statement_timeout)),
            ("lock_timeout", ms(config.lock_timeout)),
            ("idle_in_transaction_session_timeout", ms(config.idle_in_transaction_timeout)),
            // Single statements are transactions too. With a stricter default, the server would abort
            // concurrent writers.
            ("default_transaction_isolation", "read committed".to_owned()),
        ]);
        // Not through the pool, which retries until its timeout and then reports only the timeout.
        let call_timeout = config.statement_timeout.saturating_add(GRACE);
        let durability = open::examine(&connect, &config, call_timeout)
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
        let notifier = Notifier::new(connect.clone());
        let migrate = config.migrate;
        let sweeper = Sweeper::new();
        let inner = Inner { source, connect, notifier, sweeper, durability, migrate, call_timeout };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the capabilities of every store on this database.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.inner.durability).with(Capability::MultiProcess)
    }

    /// Returns the action for an incomplete schema.
    pub(crate) fn migrate(&self) -> Migrate {
        self.inner.migrate
    }

    /// Returns the options for connections outside of the pool.
    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        self.inner.connect.clone()
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.inner.notifier
    }

    /// Runs a job that only reads. `context` is the data that the job borrows from its caller.
    pub(crate) async fn read<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let result = self.run(operation, context, job, LOST_MAX).await;
        result.map_err(|error| error.with_outcome(Outcome::NotApplied).with_idempotent(true))
    }

    /// Runs a job of one statement. The statement is a transaction, so it costs one round trip. If the server
    /// aborts it because of other transactions, it runs again.
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

    /// Runs a job of one statement. Runs it again if the server aborts it because of other transactions, and
    /// up to `lost` times if the connection is lost.
    async fn run<A, T, F>(&self, operation: &'static str, context: &A, job: F, mut lost: u32) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let mut attempt = 1;
        loop {
            let mut lease = self.inner.source.lease(operation, self.inner.call_timeout).await?;
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

    /// Runs a job inside one transaction, and commits it if the job succeeds. If the server aborts the
    /// transaction because of others, the whole transaction runs again.
    pub(crate) async fn transaction<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let (mut attempt, mut lost) = (1, LOST_MAX);
        loop {
            let mut lease = self.inner.source.lease(operation, self.inner.call_timeout).await?;
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
                        // The transaction ends with its connection, which is closed.
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
                // Before the commit is sent, nothing can have happened.
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

    /// Runs a job that only reads. All its reads see the snapshot of its first statement.
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

    /// Returns the number of connections, and of those in use.
    pub(crate) fn pool(&self) -> Pool {
        self.inner.source.status()
    }

    /// Closes the connections of every clone.
    pub(crate) async fn close(self) {
        self.inner.notifier.stop();
        self.inner.sweeper.stop();
        self.inner.source.close().await;
    }
}

/// Waits before a retry: exponential backoff with jitter.
async fn pause(attempt: u32) {
    let jitter =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| u64::from(now.subsec_nanos() % 5_000));
    let micros = 2_000_u64.saturating_mul(1 << attempt.min(6)).saturating_add(jitter);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// Returns the result, or a timeout error if the server stays silent beyond `limit`.
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
