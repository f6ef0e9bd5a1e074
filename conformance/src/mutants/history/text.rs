//! What becomes of text that a store does not expect.

use larder_kernel::ChatMessage;

/// Ends the text where a program in C would.
pub(super) fn cut_at_nul(message: &mut ChatMessage) {
    if let Some(at) = message.text.find('\0') {
        message.text.truncate(at);
    }
}

/// Keeps ASCII alone.
pub(super) fn strip(message: &mut ChatMessage) {
    message.text.retain(|letter| letter.is_ascii());
}

/// Keeps nothing of what does not fit a column of 64 KiB.
pub(super) fn drop_large(message: &mut ChatMessage) {
    if message.text.len() > 64 << 10 {
        message.text.clear();
    }
}
