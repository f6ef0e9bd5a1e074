//! Short reads on the caller's own thread.
//!
//! Waking a reader's thread costs several times what reading a few rows does. So a read that is known to be short runs
//! where its caller is, as long as that costs the caller's runtime no wait: on a connection that nobody uses at the
//! moment, without patience for locks, and with an allowance of bytes. Whatever does not fit goes to the readers. Where a
//! short read takes long all the same, because its pages come from a slow disk, the next ones go there too for a while.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_kernel::Result;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::config::SqliteConfig;
use super::super::failure::{Failure, Fallible};
use super::reader::{in_snapshot, no_thread};
use super::{connection, gone};

/// Most rows that a short read asks for.
pub(crate) const SHORT_ROWS_MAX: usize = 64;
/// The size of a row from which a short read leaves it to the readers.
pub(crate) const SHORT_ROW_BYTES_MAX: i64 = 64 * 1024;
/// How much a short read takes in altogether.
const SHORT_BYTES_MAX: i64 = 256 * 1024;
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
pub(super) struct Short(Vec<Mutex<Place>>);

struct Place {
    connection: Connection,
    /// Until when the readers do the work.
    rests: Option<Instant>,
}

impl Short {
    /// Opens the connections, on a thread, as that reads the file.
    pub(super) async fn open(config: &Arc<SqliteConfig>) -> Result<Self> {
        let (config, (opened, opening)) = (Arc::clone(config), oneshot::channel());
        let open = move || {
            let count = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
            let places = (0..count).map(|_| {
                connection::reader(&config)
                    .map(|connection| Mutex::new(Place { connection, rests: None }))
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
        // Where a job panicked its connection is never taken again.
        let mut place = self.0.iter().find_map(|place| place.try_lock().ok())?;
        let begun = Instant::now();
        if place.rests.is_some_and(|until| begun < until) {
            return None;
        }
        let mut allowance = Allowance { bytes: Some(SHORT_BYTES_MAX) };
        let found = in_snapshot(&place.connection, |connection| job(connection, &mut allowance));
        place.rests = (begun.elapsed() > SLOW).then(|| begun + REST);
        found.ok()
    }
}
