//! Which messages are a human's.

use larder_kernel::{ChatMessage, Role};

/// Whether a message is a human turn: results that come in the user's name are not.
pub(crate) fn is_human_turn(message: &ChatMessage) -> bool {
    message.role == Role::User && message.tool_results.is_empty()
}
