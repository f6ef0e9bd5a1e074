//! A strategy that keeps the newest groups of tool calls.

use async_trait::async_trait;
use larder_kernel::{CompactionStrategy, Reach, Result, Window, check};
use serde::{Deserialize, Serialize};

use super::groups::Pairs;
use crate::written::whole;

const KEEP_RECENT_GROUPS: usize = 5;

/// The settings of [`SelectiveToolCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelectiveToolCallConfig {
    /// The number of newest groups to keep, 1 or more. With 0 the model would never see the results that it
    /// requested.
    #[serde(deserialize_with = "whole")]
    pub keep_recent_groups: usize,
}

impl Default for SelectiveToolCallConfig {
    fn default() -> Self {
        Self { keep_recent_groups: KEEP_RECENT_GROUPS }
    }
}

impl SelectiveToolCallConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        check::at_least("selective_tool_call.config", "keep_recent_groups", self.keep_recent_groups, 1)
    }
}

/// Keeps the newest groups of tool calls with their results and drops older groups. The default is 5 groups.
///
/// A group is a message that calls tools, together with all results of these calls. Text is never dropped: a
/// message with text and calls loses only its calls.
///
/// ```
/// use larder_agents::compaction::SelectiveToolCall;
/// use larder_kernel::{ChatMessage, CompactionStrategy, ToolCall, ToolResult, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let group = |id: &str| {
///     let call = ChatMessage::assistant("").with_tool_call(ToolCall::new(id, "search", "{}"));
///     [call, ChatMessage::tool([ToolResult::new(id, "found")])]
/// };
/// let messages = [group("old"), group("new")].into_iter().flatten();
/// let window = SelectiveToolCall::new(1)?.compact(Window::injected(messages)).await?;
/// assert_eq!(window.messages.len(), 2);
/// assert_eq!(window.messages[1].message.tool_results[0].call_id, "new");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SelectiveToolCall {
    keep_recent_groups: usize,
}

impl Default for SelectiveToolCall {
    fn default() -> Self {
        Self { keep_recent_groups: KEEP_RECENT_GROUPS }
    }
}

impl SelectiveToolCall {
    /// Creates a strategy that keeps this number of groups.
    ///
    /// # Errors
    /// `InvalidInput` with `keep_recent_groups` if it is 0.
    pub fn new(keep_recent_groups: usize) -> Result<Self> {
        SelectiveToolCallConfig { keep_recent_groups }.try_into()
    }
}

impl TryFrom<SelectiveToolCallConfig> for SelectiveToolCall {
    type Error = larder_kernel::Error;

    fn try_from(config: SelectiveToolCallConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { keep_recent_groups: config.keep_recent_groups })
    }
}

#[async_trait]
impl CompactionStrategy for SelectiveToolCall {
    fn name(&self) -> &'static str {
        "selective_tool_call"
    }

    fn reach(&self) -> Reach {
        Reach::Everything
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        let pairs = Pairs::of(&window.messages);
        let groups = pairs.groups();
        let first = groups.len().checked_sub(self.keep_recent_groups).map_or(0, |first| groups[first]);
        window.messages = pairs.select(window.messages, |_| true, |call| call >= first);
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, ToolCall, ToolResult};

    use super::*;

    fn group(text: &str, ids: &[String]) -> Vec<ChatMessage> {
        let call = ids.iter().fold(ChatMessage::assistant(text), |message, id| {
            message.with_tool_call(ToolCall::new(id, "t", "{}"))
        });
        let results = ids.iter().map(|id| ChatMessage::tool([ToolResult::new(id, "r")]));
        std::iter::once(call).chain(results).collect()
    }

    /// Proves: RAVI-8
    #[tokio::test]
    async fn the_newest_five_groups_stay() {
        let mut messages = vec![ChatMessage::user("go")];
        for number in 0..8 {
            messages.extend(group("", &[format!("{number}a"), format!("{number}b")]));
        }
        messages.push(ChatMessage::assistant("done"));
        let kept = SelectiveToolCall::default().compact(Window::injected(messages)).await.unwrap();
        assert_eq!(kept.messages.len(), 1 + 5 * 3 + 1);
        assert_eq!(kept.messages[0].message.text, "go");
        assert_eq!(kept.messages[1].message.tool_calls[0].id, "3a");
    }

    /// Proves: RAVI-8
    #[tokio::test]
    async fn text_next_to_a_dropped_call_stays_and_running_calls_are_a_group() {
        let mut messages = group("I look.", &["1".to_owned()]);
        messages.push(ChatMessage::assistant("").with_tool_call(ToolCall::new("2", "t", "{}")));
        let kept = SelectiveToolCall::new(1).unwrap().compact(Window::injected(messages)).await.unwrap();
        let kept = kept.into_messages();
        assert_eq!(kept.len(), 2);
        assert_eq!((kept[0].text.as_str(), kept[0].tool_calls.len()), ("I look.", 0));
        assert_eq!(kept[1].tool_calls[0].id, "2");
    }

    #[test]
    fn settings_are_checked_by_name() {
        let error = SelectiveToolCall::new(0).unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("keep_recent_groups"), Some(1)));
        assert!(serde_json::from_str::<SelectiveToolCallConfig>(r#"{"keep": 3}"#).is_err());
    }
}
