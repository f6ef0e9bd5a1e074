//! Leases: the use of one connection by one job.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{Outcome, Result};
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::pool::{IdlePool, NoConnection, PooledConnection};
use super::probe::{Prober, unreachable_server};
use super::within;
use crate::driver::Pool;
use crate::postgres::failure::{Failure, Fallible};

/// The source of connections.
pub(super) enum Source {
    /// The engine's pool.
    Own(Arc<IdlePool>),
    /// The caller's pool. Its connections may have an open transaction, and each must return after a call.
    Foreign(PgPool),
}

impl Source {
    /// Returns a connection for one job.
    pub(super) async fn lease(
        &self,
        operation: &'static str,
        call_timeout: Duration,
        prober: &Prober,
    ) -> Result<Lease> {
        let refused = |error| Failure::from(error).into_error(operation).with_outcome(Outcome::NotApplied);
        match self {
            Self::Own(pool) => match pool.acquire().await {
                Ok((connection, permit)) => {
                    Ok(Lease { leased: Some(Leased::Own(Arc::clone(pool), connection, permit)) })
                }
                Err(NoConnection::Closed) => Err(refused(sqlx::Error::PoolClosed)),
                Err(NoConnection::Busy) => {
                    Err(prober.judge(operation, refused(sqlx::Error::PoolTimedOut)).await)
                }
                Err(NoConnection::Silent) => Err(unreachable_server(operation)),
                Err(NoConnection::Refused(error)) => {
                    Err(error.in_operation(operation).with_outcome(Outcome::NotApplied))
                }
                Err(NoConnection::Failed(error)) => Err(refused(error)),
            },
            Self::Foreign(pool) => {
                let leased = match pool.acquire().await {
                    Ok(leased) => leased,
                    Err(error @ sqlx::Error::PoolTimedOut) => {
                        return Err(prober.judge(operation, refused(error)).await);
                    }
                    Err(error) => return Err(refused(error)),
                };
                let mut lease = Lease { leased: Some(Leased::Foreign(leased)) };
                // Ends a transaction that was left open. The `BEGIN` avoids a warning if none is open.
                let ended = sqlx::raw_sql("BEGIN; ROLLBACK").execute(&mut *lease);
                within(call_timeout, operation, ended).await?.map_err(refused)?;
                Ok(lease)
            }
        }
    }

    /// Returns the number of connections, and of those in use.
    pub(super) fn status(&self) -> Pool {
        match self {
            Self::Own(pool) => pool.status(),
            Self::Foreign(pool) => {
                let open = pool.size();
                let idle = u32::try_from(pool.num_idle()).unwrap_or(open);
                let max = Some(pool.options().get_max_connections());
                Pool { open, in_use: Some(open.saturating_sub(idle)), max, closed: pool.is_closed() }
            }
        }
    }

    /// Closes the pool. A pool of the caller stays open.
    pub(super) async fn close(&self) {
        if let Self::Own(pool) = self {
            pool.close().await;
        }
    }
}

/// A connection that one job uses. If it is dropped during the job, it is closed and not returned to the
/// pool.
pub(super) struct Lease {
    leased: Option<Leased>,
}

enum Leased {
    Own(Arc<IdlePool>, PooledConnection, OwnedSemaphorePermit),
    Foreign(PoolConnection<sqlx::Postgres>),
}

impl Lease {
    /// Closes the idle connections: if one was lost or got no reply, the others are most likely lost too.
    pub(super) fn taint(&self) {
        if let Some(Leased::Own(pool, ..)) = &self.leased {
            pool.close_idle();
        }
    }

    /// Ends the lease and closes the connection.
    pub(super) fn discard<T>(self, result: &Fallible<T>) {
        if result.as_ref().is_err_and(Failure::is_lost_connection) {
            self.taint();
        }
    }

    /// Ends the lease. A failure other than an error of the server leaves the connection in an unknown state,
    /// so it is closed.
    pub(super) fn release<T>(mut self, result: &Fallible<T>) {
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
                // Its drop returns it.
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
            Some(Leased::Foreign(connection)) => close(connection),
            None => {}
        }
    }
}

/// Closes a connection of the caller's pool in the background. A future that was polled in a runtime may be
/// dropped outside it; then the socket is closed without a goodbye to the server.
fn close(mut connection: PoolConnection<sqlx::Postgres>) {
    if Handle::try_current().is_ok() {
        connection.close_on_drop();
    } else {
        drop(connection.detach());
    }
}
