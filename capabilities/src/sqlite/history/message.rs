//! Messages on their way into the database and back.

use std::sync::Arc;

use larder_kernel::{ChatMessage, Result, RunId, Seq, StoredMessage};
use rusqlite::Row;

use super::super::failure::{Fallible, corrupt};
use super::super::value::length;

/// A message as its row keeps it: encoded before it is handed to the writer, which all callers share.
pub(super) struct Encoded {
    pub(super) run: Option<RunId>,
    pub(super) bytes: i64,
    pub(super) body: String,
}

impl Encoded {
    pub(super) fn all(operation: &'static str, messages: &[ChatMessage]) -> Result<Vec<Self>> {
        messages.iter().map(|message| Self::new(operation, message)).collect()
    }

    fn new(operation: &'static str, message: &ChatMessage) -> Result<Self> {
        let body = crate::message::encode(operation, message)?;
        Ok(Self { run: message.run.clone(), bytes: length(message.size_bytes()), body })
    }
}

/// The message in `column`.
pub(super) fn decode(row: &Row<'_>, column: usize) -> Fallible<Arc<ChatMessage>> {
    let body = row.get_ref(column)?.as_bytes().ok();
    Ok(body.and_then(crate::message::decode).ok_or_else(|| corrupt("history.read"))?)
}

/// The message of a row that begins with `seq` and `body`.
pub(super) fn stored(row: &Row<'_>) -> Fallible<StoredMessage> {
    Ok(StoredMessage { seq: Seq::new(row.get(0)?), message: decode(row, 1)? })
}
