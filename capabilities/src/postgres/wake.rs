//! Waking up for changes: one connection listens for all subscriptions of an open database.
//!
//! A notification only says that it is time to read the log. Losing one costs latency: readers look by themselves
//! once in [`crate::follow::POLL`], and all of them whenever the connection is made anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::follow::Bell;

/// How long the listener waits before it tries again to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

type Readers = Arc<Mutex<HashMap<i64, watch::Sender<()>>>>;

/// The readers that wait, and the task that wakes them. It runs from the first reader on, until this is dropped.
pub(crate) struct Wakes {
    connect: PgConnectOptions,
    readers: Readers,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Wakes {
    pub(crate) fn new(connect: PgConnectOptions) -> Self {
        Self { connect, readers: Readers::default(), listener: Mutex::default() }
    }

    /// A bell that rings when `wake` is announced. Called inside the runtime.
    pub(crate) fn bell(&self, wake: i64) -> Bell {
        let mut readers = lock(&self.readers);
        readers.retain(|_, bell| bell.receiver_count() > 0);
        let rung = readers.entry(wake).or_insert_with(|| watch::channel(()).0).subscribe();
        drop(readers);
        let mut listener = lock(&self.listener);
        // A task ends with its runtime; the next reader's runtime takes over.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(listen(self.connect.clone(), Arc::clone(&self.readers))));
        }
        Bell::new(rung)
    }

    pub(crate) fn stop(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(connect: PgConnectOptions, readers: Readers) {
    loop {
        // Ends when the connection is lost; the readers look by themselves meanwhile.
        let _ = listen_once(&connect, &readers).await;
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn listen_once(connect: &PgConnectOptions, readers: &Readers) -> sqlx::Result<()> {
    // A pool of its own, so that its connection is closed and not handed to others with the lock still held.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(connect.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen("larder").await?;
    // Tells writers that somebody listens, and waits for those that looked before they could know.
    sqlx::raw_sql(
        "SELECT pg_advisory_lock_shared(1282565234, 2);
         SELECT pg_advisory_lock(1282565234, 4);
         SELECT pg_advisory_unlock(1282565234, 4)",
    )
    .execute(&mut listener)
    .await?;
    lock(readers).values().for_each(|bell| _ = bell.send(()));
    while let Some(notification) = listener.try_recv().await? {
        let Ok(wake) = notification.payload().parse::<i64>() else { continue };
        if let Some(bell) = lock(readers).get(&wake) {
            let _ = bell.send(());
        }
    }
    Ok(())
}
