//! The update of a message in place.

use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::storage::history::{
    check_if_last, check_revision, check_update_at, no_such_message, used_for_another,
};
use larder_kernel::{MessageUpdate, Result, Updated};

use super::{EventKind, KEY_SHARE_BYTES, ThreadState, content_share};
use crate::storage::backend::MemoryBackend;

const OPERATION: &str = "history.update";

impl ThreadState {
    /// Updates a message. `digest` is that of the update, if it has an idempotency key.
    pub(in super::super) fn update(
        &mut self,
        backend: &MemoryBackend,
        update: &MessageUpdate,
        digest: Option<[u8; 32]>,
    ) -> Result<Updated> {
        let key = update.idempotency_key.as_ref().zip(digest);
        if let Some((key, digest)) = &key
            && let Some((first, answer)) = self.removals.answer(key)
        {
            if *first != *digest {
                return Err(used_for_another(OPERATION));
            }
            let last = answer.last;
            self.raise_fence(update.fence);
            return Ok(Updated::new(last));
        }
        self.check_fence(OPERATION, update.fence)?;
        check_if_last(OPERATION, update.if_last, self.last())?;
        check_update_at(update, self.last())?;
        let index = self.index_of(update.seq.get()).ok_or_else(no_such_message)?;
        let (of, earlier) = (self.messages[index].seq, self.messages[index].revision);
        check_revision(update, u64::try_from(earlier).unwrap_or(0))?;
        let key_bytes = key.as_ref().map_or(0, |(key, _)| KEY_SHARE_BYTES + size(key.as_str().len()));
        let needed = content_share(std::slice::from_ref(&update.message)) + key_bytes;
        let freed = self.messages[index].share();
        backend.exchange(OPERATION, freed, needed)?;
        self.held = self.held + needed - freed;
        let revision = self.last + 1;
        let entry = &mut self.messages[index];
        let bytes = size(update.message.size_bytes());
        self.bytes = self.bytes - entry.bytes + bytes;
        (entry.message, entry.bytes, entry.revision) = (Arc::new(update.message.clone()), bytes, revision);
        self.forget_update(backend, earlier);
        self.log(backend, EventKind::Updated { of, thread_bytes: self.bytes });
        if let Some((key, digest)) = key {
            self.removals.remember(key.clone(), digest, self.last());
        }
        self.raise_fence(update.fence);
        Ok(Updated::new(self.last()))
    }

    /// Drops the event of an earlier update, which the message's new update replaces.
    fn forget_update(&mut self, backend: &MemoryBackend, seq: i64) {
        let Ok(index) = self.events.binary_search_by_key(&seq, |event| event.seq) else { return };
        if matches!(self.events[index].kind, EventKind::Updated { .. }) {
            let event = self.events.remove(index);
            self.release(backend, event.share());
        }
    }
}
