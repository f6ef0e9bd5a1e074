//! Streams of events, such as those of a thread.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use larder::Result;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::call::{Answer, Call};
use crate::errors::OrRaise as _;
use crate::process::Owned;
use crate::stores::Shared;

type Answers = BoxStream<'static, Result<Answer>>;

/// A stream of events.
#[pyclass(frozen, module = "larder._native", name = "Events")]
pub(crate) struct NativeEvents {
    shared: Arc<Shared>,
    events: Owned<Arc<Mutex<Answers>>>,
}

impl NativeEvents {
    /// Creates a call that opens a stream. `convert` makes the Python object of each event.
    pub(crate) fn open<T: Send + 'static>(
        py: Python<'_>,
        shared: &Arc<Shared>,
        open: impl Future<Output = Result<BoxStream<'static, Result<T>>>> + Send + 'static,
        convert: impl Fn(Python<'_>, T) -> PyResult<Py<PyAny>> + Clone + Send + 'static,
    ) -> PyResult<Call> {
        let opened = Arc::clone(shared);
        shared.call(py, open, move |py, events| {
            let answers = events.map(move |event| {
                let convert = convert.clone();
                event.map(|event| Box::new(move |py: Python<'_>| convert(py, event)) as Answer)
            });
            let events = Owned::new(opened.process, Arc::new(Mutex::new(answers.boxed())));
            Ok(Py::new(py, Self { shared: opened, events })?.into_any())
        })
    }
}

#[pymethods]
impl NativeEvents {
    /// Waits for the next event; `None` if the stream has ended.
    fn next(&self, py: Python<'_>) -> PyResult<Call> {
        let events = self.events.get().cloned().or_raise(py)?;
        let work = async move { events.lock().await.next().await.transpose() };
        self.shared.call(py, work, |py, event: Option<Answer>| {
            event.map_or_else(|| Ok(py.None()), |event| event(py))
        })
    }
}
