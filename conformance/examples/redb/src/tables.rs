//! The tables of the file. They keep the last change of each key, including deletions, for watchers that
//! start later.

mod batch;

use std::path::Path;

use bytes::Bytes;
use larder::{
    BucketInfo, BucketName, Error, ErrorKind, Generation, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValueEvent, KeyValueEventKind, KeyValuePutOptions, Revision, Timestamp,
};
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
use tokio::sync::watch::{self, Receiver, Sender};

/// Namespace, bucket and key to the revision of the key's last change.
const KEYS: TableDefinition<(&str, &str, &str), u64> = TableDefinition::new("keys");
/// Namespace, bucket and revision to the change.
const CHANGES: TableDefinition<(&str, &str, u64), Change> = TableDefinition::new("changes");
/// Namespace and bucket to the last revision.
const BUCKETS: TableDefinition<(&str, &str), u64> = TableDefinition::new("buckets");
/// Namespace and bucket to the generation, which is drawn with the first change and which revisions name.
const GENERATIONS: TableDefinition<(&str, &str), u64> = TableDefinition::new("generations");

/// The key, the expiry in microseconds, and the value; a deletion has none.
type Change = (&'static str, Option<i64>, Option<&'static [u8]>);
/// The number of changes that a watch reads per transaction.
const CHANGES_MAX: usize = 1_000;

/// The reason why work on the tables ended.
pub(crate) enum Failure {
    Refused(Error),
    Database(redb::Error),
}

macro_rules! from_redb {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Database(error.into())
            }
        })*
    };
}

from_redb!(redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// An open file.
pub(crate) struct Tables {
    database: Database,
    written: Sender<()>,
}

impl Tables {
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, redb::Error> {
        let database = Database::create(path)?;
        let write = database.begin_write()?;
        write.open_table(KEYS)?;
        write.open_table(CHANGES)?;
        write.open_table(BUCKETS)?;
        write.open_table(GENERATIONS)?;
        write.commit()?;
        Ok(Self { database, written: watch::channel(()).0 })
    }

    /// Wakes on each write in any namespace.
    pub(crate) fn written(&self) -> Receiver<()> {
        self.written.subscribe()
    }

    /// Runs a transaction. If the work returns an error, the transaction changes nothing.
    fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T>) -> Result<T> {
        let write = self.database.begin_write()?;
        let value = work(&write)?;
        write.commit()?;
        self.written.send_replace(());
        Ok(value)
    }

    pub(crate) fn put(
        &self,
        namespace: &str,
        bucket: &str,
        key: &str,
        value: &[u8],
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        self.write(|write| {
            let (mut keys, mut changes) = (write.open_table(KEYS)?, write.open_table(CHANGES)?);
            let mut generations = write.open_table(GENERATIONS)?;
            let generation = generation(&generations, (namespace, bucket))?;
            let current = entry(&keys, &changes, (namespace, bucket, key), now())?;
            let current = current.map(|entry| entry.revision.in_generation(generation));
            let holds = match options.condition {
                KeyValueCondition::Absent => current.is_none(),
                KeyValueCondition::AtRevision(at) => current.is_some_and(|current| at.names(current)),
                _ => true,
            };
            if !holds {
                return Err(changed("key_value.put").into());
            }
            let expires_at = options.ttl.map(|ttl| now().saturating_add(ttl).as_micros());
            let mut buckets = write.open_table(BUCKETS)?;
            let change = (key, expires_at, Some(value));
            let drawn = generation.unwrap_or_else(Generation::draw);
            generations.insert((namespace, bucket), drawn.get())?;
            let revision = record(&mut keys, &mut changes, &mut buckets, (namespace, bucket, key), change)?;
            Ok(revision.in_generation(drawn))
        })
    }

    pub(crate) fn get(&self, namespace: &str, bucket: &str, key: &str) -> Result<Option<KeyValueEntry>> {
        let read = self.database.begin_read()?;
        let (keys, changes) = (read.open_table(KEYS)?, read.open_table(CHANGES)?);
        let found = entry(&keys, &changes, (namespace, bucket, key), now())?;
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        Ok(found.map(|mut entry| {
            entry.revision = entry.revision.in_generation(generation);
            entry
        }))
    }

    pub(crate) fn delete(
        &self,
        namespace: &str,
        bucket: &str,
        key: &str,
        at: Option<Revision>,
    ) -> Result<bool> {
        self.write(|write| {
            let (mut keys, mut changes) = (write.open_table(KEYS)?, write.open_table(CHANGES)?);
            let generation = generation(&write.open_table(GENERATIONS)?, (namespace, bucket))?;
            let current = entry(&keys, &changes, (namespace, bucket, key), now())?;
            let current = current.map(|entry| entry.revision.in_generation(generation));
            if at.is_some_and(|at| !current.is_some_and(|current| at.names(current))) {
                return Err(changed("key_value.delete").into());
            }
            if current.is_some() {
                let mut buckets = write.open_table(BUCKETS)?;
                let change = (key, None, None);
                record(&mut keys, &mut changes, &mut buckets, (namespace, bucket, key), change)?;
            }
            Ok(current.is_some())
        })
    }

    /// Returns up to `limit` keys that begin with the prefix, after a key.
    pub(crate) fn list(
        &self,
        namespace: &str,
        bucket: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<KeyRevision>> {
        let read = self.database.begin_read()?;
        let (keys, changes) = (read.open_table(KEYS)?, read.open_table(CHANGES)?);
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        let start = after.unwrap_or_default().max(prefix);
        let (mut found, now) = (Vec::new(), now());
        for row in keys.range((namespace, bucket, start)..)? {
            let (row, _) = row?;
            let (of, within, key) = row.value();
            if (of, within) != (namespace, bucket) || !key.starts_with(prefix) || found.len() == limit {
                break;
            }
            if after == Some(key) {
                continue;
            }
            if let Some(entry) = entry(&keys, &changes, (namespace, bucket, key), now)? {
                found.push(KeyRevision::new(Key::new(key)?, entry.revision.in_generation(generation)));
            }
        }
        Ok(found)
    }

    /// Returns up to `limit` buckets that contain keys, after one.
    pub(crate) fn list_buckets(
        &self,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<BucketInfo>> {
        let read = self.database.begin_read()?;
        let (keys, changes) = (read.open_table(KEYS)?, read.open_table(CHANGES)?);
        let (mut found, now) = (Vec::new(), now());
        for row in read.open_table(BUCKETS)?.range((namespace, after.unwrap_or_default())..)? {
            let (row, _) = row?;
            let (of, bucket) = row.value();
            if of != namespace || found.len() == limit {
                break;
            }
            if after == Some(bucket) {
                continue;
            }
            let mut count = 0;
            for row in keys.range((namespace, bucket, "")..)? {
                let (row, _) = row?;
                let (of, within, key) = row.value();
                if (of, within) != (namespace, bucket) {
                    break;
                }
                count += u64::from(entry(&keys, &changes, (namespace, bucket, key), now)?.is_some());
            }
            if count > 0 {
                found.push(BucketInfo::new(BucketName::new(bucket)?, count));
            }
        }
        Ok(found)
    }

    /// Returns the last revision of a bucket; 0 if it was never written.
    pub(crate) fn last(&self, namespace: &str, bucket: &str) -> Result<Revision> {
        let read = self.database.begin_read()?;
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        let last = read.open_table(BUCKETS)?.get((namespace, bucket))?.map_or(0, |row| row.value());
        Ok(Revision::new(last).in_generation(generation))
    }

    /// Returns the next changes after a revision to keys with the prefix, and the last revision.
    pub(crate) fn changes_after(
        &self,
        namespace: &str,
        bucket: &str,
        prefix: &str,
        after: u64,
    ) -> Result<(Vec<KeyValueEvent>, Revision)> {
        let read = self.database.begin_read()?;
        let generation = generation(&read.open_table(GENERATIONS)?, (namespace, bucket))?;
        let last = read.open_table(BUCKETS)?.get((namespace, bucket))?.map_or(0, |row| row.value());
        let changes = read.open_table(CHANGES)?;
        let mut events = Vec::new();
        let range = (namespace, bucket, after.saturating_add(1))..=(namespace, bucket, u64::MAX);
        for row in changes.range(range)? {
            let (row, change) = row?;
            let (key, expires_at, value) = change.value();
            if events.len() == CHANGES_MAX {
                break;
            }
            if !key.starts_with(prefix) {
                continue;
            }
            let expires_at = instant(expires_at)?;
            let kind = match value {
                // A put that is read after its expiry is a deletion (KV-046).
                Some(value) if expires_at.is_none_or(|at| at > now()) => {
                    KeyValueEventKind::Put { value: Bytes::copy_from_slice(value), expires_at }
                }
                _ => KeyValueEventKind::Deleted,
            };
            let revision = Revision::new(row.value().2).in_generation(generation);
            events.push(KeyValueEvent::new(Key::new(key)?, revision, kind));
        }
        Ok((events, Revision::new(last).in_generation(generation)))
    }

    pub(crate) fn erase(&self, namespace: &str) -> Result<()> {
        self.write(|write| {
            // No name contains NUL, so nothing sorts between a name and the same name with NUL.
            let end = format!("{namespace}\0");
            write.open_table(KEYS)?.retain_in((namespace, "", "")..(&end, "", ""), |_, _| false)?;
            write.open_table(CHANGES)?.retain_in((namespace, "", 0)..(&end, "", 0), |_, _| false)?;
            write.open_table(BUCKETS)?.retain_in((namespace, "")..(&end, ""), |_, _| false)?;
            write.open_table(GENERATIONS)?.retain_in((namespace, "")..(&end, ""), |_, _| false)?;
            Ok(())
        })
    }
}

/// Returns the generation of a bucket that was written.
fn generation(
    generations: &impl ReadableTable<(&'static str, &'static str), u64>,
    (namespace, bucket): (&str, &str),
) -> Result<Option<Generation>> {
    Ok(generations.get((namespace, bucket))?.and_then(|row| Generation::new(row.value())))
}

/// Returns the value of a key, if it exists and has not expired at an instant.
fn entry(
    keys: &impl ReadableTable<(&'static str, &'static str, &'static str), u64>,
    changes: &impl ReadableTable<(&'static str, &'static str, u64), Change>,
    (namespace, bucket, key): (&str, &str, &str),
    now: Timestamp,
) -> Result<Option<KeyValueEntry>> {
    let Some(revision) = keys.get((namespace, bucket, key))?.map(|row| row.value()) else { return Ok(None) };
    let Some(change) = changes.get((namespace, bucket, revision))? else { return Ok(None) };
    let (_, expires_at, value) = change.value();
    let (Some(value), expires_at) = (value, instant(expires_at)?) else { return Ok(None) };
    if expires_at.is_some_and(|at| at <= now) {
        return Ok(None);
    }
    let value = Bytes::copy_from_slice(value);
    Ok(Some(KeyValueEntry::new(value, Revision::new(revision)).with_expires_at(expires_at)))
}

/// Records a change under the bucket's next revision, and removes the key's previous change.
fn record(
    keys: &mut Table<'_, (&'static str, &'static str, &'static str), u64>,
    changes: &mut Table<'_, (&'static str, &'static str, u64), Change>,
    buckets: &mut Table<'_, (&'static str, &'static str), u64>,
    (namespace, bucket, key): (&str, &str, &str),
    change: (&str, Option<i64>, Option<&[u8]>),
) -> Result<Revision> {
    let revision = buckets.get((namespace, bucket))?.map_or(0, |row| row.value()) + 1;
    buckets.insert((namespace, bucket), revision)?;
    if let Some(last) = keys.insert((namespace, bucket, key), revision)?.map(|row| row.value()) {
        changes.remove((namespace, bucket, last))?;
    }
    changes.insert((namespace, bucket, revision), change)?;
    Ok(Revision::new(revision))
}

/// Runs work on a thread that may block.
pub(crate) async fn run<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> larder::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failure::Refused(error))) => Err(error),
        Ok(Err(Failure::Database(error))) => {
            Err(Error::new(ErrorKind::Unavailable, operation, "the database failed").with_source(error))
        }
        Err(_) => Err(Error::new(ErrorKind::Unexpected, operation, "the task ended")),
    }
}

fn instant(micros: Option<i64>) -> std::result::Result<Option<Timestamp>, Error> {
    micros.map(Timestamp::from_micros).transpose()
}

/// Returns the current time in milliseconds, the precision of the contract.
fn now() -> Timestamp {
    let micros = Timestamp::now().as_micros();
    Timestamp::from_micros(micros - micros % 1_000).unwrap_or_default()
}

fn changed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, operation, "the key changed since it was read")
}
