//! Short reads on the caller's own thread.
//!
//! Waking a reader's thread costs several times what reading a few rows does. So a read that is known to be short runs
//! where its caller is, as long as that costs the caller's runtime no wait: on a connection that nobody uses at the
//! moment, without patience for locks, and with an allowance of bytes. Whatever does not fit goes to the readers. Where a
//! short read takes long all the same, because its pages come from a slow disk, the next ones go there too for a while.
//!
//! A read of middling length is cut into slices, each a short read, with a turn for other tasks between them.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The connections for short reads, but for those that are in use.
pub(super) struct Short(Vec<Mutex<Option<Box<Place>>>>);

struct Place {
    connection: Connection,
    /// Until when the readers do the work.
    rests: Option<Instant>,
}

/// A connection in use, inside a read transaction. It goes back when the read ends or is dropped.
struct Lent<'s> {
    home: &'s Mutex<Option<Box<Place>>>,
    place: Option<Box<Place>>,
}

impl Short {
    /// Opens the connections, on a thread, as that reads the file.
    pub(super) async fn open(config: &Arc<SqliteConfig>) -> Result<Self> {
        let (config, (opened, opening)) = (Arc::clone(config), oneshot::channel());
        let open = move || {
            let count = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
            let places = (0..count).map(|_| {
                connection::reader(&config)
                    .map(|connection| Mutex::new(Some(Box::new(Place { connection, rests: None }))))
                    .map_err(|failure| failure.into_error("sqlite.open"))
            });
            let _ = opened.send(places.collect::<Result<_>>());
        };
        std::thread::Builder::new()
            .name("larder-sqlite-open".to_owned())
            .spawn(open)
            .map_err(|_| no_thread())?;
        let places = opening.await.map_err(|_| gone("sqlite.open", larder_kernel::Outcome::NotApplied))?;
        Ok(Self(places?))
    }

    /// What the job read, if it could be done here and now. Whatever went wrong, a reader tries again and reports.
    pub(super) fn read<T>(&self, job: impl FnOnce(&Connection, &mut Allowance) -> Fallible<T>) -> Option<T> {
        self.lend()?.read(job).ok()
    }

    /// As `read`, slice by slice, until the job breaks with what it read. All slices see one state of the database.
    pub(super) async fn read_in_slices<T>(
        &self,
        mut job: impl FnMut(&Connection, &mut Allowance) -> Fallible<ControlFlow<T>>,
    ) -> Option<T> {
        let mut lent = self.lend()?;
        let begun = Instant::now();
        for _ in 0..SLICES_MAX {
            if let ControlFlow::Break(found) = lent.read(&mut job).ok()? {
                return Some(found);
            }
            if lent.rests() || begun.elapsed() > SLICED_MAX {
                return None;
            }
            tokio::task::yield_now().await;
        }
        None
    }

    /// A connection that nobody uses, unless it rests.
    fn lend(&self) -> Option<Lent<'_>> {
        let mut free = self.0.iter().filter_map(|home| Some((home, held(home).take()?)));
        let (home, place) = free.next()?;
        let lent = Lent { home, place: Some(place) };
        if lent.rests() {
            return None;
        }
        begin_snapshot(&lent.place.as_ref()?.connection).ok()?;
        Some(lent)
    }
}

impl Lent<'_> {
    /// Whether the readers do the work at present.
    fn rests(&self) -> bool {
        let rests = self.place.as_ref().and_then(|place| place.rests);
        rests.is_some_and(|until| Instant::now() < until)
    }

    fn read<T>(&mut self, job: impl FnOnce(&Connection, &mut Allowance) -> Fallible<T>) -> Fallible<T> {
        // Where the job panics, its connection is closed, and no other.
        let Some(mut place) = self.place.take() else { return Err(Failure::Long) };
        let begun = Instant::now();
        let mut allowance = Allowance { bytes: Some(SHORT_BYTES_MAX) };
        let found = job(&place.connection, &mut allowance);
        place.rests = (begun.elapsed() > SLOW).then(|| begun + REST);
        self.place = Some(place);
        found
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            end_snapshot(&place.connection);
            *held(self.home) = Some(place);
        }
    }
}

/// What is there. The lock is held for a moment only.
fn held(home: &Mutex<Option<Box<Place>>>) -> MutexGuard<'_, Option<Box<Place>>> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
}
