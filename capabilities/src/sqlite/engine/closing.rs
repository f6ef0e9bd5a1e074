//! Closing: the threads finish the jobs that they have and end. The last connection to close moves the
//! write-ahead log into the database file, so that a copy of that file is complete.
//!
//! The connections close one at a time. Of two that close at the same moment, each would find the other still
//! open and leave the log to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Engine, Inner, READERS, ReadMessage, WriteMessage};

/// The time for which dropping the last handle waits for the threads.
pub(super) const DROP_WAIT_MAX: Duration = Duration::from_millis(250);

/// Each thread holds a clone while it has a connection.
#[derive(Clone)]
pub(super) struct Alive {
    _watched: Arc<watch::Sender<()>>,
    _waited: Sender<()>,
    closes: Arc<Mutex<()>>,
}

impl Alive {
    /// Drops a connection, or its owner, while no other connection of the engine closes.
    pub(super) fn close<T>(&self, connection: T) {
        let _alone = self.closes.lock().unwrap_or_else(PoisonError::into_inner);
        drop(connection);
    }
}

/// The end of the threads, for a task and for a thread that waits. No value is ever sent: a wait ends when
/// the last [`Alive`] is dropped.
pub(super) struct Threads {
    /// Set before the writer is woken to end.
    closing: Arc<AtomicBool>,
    watched: watch::Receiver<()>,
    waited: Mutex<Receiver<()>>,
}

pub(super) fn threads() -> (Threads, Alive) {
    let ((watch_sender, watched), (sender, waited)) = (watch::channel(()), channel());
    let alive = Alive { _watched: Arc::new(watch_sender), _waited: sender, closes: Arc::default() };
    (Threads { closing: Arc::default(), watched, waited: Mutex::new(waited) }, alive)
}

impl Threads {
    pub(super) fn closing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closing)
    }
}

impl Engine {
    /// Closes every connection and waits for it. Jobs that were sent before complete; later calls of other
    /// clones fail with `Unavailable`.
    pub(crate) async fn close(self) {
        self.inner.end_threads();
        let mut watched = self.inner.threads.watched.clone();
        while watched.changed().await.is_ok() {}
    }
}

impl Inner {
    /// Asks the threads to end. The writer's connection should close last, because only it flushes as the
    /// configuration requires; the order is a preference, and any last connection empties the log.
    fn end_threads(&self) {
        self.inline_reads.close();
        for _ in 0..READERS {
            let _ = self.reads.send(ReadMessage::Close);
        }
        self.threads.closing.store(true, Ordering::SeqCst);
        let _ = self.writes.send(WriteMessage::Look);
    }
}

impl Drop for Inner {
    /// Waits for the threads for a limited time, because a program often ends right after its last handle.
    fn drop(&mut self) {
        self.end_threads();
        let waited = self.threads.waited.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = waited.recv_timeout(DROP_WAIT_MAX);
    }
}
