//! Notifications of changes: one connection listens for all watches and subscriptions of an open database.
//!
//! Scripts announce a change on the entity's channel with `redis.pcall('PUBLISH', channel, '')`. So a user
//! without the right to publish costs latency, but no write fails. A notification only signals that it is
//! time to read the log. A lost notification also costs only latency: each subscriber also reads once in
//! [`crate::follow::POLL`], and all subscribers read when the connection is restored.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use redis::aio::PubSubSink;
use redis::{Msg, ProtocolVersion};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Topology;
use super::connector::Connector;
use crate::follow::Subscriber;
use crate::redis::config::Servers;
use crate::redis::failure::{Failure, Fallible};

/// The pause of the listener before it connects again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// The interval at which the listener pings its connection and unsubscribes from unused channels.
const CHECK_EVERY: Duration = Duration::from_secs(15);

struct Shared {
    /// The subscribers by channel.
    subscribers: Mutex<HashMap<String, watch::Sender<()>>>,
    /// Signals a new channel.
    added: Notify,
}

/// The subscribers, and the task that notifies them. The task runs from the first subscription until this
/// value is dropped.
pub(crate) struct Notifier {
    connector: Arc<Connector>,
    topology: Arc<Topology>,
    shared: Arc<Shared>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier {
    pub(crate) fn new(connector: Arc<Connector>, topology: Arc<Topology>) -> Self {
        let shared = Arc::new(Shared { subscribers: Mutex::default(), added: Notify::new() });
        Self { connector, topology, shared, listener: Mutex::default() }
    }

    /// Subscribes to the changes that are announced on the channel. The caller must be inside the runtime.
    pub(crate) fn subscribe(&self, channel: String) -> Subscriber {
        let mut subscribers = lock(&self.shared.subscribers);
        let notified = subscribers.entry(channel).or_insert_with(|| watch::channel(()).0).subscribe();
        drop(subscribers);
        self.shared.added.notify_one();
        let mut listener = lock(&self.listener);
        // A task ends with its runtime; the next subscriber's runtime takes over.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            let listening =
                listen(Arc::clone(&self.connector), Arc::clone(&self.topology), Arc::clone(&self.shared));
            *listener = Some(tokio::spawn(listening));
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

async fn listen(connector: Arc<Connector>, topology: Arc<Topology>, shared: Arc<Shared>) {
    let mut attempt = 0;
    loop {
        // Ends when the connection is lost; subscribers poll until it is restored.
        let _ = listen_once(&connector, &topology, &shared, attempt).await;
        attempt += 1;
        lock(&shared.subscribers).retain(|_, sender| sender.receiver_count() > 0);
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Listens until the connection is lost. Notifications reach every node of a cluster, so one connection to
/// any node receives all of them. Each attempt uses the next node.
async fn listen_once(
    connector: &Connector,
    topology: &Topology,
    shared: &Shared,
    attempt: usize,
) -> Fallible<()> {
    let address = match (topology, &connector.config().servers) {
        (Topology::Cluster(cluster), _) => cluster.known().into_iter().cycle().nth(attempt % 1_000),
        (Topology::Single(_), Servers::Single(address, _)) => Some(address.clone()),
        (Topology::Single(_), Servers::Cluster(_)) => None,
    };
    let Some(address) = address else { return Ok(()) };
    let client = connector.client(&address, ProtocolVersion::RESP2)?;
    let timeout = connector.config().connect_timeout;
    let connecting = tokio::time::timeout(timeout, Box::pin(client.get_async_pubsub())).await;
    let Ok(connected) = connecting else { return Ok(()) };
    let (mut sink, mut announced) = connected.map_err(Failure::Connect)?.split();
    let mut subscribed = HashSet::new();
    let mut check_at = Instant::now() + CHECK_EVERY;
    loop {
        tokio::time::timeout(timeout, update_channels(&mut sink, shared, &mut subscribed))
            .await
            .map_err(|_| lost())??;
        let added = std::pin::pin!(shared.added.notified());
        match tokio::time::timeout_at(check_at, select(announced.next(), added)).await {
            Ok(Either::Left((message, _))) => notify(shared, &message.ok_or_else(lost)?),
            Ok(Either::Right(_)) => {}
            Err(_) => {
                check_at = Instant::now() + CHECK_EVERY;
                lock(&shared.subscribers).retain(|_, sender| sender.receiver_count() > 0);
                let alive = tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| lost())?.map_err(Failure::Sent)?;
            }
        }
    }
}

/// Subscribes to exactly the channels that have subscribers. Notifies new subscribers, because changes may
/// have come before.
async fn update_channels(
    sink: &mut PubSubSink,
    shared: &Shared,
    subscribed: &mut HashSet<String>,
) -> Fallible<()> {
    let wanted: HashSet<String> = lock(&shared.subscribers).keys().cloned().collect();
    let gone: Vec<String> = subscribed.difference(&wanted).cloned().collect();
    let new: Vec<String> = wanted.difference(subscribed).cloned().collect();
    if !gone.is_empty() {
        sink.unsubscribe(&gone).await.map_err(Failure::Sent)?;
    }
    if !new.is_empty() {
        sink.subscribe(&new).await.map_err(Failure::Sent)?;
        let subscribers = lock(&shared.subscribers);
        new.iter().filter_map(|channel| subscribers.get(channel)).for_each(|sender| _ = sender.send(()));
    }
    *subscribed = wanted;
    Ok(())
}

fn notify(shared: &Shared, message: &Msg) {
    if let Some(sender) = lock(&shared.subscribers).get(message.get_channel_name()) {
        let _ = sender.send(());
    }
}

fn lost() -> Failure {
    Failure::Sent(redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
}
