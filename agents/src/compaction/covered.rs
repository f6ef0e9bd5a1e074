//! The messages that a summary covers.

use larder_kernel::{Origin, Seq, StoredMessage, Timestamp, WindowMessage};
use serde::{Deserialize, Serialize};

/// The first and the last message that a summary covers.
///
/// A summary is current while both stand in the thread as they did. A clear and an expiry take both away. A replacement
/// takes away the first, and what it puts in place has other numbers or other times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The first message.
    pub first: MessageMark,
    /// The last message, at [`Summary::up_to`](super::Summary::up_to).
    pub last: MessageMark,
}

/// A message of a thread, told from one that is put in its place later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageMark {
    /// Its place.
    pub seq: Seq,
    /// When it was made: a replacement may give the same place again.
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
