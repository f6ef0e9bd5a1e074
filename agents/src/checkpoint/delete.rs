//! Deleting a thread.

use larder_kernel::{Error, ErrorKind, KeyValueQuery, KeyValueStoreExt, KeyValueWrite, Result, check};

use super::checkpointer::Checkpointer;
use super::guard::Guard;
use super::keys;
use super::record::InfoRecord;
use super::thread::{CheckpointNamespace, CheckpointThread};

const OPERATION: &str = "checkpoint.delete";

impl Checkpointer {
    /// Deletes all checkpoints and their pending writes of a thread, and returns the number of checkpoints.
    ///
    /// Writers get `Conflict` until a namespace is deleted completely. Pending writes that others store
    /// during the call may remain or be lost.
    ///
    /// # Errors
    /// `Conflict` if others changed or deleted the thread at the same time. After an error, call again to
    /// continue: until then, writers of an incomplete namespace get `Conflict`.
    ///
    /// # Cancellation
    /// The deletion is incomplete, as after an error. Blobs that nothing names may remain.
    ///
    /// # Complexity
    /// O(keys of the thread), in steps of up to 1,000 keys. Deletion is atomic for a namespace with up to 999
    /// keys, once its writers are stopped.
    pub async fn delete(&self, thread: &CheckpointThread) -> Result<u64> {
        let mut count = 0;
        for namespace in self.namespaces(thread).await? {
            count += self.delete_namespace(&namespace).await?;
        }
        // Tasks may have stored writes for checkpoints that never followed.
        if self.namespaces(thread).await?.is_empty() {
            let blobs = self.blob_names_of_writes(OPERATION, thread, keys::WRITES).await?;
            let deleted = self.store.delete_all(&thread.bucket, keys::WRITES).await;
            deleted.map_err(|error| error.in_operation(OPERATION))?;
            self.delete_blobs(OPERATION, thread, blobs).await?;
        }
        Ok(count)
    }

    async fn delete_namespace(&self, namespace: &CheckpointNamespace) -> Result<u64> {
        let changed = || {
            let message = "others changed or deleted the thread at the same time; call again";
            Error::new(ErrorKind::Conflict, OPERATION, message)
        };
        let Some(mut guard) = self.guard(OPERATION, namespace).await? else { return Ok(0) };
        // From this step on, no checkpoint is written, and an earlier deletion or copy stops.
        guard.head.closed = true;
        if !guard.step(Vec::new()).await? {
            return Err(changed());
        }
        let infos = self.infos(OPERATION, namespace).await?;
        let count = infos.values().filter(|info| !info.hidden).count();
        let writes = keys::all_writes(namespace);
        let mut blobs = self.blob_names_of_writes(OPERATION, namespace.thread(), &writes).await?;
        blobs.extend(infos.values().flat_map(InfoRecord::values).filter_map(|value| value.blob.clone()));
        let mut writes = Vec::new();
        for prefix in keys::all_data(namespace) {
            let query = KeyValueQuery::prefix(prefix);
            let items = self.entries(OPERATION, &namespace.thread.bucket, &query).await?;
            writes.extend(items.into_iter().map(|item| KeyValueWrite::delete(item.key, None)));
        }
        let last = writes.split_off(writes.len().saturating_sub(Guard::WRITES_MAX));
        if !(guard.steps(writes).await? && guard.end(last).await?) {
            return Err(changed());
        }
        self.delete_blobs(OPERATION, &namespace.thread, blobs).await?;
        Ok(check::size(count))
    }
}
