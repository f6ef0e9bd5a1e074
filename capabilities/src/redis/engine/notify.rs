//! Notifications of changes: one connection listens for all watches and subscriptions of an open database.
//!
//! Scripts announce a change on the entity's channel with `redis.pcall('PUBLISH', channel, '')`. So a user
//! without the right to publish costs latency, but no write fails. A notification only signals that it is
//! time to read the log. A lost notification also costs only latency: the looks of [`Watched`] find the
//! change, and one of them follows when the connection is lost or restored.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use redis::ProtocolVersion;
use redis::aio::PubSubSink;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Topology;
use super::connector::Connector;
use super::watched::{Counters, Followed, Watched};
use crate::follow::Subscriber;
use crate::redis::failure::{Failure, Fallible};

/// The pause of the listener before it connects again. Each attempt that fails doubles it.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(8);
/// The interval at which the listener pings its connection, which may be lost without a word, and
/// unsubscribes from unused channels.
const CHECK_EVERY: Duration = Duration::from_secs(1);

struct Shared {
    watched: Watched,
    /// Signals a new channel.
    added: Notify,
}

/// The subscribers, and the tasks that notify them. The tasks run from the first subscription until this
/// value is dropped.
pub(crate) struct Notifier {
    connector: Arc<Connector>,
    topology: Arc<Topology>,
    format: i64,
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Notifier {
    pub(crate) fn new(connector: Arc<Connector>, topology: Arc<Topology>, format: i64) -> Self {
        let shared = Arc::new(Shared { watched: Watched::default(), added: Notify::new() });
        Self { connector, topology, format, shared, tasks: Mutex::default() }
    }

    /// Subscribes to the changes that are announced on the channel. The caller must be inside the runtime.
    pub(crate) fn subscribe(&self, channel: String, followed: Followed) -> Subscriber {
        let subscriber = self.shared.watched.subscribe(channel, followed);
        self.shared.added.notify_one();
        let mut tasks = lock(&self.tasks);
        // A task ends with its runtime; the next subscriber's runtime takes over.
        if tasks.is_empty() || tasks.iter().any(JoinHandle::is_finished) {
            tasks.drain(..).for_each(|task| task.abort());
            let (topology, shared) = (Arc::clone(&self.topology), Arc::clone(&self.shared));
            tasks.push(tokio::spawn(look(topology, self.format, Arc::clone(&shared))));
            let (connector, topology) = (Arc::clone(&self.connector), Arc::clone(&self.topology));
            tasks.push(tokio::spawn(listen(connector, topology, shared)));
        }
        subscriber
    }

    /// Notes the counters up to which a subscription has read.
    pub(crate) fn reached(&self, channel: &str, counters: Counters) {
        self.shared.watched.reached(channel, counters);
    }

    pub(crate) fn stop(&self) {
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

/// Looks at what is followed, again and again. Subscriptions poll again when this task ends.
async fn look(topology: Arc<Topology>, format: i64, shared: Arc<Shared>) {
    let ending = Ending(shared);
    let is_cluster = matches!(*topology, Topology::Cluster(_));
    loop {
        ending.0.watched.wait_for_turn(is_cluster).await;
        ending.0.watched.look(&topology, format).await;
    }
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.watched.end();
    }
}

async fn listen(connector: Arc<Connector>, topology: Arc<Topology>, shared: Arc<Shared>) {
    let (mut attempt, mut pause) = (0, RECONNECT_PAUSE);
    loop {
        // Ends when the connection is lost; the looks find what happens until it is restored.
        let _ = listen_once(&connector, &topology, &shared, attempt).await;
        let was_alive = shared.watched.set_alive(false);
        attempt += 1;
        pause = if was_alive { RECONNECT_PAUSE } else { (2 * pause).min(RECONNECT_PAUSE_MAX) };
        tokio::time::sleep(pause).await;
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
    let address = match topology {
        Topology::Cluster(cluster) => cluster.known().into_iter().cycle().nth(attempt % 1_000),
        Topology::Single(node) => Some(node.address().clone()),
        // A replica passes on what its primary announces, so the listener needs not notice a demotion.
        Topology::Sentinel(sentinels) => sentinels.primary().ok().map(|node| node.address().clone()),
    };
    let Some(address) = address else { return Ok(()) };
    let client = connector.client(&address, ProtocolVersion::RESP2)?;
    let timeout = connector.config().connect_timeout;
    let connecting = tokio::time::timeout(timeout, Box::pin(client.get_async_pubsub())).await;
    let Ok(connected) = connecting else { return Ok(()) };
    let (mut sink, mut announced) = connected.map_err(Failure::Connect)?.split();
    let mut subscribed = HashSet::new();
    tokio::time::timeout(timeout, update_channels(&mut sink, shared, &mut subscribed))
        .await
        .map_err(|_| lost())??;
    shared.watched.set_alive(true);
    let mut check_at = Instant::now() + CHECK_EVERY;
    loop {
        tokio::time::timeout(timeout, update_channels(&mut sink, shared, &mut subscribed))
            .await
            .map_err(|_| lost())??;
        let added = std::pin::pin!(shared.added.notified());
        match tokio::time::timeout_at(check_at, select(announced.next(), added)).await {
            Ok(Either::Left((message, _))) => {
                shared.watched.notify(message.ok_or_else(lost)?.get_channel_name());
            }
            Ok(Either::Right(_)) => {}
            Err(_) => {
                check_at = Instant::now() + CHECK_EVERY;
                let alive = tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| lost())?.map_err(Failure::Sent)?;
            }
        }
    }
}

/// Subscribes to exactly the channels that have subscribers. Notifies subscribers of a channel that is added
/// to a connection, because changes may have come before. After a connection, a look does that for all.
async fn update_channels(
    sink: &mut PubSubSink,
    shared: &Shared,
    subscribed: &mut HashSet<String>,
) -> Fallible<()> {
    let wanted: HashSet<String> = shared.watched.channels().into_iter().collect();
    let gone: Vec<String> = subscribed.difference(&wanted).cloned().collect();
    let new: Vec<String> = wanted.difference(subscribed).cloned().collect();
    if !gone.is_empty() {
        sink.unsubscribe(&gone).await.map_err(Failure::Sent)?;
    }
    if !new.is_empty() {
        sink.subscribe(&new).await.map_err(Failure::Sent)?;
        if !subscribed.is_empty() {
            new.iter().for_each(|channel| shared.watched.notify(channel));
        }
    }
    *subscribed = wanted;
    Ok(())
}

fn lost() -> Failure {
    Failure::Sent(redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
}
