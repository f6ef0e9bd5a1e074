//! Whether a thread still holds what its summary tells of.

use larder_kernel::{HistoryProvider, Origin, Result, Seq, StoredMessage, Thread, Timestamp, WindowMessage};
use serde::{Deserialize, Serialize};

use super::summary_store::Summary;

/// The first and the last message that a summary covers.
///
/// A summary is current while both stand in the thread as they did. A clear and an expiry take both away. A replacement
/// takes away the first, and what it puts in place has other numbers or other times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The first message.
    pub first: MessageMark,
    /// The last message, at [`Summary::up_to`].
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
    fn of(message: &WindowMessage) -> Option<Self> {
        let Origin::Stored(seq) = message.origin else { return None };
        Some(Self { seq, created_at: message.message.created_at })
    }
}

impl Covered {
    /// What a summary covers that takes in one more part.
    pub(super) fn with_part(before: Option<&Summary>, part: &[WindowMessage]) -> Option<Self> {
        let first = match before {
            Some(before) => before.covers.map(|covers| covers.first),
            None => part.first().and_then(MessageMark::of),
        };
        Some(Self { first: first?, last: part.last().and_then(MessageMark::of)? })
    }
}

/// Whether the thread holds what the summary tells of. Of one that names no messages it is only asked that there be some
/// that it could tell of.
pub(super) async fn is_current(
    history: &dyn HistoryProvider,
    thread: &Thread,
    summary: &Summary,
) -> Result<bool> {
    let after = Seq::new(summary.up_to.get().saturating_add(1));
    let last = history.tail(thread, Some(after), 1).await?;
    let (Some(last), Some(covers)) = (last.first(), summary.covers) else { return Ok(!last.is_empty()) };
    if MessageMark::from(last) != covers.last {
        return Ok(false);
    }
    let before = Seq::new(covers.first.seq.get().saturating_sub(1));
    let first = history.page_after(thread, before, 1).await?;
    Ok(first.first().map(MessageMark::from) == Some(covers.first))
}
