//! A strategy that truncates long tool results.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{ChatMessage, CompactionStrategy, Reach, Result, ToolResult, Window, check};
use serde::{Deserialize, Serialize};

use super::groups::with_parts;
use crate::written::whole;

const MAX_CHARS: usize = 500;
const MARKER_END: &str = " chars truncated]";

/// The settings of [`ToolResultTruncation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolResultTruncationConfig {
    /// The number of characters of a result to keep, 1 or more.
    #[serde(deserialize_with = "whole")]
    pub max_chars: usize,
}

impl Default for ToolResultTruncationConfig {
    fn default() -> Self {
        Self { max_chars: MAX_CHARS }
    }
}

impl ToolResultTruncationConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        check::at_least("tool_result_truncation.config", "max_chars", self.max_chars, 1)
    }
}

/// Truncates long tool results and appends a marker with the number of removed characters: `[N chars
/// truncated]`. The default limit is 500 characters.
///
/// Characters are Unicode scalar values, not bytes. Errors stay whole, because they say what to do next. The
/// marker of an earlier truncation does not count against the limit, and a shorter limit adds to the number
/// in the marker. No message leaves, so this strategy can come first in any pipeline.
///
/// ```
/// use larder_agents::compaction::ToolResultTruncation;
/// use larder_kernel::{ChatMessage, CompactionStrategy, ToolResult, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let forecast = "snow, snow, snow, snow, snow, snow";
/// let window = Window::injected([ChatMessage::tool([ToolResult::new("c1", forecast)])]);
/// let window = ToolResultTruncation::new(4)?.compact(window).await?;
/// assert_eq!(window.messages[0].message.tool_results[0].content, "snow[30 chars truncated]");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ToolResultTruncation {
    max_chars: usize,
}

impl Default for ToolResultTruncation {
    fn default() -> Self {
        Self { max_chars: MAX_CHARS }
    }
}

impl ToolResultTruncation {
    /// Creates a strategy that keeps this number of characters of each result.
    ///
    /// # Errors
    /// `InvalidInput` with `max_chars` if it is 0.
    pub fn new(max_chars: usize) -> Result<Self> {
        ToolResultTruncationConfig { max_chars }.try_into()
    }

    /// Truncates the long results of a message. Returns `None` if no result is long.
    fn cut(&self, message: &ChatMessage) -> Option<ChatMessage> {
        let cuts: Vec<Option<String>> =
            message.tool_results.iter().map(|result| self.cut_result(result)).collect();
        if cuts.iter().all(Option::is_none) {
            return None;
        }
        let results = message.tool_results.iter().zip(cuts).map(|(result, cut)| ToolResult {
            call_id: result.call_id.clone(),
            content: cut.unwrap_or_else(|| result.content.clone()),
            is_error: result.is_error,
        });
        Some(with_parts(message, message.tool_calls.clone(), results.collect()))
    }

    fn cut_result(&self, result: &ToolResult) -> Option<String> {
        let content = &*result.content;
        if result.is_error || content.len() <= self.max_chars {
            return None;
        }
        let (body, gone) = without_marker(content);
        let (end, _) = body.char_indices().nth(self.max_chars)?;
        let (kept, rest) = body.split_at(end);
        let gone = check::size(rest.chars().count()).saturating_add(gone);
        Some(format!("{kept}[{gone}{MARKER_END}"))
    }
}

/// Returns the text before the marker of an earlier truncation, and the number of characters that it removed.
fn without_marker(content: &str) -> (&str, u64) {
    let marker = content.strip_suffix(MARKER_END).and_then(|rest| rest.rsplit_once('['));
    let cut = marker.and_then(|(body, number)| {
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| number.parse().ok()).flatten().map(|gone| (body, gone))
    });
    cut.unwrap_or((content, 0))
}

impl TryFrom<ToolResultTruncationConfig> for ToolResultTruncation {
    type Error = larder_kernel::Error;

    fn try_from(config: ToolResultTruncationConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { max_chars: config.max_chars })
    }
}

#[async_trait]
impl CompactionStrategy for ToolResultTruncation {
    fn name(&self) -> &'static str {
        "tool_result_truncation"
    }

    fn reach(&self) -> Reach {
        Reach::Each
    }

    fn drops(&self) -> bool {
        false
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        for message in &mut window.messages {
            if let Some(cut) = self.cut(&message.message) {
                message.message = Arc::new(cut);
            }
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::ToolCall;

    use super::*;

    fn cut(max_chars: usize, content: &str) -> Option<String> {
        ToolResultTruncation::new(max_chars).unwrap().cut_result(&ToolResult::new("c", content))
    }

    /// Proves: RAVI-7
    #[test]
    fn characters_count_and_not_bytes() {
        let truncation = ToolResultTruncation::default();
        let result = |content: String| ToolResult::new("c", content);
        assert_eq!(truncation.cut_result(&result("é".repeat(500))), None);
        let expected = format!("{}[100 chars truncated]", "é".repeat(500));
        assert_eq!(truncation.cut_result(&result("é".repeat(600))), Some(expected));
        assert_eq!(cut(2, &"🦀".repeat(30)).as_deref(), Some("🦀🦀[28 chars truncated]"));
    }

    /// Proves: RAVI-7
    #[test]
    fn text_one_character_over_the_limit_is_cut() {
        for over in 1..=30 {
            let expected = format!("{}[{over} chars truncated]", "é".repeat(500));
            assert_eq!(cut(500, &"é".repeat(500 + over)), Some(expected));
        }
        let once = format!("abcdefghij[{}{MARKER_END}", 99);
        assert_eq!(cut(10, &once), None);
        assert_eq!(cut(9, &once).as_deref(), Some("abcdefghi[100 chars truncated]"));
    }

    /// Proves: RAVI-7
    #[test]
    fn a_second_cut_states_the_total_removed() {
        let once = cut(10, &"x".repeat(100)).unwrap();
        assert_eq!(cut(10, &once), None);
        assert_eq!(cut(4, &once).as_deref(), Some("xxxx[96 chars truncated]"));
        assert_eq!(cut(4, "abcdefg[ chars truncated]").as_deref(), Some("abcd[21 chars truncated]"));
        let no_number = format!("abcd[{} chars truncated]", "9".repeat(30));
        assert_eq!(cut(4, &no_number).as_deref(), Some("abcd[48 chars truncated]"));
    }

    /// Proves: RAVI-7
    #[tokio::test]
    async fn errors_and_short_results_stay_and_are_not_copied() {
        let long = "x".repeat(600);
        let short = ChatMessage::tool([ToolResult::new("a", "short"), ToolResult::error("b", &long)]);
        let mut mixed = ChatMessage::tool([ToolResult::new("c", &long), ToolResult::error("d", &long)]);
        mixed = mixed.with_tool_call(ToolCall::new("e", "t", &long)).with_token_count(9);
        let window = Window::injected([short, mixed]);
        let cut = ToolResultTruncation::default().compact(window.clone()).await.unwrap();
        assert!(Arc::ptr_eq(&cut.messages[0].message, &window.messages[0].message));
        let message = &cut.messages[1].message;
        assert!(message.tool_results[0].content.ends_with("x[100 chars truncated]"));
        assert_eq!(message.tool_results[1].content, long);
        assert_eq!(message.tool_calls[0].arguments, long);
        assert_eq!(message.token_count, None);
    }

    #[test]
    fn settings_are_checked_by_name() {
        let error = ToolResultTruncation::new(0).unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("max_chars"), Some(1)));
        assert!(serde_json::from_str::<ToolResultTruncationConfig>(r#"{"chars": 3}"#).is_err());
    }
}
