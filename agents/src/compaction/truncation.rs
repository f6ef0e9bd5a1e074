//! A strategy with a hard ceiling of messages or characters.

use async_trait::async_trait;
use larder_kernel::{ChatMessage, CompactionStrategy, Error, Reach, Result, Window, WindowMessage, check};
use serde::{Deserialize, Serialize};

use super::groups::{keep_newest, summary_head, summary_stays};
use crate::written::whole;

const OPERATION: &str = "truncation.config";

/// The ceilings. At least one must be set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TruncationConfig {
    /// The number of newest messages to keep, 1 or more.
    #[serde(deserialize_with = "whole")]
    pub max_messages: Option<usize>,
    /// The number of characters that the newest messages may have in total, 1 or more.
    #[serde(deserialize_with = "whole")]
    pub max_chars: Option<usize>,
}

impl TruncationConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit, or with `max_messages` if no ceiling is set.
    pub fn check(&self) -> Result<()> {
        if self.max_messages.is_none() && self.max_chars.is_none() {
            return Err(Error::invalid(OPERATION, "max_messages", "is missing; set it, `max_chars` or both"));
        }
        check::at_least(OPERATION, "max_messages", self.max_messages.unwrap_or(1), 1)?;
        check::at_least(OPERATION, "max_chars", self.max_chars.unwrap_or(1), 1)
    }

    /// Sets the number of newest messages to keep, 1 or more.
    #[must_use]
    pub fn with_max_messages(mut self, max_messages: usize) -> Self {
        self.max_messages = Some(max_messages);
        self
    }

    /// Sets the number of characters that the newest messages may have in total, 1 or more.
    #[must_use]
    pub fn with_max_chars(mut self, max_chars: usize) -> Self {
        self.max_chars = Some(max_chars);
        self
    }
}

/// Drops the oldest messages until the rest is within a ceiling of messages, of characters, or of both.
///
/// The characters of a message are those of its text, of the names and arguments of its calls, and of its
/// results. A message without any counts as one character, so that the ceiling bounds the number of messages
/// to read. The ceiling always holds: a message that exceeds it alone is dropped, with all older messages. A
/// summary at the front of the window stays in front if the newest message fits next to it.
///
/// ```
/// use larder_agents::compaction::Truncation;
/// use larder_kernel::{ChatMessage, CompactionStrategy, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let window = Window::injected(["one", "two", "three"].map(ChatMessage::user));
/// let window = Truncation::chars(8)?.compact(window).await?;
/// assert_eq!(window.messages.len(), 2);
/// assert_eq!(window.messages[0].message.text, "two");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Truncation {
    max_messages: u64,
    max_chars: u64,
}

impl Truncation {
    /// Creates a ceiling of messages.
    ///
    /// # Errors
    /// `InvalidInput` with `max_messages` if it is 0.
    pub fn messages(max_messages: usize) -> Result<Self> {
        TruncationConfig { max_messages: Some(max_messages), max_chars: None }.try_into()
    }

    /// Creates a ceiling of characters.
    ///
    /// # Errors
    /// `InvalidInput` with `max_chars` if it is 0.
    pub fn chars(max_chars: usize) -> Result<Self> {
        TruncationConfig { max_messages: None, max_chars: Some(max_chars) }.try_into()
    }

    /// Creates a ceiling of messages and one of characters.
    ///
    /// # Errors
    /// `InvalidInput` with the ceiling that is 0.
    pub fn messages_and_chars(max_messages: usize, max_chars: usize) -> Result<Self> {
        TruncationConfig { max_messages: Some(max_messages), max_chars: Some(max_chars) }.try_into()
    }
}

impl TryFrom<TruncationConfig> for Truncation {
    type Error = Error;

    fn try_from(config: TruncationConfig) -> Result<Self> {
        config.check()?;
        let ceiling = |setting: Option<usize>| setting.map_or(u64::MAX, check::size);
        Ok(Self { max_messages: ceiling(config.max_messages), max_chars: ceiling(config.max_chars) })
    }
}

/// Returns the number of characters that a model reads of a message, 1 or more.
pub(crate) fn chars_of(message: &ChatMessage) -> u64 {
    let chars = |text: &str| check::size(text.chars().count());
    let calls = message.tool_calls.iter().map(|call| chars(&call.name) + chars(&call.arguments));
    let results = message.tool_results.iter().map(|result| chars(&result.content));
    (chars(&message.text) + calls.sum::<u64>() + results.sum::<u64>()).max(1)
}

#[async_trait]
impl CompactionStrategy for Truncation {
    fn name(&self) -> &'static str {
        "truncation"
    }

    fn reach(&self) -> Reach {
        let messages = self.max_messages.min(self.max_chars);
        Reach::Messages(usize::try_from(messages).unwrap_or(usize::MAX))
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        let head = summary_head(&window.messages);
        let (summary, rest) = window.messages.split_at(head);
        let chars = |message: &WindowMessage| chars_of(&message.message);
        let newest = rest.last().map(chars);
        let with_summary = summary.first().is_some_and(|summary| {
            summary_stays(chars(summary), newest, self.max_chars)
                && summary_stays(1, newest.map(|_| 1), self.max_messages)
        });
        let (mut messages_left, mut chars_left) = (self.max_messages, self.max_chars);
        if with_summary {
            messages_left = messages_left.saturating_sub(1);
            chars_left = chars_left.saturating_sub(summary.iter().map(chars).sum());
        }
        let mut start = window.messages.len();
        for message in rest.iter().rev() {
            let Some(left) = chars_left.checked_sub(chars(message)).filter(|_| messages_left > 0) else {
                break;
            };
            (messages_left, chars_left) = (messages_left - 1, left);
            start -= 1;
        }
        window.messages = keep_newest(window.messages, start, with_summary);
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Seq, ToolCall, ToolResult};

    use super::*;

    async fn texts(strategy: Truncation, window: &Window) -> Vec<String> {
        let messages = strategy.compact(window.clone()).await.unwrap().into_messages();
        messages.iter().map(|message| message.text.clone()).collect()
    }

    /// Proves: RAVI-10
    #[tokio::test]
    async fn messages_characters_or_both_are_a_ceiling() {
        let window = Window::injected(["aaaa", "éé", "", "ccc"].map(ChatMessage::user));
        assert_eq!(texts(Truncation::messages(2).unwrap(), &window).await, ["", "ccc"]);
        assert_eq!(texts(Truncation::chars(6).unwrap(), &window).await, ["éé", "", "ccc"]);
        assert_eq!(texts(Truncation::chars(5).unwrap(), &window).await, ["", "ccc"]);
        assert_eq!(texts(Truncation::messages_and_chars(1, 6).unwrap(), &window).await, ["ccc"]);
        assert!(texts(Truncation::chars(2).unwrap(), &window).await.is_empty());
        assert_eq!(texts(Truncation::messages_and_chars(9, 99).unwrap(), &window).await.len(), 4);
    }

    /// Proves: RAVI-10
    #[tokio::test]
    async fn calls_and_results_count_and_are_dropped_together() {
        let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("1", "tool", "{}"));
        let window = Window::injected([call, ChatMessage::tool([ToolResult::new("1", "xxxx")])]);
        assert!(texts(Truncation::chars(9).unwrap(), &window).await.is_empty());
        assert_eq!(texts(Truncation::chars(10).unwrap(), &window).await.len(), 2);
    }

    /// Proves: RAVI-10
    #[tokio::test]
    async fn a_summary_stays_while_the_newest_message_also_fits() {
        let mut window = Window::injected(["aaaa", "bb"].map(ChatMessage::user));
        window.messages.insert(0, WindowMessage::summary(Seq::new(7), ChatMessage::system("sum")));
        assert_eq!(texts(Truncation::chars(5).unwrap(), &window).await, ["sum", "bb"]);
        assert_eq!(texts(Truncation::chars(4).unwrap(), &window).await, ["bb"]);
        assert_eq!(texts(Truncation::messages(1).unwrap(), &window).await, ["bb"]);
        assert_eq!(texts(Truncation::messages(2).unwrap(), &window).await, ["sum", "bb"]);
    }

    #[test]
    fn settings_are_checked_by_name() {
        let error = Truncation::chars(0).unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("max_chars"), Some(1)));
        assert_eq!(Truncation::messages(0).unwrap_err().field(), Some("max_messages"));
        assert_eq!(TruncationConfig::default().check().unwrap_err().field(), Some("max_messages"));
        assert_eq!(Truncation::messages_and_chars(50, 10).unwrap().reach(), Reach::Messages(10));
        assert_eq!(Truncation::messages(50).unwrap().reach(), Reach::Messages(50));
    }
}
