//! Conversion of messages to and from rows.

use std::sync::Arc;

use larder_kernel::{AgentRole, Author, ChatMessage, Result, Revision, RunId, Seq, StoredMessage};
use rusqlite::Row;

use super::super::failure::{Fallible, corrupt};
use super::super::value::length;

/// A message in its stored form. The caller encodes it, because all callers share the writer.
pub(super) struct Encoded {
    run: Option<RunId>,
    author: Option<Author>,
    pub(super) bytes: i64,
    pub(super) body: Vec<u8>,
}

impl Encoded {
    pub(super) fn all(operation: &'static str, messages: &[ChatMessage]) -> Result<Vec<Self>> {
        messages.iter().map(|message| Self::new(operation, message)).collect()
    }

    pub(super) fn new(operation: &'static str, message: &ChatMessage) -> Result<Self> {
        let body = crate::message::encode(operation, message)?;
        Ok(Self {
            run: message.run.clone(),
            author: message.author.clone(),
            bytes: length(message.size_bytes()),
            body,
        })
    }

    pub(super) fn run(&self) -> Option<&str> {
        self.run.as_ref().map(RunId::as_str)
    }

    /// Returns the author and the author's role; both are empty if the message names no author.
    pub(super) fn author(&self) -> (&str, &str) {
        let author = self.author.as_ref();
        let role = author.and_then(|author| author.role.as_ref());
        (author.map_or("", |author| author.agent.as_str()), role.map_or("", AgentRole::as_str))
    }
}

/// Returns the message in `column`.
pub(super) fn decode(row: &Row<'_>, column: usize) -> Fallible<Arc<ChatMessage>> {
    let body = row.get_ref(column)?.as_blob().ok();
    Ok(body.and_then(crate::message::decode).ok_or_else(|| corrupt("history.read"))?)
}

/// Returns the message of a row that begins with `seq`, `body` and the revision.
pub(super) fn stored(row: &Row<'_>) -> Fallible<StoredMessage> {
    let message = StoredMessage::new(Seq::new(row.get(0)?), decode(row, 1)?);
    Ok(message.with_revision(Revision::at(Seq::new(row.get(2)?))))
}
