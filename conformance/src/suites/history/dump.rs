//! A dump of a namespace's conversations, and sample data.

use larder_kernel::{
    AppendOptions, ChatMessage, HistoryProvider, HistoryProviderExt, IdempotencyKey, Metadata, PageRequest,
    Replacement, RunId, Seq, Thread, ThreadInfo, ToolCall, ToolResult,
};
use serde_json::{Value, json};

use crate::case::{CaseResult, Failure};

/// The number of threads in a page: small, so that paging is compared as well.
const PAGE_THREADS: usize = 3;

/// Reads all data through the public calls: each thread with its counts and its messages.
pub(crate) async fn dump(store: &dyn HistoryProvider) -> CaseResult<Value> {
    let mut threads = Vec::new();
    for info in threads_of(store).await? {
        let messages = store.all_messages(&info.thread).await?;
        threads.push(json!({ "info": json(&info)?, "messages": json(&messages)? }));
    }
    Ok(Value::Array(threads))
}

async fn threads_of(store: &dyn HistoryProvider) -> CaseResult<Vec<ThreadInfo>> {
    let mut threads = Vec::new();
    let mut request = PageRequest::first(PAGE_THREADS);
    loop {
        let page = store.list_threads(None, request).await?;
        threads.extend(page.items);
        let Some(next) = page.next else { return Ok(threads) };
        request = PageRequest::after(next, PAGE_THREADS);
    }
}

fn json(value: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(value).map_err(|error| Failure::Engine(error.to_string()))
}

/// Writes a few threads whose ids and texts contain `marker`: with runs, tools, a replacement, holes, a fork
/// and an idempotency key.
pub(crate) async fn populate(store: &dyn HistoryProvider, marker: &str) -> CaseResult {
    let (agent, other) = (format!("agent {marker}"), format!("other {marker}"));
    let first = Thread::new(&agent, format!("first {marker}"))?;
    let second = Thread::new(&agent, format!("second {marker}"))?;
    let third = Thread::new(&other, format!("first {marker}"))?;
    let copy = Thread::new(&other, format!("copy {marker}"))?;
    let cleared = Thread::new(&other, format!("cleared {marker}"))?;
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
    store.clear_run(&first, &gone).await?;
    for thread in [&second, &third, &cleared] {
        let batch = vec![ChatMessage::user(text("one")), ChatMessage::user(text("two"))];
        store.append_many(thread, batch, AppendOptions::default()).await?;
    }
    let summary = vec![ChatMessage::system(text("summary")), ChatMessage::system(text("more of it"))];
    let seen = store.thread_info(&second).await?.last;
    store.replace(&second, Replacement::new(Seq::new(1), summary).with_seen(seen)).await?;
    store.fork(&first, &copy, None).await?;
    store.clear(&cleared).await?;
    Ok(())
}
