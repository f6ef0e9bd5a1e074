//! The connections of one open database, and the way to have work done on them.
//!
//! A connection that a job does not bring back itself, because the job's future was dropped, is closed: whatever
//! transaction it was about to begin or stood in ends with it, and the pool never hands it out again. So the pool
//! need not ask the server anything before or after a call.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Row};

use super::config::{Migrate, PostgresConfig};
use super::failure::{Failure, Fallible};
use super::schema;
use super::wake::Wakes;

const OPEN: &str = "postgres.open";
/// The oldest server with all that the schema uses.
const SERVER_VERSION_MIN: i32 = 140_000;
/// How often a transaction is run that the server ended for the sake of others.
const ATTEMPTS_MAX: u32 = 10;
/// What the client allows beyond the server's own timeouts before it takes the server for gone.
const GRACE: Duration = Duration::from_secs(5);

/// A handle on the connections of one open database. They close when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    pool: PgPool,
    wakes: Wakes,
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
    /// Connects, brings the schema up to date and reads the server's settings.
    pub(crate) async fn open(config: PostgresConfig) -> Result<Self> {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let connect = config.connect.clone().disable_statement_logging().options([
            ("statement_timeout", ms(config.statement_timeout)),
            ("lock_timeout", ms(config.lock_timeout)),
            ("idle_in_transaction_session_timeout", ms(config.idle_in_transaction_timeout)),
        ]);
        // Not through the pool, which tries again and again and then only says that time is up.
        let probe = async {
            let mut connection = PgConnection::connect_with(&connect).await?;
            let durability = probe(&mut connection).await?;
            schema::migrate(&mut connection, config.migrate).await?;
            let _ = connection.close().await;
            Ok(durability)
        };
        let allowed = config.acquire_timeout.saturating_add(config.statement_timeout);
        let durability = within(allowed, OPEN, probe)
            .await?
            .map_err(|failure: Failure| failure.into_error(OPEN).with_outcome(Outcome::NotApplied))?;
        let pool = PgPoolOptions::new()
            .max_connections(config.pool_size)
            .acquire_timeout(config.acquire_timeout)
            .test_before_acquire(false)
            .connect_lazy_with(connect.clone());
        let call_timeout = config.statement_timeout.saturating_add(GRACE);
        let wakes = Wakes::new(connect);
        Ok(Self { inner: Arc::new(Inner { pool, wakes, durability, migrate: config.migrate, call_timeout }) })
    }

    /// What every store on this database declares.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.inner.durability).with(Capability::MultiProcess)
    }

    /// What to do about a schema that lacks something.
    pub(crate) fn migrate(&self) -> Migrate {
        self.inner.migrate
    }

    /// Where changes are announced.
    pub(crate) fn wakes(&self) -> &Wakes {
        &self.inner.wakes
    }

    /// Runs a job that only reads. `context` is what the job borrows from its caller.
    pub(crate) async fn read<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let result = self.statement(operation, context, job).await;
        result.map_err(|error| error.with_outcome(Outcome::NotApplied).with_idempotent(true))
    }

    /// Runs a job of one statement, which is its own transaction and so costs one round trip. It is run again where
    /// the server ended it for the sake of others.
    pub(crate) async fn statement<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>>,
    {
        let mut attempt = 1;
        loop {
            let mut lease = self.lease(operation).await?;
            let result = within(self.inner.call_timeout, operation, job(&mut lease, context)).await?;
            lease.bring_back(&result);
            match result {
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
        let mut attempt = 1;
        loop {
            let mut lease = self.lease(operation).await?;
            let call = async {
                let mut transaction = lease.begin().await.map_err(|error| (Failure::from(error), false))?;
                match job(&mut transaction, context).await {
                    Ok(value) => {
                        transaction.commit().await.map_err(|error| (Failure::from(error), true))?;
                        Ok(value)
                    }
                    Err(failure) => {
                        // Should this fail, the transaction ends with its connection.
                        let _ = transaction.rollback().await;
                        Err((failure, false))
                    }
                }
            };
            let result = within(self.inner.call_timeout, operation, call).await?;
            let (result, committing) = match result {
                Ok(value) => (Ok(value), false),
                Err((failure, committing)) => (Err(failure), committing),
            };
            lease.bring_back(&result);
            match result {
                Err(failure) if failure.is_serialization() && attempt < ATTEMPTS_MAX => pause(attempt).await,
                // Before the commit is sent nothing can have happened.
                Err(failure) if !committing => {
                    return Err(failure.into_error(operation).with_outcome(Outcome::NotApplied));
                }
                result => return result.map_err(|failure| failure.into_error(operation)),
            }
            attempt += 1;
        }
    }

    async fn lease(&self, operation: &'static str) -> Result<Lease> {
        match self.inner.pool.acquire().await {
            Ok(connection) => Ok(Lease { connection: Some(connection) }),
            // The pool gives up on an unreachable server with the same error as on a lack of connections.
            Err(sqlx::Error::PoolTimedOut)
                if self.inner.pool.size() < self.inner.pool.options().get_max_connections() =>
            {
                Err(Error::new(ErrorKind::Unavailable, operation, "the database cannot be reached")
                    .with_outcome(Outcome::NotApplied))
            }
            Err(error) => Err(Failure::from(error).into_error(operation).with_outcome(Outcome::NotApplied)),
        }
    }

    /// Closes the connections, for every clone.
    pub(crate) async fn close(self) {
        self.inner.wakes.stop();
        self.inner.pool.close().await;
    }
}

/// A connection on loan. Dropped in the middle of a job it is closed instead of going back to the pool.
struct Lease {
    connection: Option<PoolConnection<sqlx::Postgres>>,
}

impl Lease {
    /// Ends the loan. A failure that is not the server's own answer leaves the connection in an unknown state.
    fn bring_back<T>(mut self, result: &Fallible<T>) {
        let clean =
            matches!(result, Ok(_) | Err(Failure::Contract(_) | Failure::Database(sqlx::Error::Database(_))));
        if clean {
            // Its own drop brings it back.
            drop(self.connection.take());
        }
    }
}

impl Deref for Lease {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("only ending the loan takes the connection"),
        }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("only ending the loan takes the connection"),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.close_on_drop();
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
async fn within<T>(limit: Duration, operation: &'static str, answer: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(limit, answer)
        .await
        .map_err(|_| Error::new(ErrorKind::Timeout, operation, "the database did not answer in time"))
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
        return Err(Error::new(ErrorKind::Unsupported, OPEN, "the server is older than PostgreSQL 14")
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
