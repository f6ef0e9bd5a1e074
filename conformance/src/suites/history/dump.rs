//! A dump of a namespace's conversations, and sample data.

use larder_kernel::{
    AppendOptions, ChatMessage, HistoryProvider, IdempotencyKey, Metadata, PageRequest, Replacement, RunId,
    Seq, Thread, ThreadInfo, ToolCall, ToolResult,
};
use serde_json::{Value, json};

use super::support::{all, counts};
use crate::case::{CaseResult, Failure, implemented};
use crate::suites::known;

/// The number of threads in a page: small, so that paging is compared as well.
const PAGE_THREADS: usize = 3;

/// Reads all data through the public calls: each thread with its counts and its messages.
pub(crate) async fn dump(store: &dyn HistoryProvider) -> CaseResult<Value> {
    let mut threads = Vec::new();
    let Some(listed) = threads_of(store).await? else { return known_threads(store).await };
    for info in listed {
        let messages = all(store, &info.thread).await?;
        threads.push(json!({ "info": json(&info)?, "messages": json(&messages)? }));
    }
    Ok(Value::Array(threads))
}

async fn threads_of(store: &dyn HistoryProvider) -> CaseResult<Option<Vec<ThreadInfo>>> {
    let mut threads = Vec::new();
    let mut request = PageRequest::first(PAGE_THREADS);
    loop {
        let Some(page) = implemented(store.list_threads(None, request).await)? else { return Ok(None) };
        threads.extend(page.items);
        let Some(next) = page.next else { return Ok(Some(threads)) };
        request = PageRequest::after(next, PAGE_THREADS);
    }
}

/// Reads the threads that the suite writes, from a store that cannot list them yet.
async fn known_threads(store: &dyn HistoryProvider) -> CaseResult<Value> {
    let mut known = Vec::new();
    for threads in known::marked(named) {
        known.extend(threads?);
    }
    for (agent, session) in [("agent", "session"), ("agent", "second"), ("agent", "their"), ("agent", "copy")]
    {
        known.push(Thread::new(agent, session)?);
    }
    for (agent, session) in [("other", "session"), ("their", "session"), ("new", "copy"), ("fresh", "fresh")]
    {
        known.push(Thread::new(agent, session)?);
    }
    let mut threads = Vec::new();
    for thread in known {
        let messages = all(store, &thread).await?;
        if !messages.is_empty() {
            let info = counts(store, &thread).await?;
            threads.push(json!({ "info": json(&info)?, "messages": json(&messages)? }));
        }
    }
    Ok(Value::Array(threads))
}

/// Returns the five threads of a marker.
fn named(marker: &str) -> CaseResult<[Thread; 5]> {
    let (agent, other) = (format!("agent {marker}"), format!("other {marker}"));
    Ok([
        Thread::new(&agent, format!("first {marker}"))?,
        Thread::new(&agent, format!("second {marker}"))?,
        Thread::new(&other, format!("first {marker}"))?,
        Thread::new(&other, format!("copy {marker}"))?,
        Thread::new(&other, format!("cleared {marker}"))?,
    ])
}

fn json(value: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(value).map_err(|error| Failure::Engine(error.to_string()))
}

/// Writes a few threads whose ids and texts contain `marker`: with runs, tools, a replacement, holes, a fork
/// and an idempotency key. The calls of methods that the store does not implement yet are left out.
pub(crate) async fn populate(store: &dyn HistoryProvider, marker: &str) -> CaseResult {
    let [first, second, third, copy, cleared] = named(marker)?;
    let (kept, gone) = (RunId::new(format!("kept {marker}"))?, RunId::new(format!("gone {marker}"))?);
    let text = |what: &str| format!("{what} {marker}");

    let batch = vec![
        ChatMessage::system(text("instructions")),
        ChatMessage::user(text("question")).with_run(kept.clone()),
        ChatMessage::assistant(text("to be cleared")).with_run(gone.clone()),
        ChatMessage::assistant("").with_tool_call(ToolCall::new(
            text("call"),
            text("tool"),
            text("arguments"),
        )),
        ChatMessage::tool([ToolResult::new(text("call"), text("result"))]).with_run(kept),
        ChatMessage::assistant(text("answer"))
            .with_metadata(Metadata::new().with(text("key"), text("value"))),
    ];
    let key = IdempotencyKey::new(text("append"))?;
    store.append_many(&first, batch, AppendOptions::default().with_idempotency_key(key)).await?;
    implemented(store.clear_run(&first, &gone, None).await)?;
    let two = || vec![ChatMessage::user(text("one")), ChatMessage::user(text("two"))];
    let seen = store.append_many(&second, two(), AppendOptions::default()).await?.last;
    for thread in [&third, &cleared] {
        store.append_many(thread, two(), AppendOptions::default()).await?;
    }
    let summary = vec![ChatMessage::system(text("summary")), ChatMessage::system(text("more of it"))];
    let replacement = Replacement::new(Seq::new(1), summary).with_seen(seen);
    implemented(store.replace(&second, replacement).await)?;
    implemented(store.fork(&first, &copy, None, None).await)?;
    implemented(store.clear(&cleared, None).await)?;
    Ok(())
}
