//! The threads and buckets that subscriptions of an open database follow, and the look at all of them.
//!
//! A subscription waits for a notification, and makes no request while it waits. Once in
//! [`crate::follow::POLL`], one statement reads the counters of everything that is followed, and wakes the
//! subscriptions whose counters changed. So a lost notification costs latency, and subscriptions that nothing
//! happens to cost one statement a second, however many they are. The look also renews the marks of followed
//! threads, which make their appends notify.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::ErrorKind;
use sqlx::{PgConnection, Row};
use tokio::sync::{Notify, watch};

use super::{Engine, Write, begin_write};
use crate::follow::{LEASE, Looks, OPERATION, Subscriber};
use crate::postgres::encode::millis;
use crate::postgres::failure::Fallible;

/// The time between two looks.
const INTERVAL: Duration = crate::follow::POLL;
/// The maximum number of threads and buckets in one look.
const LOOK_MAX: usize = 10_000;
/// The maximum number of marks that one look renews.
const RENEWED_MAX: usize = 500;

/// The time after which the mark of a thread is tried again that does not exist or that another transaction
/// holds.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// A thread or a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Followed {
    /// Namespace, agent and session.
    Thread(String, String, String),
    /// Namespace and bucket.
    Bucket(String, String),
}

/// The counters of a thread or a bucket, which have no value if it does not exist: for a thread its last
/// number and 1 if it has expired, for a bucket its last revision and the greatest forgotten one. The first
/// is increased by the generation, so that it changes with either.
pub(crate) type Counters = (Option<i64>, Option<i64>);

struct Entry {
    followed: Followed,
    /// The counters at the last look, or before the first look the least that a subscription read up to.
    seen: Option<Counters>,
    looked: bool,
    /// When the mark of a thread is renewed next.
    due: Instant,
}

/// The threads and buckets that share a number of notifications.
struct Entries {
    sender: watch::Sender<()>,
    entries: Vec<Entry>,
}

/// The followed threads and buckets, by the number under which their changes are announced.
#[derive(Clone, Default)]
pub(super) struct Watched {
    by_number: Arc<Mutex<HashMap<i64, Entries>>>,
    looks: Looks,
    soon: Arc<Notify>,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Entries>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self, number: i64, followed: Followed) -> Subscriber {
        let mut by_number = self.lock();
        let entries = by_number
            .entry(number)
            .or_insert_with(|| Entries { sender: watch::channel(()).0, entries: Vec::new() });
        if !entries.entries.iter().any(|entry| entry.followed == followed) {
            entries.entries.push(Entry {
                followed,
                seen: None,
                looked: false,
                due: Instant::now() + RENEW_AGAIN,
            });
        }
        Subscriber::new(entries.sender.subscribe()).with_looks(self.looks.clone())
    }

    pub(super) fn notify(&self, number: i64) {
        if let Some(entries) = self.lock().get(&number) {
            let _ = entries.sender.send(());
        }
    }

    /// Notes the counters up to which a subscription has read. So the first look wakes only the subscriptions
    /// that missed a change.
    pub(super) fn reached(&self, number: i64, followed: &Followed, counters: Counters) {
        let mut by_number = self.lock();
        let entries = by_number.get_mut(&number).into_iter().flat_map(|all| &mut all.entries);
        for entry in entries.filter(|entry| entry.followed == *followed && !entry.looked) {
            entry.seen = Some(entry.seen.map_or(counters, |seen| seen.min(counters)));
        }
    }

    /// Notes that no look follows.
    pub(super) fn end(&self) {
        self.looks.end();
    }

    /// Looks as soon as possible: notifications may be lost.
    pub(super) fn look_soon(&self) {
        self.soon.notify_one();
    }

    /// Waits until the next look is due.
    pub(super) async fn wait_for_turn(&self) {
        let _ = tokio::time::timeout(INTERVAL, self.soon.notified()).await;
    }

    fn notify_all(&self) {
        self.lock().values().for_each(|entries| _ = entries.sender.send(()));
    }

    /// Removes what nobody follows any more, and returns the rest.
    fn followed(&self) -> Vec<(i64, Followed)> {
        let mut by_number = self.lock();
        by_number.retain(|_, entries| entries.sender.receiver_count() > 0);
        let all = by_number.iter();
        all.flat_map(|(number, all)| all.entries.iter().map(|entry| (*number, entry.followed.clone())))
            .collect()
    }

    /// Returns threads whose marks are due.
    fn due(&self) -> Vec<(i64, Followed)> {
        let by_number = self.lock();
        let is_due =
            |entry: &&Entry| matches!(entry.followed, Followed::Thread(..)) && entry.due <= Instant::now();
        let due = by_number.iter().flat_map(|(number, all)| {
            all.entries.iter().filter(is_due).map(|entry| (*number, entry.followed.clone()))
        });
        due.take(RENEWED_MAX).collect()
    }

    /// Wakes the subscriptions whose counters are not those of the last look.
    fn compare(&self, looked: &[(i64, Followed)], found: &[Counters]) {
        let mut by_number = self.lock();
        for ((number, followed), found) in looked.iter().zip(found) {
            let Some(entries) = by_number.get_mut(number) else { continue };
            let Some(entry) = entries.entries.iter_mut().find(|entry| entry.followed == *followed) else {
                continue;
            };
            entry.looked = true;
            if entry.seen.replace(*found) != Some(*found) {
                let _ = entries.sender.send(());
            }
        }
    }

    /// Sets when the marks of these are renewed next.
    fn set_due(&self, list: &[(i64, Followed)], after: impl Fn(usize) -> Duration) {
        let mut by_number = self.lock();
        for (place, (number, followed)) in list.iter().enumerate() {
            let entries = by_number.get_mut(number).into_iter().flat_map(|all| &mut all.entries);
            entries.filter(|entry| entry.followed == *followed).for_each(|entry| {
                entry.due = Instant::now() + after(place);
            });
        }
    }

    /// Looks at everything that is followed.
    pub(super) async fn look(&self, engine: &Engine) {
        self.looks.mark();
        let followed = self.followed();
        for part in followed.chunks(LOOK_MAX) {
            match engine.read(OPERATION, &part, |sql, part| Box::pin(counters(sql, part))).await {
                Ok(found) => self.compare(part, &found),
                // Nothing is known, and the next look may succeed.
                Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::ResourceExhausted) => {}
                // Each subscription reads, and reports the failure.
                Err(_) => self.notify_all(),
            }
        }
        let due = self.due();
        if !due.is_empty() {
            let write = engine.write();
            let renewed = engine.read(OPERATION, &&*due, |sql, due| Box::pin(renew(sql, write, due))).await;
            match renewed {
                Ok(renewed) => {
                    self.set_due(
                        &due,
                        |place| if renewed.contains(&place) { LEASE / 2 } else { RENEW_AGAIN },
                    );
                }
                // A standby takes no marks; the looks find what its threads get.
                Err(_) => self.set_due(&due, |_| LEASE / 2),
            }
        }
        self.looks.mark();
    }
}

/// The names of threads, column by column, with their places in the list.
#[derive(Default)]
struct Columns<'a> {
    places: Vec<i64>,
    names: [Vec<&'a str>; 3],
}

impl<'a> Columns<'a> {
    fn push<const N: usize>(&mut self, place: usize, names: [&'a str; N]) {
        self.places.push(i64::try_from(place).unwrap_or(i64::MAX));
        for (column, name) in self.names.iter_mut().zip(names) {
            column.push(name);
        }
    }
}

fn columns(list: &[(i64, Followed)]) -> (Columns<'_>, Columns<'_>) {
    let (mut threads, mut buckets) = (Columns::default(), Columns::default());
    for (place, (_, followed)) in list.iter().enumerate() {
        match followed {
            Followed::Thread(namespace, agent, session) => threads.push(place, [namespace, agent, session]),
            Followed::Bucket(namespace, bucket) => buckets.push(place, [namespace, bucket]),
        }
    }
    (threads, buckets)
}

/// Returns the counters of each.
async fn counters(sql: &mut PgConnection, list: &[(i64, Followed)]) -> Fallible<Vec<Counters>> {
    let (threads, buckets) = columns(list);
    let rows = sqlx::query(
        "SELECT w.place, t.last_seq + t.generation,
            CASE WHEN t.expires_ms <= larder.now_ms() THEN 1 ELSE 0 END::bigint
         FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) w (place, namespace, agent, session)
            JOIN larder.threads t
            ON t.namespace = w.namespace AND t.agent = w.agent AND t.session = w.session
         UNION ALL
         SELECT w.place, b.last_revision + b.generation, b.forgotten_revision
         FROM unnest($5::bigint[], $6::text[], $7::text[]) w (place, namespace, bucket)
            JOIN larder.kv_buckets b ON b.namespace = w.namespace AND b.bucket = w.bucket",
    )
    .bind(&threads.places)
    .bind(&threads.names[0])
    .bind(&threads.names[1])
    .bind(&threads.names[2])
    .bind(&buckets.places)
    .bind(&buckets.names[0])
    .bind(&buckets.names[1])
    .fetch_all(sql)
    .await?;
    let mut found = vec![(None, None); list.len()];
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(usize::MAX);
        if let Some(counters) = found.get_mut(place) {
            *counters = (row.try_get(1)?, row.try_get(2)?);
        }
    }
    Ok(found)
}

/// Renews the marks of threads that no other transaction holds, and returns the places of those.
async fn renew(sql: &mut PgConnection, write: Write, list: &[(i64, Followed)]) -> Fallible<Vec<usize>> {
    let (threads, _) = columns(list);
    let places: Vec<i64> = sqlx::query_scalar(concat!(
        "WITH free AS MATERIALIZED (
            SELECT w.* FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
                w (place, namespace, agent, session)
                JOIN larder.threads s
                ON s.namespace = w.namespace AND s.agent = w.agent AND s.session = w.session
            WHERE ",
        begin_write!("6", "7"),
        " FOR NO KEY UPDATE OF s SKIP LOCKED
         )
         UPDATE larder.threads s SET watched_until_ms = larder.now_ms() + $5 FROM free f
         WHERE s.namespace = f.namespace AND s.agent = f.agent AND s.session = f.session
         RETURNING f.place"
    ))
    .bind(&threads.places)
    .bind(&threads.names[0])
    .bind(&threads.names[1])
    .bind(&threads.names[2])
    .bind(millis(LEASE))
    .bind(write.format)
    .bind(write.commit)
    .fetch_all(sql)
    .await?;
    Ok(places.into_iter().filter_map(|place| usize::try_from(place).ok()).collect())
}
