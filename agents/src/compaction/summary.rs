//! A summary of a thread, and whether the thread still holds the messages that the summary covers.

use larder_kernel::{HistoryProvider, Result, Seq, Thread, WindowMessage};
use serde::{Deserialize, Serialize};

use super::covered::{Covered, MessageMark};

/// What a thread says up to a place, told shorter.
///
/// The stored conversation stays as it is: whoever makes a window reads the summary, and then only the messages after
/// [`up_to`](Self::up_to).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The last message that it covers; it covers all before it too.
    pub up_to: Seq,
    /// The summary itself.
    pub text: String,
    /// Its length in tokens.
    pub tokens: u64,
    /// How many messages it covers, those of earlier summaries that it took in included.
    pub messages: u64,
    /// The strategy that made it.
    pub strategy: String,
    /// The messages by which it is seen whether the thread still holds what it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<Covered>,
}

impl Summary {
    /// What a summary covers that takes in one more part.
    pub(super) fn covers_with_part(before: Option<&Self>, part: &[WindowMessage]) -> Option<Covered> {
        let first = match before {
            Some(before) => before.covers.map(|covers| covers.first),
            None => part.first().and_then(MessageMark::of),
        };
        Some(Covered { first: first?, last: part.last().and_then(MessageMark::of)? })
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
