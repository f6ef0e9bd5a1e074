//! The calls of a transcript that have no result yet.

use std::collections::VecDeque;

use larder_kernel::ChatMessage;

/// The maximum number of messages with open calls that are remembered.
const OPEN_MAX: usize = 1_000;

/// The calls without a result, for results that do not name their call.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenCalls {
    /// The calls of each message, oldest first: id and name.
    messages: VecDeque<Vec<(String, String)>>,
    made: u64,
}

impl OpenCalls {
    /// Returns a new id for a call without one.
    pub(super) fn make_id(&mut self) -> String {
        self.made += 1;
        format!("larder-call-{}", self.made)
    }

    /// Returns the call of a result without an id: the first open call of the newest message that has one,
    /// and of this name, if the result has a name.
    pub(super) fn pair(&mut self, name: Option<&str>) -> Option<String> {
        let named = |call: &(String, String)| name.is_none_or(|name| call.1 == name);
        let newest = self.messages.iter_mut().rev().find(|calls| calls.iter().any(named))?;
        let at = newest.iter().position(named)?;
        Some(newest.remove(at).0)
    }

    /// Ends the nearest open call with this id.
    pub(super) fn close(&mut self, id: &str) {
        for calls in self.messages.iter_mut().rev() {
            if let Some(at) = calls.iter().position(|(known, _)| known == id) {
                calls.remove(at);
                break;
            }
        }
        self.messages.retain(|calls| !calls.is_empty());
    }

    /// Adds the calls of a message that it does not answer itself.
    pub(super) fn open(&mut self, message: &ChatMessage) {
        let answered = |id: &str| message.tool_results.iter().any(|result| result.call_id == id);
        let calls = message.tool_calls.iter().filter(|call| !answered(&call.id));
        let calls: Vec<_> = calls.map(|call| (call.id.clone(), call.name.clone())).collect();
        if !calls.is_empty() {
            self.messages.push_back(calls);
        }
        if self.messages.len() > OPEN_MAX {
            self.messages.pop_front();
        }
    }
}
