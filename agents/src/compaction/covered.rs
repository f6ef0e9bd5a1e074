//! The range of messages that a summary covers.

use larder_kernel::{Origin, Seq, StoredMessage, Timestamp, WindowMessage};
use serde::{Deserialize, Serialize};

/// The first and the last message that a summary covers.
///
/// A summary is current while both messages are in the thread unchanged. A clear or an expiry removes both. A
/// replacement removes the first, and the new messages have other positions or other creation times.
///
/// A removal by number, or of a run, can remove only messages between the two, and an update can change the
/// content of any covered message. The summary stays current and still contains what it says about them, so
/// [remove](super::SummaryStore::remove) it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Covered {
    /// The first message.
    pub first: MessageMark,
    /// The last message, at [`Summary::up_to`](super::Summary::up_to).
    pub last: MessageMark,
}

/// The identity of a message in a thread. A later message at the same position has a different mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MessageMark {
    /// The position.
    #[serde(serialize_with = "crate::stored_seq::number")]
    pub seq: Seq,
    /// The creation time. A replacement may use the same position again.
    pub created_at: Timestamp,
}

impl From<&StoredMessage> for MessageMark {
    fn from(stored: &StoredMessage) -> Self {
        Self { seq: stored.seq, created_at: stored.message.created_at }
    }
}

impl MessageMark {
    pub(crate) fn of(message: &WindowMessage) -> Option<Self> {
        let Origin::Stored(seq) = message.origin else { return None };
        Some(Self { seq, created_at: message.message.created_at })
    }
}
