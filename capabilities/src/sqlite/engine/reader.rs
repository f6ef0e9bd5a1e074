//! The reader threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use larder_kernel::{Error, ErrorKind, Outcome, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::config::SqliteConfig;
use super::super::failure::Fallible;
use super::closing::Alive;
use super::{ReadMessage, connection, gone};

/// The readers that are still opening.
pub(super) struct Opening(Vec<oneshot::Receiver<Result<()>>>);

impl Opening {
    /// Waits until each reader has its connection.
    pub(super) async fn opened(self) -> Result<()> {
        for reader in self.0 {
            reader.await.map_err(|_| gone("sqlite.open", Outcome::NotApplied))??;
        }
        Ok(())
    }
}

/// Starts `count` readers that share one queue.
pub(super) fn spawn(
    config: &Arc<SqliteConfig>,
    queue: Receiver<ReadMessage>,
    alive: &Alive,
    count: usize,
) -> Result<Opening> {
    let queue = Arc::new(Mutex::new(queue));
    let mut opening = Vec::with_capacity(count);
    for _ in 0..count {
        let (opened, receiver) = oneshot::channel();
        opening.push(receiver);
        let (config, queue, alive) = (Arc::clone(config), Arc::clone(&queue), alive.clone());
        std::thread::Builder::new()
            .name("larder-sqlite-read".to_owned())
            .spawn(move || run(&config, &queue, opened, &alive))
            .map_err(|_| no_thread())?;
    }
    Ok(Opening(opening))
}

/// Returns the error for a thread that the system cannot start.
pub(super) fn no_thread() -> Error {
    Error::new(
        ErrorKind::ResourceExhausted,
        "sqlite.open",
        "the operating system cannot start another thread; raise the limit of the process",
    )
}

fn run(
    config: &SqliteConfig,
    queue: &Mutex<Receiver<ReadMessage>>,
    opened: oneshot::Sender<Result<()>>,
    alive: &Alive,
) {
    let connection = match connection::reader(config) {
        Ok(connection) => connection,
        Err(failure) => {
            let _ = opened.send(Err(failure.into_error("sqlite.open")));
            return;
        }
    };
    let _ = opened.send(Ok(()));
    loop {
        // The lock is held during the wait: its holder is the next thread to get work.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(ReadMessage::Job(job)) = next else { return alive.close(connection) };
        // A job that panics drops its reply channel, which its caller notices; the thread continues.
        if catch_unwind(AssertUnwindSafe(|| job(&connection))).is_err() {
            end_snapshot(&connection);
        }
    }
}

/// Runs `job` on one state of the database.
pub(super) fn in_snapshot<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Fallible<T>,
) -> Fallible<T> {
    begin_snapshot(connection)?;
    let result = job(connection);
    end_snapshot(connection);
    result
}

/// Begins a transaction. Its first read determines its snapshot.
pub(super) fn begin_snapshot(connection: &Connection) -> Fallible<()> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    Ok(())
}

/// Ends the transaction if one is open. It wrote nothing, so a failure to commit loses nothing.
pub(super) fn end_snapshot(connection: &Connection) {
    if !connection.is_autocommit() {
        let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if ended.is_err() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
}
