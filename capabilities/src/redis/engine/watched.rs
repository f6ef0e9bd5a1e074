//! The threads and buckets that subscriptions of an open server follow, and the look at all of them.
//!
//! A subscription waits for a notification, and makes no request while it waits. A look reads the counters of
//! everything that is followed, in one request to each server, and wakes the subscriptions whose counters
//! changed. While the channel of notifications is lost, a look is due once a second. While it is alive, looks
//! are rare: they renew the marks of threads, and find the changes of writers who may not publish. In a
//! cluster the servers pass notifications on without a guarantee, so there a look is due once a second too.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_kernel::ErrorKind;
use redis::Value;
use tokio::sync::{Notify, watch};

use super::Topology;
use super::cluster::slot;
use super::node::NodeConnections;
use crate::follow::{LEASE, Looks, OPERATION, POLL, Subscriber};
use crate::redis::config::Address;
use crate::redis::decode;
use crate::redis::failure::{Failure, Fallible};
use crate::redis::script::{Call, Script, millis};

/// The time between two looks while the channel of notifications of a single server is alive.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The maximum number of keys that one script reads. The server does nothing else while it runs.
const KEYS_MAX: usize = 500;

static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("look.lua")));

/// A followed thread or bucket: the key of its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Followed {
    /// A thread, by its head.
    Thread(Bytes),
    /// A bucket, by its meta.
    Bucket(Bytes),
}

/// The counters that `look.lua` returns.
pub(crate) type Counters = (i64, i64);

struct Entry {
    sender: watch::Sender<()>,
    followed: Followed,
    /// The counters at the last look, or before the first look those up to which a subscription has read.
    seen: Option<Counters>,
    looked: bool,
    /// When the mark of a thread is renewed next.
    due: Instant,
}

/// The threads and buckets that are followed, by the channel of their notifications.
#[derive(Default)]
pub(super) struct Watched {
    entries: Mutex<HashMap<String, Entry>>,
    looks: Looks,
    soon: Notify,
    /// True while the channel of notifications is connected.
    alive: AtomicBool,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self, channel: String, followed: Followed) -> Subscriber {
        let mut entries = self.lock();
        let entry = entries.entry(channel).or_insert_with(|| Entry {
            sender: watch::channel(()).0,
            followed,
            seen: None,
            looked: false,
            due: Instant::now() + LEASE / 2,
        });
        Subscriber::new(entry.sender.subscribe()).with_looks(self.looks.clone())
    }

    /// Returns the channels that have subscribers, and forgets the others.
    pub(super) fn channels(&self) -> Vec<String> {
        let mut entries = self.lock();
        entries.retain(|_, entry| entry.sender.receiver_count() > 0);
        entries.keys().cloned().collect()
    }

    pub(super) fn notify(&self, channel: &str) {
        if let Some(entry) = self.lock().get(channel) {
            let _ = entry.sender.send(());
        }
    }

    fn notify_all(&self) {
        self.lock().values().for_each(|entry| _ = entry.sender.send(()));
    }

    /// Notes the counters up to which a subscription has read, so that the first look wakes only the
    /// subscriptions that missed a change.
    pub(super) fn reached(&self, channel: &str, counters: Counters) {
        if let Some(entry) = self.lock().get_mut(channel).filter(|entry| !entry.looked) {
            entry.seen = Some(entry.seen.map_or(counters, |seen| seen.min(counters)));
        }
    }

    /// Notes whether notifications arrive, and returns whether they did before. A change of that makes a look
    /// due: some may be lost.
    pub(super) fn set_alive(&self, alive: bool) -> bool {
        let before = self.alive.swap(alive, Ordering::AcqRel);
        if before != alive {
            self.soon.notify_one();
        }
        before
    }

    /// Notes that no look follows.
    pub(super) fn end(&self) {
        self.looks.end();
    }

    /// Waits until the next look is due.
    pub(super) async fn wait_for_turn(&self, is_cluster: bool) {
        let alive = self.alive.load(Ordering::Acquire) && !is_cluster;
        let interval = if alive { ALIVE_INTERVAL } else { POLL };
        let _ = tokio::time::timeout(interval, self.soon.notified()).await;
    }

    /// Looks at everything that is followed.
    pub(super) async fn look(&self, topology: &Topology, format: i64) {
        self.looks.mark();
        match self.groups(topology) {
            Ok(groups) => {
                let looks = groups.into_values().map(|(node, parts)| self.look_at(node, parts, format));
                for failure in futures_util::future::join_all(looks).await.into_iter().flatten() {
                    self.failed(topology, failure).await;
                }
            }
            Err(failure) => self.failed(topology, failure).await,
        }
        self.looks.mark();
    }

    /// Reacts to a look that failed.
    async fn failed(&self, topology: &Topology, failure: Failure) {
        topology.search().await;
        let kind = failure.into_error(OPERATION).kind();
        // Nothing is known of a slow server, and the next look may succeed. Otherwise each subscription
        // reads, and reports the failure.
        if !matches!(kind, ErrorKind::Timeout | ErrorKind::ResourceExhausted) {
            self.notify_all();
        }
    }

    /// Returns what is followed, by server, in parts that one script can read.
    fn groups(&self, topology: &Topology) -> Fallible<Groups> {
        let mut by_slot: BTreeMap<u16, Vec<Looked>> = BTreeMap::new();
        let mut entries = self.lock();
        entries.retain(|_, entry| entry.sender.receiver_count() > 0);
        for (channel, entry) in &mut *entries {
            let (kind, key) = match &entry.followed {
                Followed::Bucket(key) => ('b', key),
                Followed::Thread(key) if entry.due <= Instant::now() => {
                    entry.due = Instant::now() + LEASE / 2;
                    ('r', key)
                }
                Followed::Thread(key) => ('t', key),
            };
            let slot = if matches!(topology, Topology::Cluster(_)) { slot(key) } else { 0 };
            by_slot.entry(slot).or_default().push((channel.clone(), kind, key.clone()));
        }
        drop(entries);
        let mut groups = Groups::new();
        for looked in by_slot.into_values() {
            let Some((_, _, key)) = looked.first() else { continue };
            let node = topology.holder(key)?;
            let (_, parts) = groups.entry(node.address().clone()).or_insert_with(|| (node, Vec::new()));
            parts.extend(looked.chunks(KEYS_MAX).map(<[_]>::to_vec));
        }
        Ok(groups)
    }

    /// Looks at what one server holds, and returns the failure.
    async fn look_at(
        &self,
        node: Arc<NodeConnections>,
        parts: Vec<Vec<Looked>>,
        format: i64,
    ) -> Option<Failure> {
        let script = LOOK.at(format);
        let calls = parts.iter().map(|part| {
            let kinds: String = part.iter().map(|(_, kind, _)| kind).collect();
            let call = part.iter().fold(Call::new(), |call, (.., key)| call.key(key.clone()));
            script.by_hash(&call.arg(kinds).number(millis(LEASE)))
        });
        // The server may have forgotten the script.
        let commands = std::iter::once(script.load()).chain(calls).collect();
        let replies = match node.send_all(commands).await {
            Ok(replies) => replies,
            Err(failure) => return Some(failure),
        };
        let mut failed = None;
        for (part, reply) in parts.iter().zip(replies.into_iter().skip(1)) {
            match counters(reply) {
                Ok(found) => self.compare(part, &found),
                Err(failure) => failed = Some(failure),
            }
        }
        failed
    }

    /// Wakes the subscriptions whose counters are not those of the last look.
    fn compare(&self, part: &[Looked], found: &[Counters]) {
        let mut entries = self.lock();
        for ((channel, ..), found) in part.iter().zip(found) {
            let Some(entry) = entries.get_mut(channel) else { continue };
            entry.looked = true;
            if entry.seen.replace(*found) != Some(*found) {
                let _ = entry.sender.send(());
            }
        }
    }
}

/// A channel, the letter for the script, and the key.
type Looked = (String, char, Bytes);
/// The servers by address, each with the parts to look at.
type Groups = BTreeMap<Address, (Arc<NodeConnections>, Vec<Vec<Looked>>)>;

fn counters(reply: Value) -> Fallible<Vec<Counters>> {
    if let Value::ServerError(error) = reply {
        return Err(Failure::Sent(error.into()));
    }
    let mut found = Vec::new();
    for pair in decode::array(reply)? {
        let [first, second] = decode::tuple(pair)?;
        found.push((decode::integer(first)?, decode::integer(second)?));
    }
    Ok(found)
}
