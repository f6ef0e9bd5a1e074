//! The MCP server over open stores.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use larder::adapters::mcp::{HttpOptions, McpServer, serve_http, serve_stdio};
use larder::{Error, ErrorKind, KeyValue, Outcome};
use pyo3::prelude::*;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{invalid, text};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

/// A server over the stores of one namespace. It serves once.
#[pyclass(frozen, module = "larder._native", name = "McpServer")]
pub(crate) struct NativeMcpServer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) server: Owned<McpServer>,
    /// The store for sessions, if the stores have one.
    pub(crate) key_value: Owned<Option<KeyValue>>,
    pub(crate) stop: Arc<Notify>,
}

/// A server that listens on an address and has not begun to serve.
#[pyclass(frozen, module = "larder._native", name = "McpListener")]
pub(crate) struct NativeMcpListener {
    shared: Arc<Shared>,
    address: SocketAddr,
    parts: Mutex<Owned<Parts>>,
    stop: Arc<Notify>,
}

type Parts = (TcpListener, McpServer, HttpOptions);

#[pymethods]
impl NativeMcpServer {
    /// Returns the number of offered tools.
    fn tools(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.server.get().or_raise(py)?.tools().len())
    }

    /// Serves one client over standard input and output, until it closes the input or the server is stopped.
    fn serve_stdio(&self, py: Python<'_>) -> PyResult<Call> {
        let (server, stop) = (self.server.get().or_raise(py)?.clone(), Arc::clone(&self.stop));
        let work = async move {
            tokio::select! {
                served = serve_stdio(server) => served,
                () = stop.notified() => Ok(()),
            }
        };
        self.shared.call(py, work, output::none)
    }

    /// Listens on an address.
    #[allow(clippy::too_many_arguments)]
    fn listen(
        &self,
        py: Python<'_>,
        address: &Bound<'_, PyAny>,
        hosts: Vec<String>,
        origins: Vec<String>,
        token: Option<String>,
        sessions_max: Option<usize>,
        keep_sessions: bool,
    ) -> PyResult<Call> {
        let Ok(address) = text("address", address)?.parse::<SocketAddr>() else {
            return Err(invalid(py, "address", "is not an IP address with a port, such as 127.0.0.1:8765"));
        };
        if !address.ip().is_loopback() && token.is_none() {
            let message = "can be reached from other machines; set LARDER_MCP_TOKEN, or listen on 127.0.0.1";
            return Err(invalid(py, "address", message));
        }
        let mut options = HttpOptions::new();
        options = hosts.iter().fold(options, |options, host| options.with_host(host));
        options = origins.iter().fold(options, |options, origin| options.with_origin(origin));
        if let Some(token) = token {
            options = options.with_token(&token);
        }
        if let Some(sessions_max) = sessions_max {
            options = options.with_sessions_max(sessions_max);
        }
        if keep_sessions {
            let Some(store) = self.key_value.get().or_raise(py)?.clone() else {
                return Err(invalid(py, "keep_sessions", "needs a backend with key-value stores; use one"));
            };
            options = options.with_sessions(store);
        }
        let server = self.server.get().or_raise(py)?.clone();
        let (shared, stop) = (Arc::clone(&self.shared), Arc::clone(&self.stop));
        let work = async move {
            let listener = TcpListener::bind(address).await.map_err(|error| cannot_listen(&error))?;
            let address = listener.local_addr().map_err(|error| cannot_listen(&error))?;
            Ok((listener, address))
        };
        self.shared.call(py, work, move |py, (listener, address)| {
            let parts = Mutex::new(Owned::new(shared.process, (listener, server, options)));
            Ok(Py::new(py, NativeMcpListener { shared, address, parts, stop })?.into_any())
        })
    }

    /// Ends the service, now or when it begins.
    fn stop(&self) {
        self.stop.notify_one();
    }
}

#[pymethods]
impl NativeMcpListener {
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Serves until the server is stopped. Open requests then have 5 s to end.
    fn serve(&self, py: Python<'_>) -> PyResult<Call> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stop = Arc::clone(&self.stop);
        let work = async move {
            let Some((listener, server, options)) = parts else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "mcp.serve_http",
                    "the server serves already",
                ));
            };
            serve_http(listener, server, &options, async move { stop.notified().await }).await
        };
        self.shared.call(py, work, output::none)
    }
}

fn cannot_listen(error: &std::io::Error) -> Error {
    let message = format!("cannot listen on the address: {error}");
    Error::new(ErrorKind::Unavailable, "mcp.listen", message).with_outcome(Outcome::NotApplied)
}
