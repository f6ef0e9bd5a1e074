//! Connections between two calls.
//!
//! sqlx's pool asks the server whether a connection still answers each time that one is brought back, which is a round
//! trip for every call, and waits for the answer as long as it takes. Here a connection that a job ended well is kept
//! aside instead, and the next call takes it as it is, or asks first where it lay idle for long. The pool makes the
//! connections and counts them; it gets none back, but is told of each that ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Connection, PgPool};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::login::log_in;
use crate::driver::Pool;

/// How long a connection may lie idle and be used without a question: firewalls and servers end older ones silently.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a connection that nobody needs is kept.
const KEPT_MAX: Duration = Duration::from_secs(600);
/// How long a connection is used at most: what a session gathers on the server goes with it.
const ALIVE_MAX: Duration = Duration::from_secs(1_800);
/// How long the server may take to say that a connection works.
const PING_MAX: Duration = Duration::from_secs(2);

/// The connections of a pool that are not in use, and the right to use one.
pub(crate) struct Idle {
    pool: PgPool,
    permits: Arc<Semaphore>,
    kept: Mutex<Kept>,
    /// Whether nobody answered the last attempt to connect.
    unanswered: AtomicBool,
}

#[derive(Default)]
struct Kept {
    connections: Vec<Resting>,
    closed: bool,
}

struct Resting {
    held: Held,
    since: Instant,
}

/// A connection of the pool.
pub(crate) struct Held {
    pub(crate) connection: PoolConnection<sqlx::Postgres>,
    /// When the pool made it.
    made: Instant,
}

/// Closes a connection in the background, within a time that does not depend on the server. Outside of every runtime, as
/// where a future is dropped that was polled in one, there is no background: then it ends without a word to the server.
pub(crate) fn end(mut connection: PoolConnection<sqlx::Postgres>) {
    if Handle::try_current().is_ok() {
        connection.close_on_drop();
    } else {
        drop(connection.detach());
    }
}

impl Held {
    pub(crate) fn end(self) {
        end(self.connection);
    }

    /// Whether the server still answers. Given up halfway, the connection is closed.
    async fn answers(self) -> Option<Self> {
        let mut asked = Asked(Some(self));
        let connection = &mut asked.0.as_mut()?.connection;
        match tokio::time::timeout(PING_MAX, connection.ping()).await {
            Ok(Ok(())) => asked.0.take(),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// A connection with a question on its way.
struct Asked(Option<Held>);

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.end();
        }
    }
}

/// A connection that nobody has yet. Where nobody comes, it is closed, as the pool gets none back.
struct Made(Option<PoolConnection<sqlx::Postgres>>);

impl Made {
    fn taken(mut self) -> Option<PoolConnection<sqlx::Postgres>> {
        self.0.take()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(end);
    }
}

impl Idle {
    /// Over a pool that nobody else uses.
    pub(crate) fn new(pool: PgPool) -> Self {
        let most = usize::try_from(pool.options().get_max_connections()).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            pool,
            permits: Arc::new(Semaphore::new(most)),
            kept: Mutex::default(),
            unanswered: AtomicBool::new(false),
        }
    }

    /// A connection, and the permit that is given back after it. There are as many permits as the pool has connections,
    /// so whoever holds one finds a connection here or room for one in the pool.
    pub(crate) async fn take(&self) -> Result<(Held, OwnedSemaphorePermit), sqlx::Error> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit)
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        // The one that rested for the shortest time; those under it age.
        let resting = self.lock().connections.pop();
        if let Some(Resting { held, since }) = resting {
            if held.made.elapsed() >= ALIVE_MAX {
                held.end();
            } else if since.elapsed() < IDLE_MAX {
                return Ok((held, permit));
            } else if let Some(held) = held.answers().await {
                return Ok((held, permit));
            } else {
                // It is the youngest, so the others most likely are lost, too.
                self.doubt();
            }
        }
        let connection = self.connect().await?;
        Ok((Held { connection, made: Instant::now() }, permit))
    }

    /// A new connection of the pool's.
    async fn connect(&self) -> Result<PoolConnection<sqlx::Postgres>, sqlx::Error> {
        let (limit, pool) = (self.pool.options().get_acquire_timeout(), self.pool.clone());
        let connect = move || {
            let acquired = pool.acquire();
            async { acquired.await.map(|connection| Made(Some(connection))) }
        };
        let made = log_in(limit, connect).await.ok_or(sqlx::Error::PoolTimedOut).flatten();
        let unanswered = matches!(made, Err(sqlx::Error::PoolTimedOut | sqlx::Error::Io(_)));
        self.unanswered.store(unanswered, Ordering::Relaxed);
        made?.taken().ok_or(sqlx::Error::PoolTimedOut)
    }

    /// Keeps a connection for the next call. The permit is given back only then, so its next holder finds it.
    pub(crate) fn keep(&self, held: Held, permit: OwnedSemaphorePermit) {
        let aged = {
            let mut kept = self.lock();
            let now = Instant::now();
            // Those at the bottom rested longest.
            let aged = kept.connections.iter().take_while(|resting| now - resting.since >= KEPT_MAX).count();
            let mut aged: Vec<Held> = kept.connections.drain(..aged).map(|resting| resting.held).collect();
            if kept.closed {
                aged.push(held);
            } else {
                kept.connections.push(Resting { held, since: now });
            }
            aged
        };
        // Outside of the lock, as the pool is told by it.
        aged.into_iter().for_each(Held::end);
        drop(permit);
    }

    /// Closes what rests: where one connection is lost, the others most likely are, too.
    pub(crate) fn doubt(&self) {
        let doubted = std::mem::take(&mut self.lock().connections);
        doubted.into_iter().for_each(|resting| resting.held.end());
    }

    /// Ends the connections once those in use are brought back. Calls that wait for one are told so.
    pub(crate) async fn close(&self) {
        self.permits.close();
        self.lock().closed = true;
        self.doubt();
        self.pool.close().await;
    }

    /// How many connections there are, and how many of them are in use.
    pub(crate) fn state(&self) -> Pool {
        let (max, free) = (self.pool.options().get_max_connections(), self.permits.available_permits());
        let in_use = max.saturating_sub(u32::try_from(free).unwrap_or(max));
        Pool { open: self.pool.size(), in_use: Some(in_use), max: Some(max), closed: self.pool.is_closed() }
    }

    /// Whether a call that was given no connection in time was given none because nobody answers, not because others use
    /// all that the pool may have: those that try to connect hold a place in it, too.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
            || self.pool.size() < self.pool.options().get_max_connections()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing that holds it can stop halfway.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // Going back to the pool takes a runtime, which may be gone by now; a closed socket is enough for the server.
        let connections = std::mem::take(&mut self.lock().connections);
        for resting in connections {
            drop(resting.held.connection.detach());
        }
    }
}

#[cfg(test)]
mod tests;
