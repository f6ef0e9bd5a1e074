//! The connections of one open database, and the scripts that run on them.

mod cluster;
mod connector;
mod dedicated_connection;
mod generation;
mod node;
mod notify;
mod resp;
mod server_info;
mod watched;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::config::{RedisConfig, Servers};
use super::decode;
use super::failure::{Failure, Fallible, Remedy};
use super::key::KeyPrefix;
use super::script::{Call, Script};
use crate::driver::Pool;
use cluster::Cluster;
pub(crate) use cluster::{parse_slots, slot};
pub(crate) use connector::Connector;
use node::NodeConnections;
use notify::Notifier;
pub(crate) use server_info::{Info, SERVER_VERSION_MAJOR_MIN, durability};
pub(crate) use watched::Followed;

const OPEN: &str = "redis.open";
/// The time limit of a call that searches for the server of its slot while a cluster changes.
const SEARCH_MAX: Duration = Duration::from_secs(5);
/// The pause of such a call between two attempts.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

/// A handle to the connections of one open database. They close when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    topology: Arc<Topology>,
    notifier: Notifier,
    durability: Durability,
    format: i64,
    prefix: KeyPrefix,
}

/// A single server or a cluster.
pub(crate) enum Topology {
    Single(Arc<NodeConnections>),
    Cluster(Cluster),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("durability", &self.inner.durability).finish_non_exhaustive()
    }
}

impl Engine {
    /// Connects and reads the servers' settings.
    pub(crate) async fn open(config: RedisConfig, format: i64) -> Result<Self> {
        let prefix = config.key_prefix.clone();
        let connector = Arc::new(Connector::new(config).await?);
        let topology = match connector.config().servers.clone() {
            Servers::Single(address, _) => {
                Topology::Single(Arc::new(NodeConnections::new(Arc::clone(&connector), address)))
            }
            Servers::Cluster(seeds) => Topology::Cluster(Cluster::new(Arc::clone(&connector), seeds)),
        };
        let durability = topology
            .examine()
            .await
            .map_err(|failure| failure.into_error(OPEN).with_outcome(Outcome::NotApplied))?;
        connector.declare(durability);
        let topology = Arc::new(topology);
        let notifier = Notifier::new(connector, Arc::clone(&topology), format);
        Ok(Self { inner: Arc::new(Inner { topology, notifier, durability, format, prefix }) })
    }

    /// Returns the capabilities of every store of this database.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.inner.durability).with(Capability::MultiProcess)
    }

    /// Returns the format that this program reads and writes.
    pub(crate) fn format(&self) -> i64 {
        self.inner.format
    }

    /// Returns the beginning of every key and channel.
    pub(crate) fn prefix(&self) -> &KeyPrefix {
        &self.inner.prefix
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.inner.notifier
    }

    /// Runs a script that writes, once. If the reply is lost, the outcome is unknown.
    pub(crate) async fn run(&self, operation: &'static str, script: &Script, call: &Call) -> Result<Value> {
        self.attempt(script, call).await.map_err(|failure| failure.into_error(operation))
    }

    /// Runs a script that only reads; runs it once more if the connection is lost.
    pub(crate) async fn read(&self, operation: &'static str, script: &Script, call: &Call) -> Result<Value> {
        let answer = self.repeat(operation, script, call).await;
        answer.map_err(|error| error.with_outcome(Outcome::NotApplied))
    }

    /// Runs an idempotent script; runs it once more if the connection is lost.
    pub(crate) async fn repeat(
        &self,
        operation: &'static str,
        script: &Script,
        call: &Call,
    ) -> Result<Value> {
        let answer = match self.attempt(script, call).await {
            Err(failure) if failure.is_lost_connection() => self.attempt(script, call).await,
            answer => answer,
        };
        answer.map_err(|failure| failure.into_error(operation).with_idempotent(true))
    }

    /// Sends a read-only command to the server that holds the key; sends it once more if the connection is
    /// lost.
    pub(crate) async fn fetch(&self, operation: &'static str, key: &[u8], command: &Cmd) -> Result<Value> {
        let answer = match self.inner.topology.exchange(key, command).await {
            Err(failure) if failure.is_lost_connection() => self.inner.topology.exchange(key, command).await,
            answer => answer,
        };
        answer.map_err(|failure| {
            failure.into_error(operation).with_idempotent(true).with_outcome(Outcome::NotApplied)
        })
    }

    /// As `fetch`, for two commands on keys in one slot. They do not see one snapshot.
    pub(crate) async fn fetch_both(
        &self,
        operation: &'static str,
        key: &[u8],
        first: &Cmd,
        second: &Cmd,
    ) -> Result<(Value, Value)> {
        let attempt = || async { self.inner.topology.holder(key)?.send_both(first, second).await };
        let answers = match attempt().await {
            Err(failure) if failure.is_lost_connection() => attempt().await,
            answers => answers,
        };
        if let (Topology::Cluster(_), Err(failure)) = (&*self.inner.topology, &answers)
            && failure.remedy() != Remedy::None
        {
            // The slot moved or is moving; each command finds its server separately.
            return try_join(self.fetch(operation, key, first), self.fetch(operation, key, second)).await;
        }
        answers.map_err(|failure| {
            failure.into_error(operation).with_idempotent(true).with_outcome(Outcome::NotApplied)
        })
    }

    /// Returns all keys that match a pattern, on every server that holds data. Keys that are written or moved
    /// during the scan may be missing.
    pub(crate) async fn scan(&self, operation: &'static str, pattern: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for node in self.inner.topology.holders().map_err(|failure| failure.into_error(operation))? {
            let mut cursor = b"0".to_vec();
            loop {
                let mut command = redis::cmd("SCAN");
                command.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
                let answer = node.send(&command).await.map_err(|failure| failure.into_error(operation))?;
                let [next, found] = decode::tuple(answer)?;
                for key in decode::array(found)? {
                    keys.push(decode::bytes(key)?);
                }
                cursor = decode::bytes(next)?;
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Returns the number of connections. Calls share them, so the pool is never exhausted.
    pub(crate) fn pool(&self) -> Pool {
        let open = match &*self.inner.topology {
            Topology::Single(node) => usize::from(node.is_connected()),
            Topology::Cluster(cluster) => cluster.connections(),
        };
        Pool { open: u32::try_from(open).unwrap_or(u32::MAX), in_use: None, max: None, closed: false }
    }

    /// Closes the connections of every clone.
    pub(crate) async fn close(self) {
        self.inner.notifier.stop();
        match &*self.inner.topology {
            Topology::Single(node) => node.close().await,
            Topology::Cluster(cluster) => cluster.close().await,
        }
    }

    async fn attempt(&self, script: &Script, call: &Call) -> Fallible<Value> {
        let (key, script) = (call.first_key(), script.at(self.inner.format));
        match self.inner.topology.exchange(key, &script.by_hash(call)).await {
            Err(failure) if failure.is_unknown_script() => {
                self.inner.topology.exchange(key, &script.by_text(call)).await
            }
            answer => answer,
        }
    }
}

impl Topology {
    /// Connects to every server that holds data.
    async fn examine(&self) -> Fallible<Durability> {
        match self {
            Self::Cluster(cluster) => {
                cluster.refresh(0).await?;
                cluster.durability().await
            }
            Self::Single(node) => {
                let info = node.shared().await?.info;
                if info.clustered {
                    let message = "the server is part of a cluster; write `redis+cluster://`";
                    return Err(Error::new(ErrorKind::Unsupported, OPEN, message).into());
                }
                Ok(info.durability)
            }
        }
    }

    /// Returns the servers that hold data.
    fn holders(&self) -> Fallible<Vec<Arc<NodeConnections>>> {
        match self {
            Self::Single(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => cluster.holders(),
        }
    }

    /// Returns the server that is believed to hold the key.
    fn holder(&self, key: &[u8]) -> Fallible<Arc<NodeConnections>> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.holder(slot(key)),
        }
    }

    /// Sends a command to the server that holds the key.
    async fn exchange(&self, key: &[u8], command: &Cmd) -> Fallible<Value> {
        match self {
            Self::Single(node) => node.send(command).await,
            Self::Cluster(cluster) => exchange_in_cluster(cluster, slot(key), command).await,
        }
    }
}

/// Sends a command to the server that holds the slot, and follows redirections. It follows only replies that
/// prove that nothing was done. The caller decides what a lost connection means.
async fn exchange_in_cluster(cluster: &Cluster, slot: u16, command: &Cmd) -> Fallible<Value> {
    let until = Instant::now() + SEARCH_MAX;
    let mut asked: Option<String> = None;
    loop {
        let number = cluster.number();
        let answer = match asked.take() {
            Some(address) => match cluster.named(&address) {
                Ok(node) => node.send_asking(command).await,
                Err(failure) => Err(failure),
            },
            None => match cluster.holder(slot) {
                Ok(node) => node.send(command).await,
                Err(failure) => Err(failure),
            },
        };
        let failure = match answer {
            Err(failure) => failure,
            answer => return answer,
        };
        let remedy = failure.remedy();
        if Instant::now() >= until {
            // Connecting to a lost server may have used all the time; the next call must find its successor.
            if remedy == Remedy::Moved {
                let _ = cluster.refresh(number).await;
            }
            return Err(failure);
        }
        match remedy {
            Remedy::None => return Err(failure),
            Remedy::Ask(address) => asked = Some(address),
            Remedy::Wait => tokio::time::sleep(SEARCH_PAUSE).await,
            Remedy::Moved => {
                let moved_in_answer = matches!(failure, Failure::Sent(_));
                if cluster.refresh(number).await.is_err() || !moved_in_answer {
                    tokio::time::sleep(SEARCH_PAUSE).await;
                }
            }
        }
    }
}
