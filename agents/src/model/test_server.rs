//! A model server for tests: real HTTP on the loopback interface, with scripted replies.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_kernel::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The largest request that the server reads, in bytes.
const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A scripted reply of the server.
#[derive(Debug, Clone)]
pub struct ScriptedReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    delay: Duration,
    cut_at: Option<usize>,
}

impl ScriptedReply {
    /// Creates a reply with a status and a JSON body.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::body(status, body.to_string())
    }

    /// Creates a reply with a status and any body.
    #[must_use]
    pub fn body(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".into(), "application/json".into())];
        Self { status, headers, body: body.into(), delay: Duration::ZERO, cut_at: None }
    }

    /// Creates a reply with a model's text answer.
    #[must_use]
    pub fn answer(text: &str) -> Self {
        Self::message(&json!({"role": "assistant", "content": text}), "stop")
    }

    /// Creates a reply with a model's message in the server's format, and the reason that it stopped.
    #[must_use]
    pub fn message(message: &Value, finish_reason: &str) -> Self {
        let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
        let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
        Self::json(200, &json!({"object": "chat.completion", "choices": [choice], "usage": usage}))
    }

    /// Creates a reply with embeddings, in the order of the texts.
    #[must_use]
    pub fn embeddings(embeddings: &[Vec<f32>]) -> Self {
        let item = |(index, embedding)| json!({"index": index, "embedding": embedding});
        let data: Vec<Value> = embeddings.iter().enumerate().map(item).collect();
        Self::json(200, &json!({"object": "list", "data": data}))
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Delays the reply.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Closes the connection after this number of bytes of the body.
    #[must_use]
    pub fn cut_at(mut self, bytes: usize) -> Self {
        self.cut_at = Some(bytes);
        self
    }
}

/// A request that the server received.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScriptedRequest {
    /// The path, for example `/v1/chat/completions`.
    pub path: String,
    /// The headers, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The body, or `null` if it was not JSON.
    pub body: Value,
}

impl ScriptedRequest {
    /// Returns the value of a header, by its lowercase name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

type Answer = dyn Fn(&ScriptedRequest) -> ScriptedReply + Send + Sync;

struct Shared {
    replies: Mutex<VecDeque<ScriptedReply>>,
    otherwise: Box<Answer>,
    requests: Mutex<Vec<ScriptedRequest>>,
}

/// An OpenAI-compatible server on the loopback interface with scripted replies.
///
/// The server uses real HTTP, so a test of a client covers its whole transport. It stops on drop.
///
/// ```
/// use larder_agents::model::{ScriptedModelServer, ScriptedReply};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let server = ScriptedModelServer::start([ScriptedReply::answer("Hello")]).await?;
/// assert!(server.base_url().starts_with("http://127.0.0.1:"));
/// assert!(server.requests().is_empty());
/// # Ok(())
/// # }
/// ```
pub struct ScriptedModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for ScriptedModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModelServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for ScriptedModelServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ScriptedModelServer {
    /// Starts a server that returns these replies in order, and then status 500.
    ///
    /// # Errors
    /// `Unavailable` if the loopback interface has no free port.
    pub async fn start(replies: impl IntoIterator<Item = ScriptedReply>) -> Result<Self> {
        let over = |_: &ScriptedRequest| ScriptedReply::body(500, "the script is over");
        Self::start_with(replies, over).await
    }

    /// Starts a server that returns these replies in order, and then calls the function for each request.
    ///
    /// # Errors
    /// `Unavailable` if the loopback interface has no free port.
    pub async fn start_with(
        replies: impl IntoIterator<Item = ScriptedReply>,
        otherwise: impl Fn(&ScriptedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |_: io::Error| Error::new(ErrorKind::Unavailable, "test_server.start", "no free port");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            replies: Mutex::new(replies.into_iter().collect()),
            otherwise: Box::new(otherwise),
            requests: Mutex::new(Vec::new()),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    /// Returns the address for a client.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests received so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ScriptedRequest> {
        lock(&self.shared.requests).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves each connection in its own task. All tasks end with this one.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = shared.clone();
        connections.spawn(async move {
            // Tests may drop a connection in the middle of a request.
            let _ = serve(stream, &shared).await;
        });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
    let next = lock(&shared.replies).pop_front();
    let reply = next.unwrap_or_else(|| (shared.otherwise)(&request));
    lock(&shared.requests).push(request);
    tokio::time::sleep(reply.delay).await;
    let mut head = format!(
        "HTTP/1.1 {} Scripted\r\nconnection: close\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let cut = reply.cut_at.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&reply.body[..cut]).await?;
    stream.shutdown().await
}

/// Reads one request. Returns `None` for one that is truncated, too large or not HTTP.
async fn read_request(stream: &mut TcpStream) -> io::Result<Option<ScriptedRequest>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map(|(_, value)| value.parse::<usize>());
    let Some(Ok(length)) = length else { return Ok(None) };
    let body_start = head_end + 4;
    if length > REQUEST_BYTES_MAX {
        return Ok(None);
    }
    while bytes.len() < body_start + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&bytes[body_start..body_start + length]).unwrap_or(Value::Null);
    Ok(Some(ScriptedRequest { path, headers, body }))
}
