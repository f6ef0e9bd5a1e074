//! Waking up for changes: one connection listens for all watches and subscriptions of an open place.
//!
//! Scripts announce a change on the entity's channel with `redis.pcall('PUBLISH', channel, '')`: a user without the
//! right to publish costs latency, never a write. An announcement only says that it is time to read the log. Losing
//! one costs latency too: readers look by themselves once in [`crate::follow::POLL`], and all of them whenever the connection is made
//! anew.

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

use super::config::Servers;
use super::engine::Topology;
use super::failure::{Failure, Fallible};
use super::link::Dial;
use crate::follow::Bell;

/// How long the listener waits before it tries again to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How often the listener makes sure that its connection lives and lets go of channels that nobody waits on.
const CHECK_EVERY: Duration = Duration::from_secs(15);

struct Shared {
    readers: Mutex<HashMap<String, watch::Sender<()>>>,
    /// Says that there is a channel to listen on.
    added: Notify,
}

/// The readers that wait, and the task that wakes them. It runs from the first reader on, until this is dropped.
pub(crate) struct Wakes {
    dial: Arc<Dial>,
    topology: Arc<Topology>,
    shared: Arc<Shared>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Wakes {
    pub(crate) fn new(dial: Arc<Dial>, topology: Arc<Topology>) -> Self {
        let shared = Arc::new(Shared { readers: Mutex::default(), added: Notify::new() });
        Self { dial, topology, shared, listener: Mutex::default() }
    }

    /// A bell that rings when a change is announced on the channel. Called inside the runtime.
    pub(crate) fn bell(&self, channel: String) -> Bell {
        let mut readers = lock(&self.shared.readers);
        let rung = readers.entry(channel).or_insert_with(|| watch::channel(()).0).subscribe();
        drop(readers);
        self.shared.added.notify_one();
        let mut listener = lock(&self.listener);
        // A task ends with its runtime; the next reader's runtime takes over.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            let listening =
                listen(Arc::clone(&self.dial), Arc::clone(&self.topology), Arc::clone(&self.shared));
            *listener = Some(tokio::spawn(listening));
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

async fn listen(dial: Arc<Dial>, topology: Arc<Topology>, shared: Arc<Shared>) {
    let mut turn = 0;
    loop {
        // Ends when the connection is lost; the readers look by themselves meanwhile.
        let _ = listen_once(&dial, &topology, &shared, turn).await;
        turn += 1;
        lock(&shared.readers).retain(|_, bell| bell.receiver_count() > 0);
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Listens until the connection is lost. Announcements reach every server of a cluster, so one connection to any of
/// them hears all; each turn takes another one.
async fn listen_once(dial: &Dial, topology: &Topology, shared: &Shared, turn: usize) -> Fallible<()> {
    let address = match (topology, &dial.config().servers) {
        (Topology::Cluster(cluster), _) => cluster.known().into_iter().cycle().nth(turn % 1_000),
        (Topology::Single(_), Servers::Single(address, _)) => Some(address.clone()),
        (Topology::Single(_), Servers::Cluster(_)) => None,
    };
    let Some(address) = address else { return Ok(()) };
    let client = dial.client(&address, ProtocolVersion::RESP2)?;
    let timeout = dial.config().connect_timeout;
    let connecting = tokio::time::timeout(timeout, Box::pin(client.get_async_pubsub())).await;
    let Ok(connected) = connecting else { return Ok(()) };
    let (mut sink, mut announced) = connected.map_err(Failure::Connect)?.split();
    let mut heard = HashSet::new();
    let mut check_at = Instant::now() + CHECK_EVERY;
    loop {
        tokio::time::timeout(timeout, follow_readers(&mut sink, shared, &mut heard))
            .await
            .map_err(|_| lost())??;
        let added = std::pin::pin!(shared.added.notified());
        match tokio::time::timeout_at(check_at, select(announced.next(), added)).await {
            Ok(Either::Left((message, _))) => ring(shared, &message.ok_or_else(lost)?),
            Ok(Either::Right(_)) => {}
            Err(_) => {
                check_at = Instant::now() + CHECK_EVERY;
                lock(&shared.readers).retain(|_, bell| bell.receiver_count() > 0);
                let alive = tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await;
                alive.map_err(|_| lost())?.map_err(Failure::Sent)?;
            }
        }
    }
}

/// Listens on the channels that readers wait on, and on no others. Who is new is rung, since changes may have come
/// before.
async fn follow_readers(sink: &mut PubSubSink, shared: &Shared, heard: &mut HashSet<String>) -> Fallible<()> {
    let wanted: HashSet<String> = lock(&shared.readers).keys().cloned().collect();
    let gone: Vec<String> = heard.difference(&wanted).cloned().collect();
    let new: Vec<String> = wanted.difference(heard).cloned().collect();
    if !gone.is_empty() {
        sink.unsubscribe(&gone).await.map_err(Failure::Sent)?;
    }
    if !new.is_empty() {
        sink.subscribe(&new).await.map_err(Failure::Sent)?;
        let readers = lock(&shared.readers);
        new.iter().filter_map(|channel| readers.get(channel)).for_each(|bell| _ = bell.send(()));
    }
    *heard = wanted;
    Ok(())
}

fn ring(shared: &Shared, message: &Msg) {
    if let Some(bell) = lock(&shared.readers).get(message.get_channel_name()) {
        let _ = bell.send(());
    }
}

fn lost() -> Failure {
    Failure::Sent(redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
}
