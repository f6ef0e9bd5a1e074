//! The process: its async runtime, its forks, and its end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use larder::{Error, ErrorKind, Outcome, Result};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// The state of this library in one process. A forked process gets another one, because the threads of the
/// runtime exist only in the process that started them.
pub(crate) struct Process {
    id: u32,
    pub(crate) runtime: Runtime,
    /// `true` once the interpreter exits: no other thread may then wait for it.
    exiting: AtomicBool,
    /// The number of threads that wait for the interpreter or hold it.
    deliveries: AtomicUsize,
    /// The number of open stores on SQLite.
    pub(crate) sqlite: AtomicUsize,
    /// `true` if the process was forked while its parent had stores on SQLite.
    forked_from_sqlite: bool,
}

/// Only threads that hold the interpreter lock this, as every thread that forks does. A forked process
/// therefore finds it unlocked.
static PROCESS: Mutex<Option<&'static Process>> = Mutex::new(None);

impl Process {
    /// Returns the state of this process. The first call starts the runtime.
    pub(crate) fn current() -> Result<&'static Self> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = *process
            && process.id == std::process::id()
        {
            return Ok(process);
        }
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.enable_all().thread_name("larder").build().map_err(|error| {
            let message = "the threads of the async runtime did not start; allow more threads";
            Error::new(ErrorKind::Unavailable, "open", message).with_source(error)
        })?;
        let parent = *process;
        // It is never dropped: a runtime waits for its threads, and the parent's do not exist in a child.
        let new: &'static Self = Box::leak(Box::new(Self {
            id: std::process::id(),
            runtime,
            exiting: AtomicBool::new(false),
            deliveries: AtomicUsize::new(0),
            sqlite: AtomicUsize::new(0),
            forked_from_sqlite: parent
                .is_some_and(|parent| parent.forked_from_sqlite || parent.sqlite.load(Ordering::SeqCst) > 0),
        }));
        *process = Some(new);
        Ok(new)
    }

    /// Refuses a process that was forked from this one.
    pub(crate) fn check_fork(&self) -> Result<()> {
        if self.id == std::process::id() {
            return Ok(());
        }
        let message = "the store was opened before this process was forked; open it again in this process";
        Err(Error::new(ErrorKind::Unsupported, "fork", message))
    }

    /// Refuses stores on SQLite in a process that was forked while its parent had some: SQLite would take the
    /// parent's locks for those of the child, and damage the file.
    pub(crate) fn check_sqlite(&self) -> Result<()> {
        if !self.forked_from_sqlite {
            return Ok(());
        }
        let message = "this process was forked from one that had stores on SQLite open; close them before \
                       the fork, or start processes with the methods `spawn` or `forkserver`";
        Err(Error::new(ErrorKind::Unsupported, "open", message).with_field("url"))
    }

    /// Refuses calls that would end on another thread, once the interpreter exits.
    pub(crate) fn check_exit(&self) -> Result<()> {
        if !self.exiting.load(Ordering::SeqCst) {
            return Ok(());
        }
        let message = "the interpreter exits; use the synchronous methods";
        Err(Error::new(ErrorKind::Unsupported, "asyncio", message))
    }

    /// Runs `work` with the interpreter, from a thread of the runtime. Once the interpreter exits, it does
    /// nothing: a thread that waits for an interpreter that ends would end the process.
    pub(crate) fn deliver(&self, work: impl FnOnce(Python<'_>)) {
        self.deliveries.fetch_add(1, Ordering::SeqCst);
        let _ended = Ended(&self.deliveries);
        if !self.exiting.load(Ordering::SeqCst) {
            Python::attach(work);
        }
    }

    /// Drops a value without the interpreter, because closing a store may wait.
    pub(crate) fn drop_detached<T: Send>(&self, value: T) {
        let mut value = Some(value);
        let mut end = || {
            let _entered = self.runtime.enter();
            drop(value.take());
        };
        if Python::try_attach(|py| py.detach(&mut end)).is_none() {
            end();
        }
    }
}

struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends the deliveries to event loops, and waits for the deliveries that have begun.
#[pyfunction]
pub(crate) fn end_deliveries(py: Python<'_>) {
    let process = *PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(process) = process.filter(|process| process.id == std::process::id()) else { return };
    process.exiting.store(true, Ordering::SeqCst);
    py.detach(|| {
        while process.deliveries.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A value that only the process that created it may use or drop.
pub(crate) struct Owned<T: Send> {
    process: &'static Process,
    value: Option<T>,
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(process: &'static Process, value: T) -> Self {
        Self { process, value: Some(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// `Unsupported` in a process that was forked after the value was created.
    pub(crate) fn get(&self) -> Result<&T> {
        self.process.check_fork()?;
        self.value.as_ref().ok_or_else(|| {
            let message = "the store is closed; open it again";
            Error::new(ErrorKind::Unavailable, "store", message).with_outcome(Outcome::NotApplied)
        })
    }

    /// Takes the value; `None` in a forked process, which keeps it without ever dropping it.
    pub(crate) fn take(&mut self) -> Option<T> {
        let value = self.value.take()?;
        if self.process.check_fork().is_ok() {
            return Some(value);
        }
        std::mem::forget(value);
        None
    }
}

impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        if let Some(value) = self.take() {
            self.process.drop_detached(value);
        }
    }
}
