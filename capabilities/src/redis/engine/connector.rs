//! Opening connections to the servers of one database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use larder_kernel::{Durability, Error, ErrorKind, Outcome, Result};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, TlsCertificates, Value,
};

use super::dedicated_connection::DedicatedConnection;
use super::server_info::{SendCommand, ServerInfo, examine, replicated};
use crate::redis::config::{Address, RedisConfig};
use crate::redis::failure::{Failure, Fallible};

const OPERATION: &str = "redis.open";
/// The maximum number of calls that wait to be written to the shared connection. Further calls wait for
/// capacity.
const QUEUED_CALLS_MAX: usize = 1_024;

/// Opens connections to any server of one database.
pub(crate) struct Connector {
    config: RedisConfig,
    certificates: Option<TlsCertificates>,
    /// The rank of the durability that the stores declared. A server with weaker durability is rejected.
    declared: AtomicU8,
    /// The number of replicas that confirm each write of the stores; 0 if writes do not wait.
    confirmed_by: AtomicU32,
}

/// The shared connection, with the settings of its server.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    pub(super) connection: MultiplexedConnection,
    lost: Arc<AtomicBool>,
    pub(super) generation: u64,
    pub(crate) info: ServerInfo,
}

impl Connector {
    /// Reads the files that the settings name. No connection is opened yet.
    pub(crate) async fn new(config: RedisConfig) -> Result<Self> {
        if config.tls && rustls::crypto::CryptoProvider::get_default().is_none() {
            // The driver panics without a provider. If another thread installs one first, that one is used.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let certificates = match &config.tls_ca_file {
            None => None,
            Some(path) => {
                Some(TlsCertificates { client_tls: None, root_cert: Some(read_certificates(path).await?) })
            }
        };
        Ok(Self { config, certificates, declared: AtomicU8::new(0), confirmed_by: AtomicU32::new(0) })
    }

    pub(crate) fn config(&self) -> &RedisConfig {
        &self.config
    }

    /// Sets the durability that every later connection must reach.
    pub(crate) fn declare(&self, durability: Durability) {
        self.declared.store(rank(durability), Ordering::Relaxed);
    }

    /// Sets the number of replicas that confirm each write.
    pub(super) fn confirm_by(&self, replicas: u32) {
        self.confirmed_by.store(replicas, Ordering::Relaxed);
    }

    pub(super) fn confirmed_by(&self) -> u32 {
        self.confirmed_by.load(Ordering::Relaxed)
    }

    /// Returns a client for one server.
    pub(crate) fn client(&self, address: &Address, protocol: ProtocolVersion) -> Fallible<Client> {
        let login = self.login(protocol).set_db(self.config.servers.database());
        self.client_with(address, login)
    }

    /// Returns the settings of a login with the user and the password of the URL.
    pub(super) fn login(&self, protocol: ProtocolVersion) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_protocol(protocol);
        if let Some(user) = &self.config.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.config.password {
            login = login.set_password(password);
        }
        login
    }

    /// Returns a client that logs in as given.
    pub(super) fn client_with(&self, address: &Address, login: RedisConnectionInfo) -> Fallible<Client> {
        let (host, port) = address.clone();
        let addr = if self.config.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let info = addr.into_connection_info().map_err(Failure::Connect)?.set_redis_settings(login);
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        client.map_err(Failure::Connect)
    }

    /// Opens a shared connection.
    pub(super) async fn connect(&self, address: &Address, generation: u64) -> Fallible<SharedConnection> {
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

    pub(super) async fn connect_dedicated(&self, address: &Address) -> Fallible<DedicatedConnection> {
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

    /// Rejects a server that is less durable than the stores declared, and a replica that a sentinel still
    /// named as the primary.
    async fn examine(&self, connection: &mut impl SendCommand) -> Fallible<ServerInfo> {
        let mut info = examine(connection).await?;
        if self.config.servers.is_sentinel() {
            if !info.primary {
                return Err(demoted().into());
            }
            // Writes still wait for as many replicas as the first server required.
            let needed = match self.confirmed_by() {
                0 => info.replicas_needed,
                waited => info.replicas_needed.min(waited),
            };
            info.durability = replicated(info.durability, needed, info.replicas);
        }
        if rank(info.durability) < self.declared.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the server's durability is lower than when it was opened; open it again",
            )
            .with_outcome(Outcome::NotApplied)
            .into());
        }
        Ok(info)
    }

    /// Translates an error of connecting. With TLS, an I/O error other than a refused connection means a bad
    /// certificate or a server without TLS. Such a server may wait for more input until the timeout.
    pub(crate) fn explain(&self, error: redis::RedisError) -> Failure {
        if !self.config.tls || !error.is_io_error() || error.is_connection_refusal() {
            return Failure::Connect(error);
        }
        let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
        let message = "no trusted TLS connection to the server; check that it uses TLS and that its \
                       certificate is valid for the URL's host, or name a private authority in `tls_ca_file`";
        Error::new(kind, OPERATION, message).with_outcome(Outcome::NotApplied).into()
    }
}

impl SharedConnection {
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl SendCommand for MultiplexedConnection {
    async fn send_command(&mut self, command: &Cmd) -> redis::RedisResult<Value> {
        // The driver returns an error reply as a value.
        self.send_packed_command(command).await.and_then(Value::extract_error)
    }
}

/// Returns the error for a server that was the primary, or is not yet.
fn demoted() -> Error {
    let message = "the server that the sentinels name is a replica; a failover is under way, try again";
    Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied)
}

fn rank(durability: Durability) -> u8 {
    match durability {
        Durability::Process => 1,
        Durability::Power => 2,
        // The server's settings give no other durability than these three.
        _ => 0,
    }
}

async fn read_certificates(path: &Path) -> Result<Vec<u8>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    read.ok()
        .and_then(|read| read.ok())
        .ok_or_else(|| Error::invalid(OPERATION, "url", "names a `tls_ca_file` that cannot be read"))
}
