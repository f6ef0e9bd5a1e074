//! Open stores.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use larder::adapters::mcp::McpServer;
use larder::checkpoint::Checkpointer;
use larder::{Contract, Error, ErrorKind, Namespace, Registry};
use pyo3::prelude::*;
use serde::Serialize;
use tokio::sync::Notify;

use crate::blobs::NativeBlobs;
use crate::call::Call;
use crate::checkpoints::NativeCheckpoints;
use crate::errors::OrRaise as _;
use crate::graph::NativeGraph;
use crate::history::NativeHistory;
use crate::input::{id, text};
use crate::key_value::NativeKeyValue;
use crate::mcp::NativeMcpServer;
use crate::output;
use crate::process::{Owned, Process};
use crate::tasks::NativeTasks;
use crate::toolkit::{NativeCompactionAgent, NativeContext, NativePipeline};
use crate::vectors::NativeVectors;

/// The schemes whose first step runs on an event loop: memory, and SQLite, which reads a bounded amount.
const INLINE: [&str; 2] = ["memory:", "sqlite:"];

/// The state that the handles of a store share.
pub(crate) struct Shared {
    pub(crate) process: &'static Process,
    pub(crate) inline: bool,
    closed: AtomicBool,
}

impl Shared {
    /// Refuses a closed store, and one of the parent process.
    pub(crate) fn check(&self) -> larder::Result<()> {
        self.process.check_fork()?;
        if !self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let message = "the store is closed; open it again";
        Err(Error::new(ErrorKind::Unavailable, "store", message).with_outcome(larder::Outcome::NotApplied))
    }

    /// Creates a call of a handle.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = larder::Result<T>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Call> {
        self.check().or_raise(py)?;
        Ok(Call::new(self.process, self.inline, work, convert))
    }

    /// Creates a call of a handle whose result is JSON.
    pub(crate) fn encoded<T: Serialize + Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = larder::Result<T>> + Send + 'static,
    ) -> PyResult<Call> {
        self.call(py, async move { output::encode(&work.await?) }, output::text)
    }

    /// As `encoded`, and never on the thread of an event loop: the call may compute for long.
    pub(crate) fn apart<T: Serialize + Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = larder::Result<T>> + Send + 'static,
    ) -> PyResult<Call> {
        self.check().or_raise(py)?;
        let work = async move { output::encode(&work.await?) };
        Ok(Call::new(self.process, false, work, output::text))
    }
}

/// The open stores of one namespace.
#[pyclass(frozen, module = "larder._native", name = "Stores")]
pub(crate) struct NativeStores {
    pub(crate) shared: Arc<Shared>,
    /// The number of URLs of SQLite.
    sqlite: usize,
    stores: Mutex<Owned<larder::Stores>>,
}

/// Opens the stores behind URLs.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    urls: Vec<Bound<'_, PyAny>>,
    namespace: &Bound<'_, PyAny>,
    read_only: bool,
) -> PyResult<Call> {
    let process = Process::current().or_raise(py)?;
    let namespace: Namespace = id("namespace", namespace)?;
    let mut builder = Registry::default().builder().namespace(namespace);
    let (mut inline, mut sqlite) = (true, 0);
    for url in &urls {
        let url = text("url", url)?;
        inline &= INLINE.iter().any(|scheme| url.starts_with(scheme));
        sqlite += usize::from(url.starts_with("sqlite:"));
        builder = builder.url(url);
    }
    if sqlite > 0 {
        process.check_sqlite().or_raise(py)?;
    }
    if read_only {
        builder = builder.read_only();
    }
    // Opening waits for files, so it never runs on an event loop.
    Ok(Call::new(process, false, builder.open(), move |py, stores| {
        process.sqlite.fetch_add(sqlite, Ordering::SeqCst);
        let shared = Arc::new(Shared { process, inline, closed: AtomicBool::new(false) });
        let stores = Mutex::new(Owned::new(process, stores));
        Ok(Py::new(py, NativeStores { shared, sqlite, stores })?.into_any())
    }))
}

/// Builds a pipeline. A strategy that summarizes needs a model and stores.
#[pyfunction]
pub(crate) fn pipeline(
    py: Python<'_>,
    settings: &str,
    model: Option<Py<PyAny>>,
    stores: Option<&NativeStores>,
) -> PyResult<NativePipeline> {
    let Some(stores) = stores else {
        let process = Process::current().or_raise(py)?;
        let shared = Arc::new(Shared { process, inline: false, closed: AtomicBool::new(false) });
        return NativePipeline::new(py, &shared, None, settings, model);
    };
    let set = stores.stores().or_raise(py)?.set().clone();
    NativePipeline::new(py, &stores.shared, Some(&set), settings, model)
}

impl NativeStores {
    pub(crate) fn stores(&self) -> larder::Result<larder::Stores> {
        self.shared.check()?;
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).get().cloned()
    }

    /// Marks the stores as closed.
    fn end(&self) {
        if !self.shared.closed.swap(true, Ordering::SeqCst) {
            self.shared.process.sqlite.fetch_sub(self.sqlite, Ordering::SeqCst);
        }
    }
}

#[pymethods]
impl NativeStores {
    fn history(&self, py: Python<'_>) -> PyResult<NativeHistory> {
        let handle = self.stores().and_then(|stores| stores.history()).or_raise(py)?;
        Ok(NativeHistory {
            shared: Arc::clone(&self.shared),
            handle: Owned::new(self.shared.process, handle),
        })
    }

    fn vectors(&self, py: Python<'_>) -> PyResult<NativeVectors> {
        let handle = self.stores().and_then(|stores| stores.vectors()).or_raise(py)?;
        Ok(NativeVectors {
            shared: Arc::clone(&self.shared),
            handle: Owned::new(self.shared.process, handle),
        })
    }

    fn graph(&self, py: Python<'_>) -> PyResult<NativeGraph> {
        let handle = self.stores().and_then(|stores| stores.graph()).or_raise(py)?;
        Ok(NativeGraph { shared: Arc::clone(&self.shared), handle: Owned::new(self.shared.process, handle) })
    }

    fn blobs(&self, py: Python<'_>) -> PyResult<NativeBlobs> {
        let handle = self.stores().and_then(|stores| stores.blobs()).or_raise(py)?;
        Ok(NativeBlobs { shared: Arc::clone(&self.shared), handle: Owned::new(self.shared.process, handle) })
    }

    fn tasks(&self, py: Python<'_>) -> PyResult<NativeTasks> {
        let handle = self.stores().and_then(|stores| stores.tasks()).or_raise(py)?;
        Ok(NativeTasks { shared: Arc::clone(&self.shared), handle: Owned::new(self.shared.process, handle) })
    }

    fn key_value(&self, py: Python<'_>) -> PyResult<NativeKeyValue> {
        let handle = self.stores().and_then(|stores| stores.key_value()).or_raise(py)?;
        Ok(NativeKeyValue {
            shared: Arc::clone(&self.shared),
            handle: Owned::new(self.shared.process, handle),
        })
    }

    /// Returns the checkpoints in the key-value store, with large values in the blob store if there is one.
    fn checkpoints(&self, py: Python<'_>) -> PyResult<NativeCheckpoints> {
        let checkpointer = || -> larder::Result<Checkpointer> {
            let stores = self.stores()?;
            let mut checkpointer = Checkpointer::new(stores.key_value()?.into());
            if stores.contracts().contains(&Contract::Blobs) {
                checkpointer = checkpointer.with_blobs(stores.blobs()?.into());
            }
            Ok(checkpointer)
        };
        let handle = Arc::new(checkpointer().or_raise(py)?);
        Ok(NativeCheckpoints {
            shared: Arc::clone(&self.shared),
            handle: Owned::new(self.shared.process, handle),
        })
    }

    /// Creates a context of an agent.
    fn context(
        &self,
        py: Python<'_>,
        agent: &Bound<'_, PyAny>,
        settings: &str,
        model: Option<Py<PyAny>>,
    ) -> PyResult<NativeContext> {
        let stores = self.stores().or_raise(py)?;
        NativeContext::new(py, &self.shared, stores.set(), agent, settings, model)
    }

    /// Creates an agent that shortens stored conversations.
    fn compaction_agent(
        &self,
        py: Python<'_>,
        settings: &str,
        model: Py<PyAny>,
    ) -> PyResult<NativeCompactionAgent> {
        let stores = self.stores().or_raise(py)?;
        NativeCompactionAgent::new(py, &self.shared, stores.set(), settings, model)
    }

    /// Creates an MCP server over the stores.
    fn mcp(&self, py: Python<'_>, read_only: bool) -> PyResult<NativeMcpServer> {
        let stores = self.stores().or_raise(py)?;
        let mut server = McpServer::new(stores.set().clone());
        if read_only {
            server = server.reading_only();
        }
        let (process, shared) = (self.shared.process, Arc::clone(&self.shared));
        let (server, key_value) = (Owned::new(process, server), Owned::new(process, stores.key_value().ok()));
        Ok(NativeMcpServer { shared, server, key_value, stop: Arc::new(Notify::new()) })
    }

    fn namespace(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.stores().or_raise(py)?.namespace().as_str().to_owned())
    }

    /// Returns the names of the contracts whose stores are open.
    fn contracts(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.stores().or_raise(py)?.contracts().iter().map(ToString::to_string).collect())
    }

    fn erase(&self, py: Python<'_>) -> PyResult<Call> {
        let stores = self.stores().or_raise(py)?;
        self.shared.call(py, async move { stores.erase().await }, output::none)
    }

    fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst)
    }

    /// Closes the stores. Closing them again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Call> {
        self.shared.process.check_fork().or_raise(py)?;
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.end();
        let work = async move {
            if let Some(stores) = stores {
                stores.close().await;
            }
            Ok(())
        };
        Ok(Call::new(self.shared.process, false, work, output::none))
    }

    /// Returns `true` in the process that opened the stores.
    fn is_own(&self) -> bool {
        self.shared.process.check_fork().is_ok()
    }
}

impl Drop for NativeStores {
    fn drop(&mut self) {
        if self.is_own() {
            self.end();
        }
    }
}
