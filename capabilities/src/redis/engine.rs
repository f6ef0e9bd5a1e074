//! The connections of one open database, and the scripts that run on them.

mod cluster;
mod connector;
mod dedicated_connection;
mod generation;
mod node;
mod notify;
mod resp;
mod search;
mod sentinel;
mod server_info;
mod watched;

use std::fmt;
use std::sync::Arc;

use larder_kernel::{Capabilities, Capability, Durability, Error, ErrorKind, Outcome, Result};
use redis::{Cmd, Value};

use super::config::{RedisConfig, Servers};
use super::decode;
use super::failure::{Fallible, Remedy};
use super::key::KeyPrefix;
use super::script::{Call, Script};
use crate::driver::Pool;
use cluster::Cluster;
pub(crate) use cluster::{parse_slots, slot};
pub(crate) use connector::Connector;
use node::NodeConnections;
use notify::Notifier;
use sentinel::Sentinels;
pub(crate) use sentinel::ask_all;
pub(crate) use server_info::{Info, SERVER_VERSION_MAJOR_MIN, durability, replicated};
pub(crate) use watched::Followed;

const OPEN: &str = "redis.open";

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

/// A single server, a cluster, or the primary that sentinels name.
pub(crate) enum Topology {
    Single(Arc<NodeConnections>),
    Cluster(Cluster),
    Sentinel(Arc<Sentinels>),
}

/// The effect of a script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    /// The replicas that the server requires confirm the write before it is acknowledged.
    Writes,
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
            Servers::Sentinel { sentinels, name, .. } => {
                Topology::Sentinel(Arc::new(Sentinels::new(Arc::clone(&connector), sentinels, name)))
            }
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
        self.attempt(script, call, Effect::Writes).await.map_err(|failure| failure.into_error(operation))
    }

    /// Runs a script that only reads; runs it once more if the connection is lost.
    pub(crate) async fn read(&self, operation: &'static str, script: &Script, call: &Call) -> Result<Value> {
        let answer = self.attempt_twice(script, call, Effect::Reads).await;
        answer.map_err(|failure| {
            failure.into_error(operation).with_idempotent(true).with_outcome(Outcome::NotApplied)
        })
    }

    /// Runs an idempotent script; runs it once more if the connection is lost.
    pub(crate) async fn repeat(
        &self,
        operation: &'static str,
        script: &Script,
        call: &Call,
    ) -> Result<Value> {
        let answer = self.attempt_twice(script, call, Effect::Writes).await;
        answer.map_err(|failure| failure.into_error(operation).with_idempotent(true))
    }

    async fn attempt_twice(&self, script: &Script, call: &Call, effect: Effect) -> Fallible<Value> {
        match self.attempt(script, call, effect).await {
            Err(failure) if failure.is_lost_connection() => self.attempt(script, call, effect).await,
            answer => answer,
        }
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

    /// As `fetch`, for commands on keys in one slot. They do not see one snapshot. Returns `None` if the slot
    /// or the primary moved.
    pub(crate) async fn fetch_each<const N: usize>(
        &self,
        operation: &'static str,
        key: &[u8],
        commands: [&Cmd; N],
    ) -> Result<Option<[Value; N]>> {
        let attempt = || async { self.inner.topology.target(key, None).await?.send_each(commands).await };
        let answers = match attempt().await {
            Err(failure) if failure.is_lost_connection() => attempt().await,
            answers => answers,
        };
        match (&*self.inner.topology, answers) {
            (Topology::Cluster(_) | Topology::Sentinel(_), Err(failure))
                if failure.remedy() != Remedy::None =>
            {
                Ok(None)
            }
            (_, Err(failure)) => {
                Err(failure.into_error(operation).with_idempotent(true).with_outcome(Outcome::NotApplied))
            }
            (_, Ok(answers)) => Ok(Some(answers)),
        }
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
            Topology::Sentinel(sentinels) => usize::from(sentinels.is_connected()),
        };
        Pool { open: u32::try_from(open).unwrap_or(u32::MAX), in_use: None, max: None, closed: false }
    }

    /// Closes the connections of every clone.
    pub(crate) async fn close(self) {
        self.inner.notifier.stop();
        match &*self.inner.topology {
            Topology::Single(node) => node.close().await,
            Topology::Cluster(cluster) => cluster.close().await,
            Topology::Sentinel(sentinels) => sentinels.close().await,
        }
    }

    async fn attempt(&self, script: &Script, call: &Call, effect: Effect) -> Fallible<Value> {
        let (key, script) = (call.first_key(), script.at(self.inner.format));
        let confirmed_by = if effect == Effect::Writes { self.inner.topology.confirmed_by() } else { 0 };
        let topology = &self.inner.topology;
        match topology.exchange_confirmed(key, &script.by_hash(call), confirmed_by).await {
            Err(failure) if failure.is_unknown_script() => {
                topology.exchange_confirmed(key, &script.by_text(call), confirmed_by).await
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
            Self::Sentinel(sentinels) => sentinels.examine().await,
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
            Self::Sentinel(sentinels) => Ok(vec![sentinels.primary()?]),
        }
    }

    /// Returns the server that is believed to hold the key.
    fn holder(&self, key: &[u8]) -> Fallible<Arc<NodeConnections>> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.holder(slot(key)),
            Self::Sentinel(sentinels) => sentinels.primary(),
        }
    }

    /// Returns the number of replicas that confirm each write.
    fn confirmed_by(&self) -> u32 {
        match self {
            Self::Single(_) | Self::Cluster(_) => 0,
            Self::Sentinel(sentinels) => sentinels.confirmed_by(),
        }
    }
}
