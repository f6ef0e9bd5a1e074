//! The nodes of a cluster, and the lookup of the node that holds a slot.

mod slots;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use larder_kernel::{Durability, Error, ErrorKind, Outcome};
use redis::Cmd;

use super::connector::Connector;
use super::node::NodeConnections;
use crate::redis::config::Address;
use crate::redis::failure::{Failure, Fallible};
pub(crate) use slots::{SlotMap, parse_slots, slot};

const OPERATION: &str = "redis.open";
/// The time that a node has to return the slots before the next node is queried as well.
const NEXT_AFTER: Duration = Duration::from_millis(100);

/// The known nodes of a cluster.
pub(crate) struct Cluster {
    connector: Arc<Connector>,
    seeds: Vec<Address>,
    nodes: Mutex<HashMap<Address, Arc<NodeConnections>>>,
    slots: Mutex<Arc<SlotMap>>,
    /// Serializes readings, so that many calls that were sent to the wrong node read the slots once.
    reading: tokio::sync::Mutex<()>,
    readings: AtomicU64,
    /// The number of readings without a reply from any node.
    failures: AtomicU64,
}

impl Cluster {
    pub(crate) fn new(connector: Arc<Connector>, seeds: Vec<Address>) -> Self {
        Self {
            connector,
            seeds,
            nodes: Mutex::default(),
            slots: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            readings: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// Returns the node that holds the slot.
    pub(crate) fn holder(&self, slot: u16) -> Fallible<Arc<NodeConnections>> {
        let slots = Arc::clone(&lock(&self.slots));
        let address = slots.holder(slot).ok_or_else(not_ready)?;
        Ok(self.node(address))
    }

    /// Returns the nodes that hold slots.
    pub(crate) fn holders(&self) -> Fallible<Vec<Arc<NodeConnections>>> {
        let slots = Arc::clone(&lock(&self.slots));
        let addresses: std::collections::BTreeSet<&Address> =
            slots.ranges.iter().map(|(.., address)| address).collect();
        if addresses.is_empty() {
            return Err(not_ready().into());
        }
        Ok(addresses.into_iter().map(|address| self.node(address)).collect())
    }

    /// Returns the node that a redirection names.
    pub(crate) fn named(&self, address: &str) -> Fallible<Arc<NodeConnections>> {
        let address = address
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
            .ok_or_else(not_ready)?;
        Ok(self.node(&address))
    }

    pub(crate) fn number(&self) -> u64 {
        lock(&self.slots).number()
    }

    /// Reads the slots again, unless another call did since the reading `number`. If the reading fails,
    /// concurrent calls fail with it, instead of querying silent nodes again one after the other.
    pub(crate) async fn refresh(&self, number: u64) -> Fallible<()> {
        let failures = self.failures.load(Ordering::Acquire);
        let _one_at_a_time = self.reading.lock().await;
        if self.number() > number {
            return Ok(());
        }
        if self.failures.load(Ordering::Acquire) != failures {
            return Err(not_ready().into());
        }
        let read = self.read_from_any().await;
        if read.is_err() {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        let mut slots = read?;
        slots.number = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        *lock(&self.slots) = Arc::new(slots);
        Ok(())
    }

    /// Queries one node after the other; a slow reply does not delay the next query.
    async fn read_from_any(&self) -> Fallible<SlotMap> {
        let known = self.known();
        let mut next = known.iter();
        let (mut asked, mut failure) = (FuturesUnordered::new(), Failure::from(not_ready()));
        loop {
            let more = next.next().map(|address| asked.push(self.read_slots(address))).is_some();
            let answer = match more {
                true => tokio::time::timeout(NEXT_AFTER, asked.next()).await.ok(),
                false => Some(asked.next().await),
            };
            match answer {
                Some(Some(Ok(slots))) => return Ok(slots),
                Some(Some(Err(failed))) => failure = failed,
                Some(None) if !more => return Err(failure),
                Some(None) | None => {}
            }
        }
    }

    /// Connects to every node that holds slots, and returns the durability of the weakest.
    pub(crate) async fn durability(&self) -> Fallible<Durability> {
        let slots = Arc::clone(&lock(&self.slots));
        let mut weakest = if slots.replicated { Durability::None } else { Durability::Power };
        for (.., address) in &slots.ranges {
            weakest = weakest.min(self.node(address).shared().await?.info.durability);
        }
        Ok(weakest)
    }

    /// Returns the addresses of the nodes that hold slots, and of those in the URL.
    pub(crate) fn known(&self) -> Vec<Address> {
        let mut known: Vec<Address> =
            lock(&self.slots).ranges.iter().map(|(.., holder)| holder.clone()).collect();
        known.extend(self.seeds.iter().cloned());
        let mut seen = std::collections::HashSet::new();
        known.retain(|address| seen.insert(address.clone()));
        known
    }

    /// Returns the number of connected nodes.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.nodes).values().filter(|node| node.is_connected()).count()
    }

    pub(crate) async fn close(&self) {
        let nodes: Vec<Arc<NodeConnections>> = lock(&self.nodes).drain().map(|(_, node)| node).collect();
        for node in nodes {
            node.close().await;
        }
    }

    fn node(&self, address: &Address) -> Arc<NodeConnections> {
        let mut nodes = lock(&self.nodes);
        let node = nodes
            .entry(address.clone())
            .or_insert_with(|| Arc::new(NodeConnections::new(Arc::clone(&self.connector), address.clone())));
        Arc::clone(node)
    }

    async fn read_slots(&self, address: &Address) -> Fallible<SlotMap> {
        let node = self.node(address);
        let shared = node.shared().await?;
        if !shared.info.clustered {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "the server is not part of a cluster; write `redis://`",
            )
            .into());
        }
        let mut ask = Cmd::new();
        ask.arg("CLUSTER").arg("SLOTS");
        Ok(parse_slots(node.send_shared(&shared, &ask).await?, node.address())?)
    }
}

const NOT_READY: &str = "no reachable server of the cluster has the slot of the key; check that its servers \
                         run and that `CLUSTER INFO` reports `ok`";

fn not_ready() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, NOT_READY).with_outcome(Outcome::NotApplied)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
