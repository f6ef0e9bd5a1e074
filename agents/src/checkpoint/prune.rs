//! Removing some checkpoints of a thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use larder_kernel::{Error, ErrorKind, Key, KeyValueQuery, KeyValueWrite, Result, RunId};

use super::checkpointer::{ATTEMPTS_MAX, Checkpointer};
use super::guard::Guard;
use super::keys::{self, WriteKey};
use super::plan::{Action, Infos, plan};
use super::put::closed;
use super::read::read_info;
use super::record::{ChannelRecord, InfoRecord, UNUSED, ValueRecord, corrupt, encode};
use super::thread::{CheckpointId, CheckpointNamespace, CheckpointThread};
use super::types::Prune;
use super::writes::blob_of;

/// One atomic write of a removal.
#[derive(Default)]
struct Step {
    writes: Vec<KeyValueWrite>,
    /// The blobs that nothing names after the step.
    blobs: Vec<String>,
    /// The number of checkpoints that it removes.
    count: u64,
}

/// A removal in progress.
struct Removal<'a> {
    operation: &'static str,
    namespace: &'a CheckpointNamespace,
    infos: Infos,
    /// The number of descriptions that name each value.
    uses: HashMap<ValueRecord, usize>,
    /// The keys of the pending writes of each checkpoint to delete.
    writes: BTreeMap<CheckpointId, Vec<Key>>,
    /// The blobs of these pending writes.
    blobs: BTreeMap<CheckpointId, Vec<String>>,
}

impl Checkpointer {
    /// Removes checkpoints of all namespaces of a thread except those to keep, newest first, and returns
    /// their number. The newest one of each namespace is always kept.
    ///
    /// Values that remaining checkpoints have are kept. So are the pending writes of removed ancestors that a
    /// channel marked as [`Pending`](super::ChannelUpdate::Pending) needs; the ancestors are hidden then.
    ///
    /// # Errors
    /// `Conflict` for the field `thread` while the thread is copied to or deleted. `Conflict` without a field
    /// if other writers changed the namespace during every one of 16 attempts. Checkpoints that were removed
    /// before an error stay removed.
    ///
    /// # Cancellation
    /// Some of the checkpoints are removed, each with all of its data or not at all, and never before the
    /// ones that descend from it. One with more than 999 keys disappears in one step, and the next removal
    /// deletes the rest of its keys. Blobs that nothing names may remain.
    ///
    /// # Complexity
    /// O(checkpoints and pending writes of the thread), in steps of up to 1,000 keys.
    pub async fn prune(&self, thread: &CheckpointThread, keep: Prune) -> Result<u64> {
        self.remove("checkpoint.prune", thread, |infos| {
            let newest_first = infos.iter().rev().filter(|(_, info)| !info.hidden);
            let removed: Vec<_> = match keep {
                Prune::KeepNewest(count) => newest_first.skip(count.max(1)).collect(),
                Prune::KeepSince(since) => {
                    newest_first.skip(1).filter(|(_, info)| info.created_at < since).collect()
                }
            };
            removed.into_iter().map(|(id, _)| id.clone()).collect()
        })
        .await
    }

    /// Removes the checkpoints of runs in all namespaces of a thread, and returns their number. A checkpoint
    /// whose only child is removed can be continued again.
    ///
    /// Values and pending writes that remaining checkpoints need are kept, as [`prune`](Self::prune) does.
    ///
    /// # Errors
    /// `Conflict` for the field `thread` while the thread is copied to or deleted. `Conflict` without a field
    /// if other writers changed the namespace during every one of 16 attempts. Checkpoints that were removed
    /// before an error stay removed.
    ///
    /// # Cancellation
    /// Some of the checkpoints are removed, each with all of its data or not at all, and never before the
    /// ones that descend from it. One with more than 999 keys disappears in one step, and the next removal
    /// deletes the rest of its keys. Blobs that nothing names may remain.
    ///
    /// # Complexity
    /// O(checkpoints and pending writes of the thread), in steps of up to 1,000 keys.
    pub async fn delete_runs(&self, thread: &CheckpointThread, runs: &[RunId]) -> Result<u64> {
        self.remove("checkpoint.delete_runs", thread, |infos| {
            let of_runs = infos
                .iter()
                .filter(|(_, info)| !info.hidden && info.run.as_ref().is_some_and(|run| runs.contains(run)));
            of_runs.map(|(id, _)| id.clone()).collect()
        })
        .await
    }

    async fn remove(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
        select: impl Fn(&Infos) -> BTreeSet<CheckpointId> + Send + Sync,
    ) -> Result<u64> {
        let mut removed = 0;
        for namespace in self.namespaces(thread).await? {
            let mut done = false;
            for _ in 0..ATTEMPTS_MAX {
                done = self.try_remove(operation, &namespace, &select, &mut removed).await?;
                if done {
                    break;
                }
            }
            if !done {
                let message = "other writers changed the namespace during every attempt; try again";
                return Err(Error::new(ErrorKind::Conflict, operation, message));
            }
        }
        Ok(removed)
    }

    /// Removes checkpoints of a namespace. Returns `false` if another writer changed it in between.
    async fn try_remove(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        select: &(impl Fn(&Infos) -> BTreeSet<CheckpointId> + Send + Sync),
        removed: &mut u64,
    ) -> Result<bool> {
        let Some(mut guard) = self.guard(operation, namespace).await? else { return Ok(true) };
        if guard.head.closed {
            return Err(closed(operation));
        }
        let infos = self.infos(operation, namespace).await?;
        let actions = plan(&infos, &select(&infos));
        if actions.is_empty() {
            return Ok(true);
        }
        let mut removal = self.removal(operation, namespace, infos, &actions).await?;
        let mut steps = removal.steps(&actions)?;
        let last = steps.pop().unwrap_or_default();
        for Step { writes, blobs, count } in steps {
            if !guard.step(writes).await? {
                return Ok(false);
            }
            *removed += count;
            self.delete_blobs(operation, &namespace.thread, blobs).await?;
        }
        let done = if removal.infos.is_empty() {
            guard.end(last.writes).await?
        } else {
            guard.step(last.writes).await?
        };
        if done {
            *removed += last.count;
            self.delete_blobs(operation, &namespace.thread, last.blobs).await?;
        }
        Ok(done)
    }

    /// Reads all descriptions of a namespace.
    pub(super) async fn infos(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
    ) -> Result<Infos> {
        let query = KeyValueQuery::prefix(keys::infos(namespace)).with_values();
        let items = self.entries(operation, &namespace.thread.bucket, &query).await?;
        items.iter().map(|item| read_info(operation, namespace, item)).collect()
    }

    /// Reads what a removal needs.
    async fn removal<'a>(
        &self,
        operation: &'static str,
        namespace: &'a CheckpointNamespace,
        infos: Infos,
        actions: &BTreeMap<CheckpointId, Action>,
    ) -> Result<Removal<'a>> {
        let bucket = &namespace.thread.bucket;
        let mut uses: HashMap<ValueRecord, usize> = HashMap::new();
        for value in infos.values().flat_map(InfoRecord::values) {
            *uses.entry(value.clone()).or_default() += 1;
        }
        let mut writes: BTreeMap<CheckpointId, Vec<Key>> = BTreeMap::new();
        let mut marked: Vec<(CheckpointId, Key)> = Vec::new();
        let query = KeyValueQuery::prefix(keys::all_writes(namespace));
        for item in self.entries(operation, bucket, &query).await? {
            let WriteKey { id, .. } =
                WriteKey::read(namespace, &item.key).ok_or_else(|| corrupt(operation))?;
            if !matches!(actions.get(&id), Some(Action::Delete)) {
                continue;
            }
            marked.extend(keys::first_of_marked(&item.key).map(|first| (id.clone(), first)));
            writes.entry(id).or_default().push(item.key);
        }
        let mut blobs: BTreeMap<CheckpointId, Vec<String>> = BTreeMap::new();
        let firsts: Vec<Key> = marked.iter().map(|(_, first)| first.clone()).collect();
        for ((id, _), first) in marked.into_iter().zip(self.read_all(operation, bucket, &firsts).await?) {
            let Some(first) = first else { continue };
            blobs.entry(id).or_default().extend(blob_of(operation, &first.value)?);
        }
        Ok(Removal { operation, namespace, infos, uses, writes, blobs })
    }
}

impl Removal<'_> {
    /// Returns the steps. Each has whole checkpoints, except that one with too many keys for a step has
    /// several. A descendant precedes its ancestors, because it may need their pending writes.
    fn steps(&mut self, actions: &BTreeMap<CheckpointId, Action>) -> Result<Vec<Step>> {
        let (mut steps, mut step, mut bytes) = (Vec::new(), Step::default(), 0);
        for (id, action) in actions.iter().rev() {
            let mut next = self.apply(id, action)?;
            let next_bytes: usize = next.writes.iter().map(KeyValueWrite::size_bytes).sum();
            let full = step.writes.len() + next.writes.len() > Guard::WRITES_MAX
                || bytes + next_bytes > Guard::BYTES_MAX;
            if full && !step.writes.is_empty() {
                steps.push(std::mem::take(&mut step));
                bytes = 0;
            }
            bytes += next_bytes;
            step.writes.append(&mut next.writes);
            step.blobs.append(&mut next.blobs);
            step.count += next.count;
            while step.writes.len() > Guard::WRITES_MAX {
                let writes = step.writes.split_off(Guard::WRITES_MAX);
                steps.push(std::mem::replace(&mut step, Step { writes, ..Step::default() }));
            }
        }
        steps.push(step);
        Ok(steps)
    }

    /// Returns the writes of an action. The first one is that of the description.
    fn apply(&mut self, id: &CheckpointId, action: &Action) -> Result<Step> {
        let mut step = Step::default();
        let Some(info) = self.infos.remove(id) else { return Ok(step) };
        step.count = u64::from(!info.hidden);
        let key = keys::info(self.namespace, id)?;
        // The parent can be continued.
        let child = info.parent.as_ref().filter(|_| !info.hidden);
        let child = child.map(|parent| keys::child(self.namespace, parent, id)).transpose()?;
        let child = child.map(|child| KeyValueWrite::delete(child, None));
        let mut hidden = InfoRecord { hidden: true, state: None, channels: BTreeMap::new(), ..info.clone() };
        match action {
            Action::Delete => {
                step.writes.push(KeyValueWrite::delete(key.clone(), None));
                step.writes.extend(child);
                let writes = self.writes.remove(id).unwrap_or_default().into_iter();
                step.writes.extend(writes.map(|key| KeyValueWrite::delete(key, None)));
                step.blobs.extend(self.blobs.remove(id).unwrap_or_default());
            }
            Action::Hide(channels) => {
                hidden.channels.clone_from(channels);
                for value in hidden.values() {
                    *self.uses.entry(value.clone()).or_default() += 1;
                }
                step.writes.push(put(self.operation, key.clone(), &hidden)?);
                step.writes.extend(child);
                self.infos.insert(id.clone(), hidden.clone());
            }
        }
        let mut unused = Vec::new();
        for value in info.values() {
            let uses = self.uses.entry(value.clone()).or_default();
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                let keys = value.keys(self.namespace)?.into_iter();
                step.writes.extend(keys.map(|key| KeyValueWrite::delete(key, None)));
                step.blobs.extend(value.blob.clone());
                unused.push(value.clone());
            }
        }
        if step.writes.len() > Guard::WRITES_MAX {
            // The first of several steps hides the checkpoint. Until the last one, its description names what
            // remains, and the next removal finds that after an interruption.
            hidden.channels.insert(UNUSED.to_owned(), ChannelRecord { deltas: unused, ..Default::default() });
            let last = std::mem::replace(&mut step.writes[0], put(self.operation, key, &hidden)?);
            step.writes.push(last);
        }
        Ok(step)
    }
}

/// Returns the write of a description.
fn put(operation: &'static str, key: Key, record: &InfoRecord) -> Result<KeyValueWrite> {
    Ok(KeyValueWrite::put(key, encode(operation, record)?, Default::default()))
}
