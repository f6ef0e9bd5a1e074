//! One server's connection: made when it is needed, shared by all calls, and replaced once it is lost.
//!
//! The driver would send a command again after a lost connection in some modes. Here nobody does: a write that may have
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

use super::config::{Address, RedisConfig, Servers};
use super::durability::{Examined, examine};
use super::failure::{Failure, Fallible};

const OPERATION: &str = "redis.open";
/// Calls that may wait to be written. More wait in line.
const QUEUED_CALLS_MAX: usize = 1_024;

/// How to make connections to any server of one place.
pub(crate) struct Dial {
    config: RedisConfig,
    certificates: Option<TlsCertificates>,
    /// What the stores declared; a server that has become weaker is refused. Counts up from none.
    declared: AtomicU8,
}

/// A connection that was made, with what the server said about itself.
#[derive(Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    lost: Arc<AtomicBool>,
    pub(crate) examined: Examined,
}

/// One server and its present connection.
pub(crate) struct Link {
    dial: Arc<Dial>,
    address: Address,
    live: Mutex<Option<Live>>,
    /// How often the server stayed silent for as long as making a connection may take.
    silences: AtomicU64,
}

impl Dial {
    /// Reads what the settings name. No connection is made yet.
    pub(crate) async fn new(config: RedisConfig) -> Result<Self> {
        if config.tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            // The driver panics without one. Should another thread be quicker, its choice stands.
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

    /// Holds every later connection to what the stores declare.
    pub(crate) fn declare(&self, durability: Durability) {
        self.declared.store(rank(durability), Ordering::Relaxed);
    }

    /// The client for one server.
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

    async fn connect(&self, address: &Address) -> Fallible<Live> {
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
        let examined = examine(&mut connection).await?;
        if rank(examined.durability) < self.declared.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the server persists less than it did when it was opened; open it again",
            )
            .with_outcome(Outcome::NotApplied)
            .into());
        }
        Ok(Live { connection, lost, examined })
    }

    /// With TLS, what is no refusal is a certificate, or a server without TLS, which may wait in silence for the end of
    /// the line.
    fn explain(&self, error: redis::RedisError) -> Failure {
        if !self.config.tls || !error.is_io_error() || error.is_connection_refusal() {
            return Failure::Connect(error);
        }
        let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
        let message = "no trusted TLS connection to the server; does it speak TLS, and is its certificate valid for \
                       the host of the URL? Name a private authority in `tls_ca_file`";
        Error::new(kind, OPERATION, message).with_outcome(Outcome::NotApplied).into()
    }
}

impl Link {
    pub(crate) fn new(dial: Arc<Dial>, address: Address) -> Self {
        Self { dial, address, live: Mutex::new(None), silences: AtomicU64::new(0) }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The connection, made anew where there is none. Calls that come meanwhile wait for the same one, and where the
    /// server stays silent, they end with it rather than wait again one after the other.
    pub(crate) async fn live(&self) -> Fallible<Live> {
        let silences = self.silences.load(Ordering::Acquire);
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| !live.lost.load(Ordering::Acquire)) {
            return Ok(live.clone());
        }
        *live = None;
        if self.silences.load(Ordering::Acquire) != silences {
            return Err(Failure::Connect(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        }
        let made = match self.dial.connect(&self.address).await {
            Ok(made) => made,
            Err(failure) => {
                if failure.is_silence() {
                    self.silences.fetch_add(1, Ordering::AcqRel);
                }
                return Err(failure);
            }
        };
        *live = Some(made.clone());
        Ok(made)
    }

    /// Lets go of the connection; calls under way end on it.
    pub(crate) async fn close(&self) {
        self.live.lock().await.take();
    }
}

impl Live {
    /// Sends a command and waits for the answer.
    pub(crate) async fn send(&self, command: &Cmd) -> Fallible<Value> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(command).await;
        self.settle(answer.and_then(Value::extract_error))
    }

    /// Sends two commands at once and waits for both answers.
    pub(crate) async fn send_both(&self, first: &Cmd, second: &Cmd) -> Fallible<(Value, Value)> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(first.clone()).add_command(second.clone());
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&both, 0, 2).await;
        let mut answers =
            self.settle(answers.map(Value::Array))?.into_sequence().unwrap_or_default().into_iter();
        let mut next = || self.settle(answers.next().unwrap_or(Value::Nil).extract_error());
        Ok((next()?, next()?))
    }

    /// Sends a command to the server that a slot is moving to.
    pub(crate) async fn send_asking(&self, command: &Cmd) -> Fallible<Value> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let mut connection = self.connection.clone();
        let answers = connection.send_packed_commands(&both, 1, 1).await;
        let answer = answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil));
        self.settle(answer.and_then(Value::extract_error))
    }

    fn settle(&self, answer: redis::RedisResult<Value>) -> Fallible<Value> {
        answer.map_err(|error| {
            let failure = Failure::Sent(error);
            if failure.ends_connection() {
                self.lost.store(true, Ordering::Release);
            }
            failure
        })
    }
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
