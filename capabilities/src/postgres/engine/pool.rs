//! The pool of connections.
//!
//! A connection whose job ended without an error stays in this pool. The next call uses it directly, or
//! pings it first if it was idle for long. sqlx's pool pings a connection each time that it is returned,
//! which costs every call a round trip and has no time limit. It also repeats a refused attempt to connect
//! until the time limit, while connections of other calls come back.
//!
//! A server may grant fewer connections than the pool may open: a role, a database or a pooler has a limit,
//! or other programs hold the rest. So a call whose new connection is refused withdraws its permit and
//! queues behind the others for a connection that comes back. From time to time a call tries to open one
//! more. The last permit is never withdrawn: its holder tries again until its time limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::Error;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout_at;

use super::GRACE;
use super::connect::connect;
use crate::driver::Pool;
use crate::postgres::failure::{Failure, is_refused_for_now, same_for_all};

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
/// The time between two attempts to open more connections than the server granted.
const GROWTH_PAUSE: Duration = Duration::from_secs(1);
/// The first and the longest pause before a refused attempt is repeated.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// The connections, and the permits to use one.
pub(crate) struct IdlePool {
    connect: PgConnectOptions,
    size: u32,
    acquire_timeout: Duration,
    permits: Arc<Semaphore>,
    /// The number of open connections, including connections that are being closed.
    open: watch::Sender<u32>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The idle connections; the most recently returned one is last.
    idle: Vec<IdleConnection>,
    /// The number of permits that are withdrawn because the server refused a connection.
    withdrawn: u32,
    /// When one of them is given back, for another attempt.
    grow_at: Option<Instant>,
    /// The last refusal, until an attempt succeeds.
    refusal: Option<Box<dyn Fn() -> Error + Send>>,
    closed: bool,
}

struct IdleConnection {
    connection: PooledConnection,
    since: Instant,
}

/// A connection of the pool. Dropping it closes the socket without a goodbye to the server.
pub(crate) struct PooledConnection {
    pub(crate) inner: PgConnection,
    opened: Instant,
    counted: Counted,
}

/// One of the open connections.
struct Counted(watch::Sender<u32>);

impl Counted {
    fn new(open: &watch::Sender<u32>) -> Self {
        open.send_modify(|count| *count += 1);
        Self(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The reason why a call got no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// The pool was closed.
    Closed,
    /// All connections stayed in use.
    Busy,
    /// The server does not reply to an attempt to connect.
    Silent,
    /// The server refused further connections, in these words.
    Refused(Error),
    /// The attempt to connect failed.
    Failed(sqlx::Error),
}

impl PooledConnection {
    /// Closes the connection in the background, within a time that does not depend on the server. A future
    /// that was polled in a runtime may be dropped outside it; then only the socket is closed.
    pub(crate) fn close(self) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let Self { inner, counted, .. } = self;
                let _ = tokio::time::timeout(GRACE, inner.close()).await;
                drop(counted);
            });
        }
    }

    /// Returns the connection if the server replies to a ping. A dropped or failed ping closes it.
    async fn ping(mut self) -> Option<Self> {
        match tokio::time::timeout(PING_TIMEOUT, self.inner.ping()).await {
            Ok(Ok(())) => Some(self),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// The result of an attempt to open a connection.
enum Opened {
    Connection(Box<PooledConnection>),
    /// The server refused it, and another call's connection will come back.
    Refused,
}

impl IdlePool {
    pub(crate) fn new(connect: PgConnectOptions, size: u32, acquire_timeout: Duration) -> Self {
        Self {
            connect,
            size,
            acquire_timeout,
            permits: Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(Semaphore::MAX_PERMITS))),
            open: watch::channel(0).0,
            state: Mutex::default(),
        }
    }

    /// Returns a connection, and the permit to release after it. The holder of a permit finds an idle
    /// connection or capacity for a new one.
    pub(crate) async fn acquire(&self) -> Result<(PooledConnection, OwnedSemaphorePermit), NoConnection> {
        let deadline = Instant::now() + self.acquire_timeout;
        loop {
            self.grow();
            let permit = Arc::clone(&self.permits).acquire_owned();
            let permit = match timeout_at(deadline.into(), permit).await {
                Ok(permit) => permit.map_err(|_| NoConnection::Closed)?,
                Err(_) => return Err(self.refusal().map_or(NoConnection::Busy, NoConnection::Refused)),
            };
            if let Some(connection) = self.take_idle().await {
                return Ok((connection, permit));
            }
            match self.open(deadline).await? {
                Opened::Connection(connection) => return Ok((*connection, permit)),
                Opened::Refused => permit.forget(),
            }
        }
    }

    /// Returns an idle connection that works. It is the one with the shortest idle time, so that surplus ones
    /// reach the idle timeout.
    async fn take_idle(&self) -> Option<PooledConnection> {
        let IdleConnection { connection, since } = self.lock().idle.pop()?;
        if connection.opened.elapsed() >= LIFETIME_MAX {
            connection.close();
            return None;
        }
        if since.elapsed() < PING_AFTER {
            return Some(connection);
        }
        let pinged = connection.ping().await;
        if pinged.is_none() {
            // The others were idle for longer, so they are most likely lost too.
            self.close_idle();
        }
        pinged
    }

    /// Opens a connection. The caller holds a permit.
    async fn open(&self, deadline: Instant) -> Result<Opened, NoConnection> {
        let mut pause = RETRY_PAUSES.0;
        loop {
            if self.lock().closed {
                return Err(NoConnection::Closed);
            }
            let (options, open) = (self.connect.clone(), self.open.clone());
            let attempt = move || {
                let (options, counted) = (options.clone(), Counted::new(&open));
                async move { PgConnection::connect_with(&options).await.map(|inner| (inner, counted)) }
            };
            match connect(self.acquire_timeout, attempt).await {
                None => return Err(NoConnection::Silent),
                Some(Ok((inner, counted))) => {
                    self.note_success();
                    let connection = PooledConnection { inner, opened: Instant::now(), counted };
                    return Ok(Opened::Connection(Box::new(connection)));
                }
                Some(Err(error)) if !is_refused_for_now(&error) => return Err(NoConnection::Failed(error)),
                Some(Err(error)) => {
                    if self.note_refusal(error) {
                        return Ok(Opened::Refused);
                    }
                }
            }
            if Instant::now() + pause >= deadline {
                return Err(self.refusal().map_or(NoConnection::Busy, NoConnection::Refused));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSES.1);
        }
    }

    /// Notes that the server granted a connection, so that the next call tries to open one more.
    fn note_success(&self) {
        let mut state = self.lock();
        state.refusal = None;
        if state.withdrawn > 0 {
            state.grow_at = Some(Instant::now());
        }
        drop(state);
        self.grow();
    }

    /// Notes a refusal. Returns true if the caller's permit is withdrawn: others are left.
    fn note_refusal(&self, error: sqlx::Error) -> bool {
        let mut state = self.lock();
        state.refusal = Some(Box::new(same_for_all(Failure::from(error).into_error("postgres.connect"))));
        let others = self.size - state.withdrawn > 1;
        if others {
            state.withdrawn += 1;
            state.grow_at = Some(Instant::now() + GROWTH_PAUSE);
        }
        others
    }

    fn refusal(&self) -> Option<Error> {
        self.lock().refusal.as_ref().map(|refusal| refusal())
    }

    /// Gives back a withdrawn permit if it is time for another attempt.
    fn grow(&self) {
        let mut state = self.lock();
        if state.withdrawn > 0 && state.grow_at.is_some_and(|at| Instant::now() >= at) {
            state.withdrawn -= 1;
            state.grow_at = Some(Instant::now() + GROWTH_PAUSE);
            self.permits.add_permits(1);
        }
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
        expired.into_iter().for_each(PooledConnection::close);
        drop(permit);
        self.grow();
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
        let _ = self.open.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Returns the number of connections, and of those in use.
    pub(crate) fn status(&self) -> Pool {
        let (open, state) = (*self.open.borrow(), self.lock());
        let free = u32::try_from(self.permits.available_permits()).unwrap_or(self.size);
        let in_use = self.size.saturating_sub(state.withdrawn).saturating_sub(free);
        Pool { open, in_use: Some(in_use), max: Some(self.size), closed: state.closed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can stop halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
