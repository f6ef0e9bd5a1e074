//! Notifications of changes: one connection listens for all subscriptions of an open database.
//!
//! A notification only signals that it is time to read the log. A lost notification costs latency: each
//! subscriber also reads once in [`crate::follow::POLL`], and all subscribers read when the connection is
//! restored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::follow::Subscriber;

/// The pause of the listener before it connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

type Subscribers = Arc<Mutex<HashMap<i64, watch::Sender<()>>>>;

/// The subscribers, and the task that notifies them. The task runs from the first subscription until this
/// value is dropped.
pub(crate) struct Notifier {
    connect: PgConnectOptions,
    /// The subscribers by the number of their thread or bucket.
    subscribers: Subscribers,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier {
    pub(crate) fn new(connect: PgConnectOptions) -> Self {
        Self { connect, subscribers: Subscribers::default(), listener: Mutex::default() }
    }

    /// Subscribes to the changes that are announced under the number. The caller must be inside the runtime.
    pub(crate) fn subscribe(&self, number: i64) -> Subscriber {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|_, sender| sender.receiver_count() > 0);
        let notified = subscribers.entry(number).or_insert_with(|| watch::channel(()).0).subscribe();
        drop(subscribers);
        let mut listener = lock(&self.listener);
        // A task ends with its runtime; the next subscriber's runtime takes over.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(listen(self.connect.clone(), Arc::clone(&self.subscribers))));
        }
        Subscriber::new(notified)
    }

    pub(crate) fn stop(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
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

async fn listen(connect: PgConnectOptions, subscribers: Subscribers) {
    loop {
        // Ends when the connection is lost; subscribers poll until it is restored.
        let _ = listen_once(&connect, &subscribers).await;
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn listen_once(connect: &PgConnectOptions, subscribers: &Subscribers) -> sqlx::Result<()> {
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
    lock(subscribers).values().for_each(|sender| _ = sender.send(()));
    while let Some(notification) = listener.try_recv().await? {
        let Ok(number) = notification.payload().parse::<i64>() else { continue };
        if let Some(sender) = lock(subscribers).get(&number) {
            let _ = sender.send(());
        }
    }
    Ok(())
}
