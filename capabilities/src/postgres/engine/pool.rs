//! The pool of idle connections.
//!
//! sqlx's pool pings a connection each time that it is returned, which costs every call a round trip and has
//! no time limit. So connections are not returned to it. A connection whose job ended without an error stays
//! in this pool. The next call uses it directly, or pings it first if it was idle for long. sqlx's pool opens
//! and counts the connections; this pool reports each closed one to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgPool};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::connect;
use crate::driver::Pool;

/// The idle time after which a connection is pinged before use: firewalls and servers end older ones
/// silently.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The idle time after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum lifetime of a connection, which frees the memory that its session has accumulated on the
/// server.
const LIFETIME_MAX: Duration = Duration::from_secs(1_800);
/// The time limit of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The idle connections, and the permits to use one.
pub(crate) struct IdlePool {
    pool: PgPool,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// True if the server did not reply to the last attempt to connect.
    unreachable: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The idle connections; the most recently returned one is last.
    idle: Vec<IdleConnection>,
    closed: bool,
}

struct IdleConnection {
    connection: PooledConnection,
    since: Instant,
}

/// A connection of the pool.
pub(crate) struct PooledConnection {
    pub(crate) inner: PoolConnection<sqlx::Postgres>,
    opened: Instant,
}

/// Closes a connection in the background, within a time that does not depend on the server. A future that was
/// polled in a runtime may be dropped outside it; then the socket is closed without a goodbye to the server.
pub(crate) fn close(mut connection: PoolConnection<sqlx::Postgres>) {
    if Handle::try_current().is_ok() {
        connection.close_on_drop();
    } else {
        drop(connection.detach());
    }
}

impl PooledConnection {
    pub(crate) fn close(self) {
        close(self.inner);
    }

    /// Returns the connection if the server replies to a ping. A dropped or failed ping closes it.
    async fn ping(self) -> Option<Self> {
        let mut pinged = CloseOnDrop(Some(self.inner));
        match tokio::time::timeout(PING_TIMEOUT, pinged.0.as_mut()?.ping()).await {
            Ok(Ok(())) => pinged.keep().map(|inner| Self { inner, opened: self.opened }),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// A connection that is closed on drop unless it is kept, because none is returned to sqlx's pool.
struct CloseOnDrop(Option<PoolConnection<sqlx::Postgres>>);

impl CloseOnDrop {
    fn keep(mut self) -> Option<PoolConnection<sqlx::Postgres>> {
        self.0.take()
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(close);
    }
}

impl IdlePool {
    /// Creates the pool. `pool` must have no other user.
    pub(crate) fn new(pool: PgPool) -> Self {
        let most = usize::try_from(pool.options().get_max_connections()).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            pool,
            permits: Arc::new(Semaphore::new(most)),
            state: Mutex::default(),
            unreachable: AtomicBool::new(false),
        }
    }

    /// Returns a connection, and the permit to release after it. The number of permits equals the maximum
    /// number of connections, so the holder of a permit finds an idle connection or capacity for a new one.
    pub(crate) async fn acquire(&self) -> Result<(PooledConnection, OwnedSemaphorePermit), sqlx::Error> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit)
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        // The connection with the shortest idle time, so that surplus ones reach the idle timeout.
        let newest = self.lock().idle.pop();
        if let Some(IdleConnection { connection, since }) = newest {
            if connection.opened.elapsed() >= LIFETIME_MAX {
                connection.close();
            } else if since.elapsed() < PING_AFTER {
                return Ok((connection, permit));
            } else if let Some(connection) = connection.ping().await {
                return Ok((connection, permit));
            } else {
                // The others were idle for longer, so they are most likely lost too.
                self.close_idle();
            }
        }
        let inner = self.open().await?;
        Ok((PooledConnection { inner, opened: Instant::now() }, permit))
    }

    /// Opens a connection through sqlx's pool.
    async fn open(&self) -> Result<PoolConnection<sqlx::Postgres>, sqlx::Error> {
        let (limit, pool) = (self.pool.options().get_acquire_timeout(), self.pool.clone());
        let open = move || {
            let acquired = pool.acquire();
            async { acquired.await.map(|connection| CloseOnDrop(Some(connection))) }
        };
        let opened = connect(limit, open).await.ok_or(sqlx::Error::PoolTimedOut).flatten();
        let unreachable = matches!(opened, Err(sqlx::Error::PoolTimedOut | sqlx::Error::Io(_)));
        self.unreachable.store(unreachable, Ordering::Relaxed);
        opened?.keep().ok_or(sqlx::Error::PoolTimedOut)
    }

    /// Returns a connection to the pool. The permit is released last, so that its next holder finds the
    /// connection.
    pub(crate) fn release(&self, connection: PooledConnection, permit: OwnedSemaphorePermit) {
        let expired = {
            let mut state = self.lock();
            let now = Instant::now();
            // The connections at the front were idle longest.
            let count = state.idle.iter().take_while(|idle| now - idle.since >= IDLE_TIMEOUT).count();
            let mut expired: Vec<PooledConnection> =
                state.idle.drain(..count).map(|idle| idle.connection).collect();
            if state.closed {
                expired.push(connection);
            } else {
                state.idle.push(IdleConnection { connection, since: now });
            }
            expired
        };
        // Outside the lock, since closing calls sqlx's pool.
        expired.into_iter().for_each(PooledConnection::close);
        drop(permit);
    }

    /// Closes the idle connections: if one was lost, the others are most likely lost too.
    pub(crate) fn close_idle(&self) {
        let idle = std::mem::take(&mut self.lock().idle);
        idle.into_iter().for_each(|idle| idle.connection.close());
    }

    /// Closes the pool and waits until the connections in use are released. Calls that wait for one fail.
    pub(crate) async fn close(&self) {
        self.permits.close();
        self.lock().closed = true;
        self.close_idle();
        self.pool.close().await;
    }

    /// Returns the number of connections, and of those in use.
    pub(crate) fn status(&self) -> Pool {
        let (max, free) = (self.pool.options().get_max_connections(), self.permits.available_permits());
        let in_use = max.saturating_sub(u32::try_from(free).unwrap_or(max));
        Pool { open: self.pool.size(), in_use: Some(in_use), max: Some(max), closed: self.pool.is_closed() }
    }

    /// Returns true if a call timed out because the server does not reply, and not because other calls use
    /// the whole pool. Connections that are being opened count as used, too.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
            || self.pool.size() < self.pool.options().get_max_connections()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can stop halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdlePool {
    fn drop(&mut self) {
        // Returning to sqlx's pool needs a runtime, which may have ended; a closed socket is enough for the
        // server.
        let idle = std::mem::take(&mut self.lock().idle);
        for idle in idle {
            drop(idle.connection.inner.detach());
        }
    }
}

#[cfg(test)]
mod tests;
