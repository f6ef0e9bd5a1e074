//! Writing a checkpoint.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kernel::{
    Error, ErrorKind, KeyValueCondition, KeyValueEntry, KeyValuePutOptions, KeyValueQuery, KeyValueWrite,
    Outcome, PageRequest, Result, Revision, Timestamp, check,
};
use sha2::{Digest, Sha256};

use super::checkpointer::{ATTEMPTS_MAX, Checkpointer};
use super::keys;
use super::new::{ChannelUpdate, DELTAS_MAX, NewCheckpoint, UnnamedChannels};
use super::record::{ChannelRecord, HeadRecord, InfoRecord, VERSION, ValueRecord, decode, encode};
use super::thread::{CheckpointId, CheckpointNamespace};
use super::values::Prepared;
use crate::internal::hex;

const OPERATION: &str = "checkpoint.put";
/// The maximum number of channels of a checkpoint.
const CHANNELS_MAX: usize = 1_000;
/// The maximum size of the description of a checkpoint, in bytes.
const INFO_BYTES_MAX: usize = 1024 * 1024;

/// The state of a namespace in which a checkpoint is written.
struct Base {
    head: Option<(HeadRecord, Revision)>,
    parent: Option<InfoRecord>,
    /// The checkpoint with the new one's id.
    own: Option<InfoRecord>,
}

impl Base {
    fn number(&self) -> u64 {
        self.head.as_ref().map_or(0, |(head, _)| head.number) + 1
    }
}

fn conflict(message: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, OPERATION, message)
}

/// Returns the condition that a key is as it was read.
pub(super) fn unchanged(revision: Option<Revision>) -> KeyValuePutOptions {
    let condition = revision.map_or(KeyValueCondition::Absent, KeyValueCondition::AtRevision);
    KeyValuePutOptions::default().with_condition(condition)
}

/// Returns the error for a namespace that is copied to or deleted.
pub(super) fn closed(operation: &'static str) -> Error {
    let message = "the thread is being copied to or deleted, or either was interrupted; wait, or delete the \
                   thread again";
    Error::new(ErrorKind::Conflict, operation, message).with_field("thread")
}

impl Checkpointer {
    /// Writes a checkpoint and returns its id. The checkpoint is one atomic write of the bucket. Values that
    /// the turn does not change are not written again.
    ///
    /// A put that repeats an earlier one with the same id and content returns the id and changes nothing. An
    /// error whose outcome is unknown can therefore be answered by the same put if it has an id.
    ///
    /// # Errors
    /// - `Conflict` for the field `parent` if the parent has a child already, or if the checkpoint has no
    ///   parent and the namespace has checkpoints: read the newest checkpoint and continue it, or write a
    ///   fork.
    /// - `Conflict` for the field `id` if another checkpoint has the id, and for the field `thread` while the
    ///   thread is copied to or deleted.
    /// - `Conflict` without a field if other writers changed the namespace during every one of 16 attempts.
    /// - `NotFound` for the field `parent` if the parent does not exist.
    /// - `InvalidInput` if the id does not sort after the parent's, or for a value over the limits of
    ///   [`Checkpointer`].
    ///
    /// # Cancellation
    /// The checkpoint is written completely or not at all. Blobs that nothing names may remain; see
    /// [`collect_blobs`](Self::collect_blobs).
    ///
    /// # Complexity
    /// O(bytes of the changed values and of the description). Two calls, and one for each blob; a third one
    /// if the parent is not the checkpoint that was written last.
    pub async fn put(&self, namespace: &CheckpointNamespace, new: NewCheckpoint) -> Result<CheckpointId> {
        new.check(OPERATION)?;
        if let (Some(id), Some(parent)) = (&new.id, &new.parent) {
            check_order(id, parent)?;
        }
        self.check_values(OPERATION, values(&new))?;
        let repeatable = new.id.is_some();
        let mut prepared = Vec::new();
        let result = self.try_put(namespace, new, &mut prepared).await;
        let unwritten = match &result {
            Ok((_, written)) => !written,
            Err(error) => error.outcome() == Outcome::NotApplied,
        };
        if unwritten {
            self.discard(&namespace.thread, &prepared).await;
        }
        match result {
            Ok((id, _)) => Ok(id),
            Err(error) => Err(if repeatable { error.with_idempotent(true) } else { error }),
        }
    }

    /// Writes a checkpoint. Returns its id, and `false` if an earlier put wrote it.
    async fn try_put(
        &self,
        namespace: &CheckpointNamespace,
        new: NewCheckpoint,
        prepared: &mut Vec<Prepared>,
    ) -> Result<(CheckpointId, bool)> {
        let digest = new.id.as_ref().map(|_| digest(&new));
        for attempt in 0..ATTEMPTS_MAX {
            // A failed read writes nothing.
            let unwritten = |error: Error| error.with_outcome(Outcome::NotApplied);
            let base = self.base(namespace, &new).await.map_err(unwritten)?;
            if let (Some(own), Some(id)) = (&base.own, &new.id) {
                if own.digest.is_some() && own.digest == digest && !own.hidden {
                    return Ok((id.clone(), false));
                }
                let message = "another checkpoint has the id; pass another id";
                return Err(conflict(message).with_field("id"));
            }
            self.check_parent(namespace, &new, &base).await.map_err(unwritten)?;
            let id = new.id.clone().unwrap_or_else(|| CheckpointId::draw(base.number()));
            if let Some(parent) = &new.parent {
                check_order(&id, parent)?;
            }
            if attempt == 0 {
                self.prepare(OPERATION, &namespace.thread, values(&new), prepared).await?;
            }
            let writes = writes(namespace, &new, &id, &base, prepared, digest.clone())?;
            match self.store.write(&namespace.thread.bucket, writes).await {
                Ok(_) => return Ok((id, true)),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.in_operation(OPERATION)),
            }
        }
        Err(conflict("other writers changed the namespace during every attempt; try again"))
    }

    /// Reads the head, the parent and the checkpoint with the new id.
    async fn base(&self, namespace: &CheckpointNamespace, new: &NewCheckpoint) -> Result<Base> {
        let mut keys = vec![keys::head(namespace)?];
        for id in [&new.parent, &new.id].into_iter().flatten() {
            keys.push(keys::info(namespace, id)?);
        }
        let mut found = self.read_all(OPERATION, &namespace.thread.bucket, &keys).await?.into_iter();
        let mut next = || found.next().flatten();
        let info = |entry: Option<KeyValueEntry>| {
            entry.map(|entry| decode::<InfoRecord>(OPERATION, &entry.value)).transpose()
        };
        let head = match next() {
            Some(entry) => Some((decode::<HeadRecord>(OPERATION, &entry.value)?, entry.revision)),
            None => None,
        };
        if head.as_ref().is_some_and(|(head, _)| head.closed) {
            return Err(closed(OPERATION));
        }
        let parent = if new.parent.is_some() { info(next())? } else { None };
        let own = if new.id.is_some() { info(next())? } else { None };
        Ok(Base { head, parent, own })
    }

    /// Checks that the parent exists and, unless the checkpoint is a fork, has no child.
    async fn check_parent(
        &self,
        namespace: &CheckpointNamespace,
        new: &NewCheckpoint,
        base: &Base,
    ) -> Result<()> {
        if new.parent.is_some() && base.parent.as_ref().is_none_or(|parent| parent.hidden) {
            let message = "the parent does not exist or was removed; read the newest checkpoint";
            return Err(Error::new(ErrorKind::NotFound, OPERATION, message).with_field("parent"));
        }
        let Some((head, _)) = &base.head else { return Ok(()) };
        // The checkpoint that was written last has no child.
        if new.fork || (new.parent.is_some() && head.last == new.parent) {
            return Ok(());
        }
        let (taken, message) = match &new.parent {
            Some(parent) => {
                let query = KeyValueQuery::prefix(keys::children(namespace, parent));
                let bucket = &namespace.thread.bucket;
                let found = self.page(OPERATION, bucket, &query, PageRequest::first(1)).await?;
                let message = "the parent has a child already; read the newest checkpoint and continue it";
                (!found.items.is_empty(), message)
            }
            None => {
                let message = "the namespace has checkpoints; read the newest one and continue it";
                (self.find(OPERATION, namespace, None).await?.is_some(), message)
            }
        };
        if taken { Err(conflict(message).with_field("parent")) } else { Ok(()) }
    }
}

fn check_order(id: &CheckpointId, parent: &CheckpointId) -> Result<()> {
    if id > parent {
        return Ok(());
    }
    let message = "does not sort after the id of the parent; pass a greater id";
    Err(Error::invalid(OPERATION, "id", message))
}

/// Returns the values that a turn writes: the state, then those of the channels in their order.
fn values(new: &NewCheckpoint) -> impl Iterator<Item = Bytes> {
    let channels = new.channels.values().flat_map(|update| match update {
        ChannelUpdate::Value(value) => std::slice::from_ref(value),
        ChannelUpdate::Deltas(deltas) => deltas,
        ChannelUpdate::Keep | ChannelUpdate::Pending | ChannelUpdate::Remove => &[],
    });
    std::iter::once(&new.state).chain(channels).cloned()
}

/// Returns the channels of the new checkpoint. `written` are the locations of the channels' values.
fn channels(
    new: &NewCheckpoint,
    parent: Option<&InfoRecord>,
    mut written: impl Iterator<Item = ValueRecord>,
) -> Result<BTreeMap<String, ChannelRecord>> {
    let mut channels = match (new.unnamed, parent) {
        (UnnamedChannels::Keep, Some(parent)) => parent.channels.clone(),
        _ => BTreeMap::new(),
    };
    for (name, update) in &new.channels {
        let inherited = || parent.and_then(|parent| parent.channels.get(name)).cloned();
        let record = match update {
            ChannelUpdate::Value(_) => Some(ChannelRecord { value: written.next(), ..Default::default() }),
            ChannelUpdate::Deltas(deltas) => {
                let mut record = inherited().unwrap_or_default();
                record.deltas.extend(written.by_ref().take(deltas.len()));
                if record.deltas.len() > DELTAS_MAX {
                    let message = "too many deltas follow the value of a channel; set its value";
                    let (actual, limit) = (check::size(record.deltas.len()), check::size(DELTAS_MAX));
                    return Err(Error::invalid(OPERATION, "deltas", message).with_limit(actual, limit));
                }
                Some(record)
            }
            ChannelUpdate::Keep => inherited(),
            ChannelUpdate::Pending => {
                Some(ChannelRecord { pending: true, ..inherited().unwrap_or_default() })
            }
            ChannelUpdate::Remove => None,
        };
        match record {
            Some(record) => channels.insert(name.clone(), record),
            None => channels.remove(name),
        };
    }
    check::at_most(OPERATION, "channels", channels.len(), CHANNELS_MAX)?;
    Ok(channels)
}

/// Returns the one write of a turn.
fn writes(
    namespace: &CheckpointNamespace,
    new: &NewCheckpoint,
    id: &CheckpointId,
    base: &Base,
    prepared: &[Prepared],
    digest: Option<String>,
) -> Result<Vec<KeyValueWrite>> {
    let number = base.number();
    let records: Vec<ValueRecord> =
        prepared.iter().zip(0..).map(|(value, index)| value.record(number, index)).collect();
    let mut locations = records.iter().cloned();
    let info = InfoRecord {
        version: VERSION,
        number,
        parent: new.parent.clone(),
        run: new.run.clone(),
        metadata: new.metadata.clone(),
        created_at: Timestamp::now(),
        state: locations.next(),
        channels: channels(new, base.parent.as_ref(), locations)?,
        digest,
        hidden: false,
    };
    let info = encode(OPERATION, &info)?;
    check::at_most(OPERATION, "description", info.len(), INFO_BYTES_MAX)?;
    let head = HeadRecord { version: VERSION, number, last: Some(id.clone()), closed: false };
    let revision = base.head.as_ref().map(|(_, revision)| *revision);
    let mut writes =
        vec![KeyValueWrite::put(keys::head(namespace)?, encode(OPERATION, &head)?, unchanged(revision))];
    writes.push(KeyValueWrite::put(keys::info(namespace, id)?, info, unchanged(None)));
    if let Some(parent) = &new.parent {
        writes.push(KeyValueWrite::put(keys::child(namespace, parent, id)?, "", Default::default()));
    }
    for (value, record) in prepared.iter().zip(&records) {
        writes.extend(value.writes(namespace, record)?);
    }
    Ok(writes)
}

/// Returns a hash of everything that a put has, by which a repetition is recognized.
fn digest(new: &NewCheckpoint) -> String {
    // Names every field, so that a new field is a compile error here.
    let NewCheckpoint { parent, id: _, run, metadata, state, channels, unnamed, fork } = new;
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update(check::size(bytes.len()).to_le_bytes());
        hash.update(bytes);
    };
    add(parent.as_ref().map_or("", CheckpointId::as_str).as_bytes());
    add(run.as_ref().map_or("", |run| run.as_str()).as_bytes());
    add(larder_kernel::canonical_json(metadata).unwrap_or_default().as_bytes());
    add(&[u8::from(*fork), u8::from(*unnamed == UnnamedChannels::Remove)]);
    add(state);
    for (name, update) in channels {
        add(name.as_bytes());
        let (kind, values): (u8, &[Bytes]) = match update {
            ChannelUpdate::Value(value) => (0, std::slice::from_ref(value)),
            ChannelUpdate::Deltas(deltas) => (1, deltas),
            ChannelUpdate::Keep => (2, &[]),
            ChannelUpdate::Pending => (3, &[]),
            ChannelUpdate::Remove => (4, &[]),
        };
        add(&[kind]);
        add(&check::size(values.len()).to_le_bytes());
        for value in values {
            add(value);
        }
    }
    hex(&hash.finalize())
}
