//! Reading and listing checkpoints.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kernel::{
    Error, ErrorKind, Key, KeyValueItem, KeyValueQuery, Page, PageRequest, Result, Revision,
};

use super::checkpointer::{ATTEMPTS_MAX, Checkpointer};
use super::keys;
use super::record::{ChannelRecord, InfoRecord, ValueRecord, corrupt, decode};
use super::thread::{CheckpointId, CheckpointNamespace, CheckpointThread};
use super::types::{ChannelValue, Checkpoint, CheckpointFilter, CheckpointInfo};

/// The number of descriptions that a listing reads in one call.
pub(super) const LISTED: usize = 100;
/// The maximum number of calls of one listing.
const CALLS_MAX: usize = 10;
/// The number of times that an unchanged checkpoint is read before a value that is missing counts as damage.
const READS_MAX: u32 = 3;

/// The description of a checkpoint, as a read found it.
pub(super) struct Found {
    pub(super) id: CheckpointId,
    pub(super) record: InfoRecord,
    pub(super) revision: Revision,
}

/// The attempts of a read that others interrupted.
#[derive(Default)]
pub(super) struct Attempts {
    count: u32,
    /// The checkpoint of the last attempts, and their number.
    unchanged: Option<(Revision, u32)>,
}

impl Attempts {
    /// Counts an attempt that found a checkpoint without one of its values. The caller reads again.
    pub(super) fn missed(&mut self, operation: &'static str, found: &Found) -> Result<()> {
        let before = self.unchanged.filter(|(revision, _)| *revision == found.revision);
        let unchanged = before.map_or(0, |(_, count)| count) + 1;
        self.unchanged = Some((found.revision, unchanged));
        self.count += 1;
        if unchanged == READS_MAX {
            return Err(corrupt(operation));
        }
        if self.count == ATTEMPTS_MAX {
            let message = "others removed the checkpoint that every attempt found; try again";
            return Err(Error::new(ErrorKind::Conflict, operation, message));
        }
        Ok(())
    }
}

impl Checkpointer {
    /// Returns a checkpoint, or the newest one, with its values and pending writes.
    ///
    /// # Errors
    /// `Corrupt` for a damaged checkpoint; `Unsupported` for one that a newer release wrote, or for one with
    /// blobs if the checkpointer has no blob store; `Conflict` if others removed the checkpoint that was
    /// found during every one of 16 attempts.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(values and pending writes), independent of the number of checkpoints. Three calls for up to 999
    /// values of 15 MiB and pending writes of 16 MiB, and one for each blob.
    pub async fn get(
        &self,
        namespace: &CheckpointNamespace,
        id: Option<&CheckpointId>,
    ) -> Result<Option<Checkpoint>> {
        const OPERATION: &str = "checkpoint.get";
        // A concurrent removal may delete values after the description was read.
        let mut attempts = Attempts::default();
        loop {
            let Some(found) = self.find(OPERATION, namespace, id).await? else { return Ok(None) };
            let Some(state) = &found.record.state else { return Ok(None) };
            let records: Vec<&ValueRecord> = std::iter::once(state)
                .chain(found.record.channels.values().flat_map(ChannelRecord::values))
                .collect();
            // The values are last, because `load` checks that the checkpoint is still the one that was found.
            let writes = self.pending(OPERATION, namespace, &found.id).await?;
            let values = self.load(OPERATION, namespace, &found, &records).await?;
            let (Some(writes), Some(values)) = (writes, values) else {
                attempts.missed(OPERATION, &found)?;
                continue;
            };
            let mut values = values.into_iter();
            let state = values.next().unwrap_or_default();
            let channels = channels(&found.record.channels, &mut values);
            return Ok(Some(Checkpoint { info: found.record.info(found.id), state, channels, writes }));
        }
    }

    /// Lists checkpoints without their values, newest first. The page begins before `page.after`, which need
    /// not exist.
    ///
    /// A call examines at most 1,000 checkpoints. A page can therefore be short, or empty, and have a next
    /// page.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000; `Corrupt` for a damaged checkpoint.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(examined checkpoints), in one call for each 100 of them.
    pub async fn list(
        &self,
        namespace: &CheckpointNamespace,
        filter: &CheckpointFilter,
        page: PageRequest<CheckpointId>,
    ) -> Result<Page<CheckpointInfo, CheckpointId>> {
        const OPERATION: &str = "checkpoint.list";
        page.check(OPERATION)?;
        let (mut found, mut after): (Vec<CheckpointInfo>, _) = (Vec::new(), page.after);
        if page.limit == 0 {
            return Ok(Page::empty());
        }
        for _ in 0..CALLS_MAX {
            let (infos, more) = self.descending(OPERATION, namespace, after.as_ref()).await?;
            for (id, record) in infos {
                let info = record.info(id.clone());
                if !record.hidden && filter.selects(&info) {
                    if found.len() == page.limit {
                        return Ok(Page::new(found, after));
                    }
                    found.push(info);
                }
                after = Some(id);
            }
            if !more {
                return Ok(Page::new(found, None));
            }
        }
        Ok(Page::new(found, after))
    }

    /// Returns the namespaces of a thread that have checkpoints, by the bytes of their names.
    ///
    /// # Errors
    /// Only errors of the store.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(namespaces).
    pub async fn namespaces(&self, thread: &CheckpointThread) -> Result<Vec<CheckpointNamespace>> {
        const OPERATION: &str = "checkpoint.namespaces";
        let heads = self.entries(OPERATION, &thread.bucket, &KeyValueQuery::prefix(keys::HEADS)).await?;
        let namespaces = heads.iter().map(|item| keys::read_head(thread, &item.key));
        let mut namespaces =
            namespaces.collect::<Option<Vec<CheckpointNamespace>>>().ok_or_else(|| corrupt(OPERATION))?;
        namespaces.sort_by(|left, right| left.as_str().cmp(right.as_str()));
        Ok(namespaces)
    }

    /// Lists the threads that have checkpoints or pending writes, by the bytes of their names.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// That of [`list_buckets`](larder_kernel::KeyValueStore::list_buckets): O(buckets and their keys).
    pub async fn threads(
        &self,
        page: PageRequest<CheckpointThread>,
    ) -> Result<Page<CheckpointThread, CheckpointThread>> {
        const OPERATION: &str = "checkpoint.threads";
        let after = match page.after {
            Some(thread) => thread.bucket,
            None => CheckpointThread::before_all()?,
        };
        let listed = self.store.list_buckets(PageRequest::after(after, page.limit)).await;
        let listed = listed.map_err(|error| error.in_operation(OPERATION))?;
        let buckets = listed.items.iter().map(|info| &info.bucket);
        let threads: Vec<_> = buckets.map_while(CheckpointThread::of_bucket).collect();
        let all_are_threads = threads.len() == listed.items.len();
        let next = if listed.next.is_some() && all_are_threads { threads.last().cloned() } else { None };
        Ok(Page::new(threads, next))
    }

    /// Returns the description of a checkpoint, or of the newest one that is not hidden.
    pub(super) async fn find(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        id: Option<&CheckpointId>,
    ) -> Result<Option<Found>> {
        let bucket = &namespace.thread.bucket;
        if let Some(id) = id {
            let found = self.store.get(bucket, &keys::info(namespace, id)?).await;
            let Some(entry) = found.map_err(|error| error.in_operation(operation))? else { return Ok(None) };
            let record = decode(operation, &entry.value)?;
            return Ok(Some(Found { id: id.clone(), record, revision: entry.revision }));
        }
        let query = KeyValueQuery::prefix(keys::infos(namespace)).descending().with_values();
        let mut after: Option<Key> = None;
        loop {
            let page = PageRequest::first(1).with_after(after);
            let page = self.page(operation, bucket, &query, page).await?;
            let Some(item) = page.items.into_iter().next() else { return Ok(None) };
            let (id, record) = read_info(operation, namespace, &item)?;
            if !record.hidden {
                return Ok(Some(Found { id, record, revision: item.revision }));
            }
            // An unfinished removal may hide the newest one. Otherwise, a later one needs each hidden one.
            after = Some(item.key);
        }
    }

    /// Returns up to 100 descriptions before an id, newest first, and whether more follow.
    pub(super) async fn descending(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        before: Option<&CheckpointId>,
    ) -> Result<(Vec<(CheckpointId, InfoRecord)>, bool)> {
        let query = KeyValueQuery::prefix(keys::infos(namespace)).descending().with_values();
        let after = before.map(|id| keys::info(namespace, id)).transpose()?;
        let page = PageRequest::first(LISTED).with_after(after);
        let page = self.page(operation, &namespace.thread.bucket, &query, page).await?;
        let infos = page.items.iter().map(|item| read_info(operation, namespace, item));
        Ok((infos.collect::<Result<_>>()?, page.next.is_some()))
    }
}

/// Reads the description of a checkpoint.
pub(super) fn read_info(
    operation: &'static str,
    namespace: &CheckpointNamespace,
    item: &KeyValueItem,
) -> Result<(CheckpointId, InfoRecord)> {
    let id = keys::read_info(namespace, &item.key).ok_or_else(|| corrupt(operation))?;
    let value = item.value.as_ref().ok_or_else(|| corrupt(operation))?;
    Ok((id, decode(operation, value)?))
}

/// Returns channels from their values, which are in the order of their locations.
pub(super) fn channels<'a>(
    records: impl IntoIterator<Item = (&'a String, &'a ChannelRecord)>,
    values: &mut impl Iterator<Item = Bytes>,
) -> BTreeMap<String, ChannelValue> {
    let channel = |(name, record): (&String, &ChannelRecord)| {
        let value = record.value.as_ref().and_then(|_| values.next());
        let deltas = values.by_ref().take(record.deltas.len()).collect();
        (name.clone(), ChannelValue { value, deltas, pending: record.pending })
    };
    records.into_iter().map(channel).collect()
}
