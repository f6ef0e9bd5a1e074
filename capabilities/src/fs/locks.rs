//! Locks: first between the calls of this process, then between processes.
//!
//! Calls of this process queue without a thread. Between processes, a lock is a file that is locked with
//! `flock`. A call tries it on the blocking pool and never waits there: a process that is frozen while it
//! holds a lock costs the others only their time limit. Of the calls that need the same file, one tries it
//! and the others queue. The time limit counts only while another process holds the file.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::blocking::blocking;
use super::config::FsConfig;
use super::create::create_file;
use super::failure::failed;
use super::layout::stable_hash;
use crate::driver::OpenMode;
use crate::files::FilePermissions;

/// The number of lock files of each kind. Names with the same hash share a file.
const FILES: usize = 64;
/// The pauses of a call on its thread, before it gives the thread back and waits.
const SHORT_PAUSES: [Duration; 3] =
    [Duration::from_micros(50), Duration::from_micros(100), Duration::from_micros(200)];
/// The pauses between the attempts of a call that waits without a thread.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);

/// The mode of a lock: shared with other holders, or exclusive.
#[derive(Clone, Copy)]
pub(crate) enum LockMode {
    Shared,
    Exclusive,
}

/// A lock that a call needs.
#[derive(Clone, Copy)]
pub(crate) struct Lock {
    kind: char,
    slot: usize,
    mode: LockMode,
}

impl Lock {
    /// The lock of a namespace: shared for writes, exclusive for an erasure.
    pub(crate) fn namespace(namespace: &Namespace, mode: LockMode) -> Self {
        Self { kind: 'n', slot: slot([namespace.as_str()]), mode }
    }

    /// The lock of a folder: exclusive for writes, shared for a listing that reads it.
    pub(crate) fn folder(names: &[String], mode: LockMode) -> Self {
        Self { kind: 'f', slot: slot(names.iter().map(String::as_str)), mode }
    }

    /// The locks of a write to a blob whose file is in this folder.
    pub(crate) fn write(namespace: &Namespace, folders: &[String]) -> Vec<Self> {
        vec![Self::namespace(namespace, LockMode::Shared), Self::folder(folders, LockMode::Exclusive)]
    }

    /// The locks of two folders for a write to both. All calls take such locks in the same order, so that no
    /// two calls wait for each other. Folders that share a lock file take it once.
    pub(crate) fn folders(one: &[String], other: &[String]) -> Vec<Self> {
        let mut locks =
            vec![Self::folder(one, LockMode::Exclusive), Self::folder(other, LockMode::Exclusive)];
        locks.sort_unstable_by_key(|lock| lock.slot);
        locks.dedup_by_key(|lock| lock.slot);
        locks
    }

    fn file_name(self) -> String {
        format!("{}{:02x}", self.kind, self.slot)
    }
}

fn slot<'a>(parts: impl IntoIterator<Item = &'a str>) -> usize {
    usize::try_from(stable_hash(parts) % FILES as u64).unwrap_or_default()
}

/// A locked file. A process that was forked from this one has the file open too, and closing it here would
/// leave it locked until that process ends. So the end of this value unlocks the file for both.
pub(super) struct LockedFile(pub(super) File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file, which follows, unlocks it as well if no other process has it open.
        _ = self.0.unlock();
    }
}

/// Locks that exclude other calls and other processes until they are dropped.
pub(crate) struct LockGuard {
    _files: Vec<LockedFile>,
    _turns: Turns,
}

/// The places of a call at the head of the queues of this process.
type Turns = Vec<Turn>;

enum Turn {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
}

/// The queue of one lock file.
#[derive(Default)]
struct Queue {
    turns: Arc<RwLock<()>>,
    /// Held by the call that tries the file again and again.
    trying: Mutex<()>,
    /// The instant from which another process holds the file.
    blocked_since: StdMutex<Option<Instant>>,
}

impl Queue {
    async fn turn(&self, mode: LockMode) -> Turn {
        let turns = Arc::clone(&self.turns);
        match mode {
            LockMode::Shared => Turn::Shared { _guard: turns.read_owned().await },
            LockMode::Exclusive => Turn::Exclusive { _guard: turns.write_owned().await },
        }
    }

    fn note_blocked(&self) {
        self.blocked_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    fn note_locked(&self) {
        *self.blocked_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn blocked_since(&self) -> Option<Instant> {
        *self.blocked_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lock files of a folder and their queues.
pub(crate) struct Locks {
    folder: OwnedFd,
    busy_timeout: Duration,
    permissions: FilePermissions,
    mode: OpenMode,
    namespaces: Vec<Queue>,
    folders: Vec<Queue>,
}

/// The result of an attempt that does not wait.
pub(crate) enum Attempt<T, W> {
    Done(T),
    /// Another call or process holds a lock, so the work is still to do.
    Busy(W),
}

/// Work at the head of the queues of this process.
struct Waiting<W> {
    turns: Turns,
    work: W,
}

impl Locks {
    pub(crate) fn new(folder: OwnedFd, config: &FsConfig) -> Self {
        let queues = || (0..FILES).map(|_| Queue::default()).collect();
        let FsConfig { busy_timeout, permissions, mode, .. } = *config;
        Self { folder, busy_timeout, permissions, mode, namespaces: queues(), folders: queues() }
    }

    fn queue(&self, lock: Lock) -> &Queue {
        let queues = if lock.kind == 'n' { &self.namespaces } else { &self.folders };
        &queues[lock.slot]
    }

    async fn turns(&self, locks: &[Lock]) -> Turns {
        let mut turns = Vec::with_capacity(locks.len());
        for lock in locks {
            turns.push(self.queue(*lock).turn(lock.mode).await);
        }
        turns
    }

    /// Locks the files, or returns the lock that another process holds.
    pub(super) fn lock_files(&self, locks: &[Lock]) -> io::Result<Result<Vec<LockedFile>, Lock>> {
        let mut files = Vec::with_capacity(locks.len());
        for lock in locks {
            match self.lock_file(*lock)? {
                Some(file) => {
                    self.queue(*lock).note_locked();
                    files.push(file);
                }
                None => {
                    self.queue(*lock).note_blocked();
                    return Ok(Err(*lock));
                }
            }
        }
        Ok(Ok(files))
    }

    fn lock_file(&self, lock: Lock) -> io::Result<Option<LockedFile>> {
        let name = lock.file_name();
        let read_only = self.mode.is_read_only();
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let opened = rustix::fs::openat(&self.folder, name.as_str(), flags, Mode::empty());
            let file = match opened.map(File::from) {
                // No process has taken this lock yet. A lock of the folder of locks excludes nobody.
                Err(Errno::NOENT) if read_only => {
                    return Ok(Some(LockedFile(self.folder.try_clone()?.into())));
                }
                Err(Errno::NOENT) => create_file(self.folder.as_fd(), &name, self.permissions),
                other => other,
            };
            let file = match file {
                Err(Errno::EXIST) => continue,
                other => other?,
            };
            let locked = match lock.mode {
                LockMode::Shared => file.try_lock_shared(),
                LockMode::Exclusive => file.try_lock(),
            };
            match locked {
                Ok(()) => {
                    let locked = LockedFile(file);
                    if self.is_at(&locked.0, &name)? {
                        return Ok(Some(locked));
                    }
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Returns true if the name still leads to the file. A file that was removed excludes no process that
    /// creates it again.
    fn is_at(&self, file: &File, name: &str) -> io::Result<bool> {
        let opened = rustix::fs::fstat(file)?;
        match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs `run` on the work with the locks, unless it would have to wait for one of them. Blocks.
pub(crate) fn attempt<T, W>(
    operation: &'static str,
    locks: &Locks,
    wanted: &[Lock],
    work: W,
    run: impl FnOnce(W, LockGuard) -> Result<T>,
) -> Result<Attempt<T, W>> {
    let Some(turns) = locks.turns(wanted).now_or_never() else { return Ok(Attempt::Busy(work)) };
    Ok(match attempt_in_turn(operation, locks, wanted, Waiting { turns, work }, run)? {
        Ok(done) => Attempt::Done(done),
        Err((waiting, _)) => Attempt::Busy(waiting.work),
    })
}

/// As `attempt`, for a call at the head of the queues of this process. Returns the lock that another process
/// holds.
fn attempt_in_turn<T, W>(
    operation: &'static str,
    locks: &Locks,
    wanted: &[Lock],
    waiting: Waiting<W>,
    run: impl FnOnce(W, LockGuard) -> Result<T>,
) -> Result<Result<T, (Waiting<W>, Lock)>> {
    let mut pauses = SHORT_PAUSES.into_iter();
    loop {
        let locked = locks.lock_files(wanted);
        match locked.map_err(|error| failed(operation, error, Outcome::NotApplied))? {
            Ok(files) => {
                return run(waiting.work, LockGuard { _files: files, _turns: waiting.turns }).map(Ok);
            }
            Err(lock) => match pauses.next() {
                Some(pause) => std::thread::sleep(pause),
                None => return Ok(Err((waiting, lock))),
            },
        }
    }
}

/// Runs `work` with the locks on the blocking pool. It waits at most for the busy timeout, and without a
/// thread.
///
/// # Cancellation
/// Ends the wait. Work that has begun runs to its end.
pub(crate) async fn locked<T, W>(
    operation: &'static str,
    locks: &Arc<Locks>,
    wanted: Vec<Lock>,
    work: W,
) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce(LockGuard) -> Result<T> + Send + 'static,
{
    let limit = TimeLimit { since: Instant::now(), operation, locks };
    let turns = match locks.turns(&wanted).now_or_never() {
        Some(turns) => turns,
        None => limit.apply(&wanted, locks.turns(&wanted)).await?,
    };
    let (wanted, mut waiting) = (Arc::new(wanted), Waiting { turns, work });
    let (mut trying, mut pause) = (None, PAUSE_MIN);
    loop {
        let (locks_of_step, wanted_of_step) = (Arc::clone(locks), Arc::clone(&wanted));
        let run = |work: W, guard| work(guard);
        let step = move || attempt_in_turn(operation, &locks_of_step, &wanted_of_step, waiting, run);
        let (busy, lock) = match blocking(operation, step).await? {
            Ok(done) => return Ok(done),
            Err(busy) => busy,
        };
        waiting = busy;
        let name = lock.file_name();
        if trying.as_ref().is_some_and(|(file, _)| *file == name) {
            limit.apply(&[lock], tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        } else {
            // Dropped first: two calls that each try the file of the other would wait for each other.
            drop(trying.take());
            let turn = locks.queue(lock).trying.lock();
            trying = Some((name, limit.apply(&[lock], turn).await?));
            pause = PAUSE_MIN;
        }
    }
}

/// The time limit of a call's waits.
struct TimeLimit<'l> {
    since: Instant,
    operation: &'static str,
    locks: &'l Locks,
}

impl TimeLimit<'_> {
    /// Waits for `wait`, which needs these locks.
    async fn apply<T>(&self, locks: &[Lock], wait: impl Future<Output = T>) -> Result<T> {
        let mut wait = pin!(wait);
        loop {
            let left = self.left(locks);
            if let Ok(done) = tokio::time::timeout(left, &mut wait).await {
                return Ok(done);
            }
            if self.left(locks).is_zero() {
                let message = "another process locked the folder for longer than `busy_timeout_ms`; try \
                               again, or raise it";
                let error = Error::new(ErrorKind::Timeout, self.operation, message);
                return Err(error.with_outcome(Outcome::NotApplied));
            }
        }
    }

    /// Returns the time that another process may still hold one of the locks.
    fn left(&self, locks: &[Lock]) -> Duration {
        let timeout = self.locks.busy_timeout;
        let blocked = locks.iter().filter_map(|lock| self.locks.queue(*lock).blocked_since());
        // While no other process holds a lock, the calls before this one are at work.
        blocked.min().map_or(timeout.max(PAUSE_MAX), |blocked| {
            timeout.saturating_sub(blocked.max(self.since).elapsed())
        })
    }
}
