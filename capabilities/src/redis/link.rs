//! One server's connections: made when they are needed, and replaced once they are lost.
//!
//! A call that is alone, or nearly so, has a line for itself. All others share one connection, whose task writes what
//! they ask and reads the answers for many of them at once; over TLS they always do.
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
use super::durability::{Examined, Fresh, examine};
use super::failure::{Failure, Fallible};
use super::line::{Line, Lines, Offer, Taken};

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

/// The shared connection, with what the server said about itself.
#[derive(Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    lost: Arc<AtomicBool>,
    generation: u64,
    pub(crate) examined: Examined,
}

/// One server and its present connections.
pub(crate) struct Link {
    dial: Arc<Dial>,
    address: Address,
    lines: Lines,
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

    async fn connect(&self, address: &Address, generation: u64) -> Fallible<Live> {
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
        let examined = self.examine(&mut connection).await?;
        Ok(Live { connection, lost, generation, examined })
    }

    async fn line(&self, address: &Address) -> Fallible<Line> {
        let making = async {
            let mut line = Line::connect(address, &self.config).await?;
            self.examine(&mut line).await?;
            Ok(line)
        };
        match tokio::time::timeout(self.config.connect_timeout, making).await {
            Ok(made) => made,
            Err(_) => Err(Failure::Connect(std::io::Error::from(std::io::ErrorKind::TimedOut).into())),
        }
    }

    /// Refuses a server that lets the stores declare less than they did.
    async fn examine(&self, connection: &mut impl Fresh) -> Fallible<Examined> {
        let examined = examine(connection).await?;
        if rank(examined.durability) < self.declared.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the server persists less than it did when it was opened; open it again",
            )
            .with_outcome(Outcome::NotApplied)
            .into());
        }
        Ok(examined)
    }

    /// With TLS, what is no refusal is a certificate, or a server without TLS, which may wait in silence for the end of
    /// the line.
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

impl Link {
    pub(crate) fn new(dial: Arc<Dial>, address: Address) -> Self {
        Self { dial, address, lines: Lines::new(), live: Mutex::new(None), silences: AtomicU64::new(0) }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The shared connection, made anew where there is none. Calls that come meanwhile wait for the same one, and where
    /// the server stays silent, they end with it rather than wait again one after the other.
    pub(crate) async fn live(&self) -> Fallible<Live> {
        let silences = self.silences.load(Ordering::Acquire);
        let mut live = self.live.lock().await;
        let generation = self.lines.generation();
        let good = |live: &&Live| live.generation == generation && !live.lost.load(Ordering::Acquire);
        if let Some(live) = live.as_ref().filter(good) {
            return Ok(live.clone());
        }
        *live = None;
        if self.silences.load(Ordering::Acquire) != silences {
            return Err(Failure::Connect(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        }
        let made = match self.dial.connect(&self.address, generation).await {
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

    /// Whether there is a connection that is not known to be lost. One that is being made counts.
    pub(crate) fn is_connected(&self) -> bool {
        let Ok(live) = self.live.try_lock() else { return true };
        self.lines.are_open() || live.as_ref().is_some_and(|live| !live.lost.load(Ordering::Acquire))
    }

    /// A line for one call, where one is free or can be made. Where the server refuses one more connection, calls share
    /// the one that there is; only a call that waited for a silent server ends.
    async fn line(&self) -> Fallible<Option<Taken<'_>>> {
        if self.dial.config.tls {
            return Ok(None);
        }
        let seat = match self.lines.offer() {
            Offer::Line(taken) => return Ok(Some(taken)),
            Offer::None => return Ok(None),
            Offer::Seat(seat) => seat,
        };
        match Box::pin(self.dial.line(&self.address)).await {
            Ok(line) => Ok(Some(seat.with(line))),
            Err(failure) => {
                seat.pause();
                if failure.is_silence() { Err(failure) } else { Ok(None) }
            }
        }
    }

    /// Sends a command and waits for the answer.
    pub(crate) async fn send(&self, command: &Cmd) -> Fallible<Value> {
        if let Some(line) = self.line().await? {
            let generation = line.generation();
            let sent = line.send([command], self.dial.config.response_timeout).await;
            return self.settle(generation, sent.and_then(|[answer]| refused(answer)));
        }
        self.share(&self.live().await?, command).await
    }

    /// The same on the shared connection.
    pub(crate) async fn share(&self, live: &Live, command: &Cmd) -> Fallible<Value> {
        let mut connection = live.connection.clone();
        let answer = connection.send_packed_command(command).await;
        self.settle(live.generation, answer.and_then(refused))
    }

    /// Sends two commands at once and waits for both answers.
    pub(crate) async fn send_both(&self, first: &Cmd, second: &Cmd) -> Fallible<(Value, Value)> {
        let (generation, [first, second]) = self.exchange(first, second).await?;
        Ok((self.settle(generation, refused(first))?, self.settle(generation, refused(second))?))
    }

    /// Sends a command to the server that a slot is moving to.
    pub(crate) async fn send_asking(&self, command: &Cmd) -> Fallible<Value> {
        let (generation, [_, answer]) = self.exchange(&redis::cmd("ASKING"), command).await?;
        self.settle(generation, refused(answer))
    }

    /// Two commands and their answers, errors among them, with the generation of the connection.
    async fn exchange(&self, first: &Cmd, second: &Cmd) -> Fallible<(u64, [Value; 2])> {
        let (generation, answers) = if let Some(line) = self.line().await? {
            let generation = line.generation();
            (generation, line.send([first, second], self.dial.config.response_timeout).await)
        } else {
            let live = self.live().await?;
            let mut both = Pipeline::with_capacity(2);
            both.add_command(first.clone()).add_command(second.clone());
            let mut connection = live.connection.clone();
            let answers = connection.send_packed_commands(&both, 0, 2).await;
            (live.generation, answers.and_then(pair))
        };
        Ok((generation, self.settle(generation, answers)?))
    }

    fn settle<T>(&self, generation: u64, answer: redis::RedisResult<T>) -> Fallible<T> {
        answer.map_err(|error| {
            let failure = Failure::Sent(error);
            if failure.ends_connection() {
                // One connection that fails puts the others to the same server in doubt.
                self.lines.retire(generation);
            }
            failure
        })
    }

    /// Lets go of the connections; calls under way end on them.
    pub(crate) async fn close(&self) {
        self.lines.retire(self.lines.generation());
        self.live.lock().await.take();
    }
}

impl Fresh for MultiplexedConnection {
    async fn ask(&mut self, command: &Cmd) -> redis::RedisResult<Value> {
        // The driver hands over a refusal as an answer.
        self.send_packed_command(command).await.and_then(Value::extract_error)
    }
}

/// An answer that is an error. No script answers one inside a list.
fn refused(answer: Value) -> redis::RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
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
