//! One call of a store, which Python waits for on its thread or on an event loop.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use larder::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::errors::OrRaise as _;
use crate::process::{Owned, Process};

/// The time after which a waiting call looks for a signal, such as that of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Converts the result of a call, with the interpreter.
pub(crate) type Answer = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Work = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

/// One call. It does nothing until Python waits for it or starts it.
#[pyclass(frozen, module = "larder._native")]
pub(crate) struct Call {
    process: &'static Process,
    /// `true` if the first step runs on the caller's thread even on an event loop, because it cannot wait for
    /// a network or for a lock.
    inline: bool,
    state: Mutex<State>,
}

enum State {
    /// The call has not ended on the caller's thread.
    New(Owned<Work>),
    /// The call runs on a thread of the runtime.
    Running(AbortHandle, Arc<Running>),
    Done(Result<Answer>),
    /// The result was taken, or the call was canceled.
    Ended,
}

/// An event loop, the function that wakes it, and the argument of the function.
type Waiter = (Py<PyAny>, Py<PyAny>, Py<PyAny>);

/// The state that a call on a thread of the runtime shares with the interpreter.
#[derive(Default)]
struct Running {
    result: Mutex<Option<Result<Answer>>>,
    /// The thread that holds the interpreter takes this out, so that it is dropped with the interpreter.
    waiter: Mutex<Option<Waiter>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late(start: Instant, limit_ms: u64) -> bool {
    start.elapsed() >= Duration::from_millis(limit_ms)
}

fn used() -> Error {
    Error::new(ErrorKind::Unsupported, "call", "the call has begun or ended; make a new one")
}

impl Call {
    /// Creates a call. `convert` makes the Python object of its result.
    pub(crate) fn new<T: Send + 'static>(
        process: &'static Process,
        inline: bool,
        work: impl Future<Output = Result<T>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Self {
        let work = async move {
            let value = work.await?;
            Ok(Box::new(move |py: Python<'_>| convert(py, value)) as Answer)
        };
        let state = Mutex::new(State::New(Owned::new(process, Box::pin(work) as Work)));
        Self { process, inline, state }
    }

    fn take_new(&self) -> Result<Work> {
        self.process.check_fork()?;
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Ended) {
            State::New(mut work) => work.take().ok_or_else(used),
            other => {
                *state = other;
                Err(used())
            }
        }
    }
}

#[pymethods]
impl Call {
    /// Waits for the call on this thread, at most for a number of milliseconds, and returns its result.
    #[pyo3(signature = (limit_ms = None))]
    fn wait(&self, py: Python<'_>, limit_ms: Option<u64>) -> PyResult<Py<PyAny>> {
        let mut work = self.take_new().or_raise(py)?;
        let (runtime, start) = (&self.process.runtime, Instant::now());
        loop {
            let step = py.detach(|| {
                runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, work.as_mut()).await })
            });
            match step {
                Ok(result) => return result.or_raise(py)?(py),
                Err(_) => {
                    let mut ended = py.check_signals();
                    if ended.is_ok() && limit_ms.is_some_and(|limit| late(start, limit)) {
                        let message = "the call did not end in time";
                        ended = Err(Error::new(ErrorKind::Timeout, "call", message)).or_raise(py);
                    }
                    if ended.is_err() {
                        self.process.drop_detached(work);
                        return ended.map(|()| py.None());
                    }
                }
            }
        }
    }

    /// Makes the first step if it can run on an event loop, and returns whether the call has ended.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.inline {
            return Ok(false);
        }
        let mut work = self.take_new().or_raise(py)?;
        let step = py.detach(|| {
            let _entered = self.process.runtime.enter();
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (next, ended) = match step {
            Poll::Ready(result) => (State::Done(result), true),
            Poll::Pending => (State::New(Owned::new(self.process, work)), false),
        };
        *lock(&self.state) = next;
        Ok(ended)
    }

    /// Continues the call on a thread of the runtime. When it ends, `wake(waiter)` runs on the event loop.
    fn start(
        &self,
        py: Python<'_>,
        event_loop: Py<PyAny>,
        wake: Py<PyAny>,
        waiter: Py<PyAny>,
    ) -> PyResult<()> {
        self.process.check_exit().or_raise(py)?;
        let work = self.take_new().or_raise(py)?;
        let running = Arc::new(Running::default());
        *lock(&running.waiter) = Some((event_loop, wake, waiter));
        let (process, shared) = (self.process, Arc::clone(&running));
        let task = self.process.runtime.spawn(async move {
            let result = work.await;
            *lock(&shared.result) = Some(result);
            process.deliver(|py| {
                let Some((event_loop, wake, waiter)) = lock(&shared.waiter).take() else { return };
                // A closed event loop has nobody who waits.
                let _closed = event_loop.call_method1(py, "call_soon_threadsafe", (wake, waiter));
            });
        });
        *lock(&self.state) = State::Running(task.abort_handle(), running);
        Ok(())
    }

    /// Returns the result of a call that has ended.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.process.check_fork().or_raise(py)?;
        let state = std::mem::replace(&mut *lock(&self.state), State::Ended);
        let result = match state {
            State::Done(result) => Some(result),
            State::Running(_, running) => lock(&running.result).take(),
            State::New(_) | State::Ended => None,
        };
        result.unwrap_or_else(|| Err(used())).or_raise(py)?(py)
    }

    /// Stops a call that runs. A write is then complete or absent.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check_fork().or_raise(py)?;
        let state = std::mem::replace(&mut *lock(&self.state), State::Ended);
        if let State::Running(task, running) = state {
            task.abort();
            drop(lock(&running.waiter).take());
        }
        Ok(())
    }
}
