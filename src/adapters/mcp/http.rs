//! Serving over streamable HTTP.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use larder_kernel::{Error, ErrorKind, KeyValueStore, Result};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};

use super::event::KeyValueEventStore;
use super::message::{self, MESSAGE_BYTES_MAX as BODY_BYTES_MAX, Verdict};
use super::server::McpServer;
use super::session::KeyValueSessionStore;

const OPERATION: &str = "mcp.serve_http";
/// The path of the endpoint.
const PATH: &str = "/mcp";
/// The maximum number of concurrent connections. A further connection waits until another ends.
const CONNECTIONS_MAX: usize = 512;
/// The default for the number of sessions. A session that is idle for five minutes ends.
const SESSIONS_MAX_DEFAULT: usize = 1_000;
/// The time limit for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for open connections when the server stops.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The host names of this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

type Answer = Response<BoxBody<Bytes, Infallible>>;
type Service = StreamableHttpService<McpServer, LocalSessionManager>;

/// The access rules of a server over HTTP, and its storage for sessions.
///
/// By default, the server accepts only clients on this machine that use a loopback name in `Host`, and no web
/// pages except from the server's loopback origin, such as `http://localhost:8765`. A request with an
/// `Origin` that is not allowed gets status `403`, as the MCP standard requires against DNS rebinding.
#[derive(Clone)]
pub struct HttpOptions {
    hosts: Vec<String>,
    origins: Vec<String>,
    token: Option<[u8; 32]>,
    sessions: Option<Arc<dyn KeyValueStore>>,
    sessions_max: usize,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let (hosts, origins) = (Vec::new(), Vec::new());
        Self { hosts, origins, token: None, sessions: None, sessions_max: SESSIONS_MAX_DEFAULT }
    }
}

impl HttpOptions {
    /// Creates options that accept only clients on this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts this name in `Host`, such as `memory.example.com` or `memory.example.com:8080`.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Accepts web pages of this origin, such as `https://app.example.com:443` or `http://localhost:*`.
    #[must_use]
    pub fn with_origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Requires this token in every request: `Authorization: Bearer TOKEN`. The options keep only its hash.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(Sha256::digest(token).into());
        self
    }

    /// Sets the store for sessions, kept for a day, and for stream events, kept for an hour. With it, clients
    /// continue after a restart and resume streams after a lost connection.
    #[must_use]
    pub fn with_sessions(mut self, store: impl Into<Arc<dyn KeyValueStore>>) -> Self {
        self.sessions = Some(store.into());
        self
    }

    /// Sets the maximum number of sessions in this process; the default is 1,000. An `initialize`
    /// request gets status `503` while so many sessions exist. A session that is idle for five minutes ends.
    #[must_use]
    pub fn with_sessions_max(mut self, sessions_max: usize) -> Self {
        self.sessions_max = sessions_max;
        self
    }

    /// Returns the rules of a server at a port. A page of the server's loopback
    /// origin is on this machine, so it is accepted like a client without an `Origin`.
    fn config(&self, port: u16) -> StreamableHttpServerConfig {
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{port}"));
        let origins = own.into_iter().chain(self.origins.iter().cloned());
        let hosts = LOOPBACK.into_iter().map(str::to_owned).chain(self.hosts.iter().cloned());
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(BODY_BYTES_MAX);
        if let Some(store) = &self.sessions {
            config.session_store = Some(Arc::new(KeyValueSessionStore::new(Arc::clone(store))));
        }
        config
    }

    fn manager(&self) -> LocalSessionManager {
        let manager = LocalSessionManager::default();
        match &self.sessions {
            Some(store) => manager.with_event_store(Arc::new(KeyValueEventStore::new(Arc::clone(store)))),
            None => manager,
        }
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .field("token", &self.token.is_some())
            .field("sessions", &self.sessions.is_some())
            .field("sessions_max", &self.sessions_max)
            .finish()
    }
}

/// Serves clients over streamable HTTP at the path `/mcp` until `stop` completes, then ends within five
/// seconds.
///
/// The server has no TLS. To serve other machines, put a TLS proxy in front of it.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use larder::Stores;
/// use larder::adapters::mcp::{HttpOptions, McpServer, serve_http};
///
/// let server = McpServer::new(larder::open("sqlite:./larder.db").await?);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8765").await?;
/// serve_http(listener, server, &HttpOptions::new(), std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidInput` naming `token` if other machines can reach the listener and the options have no token;
/// `Unavailable` if the listener fails.
///
/// # Cancellation
/// Dropping the future stops the listener immediately; open connections end with the runtime.
pub async fn serve_http(
    listener: TcpListener,
    server: McpServer,
    options: &HttpOptions,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let address = listener.local_addr();
    let address =
        address.map_err(|_| Error::new(ErrorKind::Unavailable, OPERATION, "the listener has no address"))?;
    if !address.ip().is_loopback() && options.token.is_none() {
        let message = "is required if other machines can reach the server; set one or listen on 127.0.0.1";
        return Err(Error::invalid(OPERATION, "token", message));
    }
    let config = options.config(address.port());
    let ended = config.cancellation_token.clone();
    let manager = Arc::new(options.manager());
    let gate = Arc::new(SessionGate {
        manager: Arc::clone(&manager),
        sessions_max: options.sessions_max,
        starting: Mutex::default(),
    });
    let service = StreamableHttpService::new(move || Ok(server.clone()), manager, config);
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            listener.accept().await.ok().map(|(stream, _)| (stream, place))
        };
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept => accepted,
        };
        let Some((stream, place)) = accepted else {
            // The process has no free file descriptors or the client left. An immediate retry helps in
            // neither case.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (service, token, gate) = (service.clone(), options.token, Arc::clone(&gate));
        let answer = service_fn(move |request| {
            let (service, gate) = (service.clone(), Arc::clone(&gate));
            async move { Ok::<_, Infallible>(respond(&service, &gate, token.as_ref(), request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A broken connection concerns only its client, which sees it.
            let _ = connection.await;
            drop(place);
        });
    }
    ended.cancel();
    // Connections that do not end in time are cut off with the runtime.
    let _ = tokio::time::timeout(END_TIMEOUT, graceful.shutdown()).await;
    Ok(())
}

/// The limit of the number of sessions.
struct SessionGate {
    manager: Arc<LocalSessionManager>,
    sessions_max: usize,
    /// Held from the check of the limit until the session exists, so that one session starts at a time.
    starting: Mutex<()>,
}

impl SessionGate {
    /// Returns true if no further session fits.
    async fn is_full(&self) -> bool {
        self.manager.sessions.read().await.len() >= self.sessions_max
    }
}

/// Returns true for an `initialize` request. Clients of newer protocols send requests without a session.
fn starts_session(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        method: String,
    }
    serde_json::from_slice::<Head>(message).is_ok_and(|head| head.method == "initialize")
}

async fn respond(
    service: &Service,
    gate: &SessionGate,
    token: Option<&[u8; 32]>,
    request: Request<Incoming>,
) -> Answer {
    if request.uri().path() != PATH {
        return refused(StatusCode::NOT_FOUND, "Not Found: the server serves MCP at /mcp");
    }
    if token.is_some_and(|token| !bears(request.headers().get(AUTHORIZATION), token)) {
        let mut answer = refused(StatusCode::UNAUTHORIZED, "Unauthorized: the token is missing or wrong");
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    }
    if request.method() != Method::POST {
        return service.handle(request).await;
    }
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => {
            return refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the message is longer than 16 MiB; send it in parts",
            );
        }
    };
    let starting = if starts_session(&body) { Some(gate.starting.lock().await) } else { None };
    if starting.is_some() && gate.is_full().await {
        let reason = "Service Unavailable: too many sessions are open; end one, or try again in five minutes";
        return refused(StatusCode::SERVICE_UNAVAILABLE, reason);
    }
    match message::check(&body) {
        Verdict::Refuse(answer) => {
            let mut answer = Response::new(Full::new(Bytes::from(answer)).boxed());
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        _ => service.handle(Request::from_parts(head, Full::new(body))).await,
    }
}

/// Returns whether the header contains the token. It compares hashes, so the duration reveals nothing about
/// the token.
fn bears(header: Option<&HeaderValue>, token: &[u8; 32]) -> bool {
    let Some((scheme, given)) = header.and_then(|value| value.to_str().ok()?.split_once(' ')) else {
        return false;
    };
    let given: [u8; 32] = Sha256::digest(given.trim()).into();
    scheme.eq_ignore_ascii_case("bearer") && given == *token
}

fn refused(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
