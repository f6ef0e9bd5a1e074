//! The connections of one open database, and the jobs that run on them.
//!
//! If the future of a job is dropped, its connection is closed. A transaction that the job began, or was
//! about to begin, ends with the connection, and no other job gets that connection. So no call needs an extra
//! round trip to the server before or after it.

mod connect;
mod explain;
mod lease;
mod notify;
mod open;
mod pool;
mod position;
mod probe;
pub(super) mod sweep;
pub(super) mod watched;
mod write;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::config::{Migrate, PostgresConfig};
use super::failure::{Failure, Fallible};
use super::schema::Schema;
use super::session::{Mode, SessionSettings, leave_nothing};
use crate::driver::Pool;
use crate::follow::Subscriber;
use explain::explain;
use lease::{Lease, Source};
use notify::Notifier;
pub(super) use open::{SERVER_VERSION_MIN, Session, establish};
use pool::IdlePool;
use probe::Prober;
use sweep::Sweeper;
use watched::{Counters, Followed};
pub(crate) use write::{Write, begin_write};

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
    settings: SessionSettings,
    mode: Mode,
    prober: Prober,
    notifier: Notifier,
    sweeper: Sweeper,
    durability: Durability,
    migrate: Migrate,
    write: Write,
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
        Self::open_at(config, None, Schema::CURRENT).await
    }

    /// As `open`, on the caller's pool if one is given, as a program with this schema.
    pub(crate) async fn open_at(
        config: PostgresConfig,
        given: Option<PgPool>,
        schema: Schema,
    ) -> Result<Self> {
        // Not through the pool, which retries until its timeout and then reports only the timeout.
        let call_timeout = config.statement_timeout.saturating_add(GRACE);
        let open::Examined { durability, commit, settings, mode } =
            open::examine(&config, schema, call_timeout)
                .await
                .map_err(|failure| failure.into_error(OPEN).with_outcome(Outcome::NotApplied))?;
        let connect = settings.connect(&config.connect, mode);
        let source = given.map_or_else(
            || {
                let pool = IdlePool::new(connect.clone(), config.pool_size, config.acquire_timeout);
                Source::Own(Arc::new(pool))
            },
            Source::Foreign,
        );
        let prober = Prober::new(connect.clone());
        let notifier = Notifier::new(connect.clone(), mode);
        let migrate = config.migrate;
        let sweeper = Sweeper::new();
        let write = Write { format: schema.formats().newest, commit };
        let inner = Inner {
            source,
            connect,
            settings,
            mode,
            prober,
            notifier,
            sweeper,
            durability,
            migrate,
            write,
            call_timeout,
        };
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

    /// Returns what each write checks and sets.
    pub(crate) fn write(&self) -> Write {
        self.inner.write
    }

    /// Returns the options for connections outside of the pool.
    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        self.inner.connect.clone()
    }

    /// Returns how the sessions get their settings.
    pub(crate) fn mode(&self) -> Mode {
        self.inner.mode
    }

    /// Subscribes to the changes of a thread or a bucket, which are announced under the number.
    pub(crate) fn subscribe(&self, number: i64, followed: Followed) -> Subscriber {
        self.inner.notifier.subscribe(&self.inner, number, followed)
    }

    /// Notes the counters up to which a subscription has read.
    pub(crate) fn reached(&self, number: i64, followed: &Followed, counters: Counters) {
        self.inner.notifier.reached(number, followed, counters);
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
        F: for<'c> Fn(&'c mut PgConnection, Write, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        // If the connection is lost, the statement may have happened.
        let write = self.inner.write;
        let result = self.run(operation, context, |sql, context| job(sql, write, context), 0).await;
        if result.is_ok() {
            self.inner.sweeper.start(self);
        }
        result
    }

    /// As `statement`, for a statement whose repetition changes nothing: it also runs again after a lost
    /// connection.
    pub(crate) async fn repeatable<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, Write, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let write = self.inner.write;
        self.run(operation, context, |sql, context| job(sql, write, context), LOST_MAX).await
    }

    async fn lease(&self, operation: &'static str) -> Result<Lease> {
        self.inner.source.lease(operation, self.inner.call_timeout, &self.inner.prober).await
    }

    /// Runs a job of one statement. Runs it again if the server aborts it because of other transactions, and
    /// up to `lost` times if the connection is lost.
    async fn run<A, T, F>(&self, operation: &'static str, context: &A, job: F, mut lost: u32) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        if self.inner.mode == Mode::Pooled {
            // The driver sends a statement in two parts, which only a transaction keeps together.
            let begin = self.inner.settings.begin("READ COMMITTED", Mode::Pooled);
            return self.transaction_with(begin, operation, context, job).await;
        }
        let mut attempt = 1;
        loop {
            let mut lease = self.lease(operation).await?;
            let answer = within(self.inner.call_timeout, operation, job(&mut lease, context)).await;
            let mut result = answer.inspect_err(|_| lease.taint())?;
            if let Err(failure) = result {
                result = Err(explain(&mut lease, self.inner.write, failure).await);
            }
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
        self.transaction_in("READ COMMITTED", operation, context, job).await
    }

    /// As `transaction`, with an isolation level. The round trip that begins the transaction also checks the
    /// format.
    async fn transaction_in<A, T, F>(
        &self,
        isolation: &'static str,
        operation: &'static str,
        context: &A,
        job: F,
    ) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let Write { format, commit } = self.inner.write;
        let begin = format!(
            "{};
             SELECT larder.at_format({format}), set_config('synchronous_commit', '{commit}', true)",
            self.inner.settings.begin(isolation, self.inner.mode)
        );
        self.transaction_with(begin, operation, context, job).await
    }

    /// As `transaction`, with the statements that begin it.
    async fn transaction_with<A, T, F>(
        &self,
        begin: String,
        operation: &'static str,
        context: &A,
        job: F,
    ) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let mode = self.inner.mode;
        let (mut attempt, mut lost) = (1, LOST_MAX);
        loop {
            let mut lease = self.lease(operation).await?;
            let call = async {
                let begun = lease.begin_with(AssertSqlSafe(begin.as_str().to_owned())).await;
                let mut transaction = begun.map_err(|error| (Failure::from(error), Phase::Begin))?;
                let done = job(&mut transaction, context).await;
                let left = leave_nothing(&mut transaction, mode).await;
                match done.and_then(|value| left.map(|()| value).map_err(Failure::from)) {
                    Ok(value) => {
                        transaction.commit().await.map_err(|error| (Failure::from(error), Phase::Commit))?;
                        Ok(value)
                    }
                    Err(failure) => match transaction.rollback().await {
                        Ok(()) => Err((failure, Phase::Job)),
                        // The transaction ends with its connection, which is closed.
                        Err(error) => Err((Failure::from(error), Phase::Job)),
                    },
                }
            };
            let answer = within(self.inner.call_timeout, operation, call).await;
            let result = answer.inspect_err(|_| lease.taint())?;
            let (result, phase) = match result {
                Ok(value) => (Ok(value), Phase::Commit),
                Err((failure, phase)) => (Err(explain(&mut lease, self.inner.write, failure).await), phase),
            };
            match phase {
                // The check failed in an open transaction, which ends with its connection.
                Phase::Begin => lease.discard(&result),
                Phase::Job | Phase::Commit => lease.release(&result),
            }
            let committing = matches!(phase, Phase::Commit);
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
        let result = self.transaction_in("REPEATABLE READ, READ ONLY", operation, context, job).await;
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

/// The part of a transaction that failed.
enum Phase {
    Begin,
    Job,
    Commit,
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
