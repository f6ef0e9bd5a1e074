//! Deleting blobs that nothing names.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use larder_kernel::{Key, KeyValueQuery, Result, Timestamp, check};

use super::checkpointer::Checkpointer;
use super::keys;
use super::record::{InfoRecord, corrupt, decode};
use super::thread::CheckpointThread;
use super::writes::blob_of;

impl Checkpointer {
    /// Deletes the blobs of a thread that no checkpoint and no pending write names and that were written
    /// before a time by the blob store's clock, and returns their number. Interrupted turns, removals and
    /// copies leave such blobs.
    ///
    /// Pass a time before which all turns and copies have ended, such as 24 hours ago: a turn writes its
    /// blobs before it names them.
    ///
    /// # Errors
    /// The errors of the stores. Blobs that were deleted before an error stay deleted.
    ///
    /// # Cancellation
    /// The call deletes some of the blobs.
    ///
    /// # Complexity
    /// O(blobs, checkpoints and pending writes of the thread).
    pub async fn collect_blobs(&self, thread: &CheckpointThread, before: Timestamp) -> Result<u64> {
        const OPERATION: &str = "checkpoint.collect_blobs";
        let Some(blobs) = &self.blobs else { return Ok(0) };
        let prefix = thread.blobs();
        let listed = blobs.list(&prefix, None).await.map_err(|error| error.in_operation(OPERATION))?;
        let listed: Vec<_> = listed
            .try_collect()
            .await
            .map_err(|error: larder_kernel::Error| error.in_operation(OPERATION))?;
        let old = listed.iter().filter(|blob| blob.modified_at < before);
        let mut names: BTreeSet<String> =
            old.filter_map(|blob| Some(blob.key.as_str().strip_prefix(&prefix)?.to_owned())).collect();
        if names.is_empty() {
            return Ok(0);
        }
        for name in self.blob_names(OPERATION, thread).await? {
            names.remove(&name);
        }
        let count = check::size(names.len());
        self.delete_blobs(OPERATION, thread, names).await?;
        Ok(count)
    }

    /// Returns the names of the blobs that the checkpoints and the pending writes of a thread name.
    pub(super) async fn blob_names(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
    ) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let query = KeyValueQuery::prefix(keys::INFOS).with_values();
        for item in self.entries(operation, &thread.bucket, &query).await? {
            let value = item.value.ok_or_else(|| corrupt(operation))?;
            let info: InfoRecord = decode(operation, &value)?;
            names.extend(info.values().filter_map(|value| value.blob.clone()));
        }
        names.extend(self.blob_names_of_writes(operation, thread, keys::WRITES).await?);
        Ok(names)
    }

    /// Returns the names of the blobs that the pending writes with this beginning name.
    pub(super) async fn blob_names_of_writes(
        &self,
        operation: &'static str,
        thread: &CheckpointThread,
        writes: &str,
    ) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        if self.blobs.is_none() {
            return Ok(names);
        }
        let items = self.entries(operation, &thread.bucket, &KeyValueQuery::prefix(writes)).await?;
        let firsts: Vec<Key> = items.iter().filter_map(|item| keys::first_of_marked(&item.key)).collect();
        for entry in self.read_all(operation, &thread.bucket, &firsts).await?.into_iter().flatten() {
            names.extend(blob_of(operation, &entry.value)?);
        }
        Ok(names)
    }
}
