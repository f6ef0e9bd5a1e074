//! Inline reads: small reads that run on the caller's own thread.
//!
//! Waking a reader thread costs several times as much as reading a few rows. So a read that is known to be
//! small runs on the caller's thread, if that never blocks the caller's runtime: on a free connection,
//! without a wait for locks, and within a budget of bytes. A read that does not fit goes to the reader
//! threads. If an inline read is slow because of a slow disk, the next reads of that connection go to the
//! reader threads for a while.
//!
//! A read of medium size is cut into slices. Each slice is an inline read, and other tasks run between them.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use larder_kernel::Result;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::config::SqliteConfig;
use super::super::failure::{Failure, Fallible};
use super::reader::{begin_snapshot, end_snapshot, no_thread};
use super::{connection, gone};

/// The maximum number of rows that an inline read requests.
pub(crate) const INLINE_ROWS_MAX: usize = 64;
/// The reader threads read larger rows.
pub(crate) const INLINE_ROW_BYTES_MAX: i64 = 64 * 1024;
/// The budget of one inline read.
const INLINE_BYTES_MAX: i64 = 256 * 1024;
/// The maximum number of slices of a read; each uses at least a quarter of the budget.
const SLICES_MAX: usize = 48;
/// The maximum time of a sliced read, including waits for other tasks.
const SLICED_MAX: Duration = Duration::from_millis(5);
/// The maximum number of connections for inline reads. Each core has one, with a separate page cache.
const CONNECTIONS_MAX: usize = 4;
/// An inline read above this time indicates a slow disk or a busy machine.
const SLOW: Duration = Duration::from_millis(1);
/// The time for which the reader threads then take over the reads of that connection.
const SLOW_PAUSE: Duration = Duration::from_millis(250);

/// The number of bytes that a read may still load.
pub(crate) struct ReadBudget {
    bytes: Option<i64>,
}

impl ReadBudget {
    /// Returns the budget of a reader thread, which may block.
    pub(crate) const fn unlimited() -> Self {
        Self { bytes: None }
    }

    /// Returns the size limit of a row.
    pub(crate) const fn row_bytes_max(&self) -> i64 {
        if self.bytes.is_none() { i64::MAX } else { INLINE_ROW_BYTES_MAX }
    }

    /// Returns true if the read runs on a reader thread.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns true if a slice should end here: the next step may use most of the budget.
    pub(crate) fn ends_slice(&self) -> bool {
        self.bytes.is_some_and(|left| left <= INLINE_BYTES_MAX / 4 * 3)
    }

    /// Subtracts this many bytes from the budget, or ends the read.
    pub(crate) fn take(&mut self, bytes: i64) -> Fallible<()> {
        match &mut self.bytes {
            None => Ok(()),
            Some(left) if *left < bytes => Err(Failure::BudgetExceeded),
            Some(left) => {
                *left -= bytes;
                Ok(())
            }
        }
    }
}

/// The connections for inline reads.
pub(super) struct InlineReads(Arc<ConnectionSlots>);

/// The slots of the connections. The writer holds a weak reference, to end idle leases before a checkpoint.
pub(super) struct ConnectionSlots(Vec<Mutex<ConnectionSlot>>);

#[derive(Default)]
struct ConnectionSlot {
    /// `None` until it is opened, and after a job panicked with it.
    inline: Option<InlineConnection>,
    lease: Option<Lease>,
    leases: u64,
}

struct InlineConnection {
    connection: Connection,
    /// The instant until which reads go to the reader threads.
    paused_until: Option<Instant>,
}

/// A use of a connection, inside a read transaction.
struct Lease {
    number: u64,
    begun: Instant,
}

/// A leased connection. It is returned when the read ends or is dropped.
struct Leased<'s> {
    slot: &'s Mutex<ConnectionSlot>,
    number: u64,
}

impl InlineReads {
    /// Creates the slots without connections.
    pub(super) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
        Self(Arc::new(ConnectionSlots((0..count).map(|_| Mutex::default()).collect())))
    }

    pub(super) fn slots(&self) -> Weak<ConnectionSlots> {
        Arc::downgrade(&self.0)
    }

    /// Opens the connections on a thread, because opening reads the file.
    pub(super) async fn open(&self, config: &Arc<SqliteConfig>) -> Result<()> {
        let (config, slots, (opened, opening)) = (Arc::clone(config), self.0.clone(), oneshot::channel());
        let open = move || {
            let open = |slot: &Mutex<ConnectionSlot>| {
                let connection =
                    connection::reader(&config).map_err(|failure| failure.into_error("sqlite.open"))?;
                lock(slot).inline = Some(InlineConnection { connection, paused_until: None });
                Ok(())
            };
            let done = slots.0.iter().try_for_each(open);
            // The opening task must be the only owner when it continues.
            drop(slots);
            let _ = opened.send(done);
        };
        std::thread::Builder::new()
            .name("larder-sqlite-open".to_owned())
            .spawn(open)
            .map_err(|_| no_thread())?;
        opening.await.map_err(|_| gone("sqlite.open", larder_kernel::Outcome::NotApplied))?
    }

    /// Closes the connections; later reads go to the reader threads.
    pub(super) fn close(&self) {
        for slot in &self.0.0 {
            let closed = lock(slot).inline.take();
            drop(closed);
        }
    }

    /// Returns the result of the job if it could run inline. After any failure a reader thread runs the job
    /// again and reports the error.
    pub(super) fn read<T>(&self, job: impl FnOnce(&Connection, &mut ReadBudget) -> Fallible<T>) -> Option<T> {
        self.0.lease()?.read(job)?.ok()
    }

    /// As `read`, slice by slice, until the job breaks with its result. All slices see one state of the
    /// database.
    pub(super) async fn read_in_slices<T>(
        &self,
        mut job: impl FnMut(&Connection, &mut ReadBudget) -> Fallible<ControlFlow<T>>,
    ) -> Option<T> {
        let leased = self.0.lease()?;
        let begun = Instant::now();
        for _ in 0..SLICES_MAX {
            if let ControlFlow::Break(found) = leased.read(&mut job)?.ok()? {
                return Some(found);
            }
            if leased.is_paused() || begun.elapsed() > SLICED_MAX {
                return None;
            }
            tokio::task::yield_now().await;
        }
        None
    }
}

impl ConnectionSlots {
    /// Leases a free connection, unless it is paused.
    fn lease(&self) -> Option<Leased<'_>> {
        let free = |slot: &MutexGuard<'_, ConnectionSlot>| slot.inline.is_some() && slot.lease.is_none();
        // A slot whose lock is taken is in use.
        let mut slots = self.0.iter().filter_map(|slot| Some((slot, try_lock(slot).filter(free)?)));
        let (slot, mut found) = slots.next()?;
        let inline = found.inline.as_ref().filter(|inline| !inline.is_paused())?;
        begin_snapshot(&inline.connection).ok()?;
        found.leases += 1;
        let number = found.leases;
        found.lease = Some(Lease { number, begun: Instant::now() });
        Some(Leased { slot, number })
    }

    /// Ends the transactions of reads that have been idle for long, because their snapshots keep the WAL from
    /// being reset. A reader thread runs such a read when its caller continues.
    pub(super) fn reclaim_idle(&self) {
        for mut slot in self.0.iter().filter_map(try_lock) {
            if slot.lease.as_ref().is_some_and(|lease| lease.begun.elapsed() > SLICED_MAX) {
                slot.end_lease();
            }
        }
    }
}

impl ConnectionSlot {
    fn end_lease(&mut self) {
        self.lease = None;
        if let Some(inline) = &self.inline {
            end_snapshot(&inline.connection);
        }
    }
}

impl InlineConnection {
    fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Leased<'_> {
    /// Returns the slot, while this read holds the lease.
    fn slot(&self) -> Option<MutexGuard<'_, ConnectionSlot>> {
        Some(lock(self.slot))
            .filter(|slot| slot.lease.as_ref().is_some_and(|lease| lease.number == self.number))
    }

    /// Returns true if the connection is paused or was reclaimed.
    fn is_paused(&self) -> bool {
        self.slot().is_none_or(|slot| slot.inline.as_ref().is_none_or(InlineConnection::is_paused))
    }

    /// Returns the result of the job; `None` if the lease was reclaimed.
    fn read<T>(&self, job: impl FnOnce(&Connection, &mut ReadBudget) -> Fallible<T>) -> Option<Fallible<T>> {
        let mut slot = self.slot()?;
        // If the job panics, only its connection is closed.
        let mut inline = slot.inline.take()?;
        let begun = Instant::now();
        let mut budget = ReadBudget { bytes: Some(INLINE_BYTES_MAX) };
        let found = job(&inline.connection, &mut budget);
        inline.paused_until = (begun.elapsed() > SLOW).then(|| begun + SLOW_PAUSE);
        slot.inline = Some(inline);
        Some(found)
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot() {
            slot.end_lease();
        }
    }
}

/// Locks the slot. The lock is held for one slice at most.
fn lock(slot: &Mutex<ConnectionSlot>) -> MutexGuard<'_, ConnectionSlot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the slot unless the lock is taken.
fn try_lock(slot: &Mutex<ConnectionSlot>) -> Option<MutexGuard<'_, ConnectionSlot>> {
    match slot.try_lock() {
        Ok(slot) => Some(slot),
        Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
