//! The rules that model providers set for a window. Tests of other packages include this file too.

use std::collections::HashSet;

use larder_kernel::{Role, WindowMessage};

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks the rules that OpenAI and Anthropic have in common: each result directly follows its call, no call
/// stays open, a call has one result, and an id occurs once.
pub(crate) fn valid_for_providers(messages: &[WindowMessage]) -> Result<(), String> {
    let (mut open, mut ids) = (Vec::<&str>::new(), HashSet::new());
    for (place, WindowMessage { message, .. }) in messages.iter().enumerate() {
        let is_result = !message.tool_results.is_empty();
        ensure(open.is_empty() || is_result, || format!("{open:?} stay open at {place}"))?;
        ensure(!is_result || matches!(message.role, Role::User | Role::Tool), || {
            format!("a result of another role at {place}")
        })?;
        for result in &message.tool_results {
            let asked = open.iter().position(|id| *id == result.call_id);
            let asked = asked.ok_or_else(|| format!("result {} at {place} without a call", result.call_id));
            open.swap_remove(asked?);
        }
        let alone = message.text.trim().is_empty() || open.is_empty();
        ensure(!is_result || alone, || format!("text between results at {place}"))?;
        ensure(message.tool_calls.is_empty() || (message.role == Role::Assistant && !is_result), || {
            format!("a call at {place}")
        })?;
        for call in &message.tool_calls {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            let named = (1..=40).contains(&call.id.len()) && call.id.bytes().all(known);
            ensure(named && ids.insert(&*call.id), || format!("id {:?} at {place}", call.id))?;
            open.push(&call.id);
        }
    }
    ensure(open.is_empty(), || format!("{open:?} stay open at the end"))
}
