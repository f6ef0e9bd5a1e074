//! The connections to one server: opened on demand, and replaced after they are lost.
//!
//! Each of a few concurrent calls has a dedicated connection. All other calls share one connection, whose
//! task writes commands and reads replies for many of them at a time. Over TLS all calls share it.
//!
//! In some modes the driver sends a command again after a lost connection. This module does not: it reports a
//! write that may have happened as such, and repeats only reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Pipeline, Value};
use tokio::sync::Mutex;

use super::connector::{Connector, SharedConnection};
use super::dedicated_connection::{CheckedOut, Checkout, DedicatedPool};
use crate::redis::config::Address;
use crate::redis::failure::{Failure, Fallible};
use crate::redis::key::KeyPrefix;

/// The connections to one server.
pub(crate) struct NodeConnections {
    connector: Arc<Connector>,
    address: Address,
    dedicated: DedicatedPool,
    shared: Mutex<Option<SharedConnection>>,
    /// The number of timeouts of opening a connection.
    timeouts: AtomicU64,
}

impl NodeConnections {
    pub(crate) fn new(connector: Arc<Connector>, address: Address) -> Self {
        let (dedicated, shared) = (DedicatedPool::new(), Mutex::new(None));
        Self { connector, address, dedicated, shared, timeouts: AtomicU64::new(0) }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the generation of the connections. It grows when they are lost.
    pub(super) fn generation(&self) -> u64 {
        self.dedicated.generation()
    }

    /// Returns the shared connection, and opens it if none exists. Concurrent calls wait for the same
    /// attempt. If it times out, they fail with it instead of waiting again one after the other.
    pub(crate) async fn shared(&self) -> Fallible<SharedConnection> {
        let timeouts = self.timeouts.load(Ordering::Acquire);
        let mut shared = self.shared.lock().await;
        let generation = self.dedicated.generation();
        let is_good = |shared: &&SharedConnection| shared.generation == generation && !shared.is_lost();
        if let Some(shared) = shared.as_ref().filter(is_good) {
            return Ok(shared.clone());
        }
        *shared = None;
        if self.timeouts.load(Ordering::Acquire) != timeouts {
            return Err(Failure::Connect(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        }
        let opened = match self.connector.connect(&self.address, generation).await {
            Ok(opened) => opened,
            Err(failure) => {
                if failure.is_timeout() {
                    self.timeouts.fetch_add(1, Ordering::AcqRel);
                }
                return Err(failure);
            }
        };
        *shared = Some(opened.clone());
        Ok(opened)
    }

    /// Returns true if a connection exists that is not known to be lost. One that is being opened counts.
    pub(crate) fn is_connected(&self) -> bool {
        let Ok(shared) = self.shared.try_lock() else { return true };
        self.dedicated.is_open() || shared.as_ref().is_some_and(|shared| !shared.is_lost())
    }

    /// Returns a dedicated connection for one call, if one is idle or can be opened. If the server rejects
    /// one more connection, calls use the shared one. Only a call whose attempt timed out fails.
    async fn dedicated(&self) -> Fallible<Option<CheckedOut<'_>>> {
        if self.connector.config().tls {
            return Ok(None);
        }
        let slot = match self.dedicated.checkout() {
            Checkout::Connection(checked_out) => return Ok(Some(checked_out)),
            Checkout::None => return Ok(None),
            Checkout::Slot(slot) => slot,
        };
        match Box::pin(self.connector.connect_dedicated(&self.address)).await {
            Ok(connection) => Ok(Some(slot.fill(connection))),
            Err(failure) => {
                slot.pause();
                if failure.is_timeout() { Err(failure) } else { Ok(None) }
            }
        }
    }

    /// Sends a command and waits for the reply.
    pub(crate) async fn send(&self, command: &Cmd) -> Fallible<Value> {
        if let Some(dedicated) = self.dedicated().await? {
            let generation = dedicated.generation();
            let sent = dedicated.send([command], self.connector.config().response_timeout).await;
            return self.settle(generation, sent.and_then(|[reply]| into_result(reply)));
        }
        self.send_shared(&self.shared().await?, command).await
    }

    /// As `send`, on the shared connection.
    pub(crate) async fn send_shared(&self, shared: &SharedConnection, command: &Cmd) -> Fallible<Value> {
        let mut connection = shared.connection.clone();
        let reply = connection.send_packed_command(command).await;
        self.settle(shared.generation, reply.and_then(into_result))
    }

    /// Sends commands together and waits for all replies.
    pub(crate) async fn send_each<const N: usize>(&self, commands: [&Cmd; N]) -> Fallible<[Value; N]> {
        let (generation, mut replies) = self.exchange(commands).await?;
        for reply in &mut replies {
            *reply = self.settle(generation, into_result(std::mem::replace(reply, Value::Nil)))?;
        }
        Ok(replies)
    }

    /// Sends commands together. The replies to the others count only if the first succeeded.
    pub(super) async fn send_followed(
        &self,
        first: &Cmd,
        [second, third]: [&Cmd; 2],
    ) -> Fallible<(Value, Fallible<[Value; 2]>)> {
        let (generation, [first, second, third]) = self.exchange([first, second, third]).await?;
        let first = self.settle(generation, into_result(first))?;
        let others = into_result(second).and_then(|second| Ok([second, into_result(third)?]));
        Ok((first, self.settle(generation, others)))
    }

    pub(super) fn prefix(&self) -> &KeyPrefix {
        &self.connector.config().key_prefix
    }

    /// Returns the time that replicas have to confirm a write: less than the time of a reply.
    pub(super) fn confirmation_ms(&self) -> u64 {
        crate::redis::script::millis(self.connector.config().response_timeout / 2).max(1)
    }

    /// Sends commands together on the shared connection, and returns their replies, including errors.
    pub(crate) async fn send_all(&self, commands: Vec<Cmd>) -> Fallible<Vec<Value>> {
        let (shared, count) = (self.shared().await?, commands.len());
        let mut all = Pipeline::with_capacity(count);
        for command in commands {
            all.add_command(command);
        }
        let mut connection = shared.connection.clone();
        let answers = connection.send_packed_commands(&all, 0, count).await;
        self.settle(shared.generation, answers)
    }

    /// Sends a command to the server that a slot is moving to.
    pub(crate) async fn send_asking(&self, command: &Cmd) -> Fallible<Value> {
        let (generation, [_, reply]) = self.exchange([&redis::cmd("ASKING"), command]).await?;
        self.settle(generation, into_result(reply))
    }

    /// Sends commands and returns their replies, including errors, with the generation of the connection.
    async fn exchange<const N: usize>(&self, commands: [&Cmd; N]) -> Fallible<(u64, [Value; N])> {
        let (generation, answers) = if let Some(dedicated) = self.dedicated().await? {
            let generation = dedicated.generation();
            (generation, dedicated.send(commands, self.connector.config().response_timeout).await)
        } else {
            let shared = self.shared().await?;
            let mut all = Pipeline::with_capacity(N);
            for command in commands {
                all.add_command(command.clone());
            }
            let mut connection = shared.connection.clone();
            let answers = connection.send_packed_commands(&all, 0, N).await;
            (shared.generation, answers.and_then(replies))
        };
        Ok((generation, self.settle(generation, answers)?))
    }

    fn settle<T>(&self, generation: u64, answer: redis::RedisResult<T>) -> Fallible<T> {
        answer.map_err(|error| {
            let failure = Failure::Sent(error);
            if failure.ends_connection() {
                // If one connection fails, the others to the same server are most likely lost too.
                self.dedicated.discard(generation);
            }
            failure
        })
    }

    /// Drops the connections; running calls finish on them.
    pub(crate) async fn close(&self) {
        self.dedicated.discard(self.dedicated.generation());
        self.shared.lock().await.take();
    }
}

/// Turns an error reply into an error. No script returns one inside a list.
fn into_result(reply: Value) -> redis::RedisResult<Value> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn replies<const N: usize>(answers: Vec<Value>) -> redis::RedisResult<[Value; N]> {
    let count = (redis::ErrorKind::Parse, "each command has one reply");
    <[Value; N]>::try_from(answers).map_err(|_| count.into())
}
