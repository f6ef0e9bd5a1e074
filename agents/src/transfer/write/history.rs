//! Writes of messages at the end of their thread.

use std::sync::Arc;

use larder_kernel::{AppendOptions, HistoryProvider, IdempotencyKey, Result};

use super::Change;
use crate::transfer::record::Record;

/// Appends the messages of one thread in one call.
///
/// The idempotency key contains the index of the first message and the thread's last position. A delayed
/// append whose reply was lost therefore has no second effect, even if another copy has taken over. A copy
/// into a thread that was cleared since has another key.
pub(super) async fn write(store: &Arc<dyn HistoryProvider>, batch: Vec<(Change, Record)>) -> Result<()> {
    let (mut place, mut messages) = (None, Vec::with_capacity(batch.len()));
    for (_, record) in batch {
        let Record::Message(record) = record else { continue };
        place.get_or_insert((record.thread, record.index));
        messages.push(Arc::unwrap_or_clone(record.message));
    }
    let Some((thread, index)) = place else { return Ok(()) };
    let last = store.thread_info(&thread).await?.last;
    let key = IdempotencyKey::new(format!("larder-copy-1:{index}:{last}"))?;
    store.append_many(&thread, messages, AppendOptions::default().with_idempotency_key(key)).await?;
    Ok(())
}
