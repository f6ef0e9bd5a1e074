//! The last step of a window: tool calls and results in the order and form that model providers accept.

use std::collections::{HashMap, HashSet, VecDeque};

use larder_kernel::{ChatMessage, Role, ToolCall, ToolResult, WindowMessage};

use super::groups::with_parts;

/// The maximum length of an id of a call in a request, in characters. It is the smallest limit of the
/// providers: OpenAI's chat completions.
const ID_CHARS_MAX: usize = 40;

/// Returns the messages as model providers accept them. Every window of a context and of a session ends with
/// this step. Call it yourself if you run a strategy alone.
///
/// - Each result directly follows the message of its call. A result belongs to the nearest call with the same
///   id in its own or an earlier message.
/// - A call has exactly one result. The first one counts, and a later one is removed.
/// - A call without a result is removed, and a result without a call is removed. A message that loses all its
///   content is removed.
/// - An id occurs once: a repeated id gets a number at its end. An id has at most 40 ASCII letters, digits,
///   `_` and `-`; other characters become `_`.
///
/// A message that holds results and other content may become two, with the same origin. Unchanged messages
/// are not copied, and the stored messages never change. The time is proportional to the messages.
///
/// ```
/// use larder_agents::compaction::close_tool_calls;
/// use larder_kernel::{ChatMessage, ToolCall, ToolResult, Window};
///
/// let window = Window::injected([
///     ChatMessage::tool([ToolResult::new("cut-off", "42")]),
///     ChatMessage::assistant("").with_tool_call(ToolCall::new("1", "search", "{}")),
///     ChatMessage::user("Are you still there?"),
///     ChatMessage::tool([ToolResult::new("1", "found")]),
///     ChatMessage::assistant("").with_tool_call(ToolCall::new("2", "search", "{}")),
/// ]);
/// let closed = close_tool_calls(window.messages);
/// assert_eq!(closed.len(), 3);
/// assert_eq!(closed[1].message.tool_results[0].content, "found");
/// assert_eq!(closed[2].message.text, "Are you still there?");
/// ```
#[must_use]
pub fn close_tool_calls(messages: Vec<WindowMessage>) -> Vec<WindowMessage> {
    let pairs = Pairs::among(&messages);
    let mut ids = Ids::default();
    let mut closed = Vec::with_capacity(messages.len());
    // The messages that moved to the call before them.
    let mut written: HashSet<usize> = HashSet::new();
    for (place, message) in messages.iter().enumerate() {
        if written.contains(&place) {
            continue;
        }
        if message.message.tool_calls.is_empty() && message.message.tool_results.is_empty() {
            closed.push(message.clone());
            continue;
        }
        let calls = pairs.kept_calls(place, message, &mut ids);
        closed.extend(without_results(message, calls));
        let sources = pairs.sources(place);
        for (at, source) in sources.iter().enumerate() {
            let is_last = at + 1 == sources.len();
            let follows = *source == place + 1 + at;
            let from = &messages[*source];
            let results = pairs.results_for(place, *source, from, &ids);
            let all = results.len() == from.message.tool_results.len() && from.message.tool_calls.is_empty();
            let alone = from.message.text.trim().is_empty() && from.message.blobs.is_empty();
            let speaks = matches!(from.message.role, Role::User | Role::Tool);
            let whole = all && *source != place && (alone || (is_last && follows && speaks));
            if whole {
                written.insert(*source);
            }
            closed.push(result_message(from, results, whole));
        }
    }
    closed
}

/// The index of a call in its message, and of its message.
type CallAt = (usize, usize);

/// The assignment of each call to its first result.
struct Pairs {
    /// The message and the index of each call's result.
    results: HashMap<CallAt, (usize, usize)>,
    /// The messages with results of a message's calls, oldest first.
    sources: HashMap<usize, Vec<usize>>,
    /// The call of each result.
    calls: HashMap<(usize, usize), CallAt>,
}

impl Pairs {
    fn among(messages: &[WindowMessage]) -> Self {
        let mut pairs = Self { results: HashMap::new(), sources: HashMap::new(), calls: HashMap::new() };
        // The calls without a result of the nearest message that uses an id.
        let mut open: HashMap<&str, (usize, VecDeque<usize>)> = HashMap::new();
        for (place, WindowMessage { message, .. }) in messages.iter().enumerate() {
            let calls = message.tool_calls.iter().enumerate();
            for (index, call) in calls.filter(|_| message.role == Role::Assistant) {
                let nearest = open.entry(&call.id).or_insert_with(|| (place, VecDeque::new()));
                if nearest.0 != place {
                    *nearest = (place, VecDeque::new());
                }
                nearest.1.push_back(index);
            }
            for (index, result) in message.tool_results.iter().enumerate() {
                let Some((asked, waiting)) = open.get_mut(&*result.call_id) else { continue };
                let Some(call) = waiting.pop_front() else { continue };
                pairs.results.insert((*asked, call), (place, index));
                pairs.calls.insert((place, index), (*asked, call));
                let sources = pairs.sources.entry(*asked).or_default();
                if sources.last() != Some(&place) {
                    sources.push(place);
                }
            }
        }
        pairs
    }

    fn sources(&self, place: usize) -> &[usize] {
        self.sources.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Returns the calls of a message that have a result, under the ids of the window.
    fn kept_calls(&self, place: usize, message: &WindowMessage, ids: &mut Ids) -> Vec<ToolCall> {
        let calls = message.message.tool_calls.iter().enumerate();
        let answered = calls.filter(|(index, _)| self.results.contains_key(&(place, *index)));
        let named = answered.map(|(index, call)| {
            let id = ids.give((place, index), &call.id);
            ToolCall { id, name: call.name.clone(), arguments: call.arguments.clone() }
        });
        named.collect()
    }

    /// Returns the results in `source` of the calls of the message at `place`.
    fn results_for(
        &self,
        place: usize,
        source: usize,
        message: &WindowMessage,
        ids: &Ids,
    ) -> Vec<ToolResult> {
        let results = message.message.tool_results.iter().enumerate();
        let own = results.filter_map(|(index, result)| {
            let call = self.calls.get(&(source, index)).filter(|call| call.0 == place)?;
            Some(ToolResult { call_id: ids.of(*call, &result.call_id), ..result.clone() })
        });
        own.collect()
    }
}

/// The ids of the window.
#[derive(Default)]
struct Ids {
    taken: HashSet<String>,
    given: HashMap<CallAt, String>,
    /// The last number at the end of each id, so that many repetitions take no quadratic time.
    numbers: HashMap<String, u64>,
}

impl Ids {
    fn give(&mut self, call: CallAt, stored: &str) -> String {
        let known = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
        let base: String =
            stored.chars().take(ID_CHARS_MAX).map(|char| if known(char) { char } else { '_' }).collect();
        let base = if base.is_empty() { "call".to_owned() } else { base };
        let mut id = base.clone();
        let number = self.numbers.entry(base.clone()).or_insert(1);
        while !self.taken.insert(id.clone()) {
            *number += 1;
            let end = format!("-{number}");
            id = format!("{}{end}", &base[..base.len().min(ID_CHARS_MAX - end.len())]);
        }
        if id != stored {
            self.given.insert(call, id.clone());
        }
        id
    }

    fn of(&self, call: CallAt, stored: &str) -> String {
        self.given.get(&call).map_or_else(|| stored.to_owned(), Clone::clone)
    }
}

/// Returns a message with these calls and no results, or `None` if nothing remains.
fn without_results(message: &WindowMessage, calls: Vec<ToolCall>) -> Option<WindowMessage> {
    let original = &*message.message;
    let silent = original.text.trim().is_empty() && original.blobs.is_empty();
    if calls.is_empty() && (silent || original.role == Role::Tool) {
        return None;
    }
    if original.tool_results.is_empty() && original.tool_calls == calls {
        return Some(message.clone());
    }
    Some(message.clone().with_message(with_parts(original, calls, Vec::new())))
}

/// Returns a message with these results. With `whole`, it keeps the text and the files of the message.
fn result_message(message: &WindowMessage, results: Vec<ToolResult>, whole: bool) -> WindowMessage {
    let original = &*message.message;
    let role = if original.role == Role::User { Role::User } else { Role::Tool };
    if whole && role == original.role && results == original.tool_results {
        return message.clone();
    }
    let mut copy: ChatMessage = with_parts(original, Vec::new(), results);
    copy.role = role;
    if !whole {
        copy.text = String::new();
        copy.blobs = Vec::new();
    }
    message.clone().with_message(copy)
}

#[cfg(test)]
mod tests;
