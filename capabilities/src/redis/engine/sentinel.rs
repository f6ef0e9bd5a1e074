//! The primary that sentinels name, and the search for its successor.
//!
//! A sentinel may name a server that has just failed or been demoted. So an address counts only after a
//! connection to the server showed that it is a primary, and the other sentinels are asked until then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select_ok;
use futures_util::stream::FuturesUnordered;
use larder_kernel::{Durability, Error, ErrorKind, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind as Reported, ProtocolVersion, RedisConnectionInfo, RedisError, Value,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connector::Connector;
use super::node::NodeConnections;
use crate::redis::config::Address;
use crate::redis::decode;
use crate::redis::failure::{Failure, Fallible};

const OPERATION: &str = "redis.open";
/// The time between two questions to a sentinel while the primary is used.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The sentinels of a primary, and the connections to it.
pub(crate) struct Sentinels {
    connector: Arc<Connector>,
    addresses: Vec<Address>,
    name: String,
    primary: Mutex<Primary>,
    /// Serializes searches, so that many calls that lost the primary search once.
    searching: tokio::sync::Mutex<()>,
    /// The number of searches that found no primary.
    failures: AtomicU64,
    check_at: Mutex<Option<Instant>>,
    /// The connection to the sentinel that is asked regularly.
    asked: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

#[derive(Default)]
struct Primary {
    node: Option<Arc<NodeConnections>>,
    /// The generation of its connections at that search.
    generation: u64,
    /// The number of searches that found a primary.
    number: u64,
}

/// The reply of one sentinel.
pub(crate) struct Answer {
    pub(crate) sentinel: Address,
    /// The address that the sentinel named.
    pub(crate) primary: Fallible<Address>,
    /// The number of replicas that it has seen; `None` if it does not say.
    pub(crate) replicas: Option<u32>,
}

impl Sentinels {
    pub(crate) fn new(connector: Arc<Connector>, addresses: Vec<Address>, name: String) -> Self {
        Self {
            connector,
            addresses,
            name,
            primary: Mutex::default(),
            searching: tokio::sync::Mutex::default(),
            failures: AtomicU64::new(0),
            check_at: Mutex::default(),
            asked: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the server that was the primary at the last search.
    pub(crate) fn primary(&self) -> Fallible<Arc<NodeConnections>> {
        self.lock().node.clone().ok_or_else(|| not_found().into())
    }

    pub(crate) fn number(&self) -> u64 {
        self.lock().number
    }

    /// Returns the number of replicas that confirm each write.
    pub(crate) fn confirmed_by(&self) -> u32 {
        self.connector.confirmed_by()
    }

    /// Finds the primary, and returns its durability. Writes wait for as many replicas as it requires.
    pub(crate) async fn examine(&self) -> Fallible<Durability> {
        self.refresh(0).await?;
        let primary = self.primary()?;
        let info = primary.shared().await?.info;
        if info.clustered {
            let message = "the server is part of a cluster; write `redis+cluster://`";
            return Err(Error::new(ErrorKind::Unsupported, OPERATION, message).into());
        }
        // A replica that is not connected now may take over later.
        if info.durability == Durability::None || self.replicas().await? > info.replicas_needed {
            return Ok(Durability::None);
        }
        // Without the right to announce, no write could be confirmed.
        if primary.send(&primary.mark()).await.is_err() {
            return Ok(Durability::None);
        }
        self.connector.confirm_by(info.replicas_needed);
        Ok(info.durability)
    }

    /// Searches the primary again, unless another call found it since the search `number`. If the search
    /// fails, concurrent calls fail with it.
    pub(crate) async fn refresh(&self, number: u64) -> Fallible<()> {
        let failures = self.failures.load(Ordering::Acquire);
        let _one_at_a_time = self.searching.lock().await;
        if self.number() > number {
            return Ok(());
        }
        if self.failures.load(Ordering::Acquire) != failures {
            return Err(not_found().into());
        }
        let (node, generation) = match self.search().await {
            Ok(found) => found,
            Err(failure) => {
                self.failures.fetch_add(1, Ordering::AcqRel);
                return Err(failure);
            }
        };
        // Calls that run on the connections to another server end there.
        let mut primary = self.lock();
        primary.number += 1;
        primary.generation = generation;
        primary.node = Some(node);
        Ok(())
    }

    /// Searches the primary if a connection to it was lost since the last search. The server may have
    /// restarted after its successor was named, and would then accept writes and lose them.
    pub(crate) async fn ready(&self) -> Fallible<()> {
        let number = {
            let primary = self.lock();
            let is_lost = |node: &Arc<NodeConnections>| node.generation() != primary.generation;
            if !primary.node.as_ref().is_some_and(is_lost) {
                return Ok(());
            }
            primary.number
        };
        self.refresh(number).await
    }

    /// Asks a sentinel for the primary, at most once a second, without delaying the caller. In a planned
    /// failover, the old primary accepts writes for some seconds after its successor was named, and loses
    /// them.
    pub(crate) fn check_soon(self: &Arc<Self>) {
        let now = Instant::now();
        let Ok(runtime) = Handle::try_current() else { return };
        let mut check_at = self.check_at.lock().unwrap_or_else(PoisonError::into_inner);
        if check_at.is_some_and(|at| now < at) {
            return;
        }
        *check_at = Some(now + CHECK_EVERY);
        drop(check_at);
        let sentinels = Arc::clone(self);
        runtime.spawn(async move { sentinels.check().await });
    }

    async fn check(&self) {
        let number = self.number();
        let Ok(mut asked) = self.asked.try_lock() else { return };
        let named = self.named_by(&mut asked).await;
        drop(asked);
        let is_other = |named: Address| self.primary().is_ok_and(|node| *node.address() != named);
        if named.is_some_and(is_other) {
            let _ = self.refresh(number).await;
        }
    }

    /// Returns the address that the connected sentinel names, or else the first one that can be connected.
    async fn named_by(&self, asked: &mut Option<MultiplexedConnection>) -> Option<Address> {
        if let Some(connection) = asked
            && let Ok(named) = query(connection, &self.name).await
        {
            return Some(named);
        }
        *asked = None;
        for address in &self.addresses {
            let Ok(mut connection) = connect(&self.connector, address).await else { continue };
            if let Ok(named) = query(&mut connection, &self.name).await {
                *asked = Some(connection);
                return Some(named);
            }
        }
        None
    }

    /// Asks all sentinels at the same time, because one may have been lost with the machine of the primary.
    /// Connects to the servers that they name until one is a primary.
    async fn search(&self) -> Fallible<(Arc<NodeConnections>, u64)> {
        let asks = self.addresses.iter().map(|address| ask(&self.connector, address, &self.name));
        let mut answers: FuturesUnordered<_> = asks.collect();
        let (mut tried, mut of_server, mut of_sentinel) = (Vec::new(), None, None);
        while let Some(answer) = answers.next().await {
            let named = match answer {
                Ok(named) if tried.contains(&named) => continue,
                Ok(named) => named,
                Err(failure) => {
                    of_sentinel = Some(failure);
                    continue;
                }
            };
            let node = self.node(named.clone());
            match node.shared().await {
                Ok(shared) => return Ok((node, shared.generation)),
                Err(failure) => of_server = Some(failure),
            }
            tried.push(named);
        }
        Err(of_server.or(of_sentinel).unwrap_or_else(|| not_found().into()))
    }

    /// Returns the number of replicas that the sentinels have seen, connected or not.
    async fn replicas(&self) -> Fallible<u32> {
        let asks = self.addresses.iter().map(|address| replicas(&self.connector, address, &self.name));
        select_ok(asks.map(Box::pin)).await.map(|(count, _)| count)
    }

    /// Returns the connections to a server, which are those in use if it is the same server.
    fn node(&self, address: Address) -> Arc<NodeConnections> {
        match &self.lock().node {
            Some(node) if *node.address() == address => Arc::clone(node),
            _ => Arc::new(NodeConnections::new(Arc::clone(&self.connector), address)),
        }
    }

    /// Returns true if the primary is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.lock().node.as_ref().is_some_and(|node| node.is_connected())
    }

    pub(crate) async fn close(&self) {
        self.asked.lock().await.take();
        let node = self.lock().node.clone();
        if let Some(node) = node {
            node.close().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks every sentinel, for a diagnosis.
pub(crate) async fn ask_all(connector: &Connector, addresses: &[Address], name: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    for address in addresses {
        let primary = ask(connector, address, name).await;
        let replicas = if primary.is_ok() { replicas(connector, address, name).await.ok() } else { None };
        answers.push(Answer { sentinel: address.clone(), primary, replicas });
    }
    answers
}

async fn replicas(connector: &Connector, sentinel: &Address, name: &str) -> Fallible<u32> {
    let state = send(&mut connect(connector, sentinel).await?, &["MASTER", name]).await?;
    let count = decode::pairs(state)?.into_iter().find(|(name, _)| name == "num-slaves");
    Ok(count.and_then(|(_, count)| count.parse().ok()).unwrap_or(u32::MAX))
}

async fn ask(connector: &Connector, sentinel: &Address, name: &str) -> Fallible<Address> {
    query(&mut connect(connector, sentinel).await?, name).await
}

/// Connects to a sentinel. One that rejects the login is asked without one, because sentinels often have
/// none.
async fn connect(connector: &Connector, sentinel: &Address) -> Fallible<MultiplexedConnection> {
    match connect_as(connector, sentinel, connector.login(ProtocolVersion::RESP3)).await {
        Err(Failure::Connect(error)) if is_rejected(&error) => {
            let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
            let connected = connect_as(connector, sentinel, plain).await;
            connected.map_err(|_| Failure::Connect(error))
        }
        connected => connected,
    }
}

fn is_rejected(error: &RedisError) -> bool {
    error.kind() == Reported::AuthenticationFailed || error.code() == Some("WRONGPASS")
}

async fn connect_as(
    connector: &Connector,
    sentinel: &Address,
    login: RedisConnectionInfo,
) -> Fallible<MultiplexedConnection> {
    let client = connector.client_with(sentinel, login)?;
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connector.config().connect_timeout))
        .set_response_timeout(Some(connector.config().response_timeout));
    let connecting = client.get_multiplexed_async_connection_with_config(&settings);
    Box::pin(connecting).await.map_err(|error| connector.explain(error))
}

/// Asks for the address of the primary.
async fn query(connection: &mut MultiplexedConnection, name: &str) -> Fallible<Address> {
    parse(send(connection, &["GET-MASTER-ADDR-BY-NAME", name]).await?)
}

async fn send(connection: &mut MultiplexedConnection, words: &[&str]) -> Fallible<Value> {
    let mut command = redis::cmd("SENTINEL");
    command.arg(words);
    let answer = connection.send_packed_command(&command).await.and_then(Value::extract_error);
    answer.map_err(|error| match error.code() {
        Some("ERR") => {
            let message = "the URL names a server that is not a sentinel; name the sentinels, which usually \
                           have the port 26379";
            let error = Error::new(ErrorKind::InvalidInput, OPERATION, message).with_field("url");
            error.with_outcome(Outcome::NotApplied).into()
        }
        _ => Failure::Connect(error),
    })
}

/// Parses the reply of a sentinel: host and port, or nothing if it does not know the name.
fn parse(answer: Value) -> Fallible<Address> {
    let Some(answer) = decode::optional(answer) else {
        let message =
            "a sentinel watches no primary of this name; check the name after the sentinels in the URL";
        let error = Error::new(ErrorKind::InvalidInput, OPERATION, message).with_field("url");
        return Err(error.with_outcome(Outcome::NotApplied).into());
    };
    let [host, port] = decode::tuple(answer)?;
    let port = decode::text(port)?.parse().map_err(|_| not_found())?;
    Ok((decode::text(host)?, port))
}

const NOT_FOUND: &str = "no sentinel names a primary that can be reached; check that the sentinels run and \
                         that a failover has ended";

fn not_found() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, NOT_FOUND).with_outcome(Outcome::NotApplied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_a_sentinel_is_an_address_or_an_unknown_name() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let found = parse(Value::Array(vec![text("10.0.0.7"), text("6380")])).unwrap();
        assert_eq!(found, ("10.0.0.7".to_owned(), 6_380));
        let error = parse(Value::Nil).unwrap_err().into_error(OPERATION);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
        for odd in [Value::Int(1), Value::Array(vec![text("h"), text("x")])] {
            assert!(parse(odd).is_err());
        }
    }
}
