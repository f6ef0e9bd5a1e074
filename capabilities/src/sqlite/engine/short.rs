//! Short reads on the caller's own thread.
//!
//! Waking a reader's thread costs several times what reading a few rows does. So a read that is known to be short runs
//! where its caller is, as long as that costs the caller's runtime no wait: on a connection that nobody uses at the
//! moment, without patience for locks, and with an allowance of bytes. Whatever does not fit goes to the readers. Where a
//! short read takes long all the same, because its pages come from a slow disk, the next ones go there too for a while.
//!
//! A read of middling length is cut into slices, each a short read, with a turn for other tasks between them.

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

/// Most rows that a short read asks for.
pub(crate) const SHORT_ROWS_MAX: usize = 64;
/// The size of a row from which a short read leaves it to the readers.
pub(crate) const SHORT_ROW_BYTES_MAX: i64 = 64 * 1024;
/// How much a short read takes in altogether.
const SHORT_BYTES_MAX: i64 = 256 * 1024;
/// How many slices a read may have; as each uses a quarter of the allowance at least, it takes as long as so many short reads.
const SLICES_MAX: usize = 48;
/// How long a read may take whose slices wait for other tasks; a reader waits for none.
const SLICED_MAX: Duration = Duration::from_millis(5);
/// Connections for short reads, one for each core and no more than this: each has a page cache.
const CONNECTIONS_MAX: usize = 4;
/// A short read that takes longer met a slow disk or a machine that is busy.
const SLOW: Duration = Duration::from_millis(1);
/// How long short reads then go to the readers.
const REST: Duration = Duration::from_millis(250);

/// What a read may still take in.
pub(crate) struct Allowance {
    bytes: Option<i64>,
}

impl Allowance {
    /// That of the readers' threads, which may take their time.
    pub(crate) const fn unlimited() -> Self {
        Self { bytes: None }
    }

    /// Whether rows of any size are taken in.
    pub(crate) const fn row_bytes_max(&self) -> i64 {
        if self.bytes.is_none() { i64::MAX } else { SHORT_ROW_BYTES_MAX }
    }

    /// Whether the read may take its time.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.bytes.is_none()
    }

    /// Whether a slice had better end here: what comes next may take most of an allowance.
    pub(crate) fn ends_slice(&self) -> bool {
        self.bytes.is_some_and(|left| left <= SHORT_BYTES_MAX / 4 * 3)
    }

    /// Takes so many bytes off, or ends the read.
    pub(crate) fn take(&mut self, bytes: i64) -> Fallible<()> {
        match &mut self.bytes {
            None => Ok(()),
            Some(left) if *left < bytes => Err(Failure::Long),
            Some(left) => {
                *left -= bytes;
                Ok(())
            }
        }
    }
}

/// The connections for short reads.
pub(super) struct Short(Arc<Desks>);

/// Where they are lent. The writer knows of it as well, and does not keep it.
pub(super) struct Desks(Vec<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    /// `None` until it is opened, and where a job panicked with it.
    place: Option<Place>,
    loan: Option<Loan>,
    loans: u64,
}

struct Place {
    connection: Connection,
    /// Until when the readers do the work.
    rests: Option<Instant>,
}

/// Inside a read transaction.
struct Loan {
    number: u64,
    begun: Instant,
}

/// A connection in use. It goes back when the read ends or is dropped.
struct Lent<'s> {
    desk: &'s Mutex<Desk>,
    number: u64,
}

impl Short {
    /// Without connections yet.
    pub(super) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
        Self(Arc::new(Desks((0..count).map(|_| Mutex::default()).collect())))
    }

    pub(super) fn desks(&self) -> Weak<Desks> {
        Arc::downgrade(&self.0)
    }

    /// Opens the connections, on a thread, as that reads the file.
    pub(super) async fn open(&self, config: &Arc<SqliteConfig>) -> Result<()> {
        let (config, desks, (opened, opening)) = (Arc::clone(config), self.0.clone(), oneshot::channel());
        let open = move || {
            let open = |desk: &Mutex<Desk>| {
                let connection =
                    connection::reader(&config).map_err(|failure| failure.into_error("sqlite.open"))?;
                held(desk).place = Some(Place { connection, rests: None });
                Ok(())
            };
            let done = desks.0.iter().try_for_each(open);
            // Who waits is the only owner then.
            drop(desks);
            let _ = opened.send(done);
        };
        std::thread::Builder::new()
            .name("larder-sqlite-open".to_owned())
            .spawn(open)
            .map_err(|_| no_thread())?;
        opening.await.map_err(|_| gone("sqlite.open", larder_kernel::Outcome::NotApplied))?
    }

    /// What the job read, if it could be done here and now. Whatever went wrong, a reader tries again and reports.
    pub(super) fn read<T>(&self, job: impl FnOnce(&Connection, &mut Allowance) -> Fallible<T>) -> Option<T> {
        self.0.lend()?.read(job)?.ok()
    }

    /// As `read`, slice by slice, until the job breaks with what it read. All slices see one state of the database.
    pub(super) async fn read_in_slices<T>(
        &self,
        mut job: impl FnMut(&Connection, &mut Allowance) -> Fallible<ControlFlow<T>>,
    ) -> Option<T> {
        let lent = self.0.lend()?;
        let begun = Instant::now();
        for _ in 0..SLICES_MAX {
            if let ControlFlow::Break(found) = lent.read(&mut job)?.ok()? {
                return Some(found);
            }
            if lent.rests() || begun.elapsed() > SLICED_MAX {
                return None;
            }
            tokio::task::yield_now().await;
        }
        None
    }
}

impl Desks {
    /// A connection that nobody uses, unless it rests.
    fn lend(&self) -> Option<Lent<'_>> {
        let free = |desk: &MutexGuard<'_, Desk>| desk.place.is_some() && desk.loan.is_none();
        // One whose lock is taken is in use.
        let mut desks = self.0.iter().filter_map(|desk| Some((desk, tried(desk).filter(free)?)));
        let (desk, mut found) = desks.next()?;
        let place = found.place.as_ref().filter(|place| !place.is_resting())?;
        begin_snapshot(&place.connection).ok()?;
        found.loans += 1;
        let number = found.loans;
        found.loan = Some(Loan { number, begun: Instant::now() });
        Some(Lent { desk, number })
    }

    /// Ends the transactions of reads that nobody has gone on with for long: what they see, the log cannot let go of. Such
    /// a read is done by a reader when its caller comes back.
    pub(super) fn call_in(&self) {
        for mut desk in self.0.iter().filter_map(tried) {
            if desk.loan.as_ref().is_some_and(|loan| loan.begun.elapsed() > SLICED_MAX) {
                desk.take_back();
            }
        }
    }
}

impl Desk {
    fn take_back(&mut self) {
        self.loan = None;
        if let Some(place) = &self.place {
            end_snapshot(&place.connection);
        }
    }
}

impl Place {
    fn is_resting(&self) -> bool {
        self.rests.is_some_and(|until| Instant::now() < until)
    }
}

impl Lent<'_> {
    /// The desk, while the connection is lent to this read.
    fn desk(&self) -> Option<MutexGuard<'_, Desk>> {
        Some(held(self.desk)).filter(|desk| desk.loan.as_ref().is_some_and(|loan| loan.number == self.number))
    }

    /// Whether the readers do the work at present.
    fn rests(&self) -> bool {
        self.desk().is_none_or(|desk| desk.place.as_ref().is_none_or(Place::is_resting))
    }

    /// What the job read; `None` where the connection was called in.
    fn read<T>(&self, job: impl FnOnce(&Connection, &mut Allowance) -> Fallible<T>) -> Option<Fallible<T>> {
        let mut desk = self.desk()?;
        // Where the job panics, its connection is closed, and no other.
        let mut place = desk.place.take()?;
        let begun = Instant::now();
        let mut allowance = Allowance { bytes: Some(SHORT_BYTES_MAX) };
        let found = job(&place.connection, &mut allowance);
        place.rests = (begun.elapsed() > SLOW).then(|| begun + REST);
        desk.place = Some(place);
        Some(found)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(mut desk) = self.desk() {
            desk.take_back();
        }
    }
}

/// What is there. The lock is held for a slice at most.
fn held(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, unless the lock is taken.
fn tried(desk: &Mutex<Desk>) -> Option<MutexGuard<'_, Desk>> {
    match desk.try_lock() {
        Ok(desk) => Some(desk),
        Err(TryLockError::Poisoned(desk)) => Some(desk.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
