//! The writer thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use larder_kernel::{Durability, Error, ErrorKind, Outcome, Result};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::super::config::SqliteConfig;
use super::super::failure::Fallible;
use super::super::schema::Schema;
use super::closing::Alive;
use super::expiry_task::{ExpiryJob, ExpiryTask};
use super::file_identity::FileGuard;
use super::group_commit::{self, GroupCommit};
use super::inline_read::ConnectionSlots;
use super::lock_fairness::FairLock;
use super::reader::no_thread;
use super::wal::WalMonitor;
use super::wal_watch::CommitWatch;
use super::{Completed, WriteJob, WriteMessage, connection};

/// The operation of errors that no job caused. Each job replaces it with its own operation in the reply.
const OPERATION: &str = "sqlite.commit";

/// The writer's ends of the channels to the handles.
pub(super) struct WriterChannels {
    pub(super) queue: Receiver<WriteMessage>,
    pub(super) sender: Weak<Sender<WriteMessage>>,
    pub(super) commits: watch::Sender<u64>,
    pub(super) opened: oneshot::Sender<Result<Durability>>,
    pub(super) alive: Alive,
    /// Set when the engine closes.
    pub(super) closing: Arc<AtomicBool>,
}

/// Starts the writer, which reports through `opened` when the database is ready.
pub(super) fn spawn(
    config: Arc<SqliteConfig>,
    schema: Schema,
    channels: WriterChannels,
    slots: Weak<ConnectionSlots>,
    expiry: ExpiryJob,
) -> Result<()> {
    let WriterChannels { queue, sender, commits, opened, alive, closing } = channels;
    let run = move || {
        let ready = connection::writer(&config, schema).and_then(|(mut connection, durability)| {
            let wal = WalMonitor::of(&mut connection, slots)?;
            Ok((connection, wal, durability))
        });
        match ready {
            Ok((connection, wal, durability)) => {
                if opened.send(Ok(durability)).is_ok() {
                    let mut writer = Writer {
                        connection,
                        schema,
                        queue,
                        commits,
                        closing,
                        file_guard: FileGuard::of(&config.path),
                        commit_watch: CommitWatch::new(&config.path, sender),
                        busy_timeout: config.busy_timeout,
                        read_only: config.mode.is_read_only(),
                        wal,
                        fair_lock: FairLock::new(),
                        backlog: Vec::new(),
                        group_commit: GroupCommit::expecting(0),
                        expiry_task: ExpiryTask::new(expiry, schema),
                    };
                    writer.run();
                    alive.close(writer);
                }
            }
            Err(failure) => {
                let _ = opened.send(Err(name_path(failure.into_error("sqlite.open"))));
            }
        }
        drop(alive);
    };
    std::thread::Builder::new()
        .name("larder-sqlite-write".to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|_| no_thread())
}

/// Adds the field `path` to an error of opening, unless the error names another field.
fn name_path(error: Error) -> Error {
    let about_file = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Corrupt);
    if about_file && error.field().is_none() { error.with_field("path") } else { error }
}

struct Writer {
    connection: Connection,
    schema: Schema,
    queue: Receiver<WriteMessage>,
    commits: watch::Sender<u64>,
    closing: Arc<AtomicBool>,
    file_guard: FileGuard,
    commit_watch: CommitWatch,
    busy_timeout: Duration,
    read_only: bool,
    wal: WalMonitor,
    fair_lock: FairLock,
    /// Jobs that arrived during a transaction.
    backlog: Vec<WriteJob>,
    group_commit: GroupCommit,
    expiry_task: ExpiryTask,
}

impl Writer {
    /// Works until the engine is closed or its last handle is dropped, and the queue is empty.
    fn run(&mut self) {
        let mut data_version = self.data_version();
        let mut batch = Vec::new();
        while let Some(first) = self.wait(&mut data_version) {
            self.fair_lock.yield_if_due();
            batch.push(first);
            batch.append(&mut self.backlog);
            self.group_commit.collect_batch(&self.queue, &mut batch);
            batch.retain(|job| !job.work.is_abandoned());
            if batch.is_empty() {
                continue;
            }
            let begun = Instant::now();
            self.transact(&mut batch);
            self.group_commit.start_wait(begun.elapsed());
            let may_write = !self.read_only && self.file_guard.is_kept();
            if may_write && self.expiry_task.run_if_due(&self.connection) {
                self.announce();
            }
            self.fair_lock.note_released();
            if self.file_guard.is_kept() {
                self.wal.truncate_if_large(&self.connection);
            }
        }
    }

    /// Returns the next job; `None` when the engine closes or no handle is left. While a watch exists, looks
    /// for commits of other processes.
    fn wait(&mut self, data_version: &mut Option<i64>) -> Option<WriteJob> {
        if !self.backlog.is_empty() {
            self.announce_foreign_if_watched(data_version);
            return Some(self.backlog.remove(0));
        }
        loop {
            if self.closing.load(Ordering::SeqCst) {
                match self.queue.try_recv().ok()? {
                    WriteMessage::Job(job) => return Some(job),
                    WriteMessage::Look => continue,
                }
            }
            let interval = self.commit_watch.interval(is_watched(&self.commits));
            let message = match interval {
                None => self.queue.recv().ok()?,
                Some(interval) => match self.queue.recv_timeout(interval) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => WriteMessage::Look,
                    Err(RecvTimeoutError::Disconnected) => return None,
                },
            };
            self.announce_foreign_if_watched(data_version);
            if let WriteMessage::Job(job) = message {
                return Some(job);
            }
        }
    }

    fn announce_foreign_if_watched(&self, data_version: &mut Option<i64>) {
        if !is_watched(&self.commits) {
            return;
        }
        let found = self.data_version();
        if found != *data_version {
            *data_version = found;
            self.commit_watch.note_found();
            self.announce();
        }
    }

    /// Returns a number that changes when another connection has committed.
    fn data_version(&self) -> Option<i64> {
        let mut statement = self.connection.prepare_cached("PRAGMA data_version").ok()?;
        statement.query_row([], |row| row.get(0)).ok()
    }

    fn announce(&self) {
        self.commits.send_modify(|commits| *commits = commits.wrapping_add(1));
    }

    /// Begins a transaction on a file of this program's format. Waits for the lock as long as the first of
    /// the jobs still may.
    fn begin(&self, batch: &[WriteJob]) -> Result<(), Error> {
        if self.read_only {
            let message = "the database is open for reading only; open it without `mode=ro` to write";
            let error = Error::new(ErrorKind::PermissionDenied, OPERATION, message);
            return Err(error.with_outcome(Outcome::NotApplied));
        }
        self.file_guard.check_before(OPERATION)?;
        let waited = batch.first().map_or(Duration::ZERO, |job| self.waited(job));
        let left = self.busy_timeout.saturating_sub(waited);
        let begin = || connection::retry_busy(left, || self.execute("BEGIN IMMEDIATE"));
        let begun = connection::with_busy_timeout(left, begin)
            .and_then(|()| self.schema.check_write(&self.connection, OPERATION));
        if begun.is_err() && !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        begun.map_err(|failure| failure.into_error(OPERATION).with_outcome(Outcome::NotApplied))
    }

    /// Returns how long a job has waited for locks of other processes, without the transactions of this
    /// process.
    fn waited(&self, job: &WriteJob) -> Duration {
        job.sent.max(self.fair_lock.last_release()).elapsed()
    }

    /// Replies to the jobs whose transaction could not begin. Jobs that may wait longer return to the
    /// backlog, if the error is a timeout.
    fn refuse(&mut self, batch: &mut Vec<WriteJob>, error: &Error) {
        let may_wait = error.kind() == ErrorKind::Timeout;
        for job in batch.drain(..) {
            if may_wait && self.waited(&job) < self.busy_timeout {
                self.backlog.push(job);
            } else {
                reply([job.work.run(Err(error))], None);
            }
        }
    }

    /// Runs the jobs in one transaction, commits and replies.
    fn transact(&mut self, batch: &mut Vec<WriteJob>) {
        if let Err(error) = self.begin(batch) {
            self.refuse(batch, &error);
            return;
        }
        self.fair_lock.note_acquired();
        // Callers that gave up while the writer waited for the lock get no write.
        batch.retain(|job| !job.work.is_abandoned());
        if batch.is_empty() {
            let _ = self.execute("ROLLBACK");
            return;
        }
        let alone = batch.len() == 1;
        let mut done: Vec<Completed> = Vec::with_capacity(batch.len());
        let mut jobs = std::mem::take(batch).into_iter();
        for job in jobs.by_ref() {
            let completed = self.run_one(job, alone);
            done.extend(completed);
            if self.connection.is_autocommit() {
                // Some errors, such as a full disk, make SQLite roll back the whole transaction.
                reply(done, Some(&rolled_back()));
                *batch = jobs.collect();
                if !batch.is_empty() {
                    self.transact(batch);
                }
                return;
            }
        }
        let all_failed = done.iter().all(|completed| completed.failed);
        let ended = if all_failed { self.execute("ROLLBACK") } else { self.commit() };
        match ended {
            _ if all_failed => reply(done, None),
            Ok(()) => {
                // A commit to a file that is no longer at its path may be lost.
                let lost = self.file_guard.check_after(OPERATION).err();
                self.announce();
                group_commit::take_waiting(&self.queue, &mut self.backlog);
                self.group_commit = GroupCommit::expecting(done.len() + self.backlog.len());
                reply(done, lost.as_ref());
            }
            Err(failure) => reply(done, Some(&failure.into_error(OPERATION))),
        }
    }

    /// Runs one job; on failure rolls back only that job. `None` if the job panicked, which drops its reply
    /// channel.
    fn run_one(&self, job: WriteJob, alone: bool) -> Option<Completed> {
        if !alone && self.execute("SAVEPOINT job").is_err() {
            return Some(job.work.run(Err(&rolled_back())));
        }
        let completed = catch_unwind(AssertUnwindSafe(|| job.work.run(Ok(&self.connection)))).ok();
        if self.connection.is_autocommit() {
            return completed;
        }
        let failed = completed.as_ref().is_none_or(|completed| completed.failed);
        let closed = match (alone, failed) {
            (true, _) => Ok(()),
            (false, true) => self.execute("ROLLBACK TO job").and_then(|()| self.execute("RELEASE job")),
            (false, false) => self.execute("RELEASE job"),
        };
        if closed.is_err() {
            // The changes of this job can be neither kept nor rolled back alone, so the whole transaction is
            // rolled back.
            let _ = self.execute("ROLLBACK");
        }
        completed
    }

    fn commit(&self) -> Fallible<()> {
        let committed = connection::retry_busy(self.busy_timeout, || self.execute("COMMIT"));
        if committed.is_err() && !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        committed
    }

    fn execute(&self, sql: &str) -> Fallible<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Returns true if a watch exists. The engine itself holds one receiver.
fn is_watched(commits: &watch::Sender<u64>) -> bool {
    commits.receiver_count() > 1
}

/// Returns the error of jobs that were rolled back because another job broke the transaction.
fn rolled_back() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, "the transaction was rolled back; try again")
        .with_outcome(Outcome::NotApplied)
}

fn reply(done: impl IntoIterator<Item = Completed>, broken: Option<&Error>) {
    for completed in done {
        (completed.reply)(broken);
    }
}
