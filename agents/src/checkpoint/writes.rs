//! Pending writes: what tasks wrote after a checkpoint.

use std::collections::{BTreeMap, HashSet};

use bytes::{BufMut, Bytes, BytesMut};
use larder_kernel::{ErrorKind, KeyValueItem, KeyValueQuery, KeyValueWrite, Outcome, Result, check};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::checkpointer::{ATTEMPTS_MAX, Checkpointer};
use super::keys::{self, WriteKey};
use super::new::CHANNEL_BYTES_MAX;
use super::put::unchanged;
use super::record::{PART_BYTES, VERSION, corrupt, decode, encode, parts};
use super::thread::{CheckpointId, CheckpointNamespace};
use super::types::PendingWrite;
use super::values::{Prepared, joined};
use crate::internal::hex;

const OPERATION: &str = "checkpoint.put_writes";
/// The maximum number of writes in one call.
const WRITES_MAX: usize = 450;
/// The maximum length of a task's id, in bytes of UTF-8.
const TASK_BYTES_MAX: usize = 128;
/// The maximum length of a task's path, in bytes of UTF-8.
const PATH_BYTES_MAX: usize = 512;

/// The beginning of the first entry of a pending write, before a line feed and the value.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    channel: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    /// The hash of a value with several parts that another write can replace. A read can find parts of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Checkpointer {
    /// Stores what tasks wrote after a checkpoint, all of it or nothing. The checkpoint need not exist yet:
    /// runtimes store both at the same time.
    ///
    /// A write with a negative index replaces the stored one with the same task and index. Any other write is
    /// stored only if its task has none with the index, so a task that runs again changes nothing. Writes for
    /// a checkpoint that is removed before or at the same time remain until the thread is deleted.
    ///
    /// # Errors
    /// `InvalidInput` for no writes or more than 450, a task of more than 128 bytes, a path of more than 512
    /// bytes, a channel of more than 256 bytes, NUL in any of them, the same task and index twice, values of
    /// more than 14 MiB without a blob store, or entries of more than 16 MiB with their names. `Conflict` if
    /// others stored writes of the same tasks during every one of 16 attempts.
    ///
    /// # Cancellation
    /// All of the writes are stored, or none. Blobs that nothing names may remain.
    ///
    /// # Complexity
    /// O(bytes). One call, and one for each blob; two more for each attempt if some are stored already.
    pub async fn put_writes(
        &self,
        namespace: &CheckpointNamespace,
        id: &CheckpointId,
        writes: Vec<PendingWrite>,
    ) -> Result<()> {
        check_writes(&writes)?;
        let values = writes.iter().map(|write| write.value.clone());
        self.check_values(OPERATION, values.clone())?;
        let mut prepared = Vec::new();
        let mut result = self.prepare(OPERATION, &namespace.thread, values, &mut prepared).await;
        let mut stored = HashSet::new();
        if result.is_ok() {
            result = self.try_put_writes(namespace, id, &writes, &prepared, &mut stored).await;
        }
        match &result {
            Err(error) if error.outcome() == Outcome::NotApplied => {
                self.discard(&namespace.thread, &prepared).await;
            }
            Err(_) => {}
            Ok(()) => {
                let unused = prepared.into_iter().zip(&writes);
                let unused = unused.filter(|(_, write)| stored.contains(&identity(write)));
                let unused: Vec<Prepared> = unused.map(|(value, _)| value).collect();
                self.discard(&namespace.thread, &unused).await;
            }
        }
        result
    }

    /// Stores the writes that are not stored yet, and adds the stored ones to `stored`.
    async fn try_put_writes(
        &self,
        namespace: &CheckpointNamespace,
        id: &CheckpointId,
        writes: &[PendingWrite],
        prepared: &[Prepared],
        stored: &mut HashSet<(String, i32)>,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let mut batch = Vec::new();
            for (write, value) in writes.iter().zip(prepared) {
                if !stored.contains(&identity(write)) {
                    batch.extend(entries(namespace, id, write, value)?);
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            match self.store.write(&namespace.thread.bucket, batch).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                // A write that is stored again is not stored twice.
                Err(error) => return Err(error.in_operation(OPERATION).with_idempotent(true)),
            }
            let query = KeyValueQuery::prefix(keys::writes(namespace, id));
            let found = self.entries(OPERATION, &namespace.thread.bucket, &query).await;
            // The attempts before wrote nothing.
            let found = found.map_err(|error| error.with_outcome(Outcome::NotApplied))?;
            let found = found.iter().filter_map(|item| WriteKey::read(namespace, &item.key));
            stored.extend(found.filter(|key| key.index >= 0).map(|key| (key.task, key.index)));
        }
        let message = "others stored writes of the same tasks during every attempt; try again";
        Err(larder_kernel::Error::new(ErrorKind::Conflict, OPERATION, message))
    }

    /// Reads the pending writes of a checkpoint; `None` if a blob does not exist.
    pub(super) async fn pending(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        id: &CheckpointId,
    ) -> Result<Option<Vec<PendingWrite>>> {
        let query = KeyValueQuery::prefix(keys::writes(namespace, id)).with_values();
        let items = self.entries(operation, &namespace.thread.bucket, &query).await?;
        let mut found = self.assemble(operation, namespace, items, |_, _| true).await?;
        Ok(found.as_mut().map(|found| found.remove(id).unwrap_or_default()))
    }

    /// Returns the pending writes of each checkpoint from their entries, by path, task and index; `None` if
    /// one of them is incomplete. Two pages can have parts of two values, or one part of a value that was
    /// written or deleted in between.
    pub(super) async fn assemble(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        items: Vec<KeyValueItem>,
        wanted: impl Fn(&CheckpointId, &str) -> bool,
    ) -> Result<Option<BTreeMap<CheckpointId, Vec<PendingWrite>>>> {
        let mut entries: BTreeMap<(CheckpointId, String, i32), BTreeMap<usize, Bytes>> = BTreeMap::new();
        for item in items {
            let key = WriteKey::read(namespace, &item.key).ok_or_else(|| corrupt(operation))?;
            let value = item.value.ok_or_else(|| corrupt(operation))?;
            if let Some(part) = key.part {
                entries.entry((key.id, key.task, key.index)).or_default().insert(part, value);
            }
        }
        let mut found: BTreeMap<CheckpointId, Vec<PendingWrite>> = BTreeMap::new();
        for ((id, task, index), entry) in entries {
            let Some(first) = entry.get(&0) else { return Ok(None) };
            let (header, first) = split(operation, first)?;
            if !wanted(&id, &header.channel) {
                continue;
            }
            let value = match &header.blob {
                Some(name) => match self.load_blob(operation, &namespace.thread, name).await? {
                    Some(value) => value,
                    None => return Ok(None),
                },
                None => {
                    // A longer write that was replaced may have left further parts.
                    let rest = (1..parts(header.bytes)).map(|part| entry.get(&part).cloned());
                    let all = std::iter::once(Some(first)).chain(rest).collect::<Option<Vec<Bytes>>>();
                    let Some(all) = all else { return Ok(None) };
                    joined(all)
                }
            };
            if check::size(value.len()) != header.bytes {
                return Ok(None);
            }
            if header.digest.is_some_and(|digest| digest != self::digest(&value)) {
                return Ok(None);
            }
            let write = PendingWrite { task, index, path: header.path, channel: header.channel, value };
            found.entry(id).or_default().push(write);
        }
        // A run applies the writes of its tasks in this order. The keys have the order of the tasks alone.
        for writes in found.values_mut() {
            writes.sort_by(|left, right| place(left).cmp(&place(right)));
        }
        Ok(Some(found))
    }
}

/// Returns the place of a write among those of its checkpoint.
fn place(write: &PendingWrite) -> (&str, &str, i32) {
    (&write.path, &write.task, write.index)
}

fn identity(write: &PendingWrite) -> (String, i32) {
    (write.task.clone(), write.index)
}

fn check_writes(writes: &[PendingWrite]) -> Result<()> {
    check::batch(OPERATION, "writes", writes.len(), WRITES_MAX)?;
    for write in writes {
        check::batch(OPERATION, "task", write.task.len(), TASK_BYTES_MAX)?;
        check::text(OPERATION, "path", &write.path, PATH_BYTES_MAX)?;
        check::batch(OPERATION, "channel", write.channel.len(), CHANNEL_BYTES_MAX)?;
        for (field, text) in [("task", &write.task), ("path", &write.path), ("channel", &write.channel)] {
            check::no_nul(OPERATION, field, text)?;
        }
    }
    let identities: Vec<_> = writes.iter().map(identity).collect();
    check::distinct(OPERATION, "writes", &identities)
}

/// Returns the entries of a pending write.
fn entries(
    namespace: &CheckpointNamespace,
    id: &CheckpointId,
    write: &PendingWrite,
    value: &Prepared,
) -> Result<Vec<KeyValueWrite>> {
    let PendingWrite { task, index, path, channel, value: bytes } = write;
    let key = |part| WriteKey { id: id.clone(), index: *index, part, task: task.clone() }.key(namespace);
    let replaceable_parts = *index < 0 && value.blob.is_none() && bytes.len() > PART_BYTES;
    let header = Header {
        version: VERSION,
        channel: channel.clone(),
        path: path.clone(),
        bytes: check::size(bytes.len()),
        blob: value.blob.clone(),
        digest: replaceable_parts.then(|| digest(bytes)),
    };
    let mut first = BytesMut::from(&*encode(OPERATION, &header)?);
    first.put_u8(b'\n');
    let inline = if value.blob.is_some() { &Bytes::new() } else { bytes };
    first.extend_from_slice(&inline[..inline.len().min(PART_BYTES)]);
    let condition = if *index < 0 { Default::default() } else { unchanged(None) };
    let mut writes = vec![KeyValueWrite::put(key(Some(0))?, first, condition)];
    for (part, start) in (PART_BYTES..inline.len()).step_by(PART_BYTES).enumerate() {
        let bytes = inline.slice(start..inline.len().min(start + PART_BYTES));
        writes.push(KeyValueWrite::put(key(Some(part + 1))?, bytes, Default::default()));
    }
    if value.blob.is_some() {
        writes.push(KeyValueWrite::put(key(None)?, "", Default::default()));
    }
    Ok(writes)
}

fn digest(value: &Bytes) -> String {
    hex(&Sha256::digest(value))
}

/// Divides a first entry into its header and the value, or the first part of it.
fn split(operation: &'static str, entry: &Bytes) -> Result<(Header, Bytes)> {
    let end = entry.iter().position(|byte| *byte == b'\n').ok_or_else(|| corrupt(operation))?;
    Ok((decode(operation, &entry[..end])?, entry.slice(end + 1..)))
}

/// Returns the name of the blob in a first entry.
pub(super) fn blob_of(operation: &'static str, entry: &Bytes) -> Result<Option<String>> {
    Ok(split(operation, entry)?.0.blob)
}
