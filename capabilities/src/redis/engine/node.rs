//! The connections to one server: opened when they are needed, and replaced after they are lost.
//!
//! A few concurrent calls have a dedicated connection each. All others share one connection, whose task writes commands and
//! reads replies for many of them at a time; over TLS all calls do.
//!
//! In some modes the driver sends a command again after a lost connection. This module does not: a write that may have
//! happened is reported as such, and only reads are repeated.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use larder_kernel::{Durability, Error, ErrorKind, Outcome, Result};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, TlsCertificates, Value,
};
use tokio::sync::Mutex;

use super::dedicated_connection::{CheckedOut, Checkout, DedicatedConnection, DedicatedPool};
use super::server_info::{SendCommand, ServerInfo, examine};
use crate::redis::config::{Address, RedisConfig, Servers};
use crate::redis::failure::{Failure, Fallible};

const OPERATION: &str = "redis.open";
/// Calls that may wait to be written to the shared connection. More wait for room.
const QUEUED_CALLS_MAX: usize = 1_024;

/// Opens connections to any server of one database.
pub(crate) struct Connector {
    config: RedisConfig,
    certificates: Option<TlsCertificates>,
    /// The rank of the durability that the stores declared; a server that became weaker is refused.
    declared: AtomicU8,
}

/// The shared connection, with the settings of its server.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    connection: MultiplexedConnection,
    lost: Arc<AtomicBool>,
    generation: u64,
    pub(crate) info: ServerInfo,
}

/// The connections to one server.
pub(crate) struct NodeConnections {
    connector: Arc<Connector>,
    address: Address,
    dedicated: DedicatedPool,
    shared: Mutex<Option<SharedConnection>>,
    /// How often opening a connection timed out.
    timeouts: AtomicU64,
}

impl Connector {
    /// Reads the files that the settings name. No connection is opened yet.
    pub(crate) async fn new(config: RedisConfig) -> Result<Self> {
        if config.tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            // The driver panics without one. If another thread installs one first, that one is used.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let certificates = match &config.tls_ca_file {
            None => None,
            Some(path) => {
                Some(TlsCertificates { client_tls: None, root_cert: Some(read_certificates(path).await?) })
            }
        };
        Ok(Self { config, certificates, declared: AtomicU8::new(0) })
    }

    pub(crate) fn config(&self) -> &RedisConfig {
        &self.config
    }

    /// Sets the durability that every later connection must reach.
    pub(crate) fn declare(&self, durability: Durability) {
        self.declared.store(rank(durability), Ordering::Relaxed);
    }

    /// Returns a client for one server.
    pub(crate) fn client(&self, address: &Address, protocol: ProtocolVersion) -> Fallible<Client> {
        let (host, port) = address.clone();
        let addr = if self.config.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut login = RedisConnectionInfo::default().set_protocol(protocol);
        if let Servers::Single(_, database) = &self.config.servers {
            login = login.set_db(*database);
        }
        if let Some(user) = &self.config.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.config.password {
            login = login.set_password(password);
        }
        let info = addr.into_connection_info().map_err(Failure::Connect)?.set_redis_settings(login);
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        client.map_err(Failure::Connect)
    }

    async fn connect(&self, address: &Address, generation: u64) -> Fallible<SharedConnection> {
        let client = self.client(address, ProtocolVersion::RESP3)?;
        let lost = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lost);
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            .set_response_timeout(Some(self.config.response_timeout))
            .set_pipeline_buffer_size(QUEUED_CALLS_MAX)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    told.store(true, Ordering::Release);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let connecting = client.get_multiplexed_async_connection_with_config(&settings);
        let mut connection = Box::pin(connecting).await.map_err(|error| self.explain(error))?;
        let info = self.examine(&mut connection).await?;
        Ok(SharedConnection { connection, lost, generation, info })
    }

    async fn connect_dedicated(&self, address: &Address) -> Fallible<DedicatedConnection> {
        let opening = async {
            let mut connection = DedicatedConnection::connect(address, &self.config).await?;
            self.examine(&mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(self.config.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::Connect(std::io::Error::from(std::io::ErrorKind::TimedOut).into())),
        }
    }

    /// Refuses a server that is less durable than the stores declared.
    async fn examine(&self, connection: &mut impl SendCommand) -> Fallible<ServerInfo> {
        let info = examine(connection).await?;
        if rank(info.durability) < self.declared.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the server persists less than it did when it was opened; open it again",
            )
            .with_outcome(Outcome::NotApplied)
            .into());
        }
        Ok(info)
    }

    /// With TLS, an I/O error other than a refused connection means a bad certificate or a server without TLS, which may
    /// wait for more input until the timeout.
    pub(crate) fn explain(&self, error: redis::RedisError) -> Failure {
        if !self.config.tls || !error.is_io_error() || error.is_connection_refusal() {
            return Failure::Connect(error);
        }
        let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
        let message = "no trusted TLS connection to the server; does it speak TLS, and is its certificate valid for \
                       the host of the URL? Name a private authority in `tls_ca_file`";
        Error::new(kind, OPERATION, message).with_outcome(Outcome::NotApplied).into()
    }
}

impl NodeConnections {
    pub(crate) fn new(connector: Arc<Connector>, address: Address) -> Self {
        let (dedicated, shared) = (DedicatedPool::new(), Mutex::new(None));
        Self { connector, address, dedicated, shared, timeouts: AtomicU64::new(0) }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the shared connection, and opens it if there is none. Concurrent calls wait for the same one; if it times
    /// out, they fail with it instead of waiting again one after the other.
    pub(crate) async fn shared(&self) -> Fallible<SharedConnection> {
        let timeouts = self.timeouts.load(Ordering::Acquire);
        let mut shared = self.shared.lock().await;
        let generation = self.dedicated.generation();
        let is_good = |shared: &&SharedConnection| {
            shared.generation == generation && !shared.lost.load(Ordering::Acquire)
        };
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

    /// Whether there is a connection that is not known to be lost. One that is being opened counts.
    pub(crate) fn is_connected(&self) -> bool {
        let Ok(shared) = self.shared.try_lock() else { return true };
        self.dedicated.is_open() || shared.as_ref().is_some_and(|shared| !shared.lost.load(Ordering::Acquire))
    }

    /// Returns a dedicated connection for one call, if one is idle or can be opened. If the server refuses one more
    /// connection, calls use the shared one; only a call whose attempt timed out fails.
    async fn dedicated(&self) -> Fallible<Option<CheckedOut<'_>>> {
        if self.connector.config.tls {
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

    /// Sends a command and waits for the answer.
    pub(crate) async fn send(&self, command: &Cmd) -> Fallible<Value> {
        if let Some(dedicated) = self.dedicated().await? {
            let generation = dedicated.generation();
            let sent = dedicated.send([command], self.connector.config.response_timeout).await;
            return self.settle(generation, sent.and_then(|[reply]| into_result(reply)));
        }
        self.send_shared(&self.shared().await?, command).await
    }

    /// The same on the shared connection.
    pub(crate) async fn send_shared(&self, shared: &SharedConnection, command: &Cmd) -> Fallible<Value> {
        let mut connection = shared.connection.clone();
        let reply = connection.send_packed_command(command).await;
        self.settle(shared.generation, reply.and_then(into_result))
    }

    /// Sends two commands at once and waits for both answers.
    pub(crate) async fn send_both(&self, first: &Cmd, second: &Cmd) -> Fallible<(Value, Value)> {
        let (generation, [first, second]) = self.exchange(first, second).await?;
        Ok((self.settle(generation, into_result(first))?, self.settle(generation, into_result(second))?))
    }

    /// Sends a command to the server that a slot is moving to.
    pub(crate) async fn send_asking(&self, command: &Cmd) -> Fallible<Value> {
        let (generation, [_, reply]) = self.exchange(&redis::cmd("ASKING"), command).await?;
        self.settle(generation, into_result(reply))
    }

    /// Two commands and their answers, errors among them, with the generation of the connection.
    async fn exchange(&self, first: &Cmd, second: &Cmd) -> Fallible<(u64, [Value; 2])> {
        let (generation, answers) = if let Some(dedicated) = self.dedicated().await? {
            let generation = dedicated.generation();
            (generation, dedicated.send([first, second], self.connector.config.response_timeout).await)
        } else {
            let shared = self.shared().await?;
            let mut both = Pipeline::with_capacity(2);
            both.add_command(first.clone()).add_command(second.clone());
            let mut connection = shared.connection.clone();
            let answers = connection.send_packed_commands(&both, 0, 2).await;
            (shared.generation, answers.and_then(pair))
        };
        Ok((generation, self.settle(generation, answers)?))
    }

    fn settle<T>(&self, generation: u64, answer: redis::RedisResult<T>) -> Fallible<T> {
        answer.map_err(|error| {
            let failure = Failure::Sent(error);
            if failure.ends_connection() {
                // If one connection fails, the others to the same server most likely are lost too.
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

impl SendCommand for MultiplexedConnection {
    async fn send_command(&mut self, command: &Cmd) -> redis::RedisResult<Value> {
        // The driver returns an error reply as a value.
        self.send_packed_command(command).await.and_then(Value::extract_error)
    }
}

/// Turns an error reply into an error. No script returns one inside a list.
fn into_result(reply: Value) -> redis::RedisResult<Value> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

fn pair(answers: Vec<Value>) -> redis::RedisResult<[Value; 2]> {
    let count = (redis::ErrorKind::Parse, "two commands have two answers");
    <[Value; 2]>::try_from(answers).map_err(|_| count.into())
}

fn rank(durability: Durability) -> u8 {
    match durability {
        Durability::None => 0,
        Durability::Process => 1,
        Durability::Power => 2,
    }
}

async fn read_certificates(path: &Path) -> Result<Vec<u8>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    read.ok()
        .and_then(|read| read.ok())
        .ok_or_else(|| Error::invalid(OPERATION, "url", "names a `tls_ca_file` that cannot be read"))
}
