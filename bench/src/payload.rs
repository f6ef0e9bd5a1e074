//! Bytes that do not compress, the same in every run.

use bytes::Bytes;
use larder_kernel::random::Random;
use larder_kernel::{ChatMessage, ToolCall, ToolResult};

/// Characters of a message's text.
pub(super) const TEXT_BYTES: usize = 1_000;
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Returns a text of 1,000 characters that a database cannot compress to less than half.
pub(super) fn text(seed: u64) -> String {
    let mut numbers = Random::new(seed);
    let mut text = String::with_capacity(TEXT_BYTES);
    for _ in 0..TEXT_BYTES / 8 {
        for byte in (numbers.draw() >> 32).to_le_bytes().into_iter().take(4) {
            text.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX_DIGITS[usize::from(digit)])));
        }
    }
    text
}

/// Returns 9 KB of JSON, as a tool returns it.
pub(super) fn json(seed: u64) -> String {
    let mut numbers = Random::new(seed);
    let mut text = String::with_capacity(9_100);
    for place in 0.. {
        if text.len() >= 9_000 {
            break;
        }
        let (celsius, sky) = (
            numbers.draw() % 40,
            ["clear", "rain", "snow", "fog"][usize::try_from(numbers.draw() % 4).unwrap_or(0)],
        );
        text += &format!(
            "{{\"city\":\"city {place}\",\"celsius\":{celsius},\"sky\":\"{sky}\",\"wind\":null}},\n"
        );
    }
    text
}

/// Returns messages of 1 KB.
pub(super) fn messages(first: u64, count: u32) -> Vec<ChatMessage> {
    (first..first + u64::from(count)).map(|seed| ChatMessage::user(text(seed))).collect()
}

/// Returns messages of turns, each a question, a tool call, its result and an answer.
pub(super) fn turns(first: u64, count: u32) -> Vec<ChatMessage> {
    let message = |seed: u64| {
        let call = format!("call-{}", seed / 4);
        match seed % 4 {
            0 => ChatMessage::user(text(seed)),
            1 => ChatMessage::assistant("").with_tool_call(ToolCall::new(
                call,
                "search",
                r#"{"query": "larder"}"#,
            )),
            2 => ChatMessage::tool([ToolResult::new(call, text(seed))]),
            _ => ChatMessage::assistant(text(seed)),
        }
    };
    (first..first + u64::from(count)).map(message).collect()
}

/// Returns the bytes of a blob.
pub(super) fn blob(mebibytes: u32) -> Bytes {
    let mut numbers = Random::new(1);
    let words = usize::try_from(mebibytes).unwrap_or(usize::MAX).saturating_mul(1024 * 1024 / 8);
    let mut bytes = Vec::with_capacity(words * 8);
    for _ in 0..words {
        bytes.extend_from_slice(&numbers.draw().to_le_bytes());
    }
    Bytes::from(bytes)
}
