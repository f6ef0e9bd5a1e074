//! Defects in the handling of unexpected text.

use larder_kernel::ChatMessage;

/// Cuts the text at NUL, as a C program would.
pub(super) fn cut_at_nul(message: &mut ChatMessage) {
    if let Some(at) = message.text.find('\0') {
        message.text.truncate(at);
    }
}

/// Removes non-ASCII characters.
pub(super) fn strip(message: &mut ChatMessage) {
    message.text.retain(|letter| letter.is_ascii());
}

/// Drops text that does not fit into a 64 KiB column.
pub(super) fn drop_large(message: &mut ChatMessage) {
    if message.text.len() > 64 << 10 {
        message.text.clear();
    }
}
