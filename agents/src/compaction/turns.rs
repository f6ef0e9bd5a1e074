//! The positions at which a conversation may be cut: never between a tool call and its results.

use std::ops::Range;

use larder_kernel::{ChatMessage, Role};

pub(crate) use super::groups::{is_human_turn, units};

/// Returns the interactions, in order and without gaps: one human turn and all replies to it. The messages
/// before the first human turn form an interaction.
pub(crate) fn interactions(messages: &[&ChatMessage]) -> Vec<Range<usize>> {
    let mut interactions: Vec<Range<usize>> = Vec::new();
    for unit in units(messages) {
        match interactions.last_mut() {
            Some(last) if !is_human_turn(messages[unit.start]) => last.end = unit.end,
            _ => interactions.push(unit),
        }
    }
    interactions
}

/// Returns the number of messages, from the oldest, that belong to complete interactions. The last
/// interaction is not complete while a question has no answer or a tool is still running.
pub(crate) fn closed(messages: &[&ChatMessage]) -> usize {
    let answers = |last: &ChatMessage| {
        !matches!(last.role, Role::User | Role::Tool)
            && last.tool_calls.is_empty()
            && last.tool_results.is_empty()
    };
    match messages.last() {
        Some(last) if !answers(last) => interactions(messages).last().map_or(0, |open| open.start),
        _ => messages.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_kernel::{ToolCall, ToolResult};

    fn call(ids: &[&str]) -> ChatMessage {
        ids.iter().fold(ChatMessage::assistant(""), |message, id| {
            message.with_tool_call(ToolCall::new(*id, "tool", "{}"))
        })
    }

    fn result(id: &str) -> ChatMessage {
        ChatMessage::tool([ToolResult::new(id, "done")])
    }

    #[test]
    fn a_call_stays_with_its_results_when_ids_repeat() {
        let (user, said) = (ChatMessage::user("q"), ChatMessage::assistant("a"));
        let messages = [
            user.clone(),
            call(&["1", "2"]),
            result("1"),
            said.clone(),
            result("2"),
            said.clone(),
            user.clone(),
            call(&["1"]),
            result("1"),
            said,
            user,
            call(&["3"]),
        ];
        let messages: Vec<&ChatMessage> = messages.iter().collect();
        assert_eq!(units(&messages), [0..1, 1..5, 5..6, 6..7, 7..9, 9..10, 10..11, 11..12]);
        assert_eq!(interactions(&messages), [0..6, 6..10, 10..12]);
        assert_eq!(closed(&messages), 10);
        assert_eq!(closed(&messages[..10]), 10);
        assert_eq!(closed(&messages[..1]), 0);
        assert_eq!(closed(&[]), 0);
        assert!(interactions(&[]).is_empty());
    }
}
