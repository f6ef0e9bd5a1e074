//! The output of a window.

use std::fmt::Write as _;

use larder::context::WindowExplanation;
use larder::tokens::TokenCounter;
use larder_kernel::{ChatMessage, Origin, WindowMessage, check};
use serde_json::{Value, json};

use crate::thread::printable;

pub(super) fn text(explained: &WindowExplanation, explain: bool) -> String {
    let mut text = String::new();
    for message in &explained.window.messages {
        show(&mut text, message);
    }
    if explain {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&explained.to_string());
    }
    text.truncate(text.trim_end().len());
    text
}

/// Writing to a string cannot fail.
fn show(to: &mut String, WindowMessage { origin, message, .. }: &WindowMessage) {
    let place = match origin {
        Origin::Stored(seq) => format!("#{seq}"),
        Origin::Summary(up_to) => format!("summary up to #{up_to}"),
        _ => "injected".to_owned(),
    };
    let _ = write!(to, "{place} {}:", message.role.as_str());
    said(to, &message.text);
    for call in &message.tool_calls {
        let _ = write!(to, "    call {} {}", printable(&call.id), printable(&call.name));
        said(to, &call.arguments);
    }
    for result in &message.tool_results {
        let failed = if result.is_error { " failed" } else { "" };
        let _ = write!(to, "    result of {}{failed}:", printable(&result.call_id));
        said(to, &result.content);
    }
    for blob in &message.blobs {
        let _ = writeln!(to, "    blob {}", printable(blob.key.as_str()));
    }
}

/// Writes the text, with further lines below the first.
fn said(to: &mut String, text: &str) {
    for (at, line) in text.split('\n').enumerate() {
        let before = if at > 0 {
            "    "
        } else if line.is_empty() {
            ""
        } else {
            " "
        };
        let _ = writeln!(to, "{before}{}", printable(line));
    }
}

pub(super) fn json_text(explained: &WindowExplanation, explain: bool) -> Result<String, String> {
    let cannot = |error: serde_json::Error| format!("cannot write JSON: {error}");
    let mut messages = Vec::with_capacity(explained.window.messages.len());
    for message in &explained.window.messages {
        messages.push(seen(message).map_err(cannot)?);
    }
    let mut document = json!({"messages": messages, "size": explained.result});
    if explain {
        document["explanation"] = serde_json::to_value(explained).map_err(cannot)?;
    }
    serde_json::to_string_pretty(&document).map_err(cannot)
}

/// Returns the origin of the message, and the part of it that a model receives.
fn seen(WindowMessage { origin, message, .. }: &WindowMessage) -> serde_json::Result<Value> {
    let mut seen = match origin {
        Origin::Stored(seq) => json!({"origin": "stored", "seq": seq}),
        Origin::Summary(up_to) => json!({"origin": "summary", "up_to": up_to}),
        _ => json!({"origin": "injected"}),
    };
    seen["role"] = serde_json::to_value(message.role)?;
    seen["text"] = Value::from(message.text.as_str());
    if !message.tool_calls.is_empty() {
        seen["tool_calls"] = serde_json::to_value(&message.tool_calls)?;
    }
    if !message.tool_results.is_empty() {
        seen["tool_results"] = serde_json::to_value(&message.tool_results)?;
    }
    if !message.blobs.is_empty() {
        seen["blobs"] = serde_json::to_value(&message.blobs)?;
    }
    Ok(seen)
}

/// Puts a system prompt at the start.
pub(super) fn begin_with(explained: &mut WindowExplanation, prompt: &str, counter: &dyn TokenCounter) {
    let message = ChatMessage::system(prompt);
    explained.result.messages += 1;
    explained.result.bytes += check::size(message.size_bytes());
    explained.result.tokens = explained.result.tokens.saturating_add(counter.count_message(&message));
    explained.window.messages.insert(0, WindowMessage::injected(message));
}
