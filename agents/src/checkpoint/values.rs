//! Values: entries of the bucket, or blobs.

use bytes::{Bytes, BytesMut};
use larder_kernel::{BlobStoreExt, ErrorKind, KeyValueWrite, Outcome, Result, check};

use super::checkpointer::Checkpointer;
use super::keys;
use super::read::Found;
use super::record::{PART_BYTES, ValueRecord, corrupt};
use super::thread::{CheckpointNamespace, CheckpointThread, draw_blob_name};

/// The maximum size of the entries of a turn or of one put of pending writes, in bytes. With keys and the
/// description, they fit into one `write`.
pub(super) const TURN_BYTES_MAX: usize = 14 * 1024 * 1024;

/// A value to be written.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) bytes: Bytes,
    /// The name of the blob that has the value already.
    pub(super) blob: Option<String>,
}

impl Prepared {
    /// Returns the location in the checkpoint with this number.
    pub(super) fn record(&self, number: u64, index: u32) -> ValueRecord {
        ValueRecord { number, index, bytes: check::size(self.bytes.len()), blob: self.blob.clone() }
    }

    /// Returns the writes of the entries.
    pub(super) fn writes(
        &self,
        namespace: &CheckpointNamespace,
        record: &ValueRecord,
    ) -> Result<Vec<KeyValueWrite>> {
        let part = |(part, key)| {
            let (start, end) = (part * PART_BYTES, self.bytes.len().min((part + 1) * PART_BYTES));
            KeyValueWrite::put(key, self.bytes.slice(start..end), Default::default())
        };
        Ok(record.keys(namespace)?.into_iter().enumerate().map(part).collect())
    }
}

impl Checkpointer {
    /// Refuses values that do not fit into one `write`, if none of them can be a blob.
    pub(super) fn check_values(
        &self,
        operation: &'static str,
        values: impl IntoIterator<Item = Bytes>,
    ) -> Result<()> {
        if self.blobs.is_some() {
            return Ok(());
        }
        let bytes = values.into_iter().map(|value| value.len()).sum();
        check::at_most(operation, "values", bytes, TURN_BYTES_MAX)
    }

    /// Writes large values as blobs, the largest first, until the others fit into one `write`.
    pub(super) async fn prepare(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
        values: impl IntoIterator<Item = Bytes>,
        prepared: &mut Vec<Prepared>,
    ) -> Result<()> {
        prepared.extend(values.into_iter().map(|bytes| Prepared { bytes, blob: None }));
        let mut inline: usize = prepared.iter().map(|value| value.bytes.len()).sum();
        let Some(blobs) = &self.blobs else { return Ok(()) };
        let mut largest_first: Vec<&mut Prepared> = prepared.iter_mut().collect();
        largest_first.sort_by_key(|value| std::cmp::Reverse(value.bytes.len()));
        for value in largest_first {
            if value.bytes.len() <= PART_BYTES && inline <= TURN_BYTES_MAX {
                break;
            }
            let name = draw_blob_name();
            let written = blobs.put_bytes(&thread.blob(&name)?, value.bytes.clone()).await;
            // A blob whose write has an unknown outcome is named by nothing.
            written.map_err(|error| error.in_operation(operation).with_outcome(Outcome::NotApplied))?;
            inline -= value.bytes.len();
            value.blob = Some(name);
        }
        Ok(())
    }

    /// Deletes the blobs of values that were not written. The deletion may fail: nothing names the blobs.
    pub(super) async fn discard(&self, thread: &CheckpointThread, prepared: &[Prepared]) {
        let names: Vec<String> = prepared.iter().filter_map(|value| value.blob.clone()).collect();
        // `collect_blobs` deletes what remains.
        let _ = self.delete_blobs("checkpoint.discard", thread, names).await;
    }

    /// Deletes blobs that nothing names any longer.
    pub(super) async fn delete_blobs(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
        names: impl IntoIterator<Item = String>,
    ) -> Result<()> {
        let Some(blobs) = &self.blobs else { return Ok(()) };
        for name in names {
            blobs.delete(&thread.blob(&name)?).await.map_err(|error| error.in_operation(operation))?;
        }
        Ok(())
    }

    /// Reads values, in their order; `None` if one of them does not exist, or if the checkpoint that was
    /// found has been removed since. The keys of its values may then have values of another checkpoint.
    pub(super) async fn load(
        &self,
        operation: &'static str,
        namespace: &CheckpointNamespace,
        found: &Found,
        records: &[&ValueRecord],
    ) -> Result<Option<Vec<Bytes>>> {
        let mut keys = Vec::new();
        for record in records {
            keys.extend(record.keys(namespace)?);
        }
        // The last key that is read: if it is unchanged, all values before it belong to the checkpoint.
        keys.push(keys::info(namespace, &found.id)?);
        let mut entries = self.read_all(operation, &namespace.thread.bucket, &keys).await?;
        let info = entries.pop().flatten();
        if info.is_none_or(|info| !found.revision.names(info.revision)) {
            return Ok(None);
        }
        let mut entries = entries.into_iter();
        let mut values = Vec::with_capacity(records.len());
        for record in records {
            let value = match &record.blob {
                Some(name) => self.load_blob(operation, &namespace.thread, name).await?,
                None => {
                    let count = super::record::parts(record.bytes);
                    let parts = entries.by_ref().take(count).map(|entry| entry.map(|entry| entry.value));
                    parts.collect::<Option<Vec<Bytes>>>().map(joined)
                }
            };
            let Some(value) = value else { return Ok(None) };
            if check::size(value.len()) != record.bytes {
                return Err(corrupt(operation));
            }
            values.push(value);
        }
        Ok(Some(values))
    }

    /// Reads a blob; `None` if it does not exist.
    pub(super) async fn load_blob(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
        name: &str,
    ) -> Result<Option<Bytes>> {
        let Some(blobs) = &self.blobs else {
            let message = "a value of the checkpoint is in a blob store; open the checkpoints with it";
            return Err(larder_kernel::Error::new(ErrorKind::Unsupported, operation, message));
        };
        match blobs.get_bytes(&thread.blob(name)?).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.in_operation(operation)),
        }
    }
}

/// Joins the parts of a value; one part is not copied.
pub(super) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in &parts {
        all.extend_from_slice(part);
    }
    all.freeze()
}
