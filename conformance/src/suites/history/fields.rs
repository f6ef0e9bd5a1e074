//! Fields × values: every field of a message reads back exactly, by every method that returns messages.

use larder_kernel::limits::BATCH_MESSAGES_MAX;
use larder_kernel::{
    AgentId, AgentRole, BlobKey, BlobRef, ChatMessage, HistoryEventKind, MessageFilter, MessageUpdate,
    Replacement, Seq, ToolCall, ToolResult,
};

use super::support::{append, bodies, last, next, run, say, thread};
use crate::case::{CaseResult, implemented};
use crate::context::Context;
use crate::expect;
use crate::suites::values::{TEXTS, metadata, same};

/// A field, and a function that sets it to a text.
type Row = (&'static str, fn(ChatMessage, &str) -> CaseResult<ChatMessage>);

/// The fields that store text.
const FIELDS: &[Row] = &[
    ("text", |_, text| Ok(ChatMessage::user(text))),
    ("tool_calls.id", |message, text| Ok(message.with_tool_call(ToolCall::new(text, "n", "{}")))),
    ("tool_calls.name", |message, text| Ok(message.with_tool_call(ToolCall::new("1", text, "{}")))),
    ("tool_calls.arguments", |message, text| Ok(message.with_tool_call(ToolCall::new("1", "n", text)))),
    ("tool_results.call_id", |message, text| Ok(message.with_tool_results([ToolResult::new(text, "")]))),
    ("tool_results.content", |message, text| Ok(message.with_tool_results([ToolResult::new("1", text)]))),
    ("blobs.content_type", |message, text| {
        Ok(message.with_blob(BlobRef::new(BlobKey::new("key")?).with_content_type(text.to_owned())))
    }),
    ("author.agent", |message, text| Ok(message.with_author(AgentId::new(text)?, None))),
    ("author.role", |message, text| {
        Ok(message.with_author(AgentId::new("agent")?, Some(AgentRole::new(text)?)))
    }),
    ("run", |message, text| Ok(message.with_run(run(text)?))),
];

/// Returns a message for each field and each value.
fn written() -> CaseResult<Vec<ChatMessage>> {
    let mut written = Vec::new();
    for (field, set) in FIELDS {
        for text in TEXTS {
            written.push(set(ChatMessage::assistant(*field), text)?);
        }
    }
    for (number, metadata) in metadata().into_iter().enumerate() {
        let count = u32::try_from(number).unwrap_or_default();
        written.push(ChatMessage::user("metadata").with_metadata(metadata).with_token_count(count));
    }
    expect::that(written.len() <= BATCH_MESSAGES_MAX, "one batch of messages", written.len())?;
    Ok(written)
}

/// HIST-001.
pub(super) async fn every_field_reads_back_by_every_method(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("fields")?, written()?);
    append(&*stores.a, &thread, written.clone()).await?;
    let count = written.len();
    let by_offset = stores.b.get_messages(&thread, 0, count).await;
    let reads = [
        ("get_messages", by_offset),
        ("tail", stores.b.tail(&thread, None, count).await),
        ("tail_matching", stores.b.tail_matching(&thread, &MessageFilter::new(), None, count).await),
        ("page_after", stores.b.page_after(&thread, Seq::ZERO, count).await),
    ];
    for (method, read) in reads {
        if let Some(found) = implemented(read)? {
            same(method, &bodies(&found), &written)?;
        }
    }
    Ok(())
}

/// HIST-081.
pub(super) async fn events_carry_every_field(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("fields")?, written()?);
    let mut live = stores.b.subscribe(&thread, Seq::ZERO).await?;
    append(&*stores.a, &thread, written.clone()).await?;
    let mut backlog = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for events in [&mut live, &mut backlog] {
        for expected in &written {
            match next(events, "with a message").await?.kind {
                HistoryEventKind::Appended { message, .. } => {
                    expect::equal("the event's message", &*message, expected)?;
                }
                other => return Err(expect::broken("an appended message", format!("{other:?}"))),
            }
        }
    }
    Ok(())
}

/// HIST-040.
pub(super) async fn a_fork_keeps_every_field(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target, written) = (thread("fields")?, thread("fork")?, written()?);
    append(&*stores.a, &source, written.clone()).await?;
    stores.a.fork(&source, &target, None, None).await?;
    same("the fork", &bodies(&stores.b.get_messages(&target, 0, written.len()).await?), &written)
}

/// HIST-050.
pub(super) async fn a_replacement_keeps_every_field(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("fields")?, written()?);
    say(&*stores.a, &thread, &["old"]).await?;
    let up_to = last(&*stores.a, &thread).await?;
    stores.a.replace(&thread, Replacement::new(up_to, written.clone())).await?;
    same("the thread", &bodies(&stores.b.get_messages(&thread, 0, written.len()).await?), &written)
}

/// HIST-140.
pub(super) async fn an_update_keeps_every_field(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("fields")?, written()?);
    append(&*stores.a, &thread, vec![ChatMessage::user("old"); written.len()]).await?;
    let old = stores.b.get_messages(&thread, 0, written.len()).await?;
    for (stored, message) in old.iter().zip(&written) {
        stores.a.update(&thread, MessageUpdate::of(stored, message.clone())).await?;
    }
    same("the thread", &bodies(&stores.b.get_messages(&thread, 0, written.len()).await?), &written)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::suites::values::fields_of;

    #[test]
    fn every_field_of_a_message_has_a_row() {
        let full = FIELDS.iter().fold(ChatMessage::user(""), |message, (_, set)| set(message, "x").unwrap());
        let full = full.with_metadata(metadata().remove(0)).with_token_count(1);
        let mut expected: BTreeSet<String> =
            FIELDS.iter().map(|(field, _)| field.split('.').next().unwrap().to_owned()).collect();
        // Other cases cover these.
        expected.extend(["role", "created_at", "metadata", "token_count"].map(str::to_owned));
        assert_eq!(fields_of(&full), expected);
    }
}
