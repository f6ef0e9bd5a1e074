//! Groups of messages that strategies keep or drop together: tool calls with their results, and human turns
//! with their replies.
//!
//! A result belongs to the nearest call with the same id in its own or an earlier message. The results of one
//! call may be spread over several messages. Pairing never looks further back than that call, so the newest
//! part of a thread is paired in the same way as the whole thread.

use std::collections::HashMap;
use std::ops::Range;

use larder_kernel::{ChatMessage, Origin, Role, ToolCall, ToolResult, WindowMessage};

/// Returns `true` if a message is a human turn. Tool results with the role of the user are not.
pub(crate) fn is_human_turn(message: &ChatMessage) -> bool {
    message.role == Role::User && message.tool_results.is_empty()
}

/// Removes results whose call is missing, and calls whose results are missing.
///
/// A call without results stays if only results for the same message follow it, because its tool is still
/// running. A message that loses all its content is removed. A message that keeps some content stays,
/// shortened. Unchanged messages are not copied.
///
/// Every strategy of this module that drops messages applies this rule last. You can also call it in a custom
/// strategy. It keeps the order of the messages; [`close_tool_calls`](super::close_tool_calls) makes the
/// result valid for a provider.
///
/// ```
/// use larder_agents::compaction::pair_tool_calls;
/// use larder_kernel::{ChatMessage, ToolCall, ToolResult, Window};
///
/// let window = Window::injected([
///     ChatMessage::tool([ToolResult::new("cut-off", "42")]),
///     ChatMessage::assistant("I look.").with_tool_call(ToolCall::new("lost", "search", "{}")),
///     ChatMessage::user("Well?"),
///     ChatMessage::assistant("").with_tool_call(ToolCall::new("running", "search", "{}")),
/// ]);
/// let paired = pair_tool_calls(window.messages);
/// assert_eq!(paired.len(), 3);
/// assert_eq!(paired[0].message.text, "I look.");
/// assert!(paired[0].message.tool_calls.is_empty());
/// assert_eq!(paired[2].message.tool_calls[0].id, "running");
/// ```
#[must_use]
pub fn pair_tool_calls(messages: Vec<WindowMessage>) -> Vec<WindowMessage> {
    select(messages, |_| true, |_| true)
}

/// Returns the parts that stay together, in order and without gaps. A part is a call with everything up to
/// its last result, or a single message.
pub(crate) fn units(messages: &[&ChatMessage]) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = (1..=messages.len()).collect();
    for call in Pairs::among(messages).calls {
        let last = call.results.last().map_or(call.place, |last| *last);
        ends[call.place] = ends[call.place].max(last + 1);
    }
    let mut units = Vec::new();
    let mut start = 0;
    while start < messages.len() {
        let (mut end, mut place) = (ends[start], start);
        while place < end {
            end = end.max(ends[place]);
            place += 1;
        }
        units.push(start..end);
        start = end;
    }
    units
}

/// Works as [`Pairs::select`], for a single selection.
pub(crate) fn select(
    messages: Vec<WindowMessage>,
    keeps: impl Fn(usize) -> bool,
    keeps_calls: impl Fn(usize) -> bool,
) -> Vec<WindowMessage> {
    Pairs::of(&messages).select(messages, keeps, keeps_calls)
}

/// A tool call, or several calls with one id in one message, with the indexes of the messages that hold its
/// results.
struct Call {
    place: usize,
    results: Vec<usize>,
}

/// The calls and results of one message, as indexes into [`Pairs::calls`].
struct Parts {
    place: usize,
    calls: Vec<usize>,
    results: Vec<Option<usize>>,
}

impl Parts {
    /// Removes the parts of a message whose group is dropped. Returns `None` if nothing remains.
    fn strip(&self, message: WindowMessage, whole: &[bool]) -> Option<WindowMessage> {
        let stays = |call: &usize| whole.get(*call).copied().unwrap_or(false);
        let result_stays = |call: &Option<usize>| call.as_ref().is_some_and(stays);
        if self.calls.iter().all(stays) && self.results.iter().all(result_stays) {
            return Some(message);
        }
        let original = &*message.message;
        let kept_calls = || original.tool_calls.iter().zip(&self.calls).filter(|(_, call)| stays(call));
        let kept_results =
            || original.tool_results.iter().zip(&self.results).filter(|(_, call)| result_stays(call));
        let silent = original.text.trim().is_empty() && original.blobs.is_empty();
        let nothing_left = kept_calls().next().is_none() && kept_results().next().is_none();
        if nothing_left && (silent || original.role == Role::Tool) {
            return None;
        }
        let calls: Vec<ToolCall> = kept_calls().map(|(call, _)| call.clone()).collect();
        let results: Vec<ToolResult> = kept_results().map(|(result, _)| result.clone()).collect();
        Some(message.with_message(with_parts(original, calls, results)))
    }
}

/// Copies a message with other calls and results. The copy has no token count: the old one no longer applies.
pub(crate) fn with_parts(
    original: &ChatMessage,
    tool_calls: Vec<ToolCall>,
    tool_results: Vec<ToolResult>,
) -> ChatMessage {
    let mut copy = original.clone();
    copy.tool_calls = tool_calls;
    copy.tool_results = tool_results;
    copy.token_count = None;
    copy
}

/// The assignment of results to calls.
pub(crate) struct Pairs {
    calls: Vec<Call>,
    /// The messages that contain calls or results, in order.
    parts: Vec<Parts>,
    /// The message whose tools may still be running: only its results follow it.
    running: Option<usize>,
}

impl Pairs {
    pub(crate) fn of(messages: &[WindowMessage]) -> Self {
        Self::among(&messages.iter().map(|message| &*message.message).collect::<Vec<_>>())
    }

    fn among(messages: &[&ChatMessage]) -> Self {
        let mut calls: Vec<Call> = Vec::new();
        let mut parts: Vec<Parts> = Vec::new();
        let mut nearest: HashMap<&str, usize> = HashMap::new();
        for (place, message) in messages.iter().enumerate() {
            if message.tool_calls.is_empty() && message.tool_results.is_empty() {
                continue;
            }
            let mut part = Parts { place, calls: Vec::new(), results: Vec::new() };
            for call in &message.tool_calls {
                let known = nearest.get(&*call.id).copied();
                let index = known.filter(|known| calls[*known].place == place).unwrap_or_else(|| {
                    calls.push(Call { place, results: Vec::new() });
                    calls.len() - 1
                });
                nearest.insert(&call.id, index);
                part.calls.push(index);
            }
            for result in &message.tool_results {
                let call = nearest.get(&*result.call_id).copied();
                if let Some(call) = call {
                    calls[call].results.push(place);
                }
                part.results.push(call);
            }
            parts.push(part);
        }
        let running = running(messages, &calls, &parts);
        Self { calls, parts, running }
    }

    /// Returns the indexes of the messages that call tools and have results, or may still get them, oldest
    /// first.
    pub(crate) fn groups(&self) -> Vec<usize> {
        let groups = self.calls.iter().filter(|call| self.answered(call));
        let mut places: Vec<usize> = groups.map(|call| call.place).collect();
        places.dedup();
        places
    }

    /// Returns `true` if a call has results or may still get them.
    fn answered(&self, call: &Call) -> bool {
        !call.results.is_empty() || self.running == Some(call.place)
    }

    /// Keeps the messages whose index `keeps` accepts. Keeps a group of tool calls if `keeps_calls` accepts
    /// the index of its call. All strategies remove messages through this function.
    ///
    /// A call and its results stay or leave together. Both indexes count from the oldest message.
    pub(crate) fn select(
        self,
        messages: Vec<WindowMessage>,
        keeps: impl Fn(usize) -> bool,
        keeps_calls: impl Fn(usize) -> bool,
    ) -> Vec<WindowMessage> {
        let stays = |call: &Call| {
            self.answered(call)
                && keeps_calls(call.place)
                && keeps(call.place)
                && call.results.iter().all(|place| keeps(*place))
        };
        let whole: Vec<bool> = self.calls.iter().map(stays).collect();
        let mut parts = self.parts.into_iter().peekable();
        let mut kept = Vec::new();
        for (place, message) in messages.into_iter().enumerate() {
            let part = parts.next_if(|part| part.place == place);
            if !keeps(place) {
                continue;
            }
            match part {
                Some(part) => kept.extend(part.strip(message, &whole)),
                None => kept.push(message),
            }
        }
        kept
    }
}

/// Returns the message with calls that only results of those calls follow.
fn running(messages: &[&ChatMessage], calls: &[Call], parts: &[Parts]) -> Option<usize> {
    let mut asked_by = None;
    for (place, part) in (0..messages.len()).rev().zip(parts.iter().rev()) {
        if part.place != place {
            return None;
        }
        if !part.calls.is_empty() {
            return asked_by.is_none_or(|asked_by| asked_by == place).then_some(place);
        }
        let message = messages[place];
        if message.role != Role::Tool && !message.text.trim().is_empty() {
            return None;
        }
        for call in &part.results {
            let asks = call.map(|call| calls[call].place)?;
            if *asked_by.get_or_insert(asks) != asks {
                return None;
            }
        }
    }
    None
}

/// Returns the newest interaction of a list of messages that is not empty: one human turn and all replies to
/// it. The messages before the first human turn form an interaction.
pub(crate) fn newest_interaction(messages: &[WindowMessage]) -> Range<usize> {
    let start = messages.iter().rposition(|message| is_human_turn(&message.message));
    start.unwrap_or(0)..messages.len()
}

/// Returns the number of summary messages at the front: 0 or 1.
pub(crate) fn summary_head(messages: &[WindowMessage]) -> usize {
    usize::from(messages.first().is_some_and(|first| matches!(first.origin, Origin::Summary(_))))
}

/// Keeps the messages from `start` on. Also keeps the summary at the front if `with_summary` is set.
pub(crate) fn keep_newest(
    mut messages: Vec<WindowMessage>,
    start: usize,
    with_summary: bool,
) -> Vec<WindowMessage> {
    let head = summary_head(&messages);
    let from = if with_summary { head.min(start) } else { 0 };
    messages.drain(from..start);
    pair_tool_calls(messages)
}

/// Returns `true` if a summary of `summary` tokens stays in a budget. A summary never pushes out the `newest`
/// interaction, because it is useless without it.
pub(crate) fn summary_stays(summary: u64, newest: Option<u64>, budget: u64) -> bool {
    match newest {
        Some(newest) if newest <= budget => summary.saturating_add(newest) <= budget,
        _ => summary <= budget,
    }
}

#[cfg(test)]
mod tests;
