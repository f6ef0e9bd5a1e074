//! Copying a thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    Error, ErrorKind, Key, KeyValueItem, KeyValueQuery, KeyValueWrite, PageRequest, Result, Revision, check,
};

use super::checkpointer::Checkpointer;
use super::guard::Guard;
use super::keys::{self, WriteKey};
use super::put::{closed, unchanged};
use super::read::read_info;
use super::record::{HeadRecord, InfoRecord, PART_BYTES, UNUSED, VERSION, corrupt, decode, encode};
use super::thread::{CheckpointId, CheckpointNamespace, CheckpointThread};
use super::writes::blob_of;

const OPERATION: &str = "checkpoint.copy";

fn source_changed() -> Error {
    let message = "others removed checkpoints of the source or replaced pending writes during the copy; \
                   delete the target and copy again";
    Error::new(ErrorKind::Conflict, OPERATION, message).with_field("source")
}

fn target_taken() -> Error {
    let message = "the target has checkpoints; delete them, or copy to another thread";
    Error::new(ErrorKind::Conflict, OPERATION, message).with_field("target")
}

impl Checkpointer {
    /// Copies all namespaces of a thread, with their checkpoints and pending writes, to a thread that has no
    /// such namespaces, and returns the number of checkpoints. The copies keep their ids, and both threads
    /// are independent.
    ///
    /// Checkpoints that are written to the source during the copy may be missing in the target, with their
    /// descendants. No writer can use a namespace of the target until it is complete, and its checkpoints
    /// appear last.
    ///
    /// # Errors
    /// These errors leave the target as it was: `InvalidInput` if both threads are the same, `Conflict` for
    /// the field `target` if the target has one of the namespaces, and `Conflict` for the field `source` if
    /// the source is being copied to or deleted, or either was interrupted.
    ///
    /// After any other error, delete the target before the next attempt. One of them is `Conflict` for the
    /// field `source` if others removed checkpoints of the source, or replaced pending writes over 1 MiB,
    /// during the copy.
    ///
    /// # Cancellation
    /// The target is incomplete, and writers get `Conflict`: delete it before the next attempt. Blobs that
    /// nothing names may remain.
    ///
    /// # Complexity
    /// O(bytes of the thread), in steps of up to 1,000 keys and 16 MiB. Blobs are copied within their store.
    pub async fn copy(&self, source: &CheckpointThread, target: &CheckpointThread) -> Result<u64> {
        if source == target {
            return Err(Error::invalid(OPERATION, "target", "is the source; pass another thread"));
        }
        let namespaces = self.namespaces(source).await?;
        self.check_open(source, &namespaces).await?;
        let targets: Vec<CheckpointNamespace> =
            namespaces.iter().map(|namespace| namespace.of_thread(target)).collect();
        let claimed = HeadRecord { version: VERSION, number: 0, last: None, closed: true };
        let head = encode(OPERATION, &claimed)?;
        let mut guards = Vec::new();
        // The target belongs to this copy from the first step on, in which it takes up to 1,000 namespaces.
        for targets in targets.chunks(Guard::WRITES_MAX) {
            let claim = |target| Ok(KeyValueWrite::put(keys::head(target)?, head.clone(), unchanged(None)));
            let claims = targets.iter().map(claim).collect::<Result<Vec<KeyValueWrite>>>()?;
            let revisions = self.store.write(&target.bucket, claims).await.map_err(|error| {
                if error.kind() == ErrorKind::Conflict {
                    target_taken()
                } else {
                    error.in_operation(OPERATION)
                }
            })?;
            for (target, revision) in targets.iter().zip(revisions) {
                let revision = revision.ok_or_else(|| corrupt(OPERATION))?;
                guards.push(self.guard_at(OPERATION, target, claimed.clone(), revision));
            }
        }
        let mut count = 0;
        for (namespace, guard) in namespaces.iter().zip(guards) {
            count += self.copy_namespace(namespace, target, guard).await?;
        }
        Ok(count)
    }

    /// Refuses a source that is incomplete itself.
    async fn check_open(&self, source: &CheckpointThread, namespaces: &[CheckpointNamespace]) -> Result<()> {
        let heads = namespaces.iter().map(keys::head).collect::<Result<Vec<Key>>>()?;
        for head in self.read_all(OPERATION, &source.bucket, &heads).await?.into_iter().flatten() {
            if decode::<HeadRecord>(OPERATION, &head.value)?.closed {
                return Err(closed(OPERATION).with_field("source"));
            }
        }
        Ok(())
    }

    async fn copy_namespace(
        &self,
        source: &CheckpointNamespace,
        target: &CheckpointThread,
        mut guard: Guard<'_>,
    ) -> Result<u64> {
        // The descriptions are read first, because everything that they name exists then.
        let query = KeyValueQuery::prefix(keys::infos(source)).with_values();
        let items = self.entries(OPERATION, &source.thread.bucket, &query).await?;
        let infos = items.iter().map(|item| read_info(OPERATION, source, item));
        let mut infos = infos.collect::<Result<BTreeMap<CheckpointId, InfoRecord>>>()?;
        for info in infos.values_mut() {
            info.channels.remove(UNUSED);
        }
        self.copy_values(source, target, &infos, &mut guard).await?;
        let mut read: Vec<(Key, Revision)> =
            items.iter().map(|item| (item.key.clone(), item.revision)).collect();
        read.extend(self.copy_writes(source, target, &infos, &mut guard).await?);
        self.check_unchanged(source, &read).await?;
        let mut writes = Vec::new();
        for (id, info) in &infos {
            if let Some(parent) = info.parent.as_ref().filter(|_| !info.hidden) {
                writes.push(KeyValueWrite::put(keys::child(source, parent, id)?, "", Default::default()));
            }
        }
        for item in items {
            writes.push(same(item)?);
        }
        taken_over(guard.steps(writes).await?)?;
        guard.head.closed = false;
        guard.head.number = infos.values().map(|info| info.number).max().unwrap_or_default();
        taken_over(guard.step(Vec::new()).await?)?;
        Ok(check::size(infos.values().filter(|info| !info.hidden).count()))
    }

    async fn copy_values(
        &self,
        source: &CheckpointNamespace,
        target: &CheckpointThread,
        infos: &BTreeMap<CheckpointId, InfoRecord>,
        guard: &mut Guard<'_>,
    ) -> Result<()> {
        let (mut expected, mut blobs) = (BTreeSet::new(), BTreeSet::new());
        for value in infos.values().flat_map(InfoRecord::values) {
            expected.extend(value.keys(source)?);
            blobs.extend(value.blob.clone());
        }
        let mut after: Option<Key> = None;
        loop {
            let (items, next) = self.page_of(source, keys::values(source), after).await?;
            let mut writes = Vec::new();
            for item in items {
                if expected.remove(&item.key) {
                    writes.push(same(item)?);
                }
            }
            taken_over(guard.steps(writes).await?)?;
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if !expected.is_empty() {
            return Err(source_changed());
        }
        self.copy_blobs(source.thread(), target, blobs).await
    }

    /// Copies the pending writes. Returns the entries of each replaceable write that has several: two pages
    /// can have parts of two values.
    async fn copy_writes(
        &self,
        source: &CheckpointNamespace,
        target: &CheckpointThread,
        infos: &BTreeMap<CheckpointId, InfoRecord>,
        guard: &mut Guard<'_>,
    ) -> Result<Vec<(Key, Revision)>> {
        let mut several = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let (items, next) = self.page_of(source, keys::all_writes(source), after).await?;
            let (mut writes, mut blobs) = (Vec::new(), BTreeSet::new());
            for item in items {
                let key = WriteKey::read(source, &item.key).ok_or_else(|| corrupt(OPERATION))?;
                if !infos.contains_key(&key.id) {
                    continue;
                }
                if let (Some(0), Some(value)) = (key.part, &item.value) {
                    blobs.extend(blob_of(OPERATION, value)?);
                }
                let large = item.value.as_ref().is_some_and(|value| value.len() > PART_BYTES);
                if key.index < 0 && (large || key.part.is_some_and(|part| part > 0)) {
                    several.push((item.key.clone(), item.revision));
                }
                writes.push(same(item)?);
            }
            self.copy_blobs(source.thread(), target, blobs).await?;
            taken_over(guard.steps(writes).await?)?;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(several),
            }
        }
    }

    /// Checks that descriptions and pending writes are still as they were read. Everything that they name was
    /// then complete when it was copied.
    async fn check_unchanged(&self, source: &CheckpointNamespace, read: &[(Key, Revision)]) -> Result<()> {
        let mut now: HashMap<Key, Revision> = HashMap::new();
        for prefix in [keys::infos(source), keys::all_writes(source)] {
            // Most threads have no pending writes to check.
            if !read.iter().any(|(key, _)| key.as_str().starts_with(&prefix)) {
                continue;
            }
            let query = KeyValueQuery::prefix(prefix);
            let items = self.entries(OPERATION, &source.thread.bucket, &query).await?;
            now.extend(items.into_iter().map(|item| (item.key, item.revision)));
        }
        let unchanged =
            read.iter().all(|(key, revision)| now.get(key).is_some_and(|now| revision.names(*now)));
        if unchanged { Ok(()) } else { Err(source_changed()) }
    }

    /// Returns a page of entries with their values.
    async fn page_of(
        &self,
        source: &CheckpointNamespace,
        prefix: String,
        after: Option<Key>,
    ) -> Result<(Vec<KeyValueItem>, Option<Key>)> {
        let query = KeyValueQuery::prefix(prefix).with_values();
        let page = PageRequest::first(PAGE_ITEMS_MAX).with_after(after);
        let page = self.page(OPERATION, &source.thread.bucket, &query, page).await?;
        Ok((page.items, page.next))
    }

    async fn copy_blobs(
        &self,
        source: &CheckpointThread,
        target: &CheckpointThread,
        names: BTreeSet<String>,
    ) -> Result<()> {
        for name in names {
            let Some(blobs) = &self.blobs else {
                let message = "a value of the source is in a blob store; open the checkpoints with it";
                return Err(Error::new(ErrorKind::Unsupported, OPERATION, message));
            };
            match blobs.copy(&source.blob(&name)?, &target.blob(&name)?).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(source_changed()),
                Err(error) => return Err(error.in_operation(OPERATION)),
            }
        }
        Ok(())
    }
}

/// Returns the write of an entry under the same key. The keys of a thread do not contain its name.
fn same(item: KeyValueItem) -> Result<KeyValueWrite> {
    let value = item.value.ok_or_else(|| corrupt(OPERATION))?;
    Ok(KeyValueWrite::put(item.key, value, Default::default()))
}

fn taken_over(own: bool) -> Result<()> {
    if own { Ok(()) } else { Err(target_taken()) }
}
