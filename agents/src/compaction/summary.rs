//! Summaries of threads, and the check that a thread still holds the summarized messages.

use larder_kernel::{HistoryProvider, Result, Seq, Thread, WindowMessage};
use serde::{Deserialize, Serialize};

use super::covered::{Covered, MessageMark};

/// A short text that replaces the messages of a thread up to a position.
///
/// The stored conversation stays unchanged. A reader reads the summary, and then only the messages after
/// [`up_to`](Self::up_to).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The position of the last message that the summary covers. It also covers every earlier message.
    pub up_to: Seq,
    /// The text.
    pub text: String,
    /// The length of the text in tokens.
    pub tokens: u64,
    /// The number of messages that the summary covers, including those of earlier summaries that it includes.
    pub messages: u64,
    /// The name of the strategy that made the summary.
    pub strategy: String,
    /// The first and last covered message, to check that the thread still holds what the summary describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<Covered>,
}

impl Summary {
    /// Creates a summary of the thread up to and including `up_to`, of unknown cost and extent.
    #[must_use]
    pub fn new(up_to: Seq, text: impl Into<String>) -> Self {
        Self { up_to, text: text.into(), tokens: 0, messages: 0, strategy: Default::default(), covers: None }
    }

    /// Returns the covered range of a summary that includes one more part.
    pub(super) fn covers_with_part(before: Option<&Self>, part: &[WindowMessage]) -> Option<Covered> {
        let first = match before {
            Some(before) => before.covers.map(|covers| covers.first),
            None => part.first().and_then(MessageMark::of),
        };
        Some(Covered { first: first?, last: part.last().and_then(MessageMark::of)? })
    }

    /// Sets the length of the text in tokens.
    #[must_use]
    pub fn with_tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets [`messages`](Self::messages).
    #[must_use]
    pub fn with_messages(mut self, messages: u64) -> Self {
        self.messages = messages;
        self
    }

    /// Sets the name of the strategy that made the summary.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Into<String>) -> Self {
        self.strategy = strategy.into();
        self
    }

    /// Sets [`covers`](Self::covers).
    #[must_use]
    pub fn with_covers(mut self, covers: impl Into<Option<Covered>>) -> Self {
        self.covers = covers.into();
        self
    }
}

/// Returns `true` if the thread still holds the messages that the summary covers. For a summary without
/// marks, checks only that the thread holds some message that it could cover.
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
