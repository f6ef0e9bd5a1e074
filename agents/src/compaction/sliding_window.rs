//! A strategy that keeps the newest messages.

use async_trait::async_trait;
use larder_kernel::{CompactionStrategy, Reach, Result, Window, check};
use serde::{Deserialize, Serialize};

use super::groups::{keep_newest, summary_head};
use crate::written::whole;

const MAX_MESSAGES: i64 = 100;
/// The setting that keeps all messages.
const UNLIMITED: i64 = -1;

/// The settings of [`SlidingWindow`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlidingWindowConfig {
    /// The number of newest messages to keep, 1 or more; -1 keeps all.
    #[serde(deserialize_with = "whole")]
    pub max_messages: i64,
}

impl Default for SlidingWindowConfig {
    fn default() -> Self {
        Self { max_messages: MAX_MESSAGES }
    }
}

impl SlidingWindowConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        if self.max_messages == UNLIMITED {
            return Ok(());
        }
        let most = usize::try_from(self.max_messages).unwrap_or(0);
        check::at_least("sliding_window.config", "max_messages", most, 1)
    }
}

/// Keeps the newest messages and drops the older ones. The default is 100 messages.
///
/// A result whose call is older than the window leaves too, so the window may hold fewer messages. A summary
/// at the front of the window stays there and counts as one message, if the limit is above 1. Stored
/// instructions are messages like any other: if the model must always read some, put them in front after
/// compaction.
///
/// ```
/// use larder_agents::compaction::SlidingWindow;
/// use larder_kernel::{ChatMessage, CompactionStrategy, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let window = Window::injected(["one", "two", "three"].map(ChatMessage::user));
/// let window = SlidingWindow::new(2)?.compact(window).await?;
/// assert_eq!(window.messages[0].message.text, "two");
/// assert_eq!(window.messages.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SlidingWindow {
    /// `None` keeps all messages.
    max_messages: Option<usize>,
}

impl Default for SlidingWindow {
    fn default() -> Self {
        Self { max_messages: usize::try_from(MAX_MESSAGES).ok() }
    }
}

impl SlidingWindow {
    /// Creates a strategy that keeps this number of messages.
    ///
    /// # Errors
    /// `InvalidInput` with `max_messages` if it is 0.
    pub fn new(max_messages: usize) -> Result<Self> {
        let max_messages = i64::try_from(max_messages).unwrap_or(i64::MAX);
        SlidingWindowConfig { max_messages }.try_into()
    }
}

impl TryFrom<SlidingWindowConfig> for SlidingWindow {
    type Error = larder_kernel::Error;

    fn try_from(config: SlidingWindowConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { max_messages: usize::try_from(config.max_messages).ok() })
    }
}

#[async_trait]
impl CompactionStrategy for SlidingWindow {
    fn name(&self) -> &'static str {
        "sliding_window"
    }

    fn reach(&self) -> Reach {
        self.max_messages.map_or(Reach::Everything, Reach::Messages)
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        let Some(max_messages) = self.max_messages else { return Ok(window) };
        let total = window.messages.len();
        let head = if max_messages > 1 { summary_head(&window.messages) } else { 0 };
        let start = total.saturating_sub(max_messages - head).max(head);
        window.messages = keep_newest(window.messages, start, head > 0);
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, Seq, ToolCall, ToolResult, WindowMessage};

    use super::*;

    async fn texts(strategy: &SlidingWindow, window: Window) -> Vec<String> {
        let messages = strategy.compact(window).await.unwrap().into_messages();
        messages.iter().map(|message| message.text.clone()).collect()
    }

    /// Proves: RAVI-6
    #[tokio::test]
    async fn the_newest_hundred_messages_stay() {
        let window = Window::injected((0..250).map(|number| ChatMessage::user(number.to_string())));
        let kept = texts(&SlidingWindow::default(), window).await;
        assert_eq!(kept.len(), 100);
        assert_eq!((kept[0].as_str(), kept[99].as_str()), ("150", "249"));
    }

    /// Proves: PK-12
    #[tokio::test]
    async fn minus_one_keeps_all_messages() {
        let config: SlidingWindowConfig = serde_json::from_str(r#"{"max_messages": -1}"#).unwrap();
        let strategy = SlidingWindow::try_from(config).unwrap();
        let window = Window::injected((0..250).map(|number| ChatMessage::user(number.to_string())));
        assert_eq!(
            (strategy.reach(), strategy.compact(window.clone()).await.unwrap()),
            (Reach::Everything, window)
        );
    }

    /// Proves: RAVI-6
    #[tokio::test]
    async fn results_are_dropped_with_a_call_outside_of_the_window() {
        let call = ChatMessage::assistant("")
            .with_tool_call(ToolCall::new("1", "t", "{}"))
            .with_tool_call(ToolCall::new("2", "t", "{}"));
        let result = |id: &str| ChatMessage::tool([ToolResult::new(id, "r")]);
        let said = ChatMessage::assistant("said");
        let window = || Window::injected([call.clone(), result("1"), result("2"), said.clone()]);
        assert_eq!(texts(&SlidingWindow::new(3).unwrap(), window()).await, ["said"]);
        assert_eq!(texts(&SlidingWindow::new(4).unwrap(), window()).await.len(), 4);
    }

    /// Proves: RAVI-6
    #[tokio::test]
    async fn a_summary_stays_in_front_if_it_fits() {
        let mut window = Window::injected(["a", "b", "c"].map(ChatMessage::user));
        window.messages.insert(0, WindowMessage::summary(Seq::new(7), ChatMessage::system("sum")));
        assert_eq!(texts(&SlidingWindow::new(3).unwrap(), window.clone()).await, ["sum", "b", "c"]);
        assert_eq!(texts(&SlidingWindow::new(4).unwrap(), window.clone()).await, ["sum", "a", "b", "c"]);
        assert_eq!(texts(&SlidingWindow::new(1).unwrap(), window).await, ["c"]);
    }

    #[test]
    fn settings_are_checked_by_name() {
        let error = SlidingWindow::new(0).unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("max_messages"), Some(1)));
        let config: SlidingWindowConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config.max_messages, 100);
        let below: SlidingWindowConfig = serde_json::from_str(r#"{"max_messages": -2}"#).unwrap();
        assert_eq!(below.check().unwrap_err().field(), Some("max_messages"));
        assert!(serde_json::from_str::<SlidingWindowConfig>(r#"{"max_message": 3}"#).is_err());
    }
}
