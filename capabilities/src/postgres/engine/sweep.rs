//! Removes expired data from the disk in small parts.
//!
//! No call ever returns expired data. Calls that use a thread or write to a bucket remove its expired data.
//! This module removes the data of threads and buckets that are never used again. Each part is a separate
//! call on a pooled connection and skips locked rows, so any number of processes may sweep concurrently.

pub(in crate::postgres) mod contents;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{Error, ErrorKind, Result};
use sqlx::{PgConnection, Row};
use tokio::task::JoinHandle;

use super::{Engine, Write, begin_write};
use crate::postgres::decode::count;
use crate::postgres::encode::length;
use crate::postgres::failure::Fallible;

const OPERATION: &str = "postgres.sweep";
/// The pause after all expired data is removed.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause if more was expired than one part removes.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of threads, of buckets, and of contents of blobs, that one part checks.
const PLACES_MAX: usize = 64;
/// The maximum number of a thread's messages, or of a bucket's keys, that one call removes.
const ROWS_MAX: i64 = 1_000;
/// The size from which one call removes no more.
const BYTES_MAX: i64 = 16 << 20;

/// The schedule of the sweep, and its background task.
pub(crate) struct Sweeper {
    pace: Arc<Mutex<Pace>>,
}

struct Pace {
    next: Instant,
    task: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Creates a schedule whose first sweep is due at a random moment of the first minute, so that some
    /// short-lived programs sweep too.
    pub(crate) fn new() -> Self {
        let wait = Duration::from_millis(RandomState::new().hash_one(0_u8) % 60_000);
        Self { pace: Arc::new(Mutex::new(Pace { next: Instant::now() + wait, task: None })) }
    }

    /// Starts a sweep in the background if it is due.
    pub(crate) fn start(&self, engine: &Engine) {
        let mut pace = lock(&self.pace);
        if Instant::now() < pace.next {
            return;
        }
        pace.next = Instant::now() + INTERVAL;
        let (engine, at) = (engine.clone(), Arc::clone(&self.pace));
        pace.task = Some(tokio::spawn(async move {
            // A part that fails is retried at the next due time.
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

/// Removes all expired data, and returns the number of removed threads and keys. A thread or bucket that
/// fails does not stop the others; its error is returned at the end.
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

/// The result of one part.
#[derive(Default)]
struct Swept {
    /// The number of removed threads and keys.
    gone: u64,
    /// The number of threads, buckets and contents of blobs that were not locked by others.
    met: usize,
    /// True if more expired data may be left that is not locked by others.
    more: bool,
    /// The first error of a thread or bucket.
    failed: Option<Error>,
}

impl Swept {
    /// Adds the result of one thread or bucket: whether it was free, the number of removed items, and whether
    /// more is left.
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
    use ErrorKind::{PermissionDenied, ResourceExhausted, Unavailable, Unsupported};
    matches!(error.kind(), Unavailable | PermissionDenied | ResourceExhausted | Unsupported)
}

async fn part(engine: &Engine) -> Result<Swept> {
    let mut swept = Swept::default();
    let threads = engine.read(OPERATION, &(), |sql, ()| threads(sql)).await?;
    for thread in &threads {
        let state = engine.statement(OPERATION, thread, sweep_thread).await;
        swept.note(state.map(|state| (state > 0, u64::from(state == 2), state == 3)))?;
    }
    let buckets = engine.read(OPERATION, &(), |sql, ()| buckets(sql)).await?;
    for bucket in &buckets {
        let state = engine.statement(OPERATION, bucket, sweep_bucket).await;
        swept.note(state.map(|(state, gone)| (state > 0, gone, state == 2)))?;
    }
    let limit = length(PLACES_MAX);
    let left = engine.read(OPERATION, &limit, |sql, limit| contents::due(sql, *limit)).await?;
    for content in &left {
        let state = engine.statement(OPERATION, content, contents::sweep).await;
        swept.note(state.map(|state| (state != contents::Swept::Busy, 0, state == contents::Swept::More)))?;
    }
    swept.more |= engine.statement(OPERATION, &(), |sql, write, ()| sweep_popped(sql, write)).await?;
    swept.more |= swept.met > 0 && threads.len().max(buckets.len()).max(left.len()) == PLACES_MAX;
    Ok(swept)
}

type Names = Vec<String>;

/// Returns the namespace, agent and session of the threads that are due.
fn threads(sql: &mut PgConnection) -> BoxFuture<'_, Fallible<Vec<Names>>> {
    Box::pin(async move {
        let due = sqlx::query_scalar(
            "SELECT ARRAY[namespace, agent, session] FROM larder.threads
             WHERE sweep_ms <= (SELECT larder.now_ms()) ORDER BY sweep_ms LIMIT $1",
        );
        Ok(due.bind(length(PLACES_MAX)).fetch_all(sql).await?)
    })
}

/// Returns the namespace and name of the buckets that are due.
fn buckets(sql: &mut PgConnection) -> BoxFuture<'_, Fallible<Vec<Names>>> {
    Box::pin(async move {
        let due = sqlx::query_scalar(
            "SELECT ARRAY[namespace, bucket] FROM larder.kv_buckets
             WHERE sweep_ms <= (SELECT larder.now_ms() - 60000) ORDER BY sweep_ms LIMIT $1",
        );
        Ok(due.bind(length(PLACES_MAX)).fetch_all(sql).await?)
    })
}

fn sweep_thread<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    thread: &'c Names,
) -> BoxFuture<'c, Fallible<i32>> {
    Box::pin(async move {
        let sweep = sqlx::query_scalar(concat!(
            "SELECT larder.sweep_thread($1, $2, $3, $4, $5) WHERE ",
            begin_write!("6", "7")
        ));
        let sweep = thread.iter().fold(sweep, |sweep, name| sweep.bind(name));
        Ok(sweep.bind(ROWS_MAX).bind(BYTES_MAX).bind(write.format).bind(write.commit).fetch_one(sql).await?)
    })
}

/// Removes the messages of pops that were kept long enough, and returns true if more are left.
fn sweep_popped(sql: &mut PgConnection, write: Write) -> BoxFuture<'_, Fallible<bool>> {
    Box::pin(async move {
        let sweep =
            sqlx::query_scalar(concat!("SELECT larder.sweep_popped($1, $2) WHERE ", begin_write!("3", "4")));
        Ok(sweep.bind(ROWS_MAX).bind(BYTES_MAX).bind(write.format).bind(write.commit).fetch_one(sql).await?)
    })
}

fn sweep_bucket<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    bucket: &'c Names,
) -> BoxFuture<'c, Fallible<(i32, u64)>> {
    Box::pin(async move {
        let sweep = sqlx::query(concat!(
            "SELECT out_state, out_gone FROM larder.sweep_bucket($1, $2, $3, $4, $5) WHERE ",
            begin_write!("6", "7")
        ));
        let sweep = bucket.iter().fold(sweep, |sweep, name| sweep.bind(name));
        let row = sweep
            .bind(ROWS_MAX)
            .bind(BYTES_MAX)
            .bind(length(BUCKET_TOMBSTONES_MAX))
            .bind(write.format)
            .bind(write.commit)
            .fetch_one(sql)
            .await?;
        Ok((row.try_get(0)?, count(row.try_get(1)?)?))
    })
}
