//! Writes under the head of a namespace.

use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX};
use larder_kernel::{ErrorKind, KeyValueWrite, Result, Revision};

use super::checkpointer::Checkpointer;
use super::keys;
use super::put::unchanged;
use super::record::{HeadRecord, decode, encode};
use super::thread::CheckpointNamespace;

/// The head of a namespace as this writer read or wrote it. Each step is one atomic write that rewrites
/// the head and changes nothing if another writer did so in between.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    checkpointer: &'a Checkpointer,
    namespace: &'a CheckpointNamespace,
    operation: &'static str,
    pub(super) head: HeadRecord,
    revision: Revision,
}

impl Checkpointer {
    /// Returns the head of a namespace; `None` if it has none.
    pub(super) async fn guard<'a>(
        &'a self,
        operation: &'static str,
        namespace: &'a CheckpointNamespace,
    ) -> Result<Option<Guard<'a>>> {
        let found = self.store.get(&namespace.thread.bucket, &keys::head(namespace)?).await;
        let Some(entry) = found.map_err(|error| error.in_operation(operation))? else { return Ok(None) };
        let head = decode(operation, &entry.value)?;
        Ok(Some(Guard { checkpointer: self, namespace, operation, head, revision: entry.revision }))
    }

    /// Returns the head that this writer wrote at a revision.
    pub(super) fn guard_at<'a>(
        &'a self,
        operation: &'static str,
        namespace: &'a CheckpointNamespace,
        head: HeadRecord,
        revision: Revision,
    ) -> Guard<'a> {
        Guard { checkpointer: self, namespace, operation, head, revision }
    }
}

impl Guard<'_> {
    /// The maximum number of writes of one step.
    pub(super) const WRITES_MAX: usize = BATCH_KEYS_MAX - 1;
    /// The maximum size of one step, in bytes. It leaves 4 KiB for the head.
    pub(super) const BYTES_MAX: usize = BATCH_VALUES_BYTES_MAX - 4 * 1024;

    /// Performs one step, which is within both limits. Returns `false` and changes nothing if
    /// another writer rewrote the head.
    pub(super) async fn step(&mut self, writes: Vec<KeyValueWrite>) -> Result<bool> {
        let head = encode(self.operation, &self.head)?;
        let head = KeyValueWrite::put(keys::head(self.namespace)?, head, unchanged(Some(self.revision)));
        let Some(revisions) = self.write(head, writes).await? else { return Ok(false) };
        self.revision = revisions.into_iter().next().flatten().unwrap_or(self.revision);
        Ok(true)
    }

    /// Performs the last step, which deletes the head.
    pub(super) async fn end(self, writes: Vec<KeyValueWrite>) -> Result<bool> {
        let head = KeyValueWrite::delete(keys::head(self.namespace)?, Some(self.revision));
        Ok(self.write(head, writes).await?.is_some())
    }

    /// Performs as many steps as the writes need.
    pub(super) async fn steps(&mut self, writes: Vec<KeyValueWrite>) -> Result<bool> {
        let (mut step, mut bytes) = (Vec::new(), 0);
        for write in writes {
            bytes += write.size_bytes();
            if step.len() == Self::WRITES_MAX || bytes > Self::BYTES_MAX {
                bytes = write.size_bytes();
                if !self.step(std::mem::take(&mut step)).await? {
                    return Ok(false);
                }
            }
            step.push(write);
        }
        if step.is_empty() { Ok(true) } else { self.step(step).await }
    }

    async fn write(
        &self,
        head: KeyValueWrite,
        writes: Vec<KeyValueWrite>,
    ) -> Result<Option<Vec<Option<Revision>>>> {
        let mut all = Vec::with_capacity(writes.len() + 1);
        all.push(head);
        all.extend(writes);
        match self.checkpointer.store.write(&self.namespace.thread.bucket, all).await {
            Ok(revisions) => Ok(Some(revisions)),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error.in_operation(self.operation)),
        }
    }
}
