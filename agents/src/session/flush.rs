//! The mark that a replacement of the whole session sets on its first message.
//!
//! The mark identifies the replacement that wrote the thread. A retry recognizes its own replacement by it.
//! The mark also invalidates a summary of the earlier messages, because a replacement assigns positions
//! again. If the replaced session had a summary, the marked message is that summary.

use std::sync::Arc;

use larder_kernel::storage::history::append_digest;
use larder_kernel::{ChatMessage, IdempotencyKey, Metadata, Result, StoredMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::internal::hex;

/// The metadata key of the mark.
const KEY: &str = "larder.flush";

/// The identity of the replacement that wrote a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The digest of the replacement's idempotency key.
    pub(crate) id: String,
    /// The digest of the new messages in the replacement.
    pub(crate) content: String,
    /// `true` if the marked message is the summary of the session.
    #[serde(default)]
    pub(crate) summary: bool,
    /// The number of messages that this summary covers.
    #[serde(default)]
    pub(crate) covers: u64,
}

impl Mark {
    pub(crate) fn new(key: &IdempotencyKey, new: &[ChatMessage]) -> Result<Self> {
        Ok(Self {
            id: hex(&Sha256::digest(key.as_str())),
            content: hex(&append_digest(new)?),
            summary: false,
            covers: 0,
        })
    }

    pub(crate) fn put_on(&self, message: &mut ChatMessage) {
        if let Ok(mark) = serde_json::to_value(self) {
            let mut map = std::mem::take(&mut message.metadata).into_map();
            map.insert(KEY.to_owned(), mark);
            message.metadata = map.into();
        }
    }

    pub(crate) fn of(message: &ChatMessage) -> Option<Self> {
        message.metadata.get(KEY).and_then(|mark| Self::deserialize(mark).ok())
    }
}

/// Returns the message without its mark.
pub(crate) fn unmarked(stored: StoredMessage) -> StoredMessage {
    if Mark::of(&stored.message).is_none() {
        return stored;
    }
    let mut message = ChatMessage::clone(&stored.message);
    let mut map: serde_json::Map<String, Value> = message.metadata.into_map();
    map.remove(KEY);
    message.metadata = Metadata::from(map);
    StoredMessage::new(stored.seq, Arc::new(message)).with_revision(stored.revision)
}
