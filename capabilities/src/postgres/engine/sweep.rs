//! Takes what has expired off the disk, a part at a time.
//!
//! No call ever shows what has expired, and those that use a thread or write to a bucket clear it away there. This is for
//! the threads and buckets that nobody comes back to. Each part is a call of its own on one of the pool's connections, and
//! passes by what somebody else works on, so any number of processes may sweep at once.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{Error, ErrorKind, Result};
use sqlx::{PgConnection, Row};
use tokio::task::JoinHandle;

use super::Engine;
use crate::postgres::decode::count;
use crate::postgres::encode::length;
use crate::postgres::failure::Fallible;

const OPERATION: &str = "postgres.sweep";
/// How long nothing is looked for after all that had expired was gone.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long the rest is left where there was more than goes at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Most threads, and most buckets, that are looked at in one go.
const PLACES_MAX: usize = 64;
/// Most messages of a thread, and most keys of a bucket, that one call takes away.
const ROWS_MAX: i64 = 1_000;
/// The size from which on one call takes away no more.
const BYTES_MAX: i64 = 16 << 20;

/// When to sweep, and the task that does.
pub(crate) struct Sweeper {
    pace: Arc<Mutex<Pace>>,
}

struct Pace {
    next: Instant,
    task: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// One that first looks at a random moment of the first minute: of programs that run for less than that, some do.
    pub(crate) fn new() -> Self {
        let wait = Duration::from_millis(RandomState::new().hash_one(0_u8) % 60_000);
        Self { pace: Arc::new(Mutex::new(Pace { next: Instant::now() + wait, task: None })) }
    }

    /// Begins to sweep in the background, if it is time to.
    pub(crate) fn start(&self, engine: &Engine) {
        let mut pace = lock(&self.pace);
        if Instant::now() < pace.next {
            return;
        }
        pace.next = Instant::now() + INTERVAL;
        let (engine, at) = (engine.clone(), Arc::clone(&self.pace));
        pace.task = Some(tokio::spawn(async move {
            // What cannot be done now is left for the next time.
            if part(&engine).await.is_ok_and(|swept| swept.more) {
                lock(&at).next = Instant::now() + PAUSE;
            }
        }));
    }

    pub(crate) fn stop(&self) {
        if let Some(task) = lock(&self.pace).task.take() {
            task.abort();
        }
    }
}

fn lock(pace: &Mutex<Pace>) -> MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes away all that has expired, and answers how many threads and keys went. A place that cannot be swept does not keep
/// the others from it; its error is told in the end.
pub(crate) async fn whole(engine: &Engine) -> Result<u64> {
    let mut gone = 0;
    loop {
        let swept = part(engine).await?;
        gone += swept.gone;
        if !swept.more {
            return swept.failed.map_or(Ok(gone), Err);
        }
    }
}

/// What one part of the work took away.
#[derive(Default)]
struct Swept {
    /// Threads and keys.
    gone: u64,
    /// Threads and buckets that nobody else works on.
    met: usize,
    /// Whether there may be more that nobody else works on.
    more: bool,
    /// Why the first of the places that could not be swept could not be.
    failed: Option<Error>,
}

impl Swept {
    /// Whether anything came of a look at a place, how much went there, and whether there is more.
    fn note(&mut self, looked: Result<(bool, u64, bool)>) -> Result<()> {
        match looked {
            Ok((met, gone, more)) => {
                self.met += usize::from(met);
                self.gone += gone;
                self.more |= more;
            }
            Err(error) if meets_every_place(&error) => return Err(error),
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
        Ok(())
    }
}

fn meets_every_place(error: &Error) -> bool {
    use ErrorKind::{PermissionDenied, ResourceExhausted, Unavailable};
    matches!(error.kind(), Unavailable | PermissionDenied | ResourceExhausted)
}

async fn part(engine: &Engine) -> Result<Swept> {
    let mut swept = Swept::default();
    let threads = engine.read(OPERATION, &(), |sql, ()| threads(sql)).await?;
    for thread in &threads {
        let state = engine.statement(OPERATION, thread, |sql, thread| sweep_thread(sql, thread)).await;
        swept.note(state.map(|state| (state > 0, u64::from(state == 2), state == 3)))?;
    }
    let buckets = engine.read(OPERATION, &(), |sql, ()| buckets(sql)).await?;
    for bucket in &buckets {
        let state = engine.statement(OPERATION, bucket, |sql, bucket| sweep_bucket(sql, bucket)).await;
        swept.note(state.map(|(state, gone)| (state > 0, gone, state == 2)))?;
    }
    swept.more |= swept.met > 0 && threads.len().max(buckets.len()) == PLACES_MAX;
    Ok(swept)
}

type Names = Vec<String>;

/// The namespace, agent and session of threads that are to be looked at.
fn threads(sql: &mut PgConnection) -> BoxFuture<'_, Fallible<Vec<Names>>> {
    Box::pin(async move {
        let due = sqlx::query_scalar(
            "SELECT ARRAY[namespace, agent, session] FROM larder.threads
             WHERE sweep_ms <= (SELECT larder.now_ms()) ORDER BY sweep_ms LIMIT $1",
        );
        Ok(due.bind(length(PLACES_MAX)).fetch_all(sql).await?)
    })
}

/// The namespace and name of buckets that are to be looked at.
fn buckets(sql: &mut PgConnection) -> BoxFuture<'_, Fallible<Vec<Names>>> {
    Box::pin(async move {
        let due = sqlx::query_scalar(
            "SELECT ARRAY[namespace, bucket] FROM larder.kv_buckets
             WHERE sweep_ms <= (SELECT larder.now_ms() - 60000) ORDER BY sweep_ms LIMIT $1",
        );
        Ok(due.bind(length(PLACES_MAX)).fetch_all(sql).await?)
    })
}

fn sweep_thread<'c>(sql: &'c mut PgConnection, thread: &'c Names) -> BoxFuture<'c, Fallible<i32>> {
    Box::pin(async move {
        let sweep = sqlx::query_scalar("SELECT larder.sweep_thread($1, $2, $3, $4, $5)");
        let sweep = thread.iter().fold(sweep, |sweep, name| sweep.bind(name));
        Ok(sweep.bind(ROWS_MAX).bind(BYTES_MAX).fetch_one(sql).await?)
    })
}

fn sweep_bucket<'c>(sql: &'c mut PgConnection, bucket: &'c Names) -> BoxFuture<'c, Fallible<(i32, u64)>> {
    Box::pin(async move {
        let sweep = sqlx::query("SELECT out_state, out_gone FROM larder.sweep_bucket($1, $2, $3, $4, $5)");
        let sweep = bucket.iter().fold(sweep, |sweep, name| sweep.bind(name));
        let row =
            sweep.bind(ROWS_MAX).bind(BYTES_MAX).bind(length(BUCKET_TOMBSTONES_MAX)).fetch_one(sql).await?;
        Ok((row.try_get(0)?, count(row.try_get(1)?)?))
    })
}
