//! Invalid calls of [`HistoryProvider`](larder_kernel::HistoryProvider).

use std::sync::LazyLock;

use larder_kernel::limits::{
    BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, CONTENT_TYPE_BYTES_MAX, FENCING_TOKEN_MAX, MESSAGE_BYTES_MAX,
    MESSAGE_FILTER_TERMS_MAX, MESSAGE_PARTS_MAX, METADATA_BYTES_MAX,
};
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobKey, BlobRef, ChatMessage, FencingToken, Generation,
    HistoryProvider, IdempotencyKey, MessageFilter, MessageUpdate, Metadata, PageRequest, Removal,
    Replacement, Result, RunId, Seq, SessionId, Thread, ToolCall, ToolResult, Ttl,
};

use super::inputs::{
    Bad, PLACES, Rule, among, at_least, at_most, durations, ids, limits, metadata, refused_ids, rule, up_to,
};
use super::{Refusal, Table, table};

pub(super) fn tables() -> Vec<Table> {
    let mut all = messages();
    all.extend([
        table("window_that_is_too_long", windows()),
        table("list_that_is_too_long", lists()),
        table("time_to_live", lives()),
        table("negative_last_number", negative_last()),
        table("fencing_token", tokens()),
        table("filter_of_too_many_authors", author_filters()),
        table("replacement", replacements()),
        table("removal", removals()),
        table("update", updates()),
        table("id", every_id()),
    ]);
    all
}

/// Returns a thread that contains messages.
fn kept() -> Result<Thread> {
    Thread::new("agent kept", "first kept")
}

fn fresh() -> Result<Thread> {
    Thread::new("fresh", "fresh")
}

/// The method that writes messages.
#[derive(Debug, Clone, Copy)]
enum Way {
    Append,
    AppendToANewThread,
    AppendWithAKey,
    Replace,
    Update,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Append, Self::AppendToANewThread, Self::AppendWithAKey, Self::Replace, Self::Update];

    fn name(self) -> &'static str {
        match self {
            Self::Append => "message_appended",
            Self::AppendToANewThread => "message_appended_to_a_new_thread",
            Self::AppendWithAKey => "message_appended_with_a_key",
            Self::Replace => "message_put_in_place",
            Self::Update => "message_updated",
        }
    }
}

fn write(
    way: Way,
    messages: impl Fn() -> Vec<ChatMessage> + Send + Sync + 'static,
    what: String,
    field: &'static str,
    limit: Rule,
) -> Refusal {
    let call = match way {
        Way::Replace => "history.replace",
        Way::Update => "history.update",
        _ => "history.append_many",
    };
    Refusal::new(call, what, field, limit, move |stores| {
        let messages = messages();
        Box::pin(async move {
            let (store, plain) = (stores.history()?, AppendOptions::default());
            match way {
                Way::Append => store.append_many(&kept()?, messages, plain).await.map(drop),
                Way::AppendToANewThread => store.append_many(&fresh()?, messages, plain).await.map(drop),
                Way::AppendWithAKey => {
                    let keyed = plain.with_idempotency_key(IdempotencyKey::new("new")?);
                    store.append_many(&kept()?, messages, keyed).await.map(drop)
                }
                Way::Replace => {
                    let replacement = Replacement::new(Seq::new(1), messages).with_seen(Seq::new(7));
                    store.replace(&kept()?, replacement).await.map(drop)
                }
                // Updates the first message to the last of these.
                Way::Update => {
                    let message = messages.into_iter().next_back().unwrap_or_else(|| ChatMessage::user(""));
                    store.update(&kept()?, MessageUpdate::appended(Seq::new(1), message)).await.map(drop)
                }
            }
        })
    })
}

fn good() -> [ChatMessage; 2] {
    [ChatMessage::user("good"), ChatMessage::assistant("good")]
}

/// The description, the field of the error, the rule, and the message.
type BadMessage = (String, &'static str, Rule, ChatMessage);

/// Messages with one invalid part each.
fn parts() -> &'static [BadMessage] {
    static ALL: LazyLock<Vec<BadMessage>> = LazyLock::new(make_parts);
    &ALL
}

fn make_parts() -> Vec<BadMessage> {
    let (most, plain) = (at_most(MESSAGE_PARTS_MAX), || ChatMessage::assistant(""));
    let mut all = Vec::new();
    for (what, limit, text) in ids() {
        let call = |id: &str, name: &str| plain().with_tool_call(ToolCall::new(id, name, "{}"));
        all.push((format!("a call's id: {what}"), "message.tool_calls.id", *limit, call(text, "tool")));
        all.push((format!("a tool's name: {what}"), "message.tool_calls.name", *limit, call("id", text)));
        let result = ChatMessage::tool([ToolResult::new(text, "result")]);
        all.push((format!("a result's call: {what}"), "message.tool_results.call_id", *limit, result));
    }
    let mut calls = plain();
    calls.tool_calls = vec![ToolCall::new("c", "t", "{}"); MESSAGE_PARTS_MAX + 1];
    all.push(("257 calls".to_owned(), "message.tool_calls", most, calls));
    let results = ChatMessage::tool(vec![ToolResult::new("c", "r"); MESSAGE_PARTS_MAX + 1]);
    all.push(("257 results".to_owned(), "message.tool_results", most, results));
    if let Ok(key) = BlobKey::new("k") {
        let mut blobs = plain();
        let blob = BlobRef::new(key);
        blobs.blobs = vec![blob.clone(); MESSAGE_PARTS_MAX + 1];
        all.push(("257 blobs".to_owned(), "message.blobs", most, blobs));
        let long = blob.with_content_type("t".repeat(CONTENT_TYPE_BYTES_MAX + 1));
        let field = "message.blobs.content_type";
        all.push((
            "a long content type".to_owned(),
            field,
            at_most(CONTENT_TYPE_BYTES_MAX),
            plain().with_blob(long),
        ));
    }
    let size = at_most(MESSAGE_BYTES_MAX);
    all.push((
        "a text too large".to_owned(),
        "message",
        size,
        ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX + 1)),
    ));
    let metadata = Metadata::new().with("k", "x".repeat(MESSAGE_BYTES_MAX));
    let metadata = ChatMessage::user("").with_metadata(metadata);
    all.push(("metadata too large".to_owned(), "message", size, metadata));
    let half = ToolCall::new("c", "t", "x".repeat(MESSAGE_BYTES_MAX / 2));
    let together = ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX / 2 - 1)).with_tool_call(half);
    all.push(("parts too large together".to_owned(), "message", size, together));
    all
}

fn messages() -> Vec<Table> {
    let of = |way: Way| {
        let mut rows = Vec::new();
        // The metadata of a message has only the limit of the message.
        let most = at_most(METADATA_BYTES_MAX);
        let unlimited = |(_, rule, _): &&Bad<Metadata>| rule.limit != most.limit;
        for (what, limit, metadata) in metadata().iter().filter(unlimited) {
            // An update has one message.
            for (place, at) in PLACES.into_iter().filter(|(_, at)| !matches!(way, Way::Update) || *at == 2) {
                let bad = move || ChatMessage::user("").with_metadata(metadata.clone());
                let what = format!("metadata of {what}, {place}");
                rows.push(write(way, move || among(good(), bad(), at), what, "message.metadata", *limit));
            }
        }
        for (what, field, limit, bad) in parts() {
            rows.push(write(way, move || among(good(), bad.clone(), 2), what.clone(), field, *limit));
        }
        let many = || vec![ChatMessage::user("m"); BATCH_MESSAGES_MAX + 1];
        let heavy = || vec![ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX)); 5];
        if matches!(way, Way::Update) {
            return table(way.name(), rows);
        }
        rows.push(write(way, heavy, "too many bytes".to_owned(), "messages.bytes", at_most(BATCH_BYTES_MAX)));
        rows.push(write(way, many, "too many messages".to_owned(), "messages", at_most(BATCH_MESSAGES_MAX)));
        if !matches!(way, Way::Replace) {
            rows.push(write(way, Vec::new, "no messages".to_owned(), "messages", at_least(1)));
        }
        table(way.name(), rows)
    };
    Way::ALL.into_iter().map(of).collect()
}

/// A read of messages.
#[derive(Debug, Clone, Copy)]
enum Read {
    From(u64),
    Before(Option<Seq>),
    Matching(Option<Seq>),
    After(Seq),
}

fn windows() -> Vec<Refusal> {
    let before = [None, Some(Seq::new(3)), Some(Seq::MIN)];
    let mut reads: Vec<Read> = [0, 3, u64::MAX].map(Read::From).into();
    reads.extend(before.map(Read::Before));
    reads.extend(before.map(Read::Matching));
    reads.extend([Seq::MIN, Seq::ZERO, Seq::MAX].map(Read::After));
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for is_there in [true, false] {
            for read in &reads {
                rows.push(window(*read, is_there, what, most, count));
            }
        }
    }
    rows
}

fn window(read: Read, is_there: bool, what: &str, most: Rule, count: usize) -> Refusal {
    let what = format!("{read:?} thread exists: {is_there}, {what}");
    let call = match read {
        Read::From(_) => "history.get_messages",
        Read::Before(_) => "history.tail",
        Read::Matching(_) => "history.tail_matching",
        Read::After(_) => "history.page_after",
    };
    Refusal::new(call, what, "limit", most, move |stores| {
        Box::pin(async move {
            let (store, thread) = (stores.history()?, if is_there { kept()? } else { fresh()? });
            match read {
                Read::From(offset) => store.get_messages(&thread, offset, count).await.map(drop),
                Read::Before(before) => store.tail(&thread, before, count).await.map(drop),
                Read::Matching(before) => {
                    let filter = MessageFilter::new().include_agent(AgentId::new("author")?);
                    store.tail_matching(&thread, &filter, before, count).await.map(drop)
                }
                Read::After(after) => store.page_after(&thread, after, count).await.map(drop),
            }
        })
    })
}

fn lists() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for agent in [None, Some("agent kept"), Some("nobody")] {
            for after in [None, Some("first kept")] {
                let what = format!("threads of {agent:?} after {after:?}: {what}");
                rows.push(Refusal::new("history.list_threads", what, "limit", most, move |stores| {
                    Box::pin(async move {
                        let agent = agent.map(AgentId::new).transpose()?;
                        let after = after.map(|session| Thread::new("agent kept", session)).transpose()?;
                        let page = PageRequest::first(count).with_after(after);
                        stores.history()?.list_threads(agent.as_ref(), page).await.map(drop)
                    })
                }));
            }
        }
    }
    rows
}

fn lives() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, limit, time) in durations() {
        for (how, ttl) in [("fixed", Ttl::fixed(time)), ("sliding", Ttl::sliding(time))] {
            for is_there in [true, false] {
                let thread = move || if is_there { kept() } else { fresh() };
                let what = format!("{how}, {what}, thread exists: {is_there}");
                rows.push(Refusal::new(
                    "history.set_ttl",
                    format!("set, {what}"),
                    "ttl",
                    limit,
                    move |stores| {
                        Box::pin(async move { stores.history()?.set_ttl(&thread()?, Some(ttl), None).await })
                    },
                ));
                rows.push(Refusal::new(
                    "history.append_many",
                    format!("appended, {what}"),
                    "ttl",
                    limit,
                    move |stores| {
                        Box::pin(async move {
                            let options = AppendOptions::default().with_ttl(ttl);
                            let store = stores.history()?;
                            store
                                .append_many(&thread()?, vec![ChatMessage::user("x")], options)
                                .await
                                .map(drop)
                        })
                    },
                ));
            }
        }
    }
    rows
}

fn negative_last() -> Vec<Refusal> {
    let below = rule("is negative; pass the `last` of `thread_info`");
    let row = |last: i64, thread: fn() -> Result<Thread>, keyed: bool| {
        let what = format!("{last}, to {:?}, keyed: {keyed}", thread().ok());
        Refusal::new("history.append_many", what, "if_last", below, move |stores| {
            Box::pin(async move {
                let key = if keyed { Some(IdempotencyKey::new("new")?) } else { None };
                let options = AppendOptions::default().with_if_last(Seq::new(last));
                let options = options.with_idempotency_key(key);
                let messages = vec![ChatMessage::user("x")];
                stores.history()?.append_many(&thread()?, messages, options).await.map(drop)
            })
        })
    };
    let mut rows = Vec::new();
    for last in [-1, -1_000, i64::MIN] {
        for thread in [kept, fresh] {
            rows.extend([row(last, thread, false), row(last, thread, true)]);
        }
    }
    rows
}

/// Tokens over the limit, in every write.
fn tokens() -> Vec<Refusal> {
    let operations = [
        "history.append_many",
        "history.replace",
        "history.remove",
        "history.update",
        "history.clear",
        "history.clear_run",
        "history.fork",
        "history.set_ttl",
    ];
    let mut rows = Vec::new();
    for operation in operations {
        for number in [FENCING_TOKEN_MAX + 1, u64::MAX] {
            for thread in [kept as fn() -> Result<Thread>, fresh] {
                let what = format!("{number}, of {:?}", thread().ok());
                rows.push(Refusal::new(operation, what, "fence", up_to(FENCING_TOKEN_MAX), move |stores| {
                    Box::pin(async move {
                        let (store, fence) = (stores.history()?, FencingToken::new(number));
                        with_token(&*store, operation, &thread()?, fence).await
                    })
                }));
            }
        }
    }
    rows
}

async fn with_token(
    store: &dyn HistoryProvider,
    operation: &str,
    thread: &Thread,
    fence: FencingToken,
) -> Result<()> {
    let messages = || vec![ChatMessage::user("x")];
    match operation {
        "history.append_many" => {
            let options = AppendOptions::default().with_fence(fence);
            store.append_many(thread, messages(), options).await.map(drop)
        }
        "history.replace" => {
            let replacement = Replacement::new(Seq::ZERO, messages()).with_fence(fence);
            store.replace(thread, replacement).await.map(drop)
        }
        "history.remove" => store.remove(thread, Removal::newest(1).with_fence(fence)).await.map(drop),
        "history.update" => {
            let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("x"));
            store.update(thread, update.with_fence(fence)).await.map(drop)
        }
        "history.clear" => store.clear(thread, Some(fence)).await.map(drop),
        "history.clear_run" => store.clear_run(thread, &RunId::new("r")?, Some(fence)).await.map(drop),
        "history.fork" => store.fork(&kept()?, thread, None, Some(fence)).await.map(drop),
        _ => store.set_ttl(thread, None, Some(fence)).await,
    }
}

/// Filters with one term too many, of each kind and of all kinds together.
fn author_filters() -> Vec<Refusal> {
    type Add = fn(MessageFilter, usize) -> Result<MessageFilter>;
    fn agent(number: usize) -> Result<AgentId> {
        AgentId::new(format!("a{number}"))
    }
    fn role(number: usize) -> Result<AgentRole> {
        AgentRole::new(format!("r{number}"))
    }
    let kinds: [(&str, Add); 5] = [
        ("agents included", |filter, number| Ok(filter.include_agent(agent(number)?))),
        ("agents excluded", |filter, number| Ok(filter.exclude_agent(agent(number)?))),
        ("roles included", |filter, number| Ok(filter.include_role(role(number)?))),
        ("roles excluded", |filter, number| Ok(filter.exclude_role(role(number)?))),
        ("all kinds in turn", |filter, number| match number % 4 {
            0 => Ok(filter.include_agent(agent(number)?)),
            1 => Ok(filter.exclude_agent(agent(number)?)),
            2 => Ok(filter.include_role(role(number)?)),
            _ => Ok(filter.exclude_role(role(number)?)),
        }),
    ];
    let most = at_most(MESSAGE_FILTER_TERMS_MAX);
    let row = |(what, add): (&str, Add), count: usize, at: usize| {
        Refusal::new(
            "history.tail_matching",
            format!("{count} {what}, a limit of {at}"),
            "filter",
            most,
            move |stores| {
                Box::pin(async move {
                    let filter = (0..count).try_fold(MessageFilter::new(), add)?;
                    let store = stores.history()?;
                    store.tail_matching(&kept()?, &filter, None, at).await.map(drop)
                })
            },
        )
    };
    let each = |kind| [(65, 0), (65, 10), (1_000, 10)].map(|(count, at)| row(kind, count, at));
    kinds.into_iter().flat_map(each).collect()
}

fn replacements() -> Vec<Refusal> {
    let row = |up_to: Seq, seen: Seq, (field, rule): (&'static str, Rule), messages: usize| {
        let what = format!("up to {up_to:?}, seen {seen:?}, {messages} messages");
        Refusal::new("history.replace", what, field, rule, move |stores| {
            Box::pin(async move {
                let messages = vec![ChatMessage::system("summary"); messages];
                let replacement = Replacement::new(up_to, messages).with_seen(seen);
                stores.history()?.replace(&kept()?, replacement).await.map(drop)
            })
        })
    };
    let below = ("up_to", rule("is negative; pass a `Seq` of 0 or more"));
    let unseen = ("seen", rule("is before `up_to`; read the messages up to `up_to` first"));
    let mut rows = Vec::new();
    for messages in [0, 1, 3] {
        for up_to in [Seq::MIN, Seq::new(-1_000), Seq::new(-1)] {
            rows.push(row(up_to, up_to, below, messages));
            rows.push(row(up_to, Seq::new(7), below, messages));
        }
        for (up_to, seen) in [(3, 2), (1, 0), (7, i64::MIN), (i64::MAX, i64::MAX - 1), (0, -1)] {
            rows.push(row(Seq::new(up_to), Seq::new(seen), unseen, messages));
        }
    }
    rows
}

fn removals() -> Vec<Refusal> {
    let most = at_most(BATCH_MESSAGES_MAX);
    let twice = rule("contains the same id twice; pass each id once");
    let below = rule("is negative; pass the `last` of `thread_info`");
    let numbers = |count: i64| Removal::numbers((1..=count).map(Seq::new));
    let named = Seq::new(2).in_generation(Generation::new(7));
    let bad = [
        ("no numbers", "numbers", at_least(1), numbers(0)),
        ("1,001 numbers", "numbers", most, numbers(1_001)),
        ("the same number twice", "numbers", twice, Removal::numbers([1, 3, 1].map(Seq::new))),
        ("a number with and without a generation", "numbers", twice, Removal::numbers([Seq::new(2), named])),
        ("no newest message", "newest", at_least(1), Removal::newest(0)),
        ("1,001 newest messages", "newest", most, Removal::newest(1_001)),
        ("every message", "newest", most, Removal::newest(usize::MAX)),
        ("a negative last number", "if_last", below, Removal::newest(1).with_if_last(Seq::new(-1))),
        ("the least last number", "if_last", below, Removal::after(Seq::ZERO).with_if_last(Seq::MIN)),
    ];
    let mut rows = Vec::new();
    for (what, field, limit, removal) in bad {
        for (thread, keyed) in
            [(kept as fn() -> Result<Thread>, false), (kept, true), (fresh, false), (fresh, true)]
        {
            let (what, removal) =
                (format!("{what}, of {:?}, keyed: {keyed}", thread().ok()), removal.clone());
            rows.push(Refusal::new("history.remove", what, field, limit, move |stores| {
                let removal = removal.clone();
                Box::pin(async move {
                    let key = if keyed { Some(IdempotencyKey::new("new")?) } else { None };
                    stores.history()?.remove(&thread()?, removal.with_idempotency_key(key)).await.map(drop)
                })
            }));
        }
    }
    rows
}

fn updates() -> Vec<Refusal> {
    let below = rule("is negative; pass the `last` of `thread_info`");
    let mut rows = Vec::new();
    for last in [-1, -1_000, i64::MIN] {
        for (thread, keyed) in
            [(kept as fn() -> Result<Thread>, false), (kept, true), (fresh, false), (fresh, true)]
        {
            let what = format!("{last}, of {:?}, keyed: {keyed}", thread().ok());
            rows.push(Refusal::new("history.update", what, "if_last", below, move |stores| {
                Box::pin(async move {
                    let key = if keyed { Some(IdempotencyKey::new("new")?) } else { None };
                    let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("x"));
                    let update = update.with_if_last(Seq::new(last)).with_idempotency_key(key);
                    stores.history()?.update(&thread()?, update).await.map(drop)
                })
            }));
        }
    }
    rows
}

fn every_id() -> Vec<Refusal> {
    [
        refused_ids("agent", AgentId::new),
        refused_ids("session", SessionId::new),
        refused_ids("run", RunId::new),
        refused_ids("agent_role", AgentRole::new),
        refused_ids("idempotency_key", IdempotencyKey::new),
    ]
    .concat()
}
