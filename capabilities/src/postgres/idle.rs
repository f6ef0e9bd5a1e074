//! Connections between two calls.
//!
//! sqlx's pool asks the server whether a connection still answers each time that one is brought back, which is a round
//! trip for every call. Here a connection that a job ended well is kept aside instead, and the next call takes it as it
//! is. The pool still makes connections and ends them: it gets back what was idle or alive for long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::PgPool;
use sqlx::pool::PoolConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a connection may lie idle and be used without a question: firewalls and servers end older ones silently.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a connection is used before the pool looks at it, which ends it at the age that it allows.
const ALIVE_MAX: Duration = Duration::from_secs(300);

/// The connections of a pool that are not in use, and the right to use one.
pub(crate) struct Idle {
    pool: PgPool,
    permits: Arc<Semaphore>,
    kept: Mutex<Kept>,
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
    /// When the pool gave it.
    taken: Instant,
}

impl Idle {
    /// Over a pool that nobody else uses.
    pub(crate) fn new(pool: PgPool) -> Self {
        let most = usize::try_from(pool.options().get_max_connections()).unwrap_or(Semaphore::MAX_PERMITS);
        Self { pool, permits: Arc::new(Semaphore::new(most)), kept: Mutex::default() }
    }

    /// A connection, and the permit that is given back after it. There are as many permits as the pool has connections,
    /// so whoever holds one finds a connection here or room for one in the pool.
    pub(crate) async fn take(&self) -> Result<(Held, OwnedSemaphorePermit), sqlx::Error> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit)
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)?;
        // The one that rested for the shortest time; those under it age until the pool gets them.
        let resting = self.lock().connections.pop();
        match resting {
            Some(Resting { held, since })
                if since.elapsed() < IDLE_MAX && held.taken.elapsed() < ALIVE_MAX =>
            {
                Ok((held, permit))
            }
            // What aged goes back to the pool, which asks the server about it.
            aged => {
                drop(aged);
                let connection = self.pool.acquire().await?;
                Ok((Held { connection, taken: Instant::now() }, permit))
            }
        }
    }

    /// Keeps a connection for the next call. The permit is given back only then, so its next holder finds it.
    pub(crate) fn keep(&self, held: Held, permit: OwnedSemaphorePermit) {
        let aged = {
            let mut kept = self.lock();
            let now = Instant::now();
            // Those at the bottom rested longest.
            let aged = kept.connections.iter().take_while(|resting| now - resting.since >= IDLE_MAX).count();
            let mut aged: Vec<Held> = kept.connections.drain(..aged).map(|resting| resting.held).collect();
            if kept.closed {
                aged.push(held);
            } else {
                kept.connections.push(Resting { held, since: now });
            }
            aged
        };
        // Outside of the lock, as the pool is told by it.
        drop(aged);
        drop(permit);
    }

    /// Gives what rests to the pool, which asks the server about each: where one connection is lost, the others most
    /// likely are, too.
    pub(crate) fn doubt(&self) {
        let doubted = std::mem::take(&mut self.lock().connections);
        drop(doubted);
    }

    /// Ends the connections once those in use are brought back. Calls that wait for one are told so.
    pub(crate) async fn close(&self) {
        self.permits.close();
        let connections = {
            let mut kept = self.lock();
            kept.closed = true;
            std::mem::take(&mut kept.connections)
        };
        drop(connections);
        self.pool.close().await;
    }

    /// Whether the pool could hold more connections than it does.
    pub(crate) fn has_room(&self) -> bool {
        self.pool.size() < self.pool.options().get_max_connections()
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
