//! Tool calls and their results belong together, in a window as in the thread.

use std::collections::HashSet;

use larder_kernel::{ChatMessage, WindowMessage};

/// Takes out results whose call the messages lack, and calls whose results they lack: a turn is stored whole, so no call
/// is still running when the next one begins. A message that has nothing left goes.
pub(crate) fn paired(messages: Vec<WindowMessage>) -> Vec<WindowMessage> {
    let mut open = HashSet::new();
    let mut forward = Vec::with_capacity(messages.len());
    for message in messages {
        let known = |id: &str| open.contains(id);
        let kept = cut(message, |_| true, known);
        if let Some(message) = kept {
            for result in &message.message.tool_results {
                open.remove(&result.call_id);
            }
            open.extend(message.message.tool_calls.iter().map(|call| call.id.clone()));
            forward.push(message);
        }
    }
    let mut answered = HashSet::new();
    let mut backward = Vec::with_capacity(forward.len());
    for message in forward.into_iter().rev() {
        let kept = cut(message, |id| answered.contains(id), |_| true);
        if let Some(message) = kept {
            for call in &message.message.tool_calls {
                answered.remove(&call.id);
            }
            answered.extend(message.message.tool_results.iter().map(|result| result.call_id.clone()));
            backward.push(message);
        }
    }
    backward.reverse();
    backward
}

/// Keeps the calls and results that pass; `None` where that leaves nothing.
fn cut(
    message: WindowMessage,
    keep_call: impl Fn(&str) -> bool,
    keep_result: impl Fn(&str) -> bool,
) -> Option<WindowMessage> {
    let whole = &message.message;
    let all_calls = whole.tool_calls.iter().all(|call| keep_call(&call.id));
    let all_results = whole.tool_results.iter().all(|result| keep_result(&result.call_id));
    if all_calls && all_results {
        return Some(message);
    }
    let mut rest: ChatMessage = (**whole).clone();
    rest.tool_calls.retain(|call| keep_call(&call.id));
    rest.tool_results.retain(|result| keep_result(&result.call_id));
    rest.token_count = None;
    let empty = rest.text.is_empty() && rest.blobs.is_empty();
    let nothing = empty && rest.tool_calls.is_empty() && rest.tool_results.is_empty();
    (!nothing).then(|| message.with_message(rest))
}
