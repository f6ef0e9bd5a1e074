//! Notifications of changes: one connection listens for all subscriptions of an open database.
//!
//! A notification only signals that it is time to read the log. A lost notification costs latency: the looks
//! of [`Watched`] find the change, and one of them follows when the connection is restored.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::task::JoinHandle;

use super::watched::{Counters, Followed, Watched};
use super::{Engine, Inner};
use crate::follow::Subscriber;
use crate::postgres::session::Mode;

/// The pause of the listener before it connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// The subscribers, and the tasks that wake them. The tasks run from the first subscription until this value
/// is dropped.
pub(super) struct Notifier {
    connect: PgConnectOptions,
    mode: Mode,
    watched: Watched,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Notifier {
    pub(super) fn new(connect: PgConnectOptions, mode: Mode) -> Self {
        Self { connect, mode, watched: Watched::default(), tasks: Mutex::default() }
    }

    /// Subscribes to the changes of a thread or a bucket, which are announced under the number. The caller
    /// must be inside the runtime.
    pub(super) fn subscribe(&self, engine: &Arc<Inner>, number: i64, followed: Followed) -> Subscriber {
        let subscriber = self.watched.subscribe(number, followed);
        let mut tasks = lock(&self.tasks);
        // A task ends with its runtime; the next subscriber's runtime takes over.
        if tasks.is_empty() || tasks.iter().any(JoinHandle::is_finished) {
            tasks.drain(..).for_each(|task| task.abort());
            tasks.push(tokio::spawn(look(Arc::downgrade(engine), self.watched.clone())));
            // Behind a pooler, another client would get the connection that listens.
            if self.mode == Mode::Direct {
                tasks.push(tokio::spawn(listen(self.connect.clone(), self.watched.clone())));
            }
        }
        subscriber
    }

    /// Notes the counters up to which a subscription has read.
    pub(super) fn reached(&self, number: i64, followed: &Followed, counters: Counters) {
        self.watched.reached(number, followed, counters);
    }

    pub(super) fn stop(&self) {
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at what is followed, again and again, while the database is open. Subscriptions poll again when this
/// task ends.
async fn look(engine: Weak<Inner>, watched: Watched) {
    let ending = Ending(watched);
    loop {
        ending.0.wait_for_turn().await;
        let Some(inner) = engine.upgrade() else { return };
        ending.0.look(&Engine { inner }).await;
    }
}

struct Ending(Watched);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn listen(connect: PgConnectOptions, watched: Watched) {
    loop {
        // Ends when the connection is lost; the looks find what happens until it is restored.
        let _ = listen_once(&connect, &watched).await;
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn listen_once(connect: &PgConnectOptions, watched: &Watched) -> sqlx::Result<()> {
    // A separate pool, so that its connection is closed and never reused with the lock still held.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(connect.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen("larder").await?;
    // Signals to writers that a listener exists, and waits for the writers that checked earlier.
    sqlx::raw_sql(
        "SELECT pg_advisory_lock_shared(1282565234, 2);
         SELECT pg_advisory_lock(1282565234, 4);
         SELECT pg_advisory_unlock(1282565234, 4)",
    )
    .execute(&mut listener)
    .await?;
    watched.look_soon();
    while let Some(notification) = listener.try_recv().await? {
        if let Ok(number) = notification.payload().parse::<i64>() {
            watched.notify(number);
        }
    }
    Ok(())
}
