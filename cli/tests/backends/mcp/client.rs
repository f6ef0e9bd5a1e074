//! Servers and clients of the tests.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use larder::Stores;
use larder_kernel::Namespace;
use rmcp::model::{CallToolRequestParams, ClientConfig, ProtocolVersion};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ServiceExt as _};
use serde_json::{Map, Value};

pub(crate) const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// The location of a test's data.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) namespace: String,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("larder.db").display());
        Self { _folder: Some(folder), ..Self::at(url) }
    }

    pub(crate) fn at(url: String) -> Self {
        static TESTS: AtomicU64 = AtomicU64::new(0);
        let test = TESTS.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("mcp-{}-{test}", std::process::id());
        Self { url, namespace, _folder: None }
    }

    pub(crate) async fn stores(&self) -> Stores {
        let namespace = Namespace::new(&self.namespace).unwrap();
        Stores::builder().url(&self.url).namespace(namespace).open().await.unwrap()
    }

    pub(crate) async fn erase(&self) {
        self.stores().await.erase().await.unwrap();
    }

    fn arguments(&self) -> [&str; 5] {
        ["mcp", "--store", &self.url, "--namespace", &self.namespace]
    }

    /// Starts a separate server over standard input and output.
    pub(crate) async fn stdio(&self, more: &[&str]) -> Client {
        let mut command = tokio::process::Command::new(LARDER);
        command.args(self.arguments()).args(more);
        Client(().serve(TokioChildProcess::new(command).unwrap()).await.unwrap())
    }

    /// Starts a separate server over HTTP.
    pub(crate) fn http(&self, more: &[&str], token: Option<&str>) -> HttpServer {
        let mut command = Command::new(LARDER);
        command.args(self.arguments()).args(["--http", "127.0.0.1:0"]).args(more);
        command.env_remove("LARDER_MCP_TOKEN").stderr(Stdio::piped());
        if let Some(token) = token {
            command.env("LARDER_MCP_TOKEN", token);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let (_, url) = line.trim().split_once("serves MCP at ").unwrap_or_else(|| panic!("{line}"));
        HttpServer { child, url: url.to_owned() }
    }
}

/// A server that ends with the test.
pub(crate) struct HttpServer {
    child: Child,
    pub(crate) url: String,
}

impl HttpServer {
    /// A client that starts without a handshake, which servers since the standard of 2026-07-28 allow.
    pub(crate) async fn client(&self) -> Client {
        Client(().serve(StreamableHttpClientTransport::from_uri(&*self.url)).await.unwrap())
    }

    /// A client that begins with a handshake and has a session.
    pub(crate) async fn session(&self, token: Option<&str>) -> Client<ClientConfig> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(&*self.url);
        if let Some(token) = token {
            config = config.auth_header(token);
        }
        let client = ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        Client(client.serve(StreamableHttpClientTransport::from_config(config)).await.unwrap())
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The connection of one client to a server.
pub(crate) struct Client<H: ClientHandler = ()>(pub(crate) RunningService<RoleClient, H>);

impl<H: ClientHandler> Client<H> {
    /// Calls a tool and returns its result, or its `error`.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = self.0.call_tool(request).await.unwrap();
        let text = result.content[0].as_text().unwrap().text.clone();
        let content = result.structured_content.unwrap();
        if result.is_error == Some(true) {
            let error = content["error"].clone();
            assert!(text.contains(error["kind"].as_str().unwrap()), "{text}");
            return Err(error);
        }
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), content);
        Ok(content)
    }

    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// Returns the kind of the error with which a call is refused.
    pub(crate) async fn refused(&self, tool: &str, arguments: Value) -> String {
        let error = self.call(tool, arguments).await.expect_err(tool);
        error["kind"].as_str().unwrap().to_owned()
    }

    /// Returns all items of a listing, page by page.
    pub(crate) async fn all(&self, tool: &str, items: &str, arguments: Value) -> Vec<Value> {
        let Value::Object(mut arguments) = arguments else { panic!("arguments are an object") };
        let mut all = Vec::new();
        loop {
            let mut page = self.ok(tool, Value::Object(arguments.clone())).await;
            all.extend(page[items].as_array().unwrap().iter().cloned());
            match page.as_object_mut().and_then(|page: &mut Map<_, _>| page.remove("next_cursor")) {
                Some(cursor) => arguments.insert("cursor".to_owned(), cursor),
                None => return all,
            };
        }
    }

    pub(crate) async fn end(self) {
        self.0.cancel().await.unwrap();
    }
}
