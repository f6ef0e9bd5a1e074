//! Functions of Python that the Rust library calls, such as a language model.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use larder::{ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Outcome, Result};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::input::json;
use crate::output;
use crate::process::{Owned, Process};

const OPERATION: &str = "model.generate";

tokio::task_local! {
    /// The event loop and the context variables of the call that runs.
    static CALLER: Option<Arc<Py<PyAny>>>;
}

/// Runs `work`. The functions that it calls see the caller's event loop and context variables.
pub(crate) async fn on_behalf_of<T>(caller: Option<Py<PyAny>>, work: impl Future<Output = T>) -> T {
    CALLER.scope(caller.map(Arc::new), work).await
}

/// An exception of a function. The call that needed the function raises it unchanged.
#[derive(Debug)]
pub(crate) struct Raised(PyErr);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the function raised an exception")
    }
}

impl StdError for Raised {}

/// Returns the exception of a function that caused an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Raised(exception)) = cause.downcast_ref() {
            return Some(exception.clone_ref(py));
        }
        source = cause.source();
    }
    None
}

/// A language model that is a function of Python.
pub(crate) struct PythonModel {
    process: &'static Process,
    function: Owned<Py<PyAny>>,
}

impl PythonModel {
    pub(crate) fn shared(process: &'static Process, function: Py<PyAny>) -> Arc<dyn LanguageModel> {
        Arc::new(Self { process, function: Owned::new(process, function) })
    }

    /// Starts the function with the request as JSON.
    fn start(
        &self,
        py: Python<'_>,
        request: String,
        caller: Option<&Py<PyAny>>,
        reply: NativeReply,
    ) -> PyResult<Py<PyAny>> {
        let function = self.function.get().map_err(|error| crate::errors::exception(py, &error))?;
        let start = py.import("larder._callbacks")?.getattr("start")?;
        Ok(start.call1((function, request, caller, reply))?.unbind())
    }
}

impl fmt::Debug for PythonModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonModel").finish_non_exhaustive()
    }
}

#[async_trait]
impl LanguageModel for PythonModel {
    fn name(&self) -> &str {
        "python"
    }

    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        let request = output::encode(&request)?;
        let caller = CALLER.try_with(Clone::clone).ok().flatten();
        let (send, answered) = oneshot::channel();
        let mut job = Job { process: self.process, job: None };
        let mut refused = None;
        self.process.deliver(|py| {
            let reply = NativeReply(Mutex::new(Some(send)));
            match self.start(py, request, caller.as_deref(), reply) {
                Ok(started) => job.job = Some(started),
                Err(exception) => refused = Some(exception),
            }
        });
        if let Some(exception) = refused {
            return Err(raises(exception));
        }
        let answered = answered.await;
        job.job = None;
        match answered {
            Ok(Ok(text)) => {
                let message: ChatMessage = json(OPERATION, "reply", &text)?;
                message.check(OPERATION)?;
                Ok(message)
            }
            Ok(Err(exception)) => Err(raises(exception)),
            Err(_) => Err(failed("the function did not return, because the interpreter exits")),
        }
    }
}

fn raises(exception: PyErr) -> Error {
    failed("the function raised an exception").with_source(Raised(exception))
}

fn failed(message: &'static str) -> Error {
    Error::new(ErrorKind::Unexpected, OPERATION, message).with_outcome(Outcome::NotApplied)
}

/// A function that runs. Dropping it cancels the function if that is a coroutine.
struct Job {
    process: &'static Process,
    job: Option<Py<PyAny>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(job) = self.job.take()
            && self.process.check_fork().is_ok()
        {
            self.process.deliver(|py| {
                // A closed event loop has canceled the coroutine.
                let _closed = job.call_method0(py, "cancel");
                drop(job);
            });
        }
    }
}

type Reply = oneshot::Sender<std::result::Result<String, PyErr>>;

/// Takes the result of a function.
#[pyclass(frozen, module = "larder._native", name = "Reply")]
pub(crate) struct NativeReply(Mutex<Option<Reply>>);

impl NativeReply {
    fn send(&self, result: std::result::Result<String, PyErr>) {
        if let Some(reply) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Nobody waits for a call that was canceled.
            let _canceled = reply.send(result);
        }
    }
}

#[pymethods]
impl NativeReply {
    fn done(&self, message: String) {
        self.send(Ok(message));
    }

    fn failed(&self, exception: Bound<'_, PyAny>) {
        self.send(Err(PyErr::from_value(exception)));
    }
}
