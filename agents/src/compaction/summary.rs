//! Summaries of threads, and the check that a thread still holds the summarized messages.

use larder_kernel::{
    ChatMessage, HistoryProvider, Metadata, Origin, Result, Seq, Thread, Timestamp, Window, WindowMessage,
};
use serde::{Deserialize, Serialize};

use super::covered::{Covered, MessageMark};

/// The metadata key for the number of messages that a summary covers.
pub(super) const COVERS: &str = "summary_of_messages";
/// The first line of a summary in a window.
pub(super) const HEADING: &str = "Summary of the conversation so far:\n";

/// A short text that replaces the messages of a thread up to a position.
///
/// The stored conversation stays unchanged. A reader reads the summary, and then only the messages after
/// [`up_to`](Self::up_to).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The position of the last message that the summary covers. It also covers every earlier message.
    #[serde(serialize_with = "crate::stored_seq::number")]
    pub up_to: Seq,
    /// The text.
    pub text: String,
    /// The length of the text in tokens.
    pub tokens: u64,
    /// The number of messages that the summary covers, including those of earlier summaries that it includes.
    pub messages: u64,
    /// The name of the strategy that made the summary.
    pub strategy: String,
    /// The first and last covered message, to check that the thread still contains the summarized messages.
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

/// Converts a summary into a message for the model.
///
/// Use this to begin a window with a stored summary, so that it looks the same as one that a strategy has
/// just made.
#[must_use]
pub fn summary_message(summary: &Summary) -> WindowMessage {
    let message = ChatMessage::system(format!("{HEADING}{}", summary.text))
        .with_metadata(Metadata::new().with(COVERS, summary.messages))
        .with_token_count(u32::try_from(summary.tokens).unwrap_or(u32::MAX))
        .with_created_at(Timestamp::default());
    WindowMessage::summary(summary.up_to, message)
}

/// Begins a window with a stored summary. Removes any other summary and the messages that this one covers.
///
/// ```
/// use larder_agents::compaction::{Summary, begin_with_summary};
/// use larder_kernel::{ChatMessage, Origin, Seq, StoredMessage, Window};
///
/// let stored = |seq| StoredMessage::new(Seq::new(seq), ChatMessage::user("Hi")).into();
/// let mut window = Window::new(vec![stored(1), stored(2), stored(3)]);
/// let summary = Summary::new(Seq::new(2), "They greeted.");
/// begin_with_summary(&mut window, &summary);
/// let origins: Vec<Origin> = window.messages.iter().map(|message| message.origin).collect();
/// assert_eq!(origins, [Origin::Summary(Seq::new(2)), Origin::Stored(Seq::new(3))]);
/// ```
pub fn begin_with_summary(window: &mut Window, summary: &Summary) {
    let told = |message: &WindowMessage| match message.origin {
        Origin::Stored(seq) => seq <= summary.up_to,
        Origin::Summary(_) => true,
        _ => false,
    };
    // Instructions in front of the conversation stay in front of the summary.
    let front = window.messages.iter().take_while(|message| message.origin == Origin::Injected).count();
    window.messages.retain(|message| !told(message));
    window.messages.insert(front.min(window.messages.len()), summary_message(summary));
}

/// Returns `true` if the thread still holds the messages that the summary covers. For a summary without
/// marks, checks only that the thread holds some message that it could cover. Does not notice a removal
/// between the first and the last message.
pub(super) async fn is_current(
    history: &dyn HistoryProvider,
    thread: &Thread,
    summary: &Summary,
) -> Result<bool> {
    let after = Seq::new(summary.up_to.get().saturating_add(1));
    let last = history.tail(thread, Some(after), 1).await?.messages;
    let (Some(last), Some(covers)) = (last.first(), summary.covers) else { return Ok(!last.is_empty()) };
    if MessageMark::from(last) != covers.last {
        return Ok(false);
    }
    let before = Seq::new(covers.first.seq.get().saturating_sub(1));
    let first = history.page_after(thread, before, 1).await?.messages;
    Ok(first.first().map(MessageMark::from) == Some(covers.first))
}
