//! The mark that a replacement of the whole session leaves on its first message.
//!
//! It says which replacement wrote the thread, so that one that is tried again is known, and so that a summary of what
//! stood there before is not taken for one of what stands there now: places are given anew by a replacement. Where the
//! replaced session had a summary, that message is the summary.

use std::sync::Arc;

use larder_kernel::storage::history::append_digest;
use larder_kernel::{ChatMessage, IdempotencyKey, Metadata, Result, StoredMessage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::hex::hex;

/// The mark's place in the message's metadata.
const KEY: &str = "larder.flush";

/// Which replacement wrote a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The replacement, by the digest of its idempotency key.
    pub(crate) id: String,
    /// What it stored anew, by digest.
    pub(crate) content: String,
    /// Whether the marked message is the summary that the session had.
    #[serde(default)]
    pub(crate) summary: bool,
    /// How many messages that summary covers.
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

/// The message as it was given, without a mark.
pub(crate) fn unmarked(stored: StoredMessage) -> StoredMessage {
    if Mark::of(&stored.message).is_none() {
        return stored;
    }
    let mut message = ChatMessage::clone(&stored.message);
    let mut map: serde_json::Map<String, Value> = message.metadata.into_map();
    map.remove(KEY);
    message.metadata = Metadata::from(map);
    StoredMessage { seq: stored.seq, message: Arc::new(message) }
}
