//! The threads that own the connections, and the queues of their jobs.
//!
//! One thread writes and a few read, each with a separate connection. So no call blocks the caller's runtime,
//! and a call costs only one hop between threads; a small read saves even that hop. The writer takes all
//! waiting jobs and runs each in a savepoint inside one transaction. It commits once and then replies to all
//! callers, so concurrent callers share one fsync. A job that has begun runs to its end, even if its future
//! is dropped. A job whose future is dropped before it begins is skipped. So a write is complete or absent.

mod closing;
mod connection;
mod expiry_task;
mod file_identity;
mod group_commit;
mod inline_read;
mod lock_fairness;
mod reader;
mod wal;
mod wal_watch;
mod writer;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use larder_kernel::{Durability, Error, ErrorKind, Outcome, Result};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::config::SqliteConfig;
use super::failure::{Failure, Fallible};
use super::schema::Schema;
use crate::driver::OpenMode;
use closing::Threads;
pub(crate) use expiry_task::{ExpiryJob, ExpiryStep};
use inline_read::InlineReads;
pub(crate) use inline_read::{INLINE_ROWS_MAX, ReadBudget};

/// The number of reader threads.
const READERS: usize = 3;

/// A job for the writer.
struct WriteJob {
    /// The instant from which the caller waits.
    sent: Instant,
    work: Box<dyn Work>,
}

trait Work: Send {
    /// Runs the job inside the transaction, or passes it the error that prevented the transaction.
    fn run(self: Box<Self>, connection: Result<&Connection, &Error>) -> Completed;
    /// Returns true if no caller waits for the job any more.
    fn is_abandoned(&self) -> bool;
}

/// Sends a job's result to its caller after the commit, or the error if the commit failed.
type Reply = Box<dyn FnOnce(Option<&Error>) + Send>;

/// A job that has run, with its success and the way to reply to its caller.
struct Completed {
    failed: bool,
    reply: Reply,
}

/// A message to the writer.
enum WriteMessage {
    Job(WriteJob),
    /// The writer must look for commits of other processes: a watch has begun, or a process wrote. Or the
    /// engine closes.
    Look,
}

/// A job and the channel to its caller.
struct Write<T, F> {
    operation: &'static str,
    job: F,
    sender: oneshot::Sender<Result<T>>,
}

impl<T, F> Work for Write<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Fallible<T> + Send + 'static,
{
    fn run(self: Box<Self>, connection: Result<&Connection, &Error>) -> Completed {
        let Self { operation, job, sender } = *self;
        let (result, judged) = match connection.map(job) {
            Ok(Ok(value)) => (Ok(value), true),
            Ok(Err(failure)) => {
                let judged = matches!(failure, Failure::Contract(_));
                (Err(failure.into_error(operation)), judged)
            }
            Err(error) => (Err(copied(error, operation)), false),
        };
        let failed = result.is_err();
        let reply = Box::new(move |broken: Option<&Error>| {
            let result = match broken {
                Some(error) if !failed => Err(copied(error, operation)),
                // The job decided from reads that were rolled back, but it wrote nothing.
                Some(error) if judged => Err(copied(error, operation).with_outcome(Outcome::NotApplied)),
                _ => result,
            };
            // A dropped caller gets no reply; its write remains committed.
            let _ = sender.send(result);
        });
        Completed { failed, reply }
    }

    fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A job for a reader.
type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// A message to a reader.
enum ReadMessage {
    Job(ReadJob),
    /// The engine closes: the reader that takes this message ends.
    Close,
}

/// A handle to the threads of one open database. The threads end when the engine is closed or its last clone
/// is dropped.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    /// Closes before the writer: the last connection to close checkpoints the WAL, which must be the
    /// writer's.
    inline_reads: InlineReads,
    writes: Arc<mpsc::Sender<WriteMessage>>,
    reads: mpsc::Sender<ReadMessage>,
    commits: watch::Receiver<u64>,
    durability: Durability,
    mode: OpenMode,
    threads: Threads,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("durability", &self.inner.durability).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the database and starts the threads.
    pub(crate) async fn open(config: SqliteConfig, schema: Schema, expiry: ExpiryJob) -> Result<Self> {
        let config = Arc::new(connection::with_absolute_path(config)?);
        let (threads, alive) = closing::threads();
        let (commit_sender, commits) = watch::channel(0);
        let (writes, write_queue) = mpsc::channel();
        let writes = Arc::new(writes);
        let (opened, opening) = oneshot::channel();
        let inline_reads = InlineReads::new();
        let channels = writer::WriterChannels {
            queue: write_queue,
            sender: Arc::downgrade(&writes),
            commits: commit_sender,
            opened,
            alive: alive.clone(),
            closing: threads.closing(),
        };
        writer::spawn(Arc::clone(&config), schema, channels, inline_reads.slots(), expiry)?;
        let durability = opening.await.map_err(|_| gone("sqlite.open", Outcome::NotApplied))??;
        let (reads, read_queue) = mpsc::channel();
        reader::spawn(&config, read_queue, &alive, READERS)?.opened().await?;
        drop(alive);
        inline_reads.open(&config).await?;
        let mode = config.mode;
        Ok(Self {
            inner: Arc::new(Inner { inline_reads, writes, reads, commits, durability, mode, threads }),
        })
    }

    /// Returns which failures an acknowledged write survives, read back from the connection.
    pub(crate) fn durability(&self) -> Durability {
        self.inner.durability
    }

    /// Returns true if every write is refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.inner.mode.is_read_only()
    }

    /// Runs `job` inside a write transaction and returns after its commit. A failed job leaves no change and
    /// does not affect other jobs.
    pub(crate) async fn write<T, F>(&self, operation: &'static str, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Fallible<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let work = Box::new(Write { operation, job, sender });
        let job = WriteJob { sent: Instant::now(), work };
        self.inner.writes.send(WriteMessage::Job(job)).map_err(|_| gone(operation, Outcome::NotApplied))?;
        receiver.await.map_err(|_| gone(operation, Outcome::Unknown))?
    }

    /// Runs `job` inside a read transaction, so that all its reads see one state of the database.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Fallible<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job: ReadJob = Box::new(move |connection| {
            if !sender.is_closed() {
                let result = reader::in_snapshot(connection, job);
                let _ = sender.send(result.map_err(|failure| failure.into_error(operation)));
            }
        });
        self.inner.reads.send(ReadMessage::Job(job)).map_err(|_| gone(operation, Outcome::NotApplied))?;
        receiver.await.map_err(|_| gone(operation, Outcome::NotApplied))?
    }

    /// Runs `job`, which reads little, inside a read transaction. It runs on the caller's thread if a
    /// connection is free there, otherwise on a reader thread. The job may run twice.
    pub(crate) async fn read_inline<T, F>(&self, operation: &'static str, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection, &mut ReadBudget) -> Fallible<T> + Send + 'static,
    {
        // A caller that only makes inline reads must let other tasks of its thread run.
        tokio::task::coop::consume_budget().await;
        if let Some(found) = self.inner.inline_reads.read(&job) {
            return Ok(found);
        }
        self.read(operation, move |connection| job(connection, &mut ReadBudget::unlimited())).await
    }

    /// As `read_inline`, for reads that may exceed one budget. Each call of the job reads a slice, until it
    /// breaks with the result. `begin` creates the job; it runs twice if a reader thread takes over.
    pub(crate) async fn read_in_slices<T, J>(
        &self,
        operation: &'static str,
        begin: impl Fn() -> J + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        J: FnMut(&Connection, &mut ReadBudget) -> Fallible<ControlFlow<T>> + Send,
    {
        tokio::task::coop::consume_budget().await;
        if let Some(found) = self.inner.inline_reads.read_in_slices(begin()).await {
            return Ok(found);
        }
        let whole = move |connection: &Connection| {
            let mut job = begin();
            loop {
                if let ControlFlow::Break(found) = job(connection, &mut ReadBudget::unlimited())? {
                    return Ok(found);
                }
            }
        };
        self.read(operation, whole).await
    }

    /// Returns a receiver that changes after each commit to the file: immediately for commits of this
    /// process, and after a notification or a poll for those of other connections.
    pub(crate) fn commits(&self) -> watch::Receiver<u64> {
        let commits = self.inner.commits.clone();
        // If the writer has ended, the receiver is closed, which the watcher notices.
        let _ = self.inner.writes.send(WriteMessage::Look);
        commits
    }

    /// Returns true if the writer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.commits.has_changed().is_err()
    }
}

/// Returns the error for a thread that has ended without a reply.
fn gone(operation: &'static str, outcome: Outcome) -> Error {
    Error::new(ErrorKind::Unavailable, operation, "the database is closed; open it again")
        .with_outcome(outcome)
}

/// Copies the error of a failed commit for one of the jobs in it.
fn copied(error: &Error, operation: &'static str) -> Error {
    let copy = Error::new(error.kind(), operation, error.message().to_owned()).with_outcome(error.outcome());
    error.context().iter().fold(copy, |copy, (name, value)| match value {
        larder_kernel::ContextValue::Number(number) => {
            copy.with_context(name, i64::try_from(*number).unwrap_or(i64::MAX))
        }
        larder_kernel::ContextValue::Word(word) => copy.with_context(name, *word),
        _ => copy,
    })
}

#[cfg(test)]
mod tests;
