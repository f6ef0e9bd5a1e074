//! Detection of human messages.

use larder_kernel::{ChatMessage, Role};

/// Returns `true` if a message is a human turn. Tool results with the role of the user are not.
pub(crate) fn is_human_turn(message: &ChatMessage) -> bool {
    message.role == Role::User && message.tool_results.is_empty()
}
