//! Invalid input: each kind is rejected with its field and limit, and changes nothing (`STORE-010`).

use std::fmt::Debug;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::limits::{
    BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, CONTENT_TYPE_BYTES_MAX, ID_BYTES_MAX, JSON_DEPTH_MAX,
    MESSAGE_BYTES_MAX, MESSAGE_FILTER_TERMS_MAX, MESSAGE_PARTS_MAX, PAGE_ITEMS_MAX, TTL_MS_MAX,
};
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobKey, BlobRef, ChatMessage, Contract, HistoryProvider,
    IdempotencyKey, MessageFilter, Metadata, PageRequest, Replacement, Result, RunId, Seq, SessionId, Thread,
    ToolCall, ToolResult, Ttl,
};

use super::dump::{dump, populate};
use crate::case::{Case, CaseResult, Level};
use crate::context::Context;
use crate::expect;

/// The result of an invalid call; on success, the text of its result.
type Answer = Result<String>;

/// Makes one invalid call, with a store and a thread that contains messages.
type Call = for<'a> fn(&'a dyn HistoryProvider, &'a Thread) -> BoxFuture<'a, Answer>;

/// One kind of invalid input.
#[derive(Clone, Copy)]
struct Bad {
    name: &'static str,
    field: &'static str,
    limit: Option<usize>,
    call: Call,
}

const fn bad(name: &'static str, field: &'static str, limit: Option<usize>, call: Call) -> Bad {
    Bad { name, field, limit, call }
}

/// Returns one case for each kind of invalid input.
pub(super) fn cases() -> Vec<Case> {
    let all = batches()
        .into_iter()
        .chain(parts())
        .chain(texts())
        .chain(replacements())
        .chain(limits())
        .chain(times());
    all.chain(ids()).map(case).collect()
}

fn case(bad: Bad) -> Case {
    let name = format!("refuses_{}", bad.name);
    let run = move |context: Context| async move { refused(&context, bad).await };
    Case::new(Contract::History, "STORE-010", name, run).at_level(Level::Hostile)
}

async fn refused(context: &Context, bad: Bad) -> CaseResult {
    let stores = context.history().await?;
    populate(&*stores.a, "bad input").await?;
    let thread = Thread::new("agent bad input", "first bad input")?;
    let before = dump(&*stores.a).await?;
    let refusal = expect::invalid(bad.name, (bad.call)(&*stores.a, &thread).await, bad.field)?;
    let limit = bad.limit.map(larder_kernel::check::size);
    expect::equal("the limit named", &refusal.limit(), &limit)?;
    expect::equal("what the store holds", &dump(&*stores.b).await?, &before)
}

fn told<T: Debug>(result: Result<T>) -> Answer {
    result.map(|value| format!("{value:?}"))
}

/// Appends a batch.
fn append<'a>(
    store: &'a dyn HistoryProvider,
    thread: &'a Thread,
    batch: Vec<ChatMessage>,
) -> BoxFuture<'a, Answer> {
    async move { told(store.append_many(thread, batch, AppendOptions::default()).await) }.boxed()
}

/// Appends a valid message and an invalid one to a thread that contains messages.
fn one<'a>(
    store: &'a dyn HistoryProvider,
    thread: &'a Thread,
    message: ChatMessage,
) -> BoxFuture<'a, Answer> {
    append(store, thread, vec![ChatMessage::user("good"), message])
}

fn replace<'a>(
    store: &'a dyn HistoryProvider,
    thread: &'a Thread,
    replacement: Replacement,
) -> BoxFuture<'a, Answer> {
    async move { told(store.replace(thread, replacement).await) }.boxed()
}

/// Returns the result for an id whose constructor rejects it, so that no store receives it.
fn made<'a, T: Debug>(result: Result<T>) -> BoxFuture<'a, Answer> {
    std::future::ready(told(result)).boxed()
}

fn x(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn batches() -> Vec<Bad> {
    vec![
        bad("an_append_of_nothing", "messages", Some(1), |s, t| append(s, t, Vec::new())),
        bad("an_append_to_a_new_thread_of_nothing", "messages", Some(1), |s, _| {
            async move {
                let fresh = Thread::new("new", "new")?;
                told(s.append_many(&fresh, Vec::new(), AppendOptions::default()).await)
            }
            .boxed()
        }),
        bad("a_batch_of_too_many_messages", "messages", Some(BATCH_MESSAGES_MAX), |s, t| {
            append(s, t, vec![ChatMessage::user("m"); BATCH_MESSAGES_MAX + 1])
        }),
        bad("a_batch_of_too_many_bytes", "messages.bytes", Some(BATCH_BYTES_MAX), |s, t| {
            let mut batch = vec![ChatMessage::user(x(MESSAGE_BYTES_MAX)); 4];
            batch.push(ChatMessage::user("x"));
            append(s, t, batch)
        }),
        bad("a_batch_with_a_key_and_too_many_messages", "messages", Some(BATCH_MESSAGES_MAX), |s, t| {
            async move {
                let key = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k")?);
                told(s.append_many(t, vec![ChatMessage::user("m"); BATCH_MESSAGES_MAX + 1], key).await)
            }
            .boxed()
        }),
    ]
}

fn parts() -> Vec<Bad> {
    const PARTS: Option<usize> = Some(MESSAGE_PARTS_MAX);
    vec![
        bad("too_many_tool_calls", "message.tool_calls", PARTS, |s, t| {
            let mut message = ChatMessage::assistant("");
            message.tool_calls = vec![ToolCall::new("c", "t", "{}"); MESSAGE_PARTS_MAX + 1];
            one(s, t, message)
        }),
        bad("too_many_tool_results", "message.tool_results", PARTS, |s, t| {
            one(s, t, ChatMessage::tool(vec![ToolResult::new("c", "r"); MESSAGE_PARTS_MAX + 1]))
        }),
        bad("too_many_blobs", "message.blobs", PARTS, |s, t| {
            let Ok(key) = BlobKey::new("k") else { return made::<()>(Ok(())) };
            let mut message = ChatMessage::user("");
            message.blobs =
                vec![BlobRef { key, content_type: None, size_bytes: None }; MESSAGE_PARTS_MAX + 1];
            one(s, t, message)
        }),
        bad("a_content_type_too_long", "message.blobs.content_type", Some(CONTENT_TYPE_BYTES_MAX), |s, t| {
            let Ok(key) = BlobKey::new("k") else { return made::<()>(Ok(())) };
            let content_type = Some(x(CONTENT_TYPE_BYTES_MAX + 1));
            one(s, t, ChatMessage::user("").with_blob(BlobRef { key, content_type, size_bytes: None }))
        }),
        bad("an_empty_call_id", "message.tool_calls.id", Some(1), |s, t| {
            one(s, t, ChatMessage::assistant("").with_tool_call(ToolCall::new("", "t", "{}")))
        }),
        bad("a_call_id_too_long", "message.tool_calls.id", Some(ID_BYTES_MAX), |s, t| {
            one(
                s,
                t,
                ChatMessage::assistant("").with_tool_call(ToolCall::new(x(ID_BYTES_MAX + 1), "t", "{}")),
            )
        }),
        bad("a_call_id_with_nul", "message.tool_calls.id", None, |s, t| {
            one(s, t, ChatMessage::assistant("").with_tool_call(ToolCall::new("a\0", "t", "{}")))
        }),
        bad("an_empty_tool_name", "message.tool_calls.name", Some(1), |s, t| {
            one(s, t, ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "", "{}")))
        }),
        bad("a_tool_name_too_long", "message.tool_calls.name", Some(ID_BYTES_MAX), |s, t| {
            one(
                s,
                t,
                ChatMessage::assistant("").with_tool_call(ToolCall::new("c", x(ID_BYTES_MAX + 1), "{}")),
            )
        }),
        bad("a_tool_name_with_nul", "message.tool_calls.name", None, |s, t| {
            one(s, t, ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "\0", "{}")))
        }),
        bad("an_empty_result_id", "message.tool_results.call_id", Some(1), |s, t| {
            one(s, t, ChatMessage::tool([ToolResult::new("", "r")]))
        }),
        bad("a_result_id_too_long", "message.tool_results.call_id", Some(ID_BYTES_MAX), |s, t| {
            one(s, t, ChatMessage::tool([ToolResult::new(x(ID_BYTES_MAX + 1), "r")]))
        }),
        bad("a_result_id_with_nul", "message.tool_results.call_id", None, |s, t| {
            one(s, t, ChatMessage::tool([ToolResult::new("a\0b", "r")]))
        }),
    ]
}

fn nested(levels: usize) -> Metadata {
    let inner = (1..levels).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    Metadata::new().with("k", inner)
}

fn texts() -> Vec<Bad> {
    const MESSAGE: Option<usize> = Some(MESSAGE_BYTES_MAX);
    vec![
        bad("a_text_too_large", "message", MESSAGE, |s, t| {
            one(s, t, ChatMessage::user(x(MESSAGE_BYTES_MAX + 1)))
        }),
        bad("a_message_too_large_in_all_its_parts", "message", MESSAGE, |s, t| {
            let call = ToolCall::new("c", "t", x(MESSAGE_BYTES_MAX / 2));
            one(s, t, ChatMessage::user(x(MESSAGE_BYTES_MAX / 2 - 1)).with_tool_call(call))
        }),
        bad("metadata_too_large", "message", MESSAGE, |s, t| {
            one(s, t, ChatMessage::user("").with_metadata(Metadata::new().with("k", x(MESSAGE_BYTES_MAX))))
        }),
        bad("metadata_too_deep", "message.metadata", Some(JSON_DEPTH_MAX), |s, t| {
            one(s, t, ChatMessage::user("").with_metadata(nested(JSON_DEPTH_MAX + 1)))
        }),
        bad("nul_in_a_metadata_key", "message.metadata", None, |s, t| {
            one(s, t, ChatMessage::user("").with_metadata(Metadata::new().with("\0", 1)))
        }),
        bad("nul_in_a_metadata_string", "message.metadata", None, |s, t| {
            let metadata = Metadata::new().with("k", serde_json::json!({"a": ["b\0"]}));
            one(s, t, ChatMessage::user("").with_metadata(metadata))
        }),
    ]
}

fn replacements() -> Vec<Bad> {
    vec![
        bad("a_replacement_that_saw_less_than_it_replaces", "seen", None, |s, t| {
            let messages = vec![ChatMessage::user("s")];
            replace(s, t, Replacement::new(Seq::new(3), messages).with_seen(Seq::new(2)))
        }),
        bad("a_replacement_below_0", "up_to", None, |s, t| {
            replace(s, t, Replacement::new(Seq::new(-1), vec![ChatMessage::user("s")]).with_seen(Seq::new(7)))
        }),
        bad("a_replacement_below_everything", "up_to", None, |s, t| {
            replace(s, t, Replacement::new(Seq::MIN, Vec::new()))
        }),
        bad("a_replacement_of_too_many_messages", "messages", Some(BATCH_MESSAGES_MAX), |s, t| {
            let messages = vec![ChatMessage::user("s"); BATCH_MESSAGES_MAX + 1];
            replace(s, t, Replacement::new(Seq::new(1), messages).with_seen(Seq::new(7)))
        }),
        bad("a_replacement_of_too_many_bytes", "messages.bytes", Some(BATCH_BYTES_MAX), |s, t| {
            let messages = vec![ChatMessage::user(x(MESSAGE_BYTES_MAX)); 5];
            replace(s, t, Replacement::new(Seq::new(1), messages).with_seen(Seq::new(7)))
        }),
        bad("a_replacement_with_a_message_too_large", "message", Some(MESSAGE_BYTES_MAX), |s, t| {
            let messages = vec![ChatMessage::user("s"), ChatMessage::user(x(MESSAGE_BYTES_MAX + 1))];
            replace(s, t, Replacement::new(Seq::new(1), messages).with_seen(Seq::new(7)))
        }),
    ]
}

/// Returns a filter with this number of agents.
fn names(agents: usize) -> Result<MessageFilter> {
    (0..agents).try_fold(MessageFilter::new(), |filter, number| {
        Ok(filter.include_agent(AgentId::new(number.to_string())?))
    })
}

fn limits() -> Vec<Bad> {
    const ITEMS: Option<usize> = Some(PAGE_ITEMS_MAX);
    vec![
        bad("a_window_too_long", "limit", ITEMS, |s, t| {
            async move { told(s.get_messages(t, 0, PAGE_ITEMS_MAX + 1).await) }.boxed()
        }),
        bad("a_window_of_all_that_counts", "limit", ITEMS, |s, t| {
            async move { told(s.get_messages(t, u64::MAX, usize::MAX).await) }.boxed()
        }),
        bad("a_tail_too_long", "limit", ITEMS, |s, t| {
            async move { told(s.tail(t, None, PAGE_ITEMS_MAX + 1).await) }.boxed()
        }),
        bad("a_tail_before_a_number_too_long", "limit", ITEMS, |s, t| {
            async move { told(s.tail(t, Some(Seq::new(2)), usize::MAX).await) }.boxed()
        }),
        bad("a_filtered_tail_too_long", "limit", ITEMS, |s, t| {
            let filter = MessageFilter::new().include_agent(t.agent.clone());
            async move { told(s.tail_matching(t, &filter, None, PAGE_ITEMS_MAX + 1).await) }.boxed()
        }),
        bad("a_filter_of_too_many_agents", "filter", Some(MESSAGE_FILTER_TERMS_MAX), |s, t| {
            async move { told(s.tail_matching(t, &names(MESSAGE_FILTER_TERMS_MAX + 1)?, None, 1).await) }
                .boxed()
        }),
        bad("a_filter_of_too_many_agents_and_roles", "filter", Some(MESSAGE_FILTER_TERMS_MAX), |s, t| {
            let roles = async move {
                let filter = names(MESSAGE_FILTER_TERMS_MAX)?.exclude_role(AgentRole::new("one more")?);
                told(s.tail_matching(t, &filter, Some(Seq::new(3)), 0).await)
            };
            roles.boxed()
        }),
        bad("a_page_too_long", "limit", ITEMS, |s, t| {
            async move { told(s.page_after(t, Seq::MIN, PAGE_ITEMS_MAX + 1).await) }.boxed()
        }),
        bad("a_window_too_long_of_a_thread_that_is_not_there", "limit", ITEMS, |s, _| {
            async move { told(s.get_messages(&Thread::new("no", "where")?, 0, PAGE_ITEMS_MAX + 1).await) }
                .boxed()
        }),
        bad("a_list_of_threads_too_long", "limit", ITEMS, |s, _| {
            async move { told(s.list_threads(None, PageRequest::first(PAGE_ITEMS_MAX + 1)).await) }.boxed()
        }),
        bad("a_list_of_an_agents_threads_too_long", "limit", ITEMS, |s, t| {
            let page = PageRequest::after(t.clone(), usize::MAX);
            async move { told(s.list_threads(Some(&t.agent), page).await) }.boxed()
        }),
    ]
}

const NO_TIME: Duration = Duration::from_micros(999);
const TOO_LONG: Duration = Duration::from_millis(TTL_MS_MAX + 1);

fn append_for<'a>(store: &'a dyn HistoryProvider, thread: &'a Thread, ttl: Ttl) -> BoxFuture<'a, Answer> {
    let options = AppendOptions::default().with_ttl(ttl);
    async move { told(store.append_many(thread, vec![ChatMessage::user("x")], options).await) }.boxed()
}

fn set_ttl<'a>(store: &'a dyn HistoryProvider, thread: &'a Thread, ttl: Ttl) -> BoxFuture<'a, Answer> {
    async move { told(store.set_ttl(thread, Some(ttl)).await) }.boxed()
}

fn times() -> Vec<Bad> {
    const LEAST: Option<usize> = Some(1);
    let most = usize::try_from(TTL_MS_MAX).ok();
    vec![
        bad("a_time_to_live_of_0", "ttl", LEAST, |s, t| set_ttl(s, t, Ttl::fixed(Duration::ZERO))),
        bad("a_time_to_live_below_1_ms", "ttl", LEAST, |s, t| set_ttl(s, t, Ttl::sliding(NO_TIME))),
        bad("a_time_to_live_over_100_years", "ttl", most, |s, t| set_ttl(s, t, Ttl::fixed(TOO_LONG))),
        bad("a_time_to_live_without_end", "ttl", most, |s, t| set_ttl(s, t, Ttl::sliding(Duration::MAX))),
        bad("an_append_that_lives_0", "ttl", LEAST, |s, t| append_for(s, t, Ttl::fixed(Duration::ZERO))),
        bad("an_append_that_lives_below_1_ms", "ttl", LEAST, |s, t| append_for(s, t, Ttl::sliding(NO_TIME))),
        bad("an_append_that_lives_over_100_years", "ttl", most, |s, t| {
            append_for(s, t, Ttl::fixed(TOO_LONG))
        }),
        bad("an_append_that_lives_without_end", "ttl", most, |s, t| {
            append_for(s, t, Ttl::sliding(Duration::MAX))
        }),
    ]
}

macro_rules! bad_ids {
    ($($name:literal, $field:literal, $id:ident;)*) => {
        vec![$(
            bad(concat!("an_empty_", $name, "_id"), $field, Some(1), |_, _| made($id::new(""))),
            bad(concat!("a_", $name, "_id_of_513_bytes"), $field, Some(ID_BYTES_MAX), |_, _| {
                made($id::new(x(513)))
            }),
            bad(concat!("a_", $name, "_id_with_nul"), $field, None, |_, _| made($id::new("a\0b"))),
        )*]
    };
}

fn ids() -> Vec<Bad> {
    bad_ids! {
        "agent", "agent", AgentId;
        "session", "session", SessionId;
        "run", "run", RunId;
        "author_role", "agent_role", AgentRole;
        "append", "idempotency_key", IdempotencyKey;
    }
}
