//! The operations on conversations: their random generation, and their Rust form.

use std::sync::LazyLock;
use std::time::Duration;

use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobKey, BlobRef, ChatMessage, IdempotencyKey, PageRequest, Role,
    RunId, Thread, Timestamp, ToolCall, ToolResult, Ttl,
};

use super::authors::{self, Authors};
use super::fence::{self, Fence};
use super::names::{At, agent};
use super::remove::{self, Remove};
use super::update::{self, Update};
use crate::model::rng::{Rng, valid};
use crate::model::shared::{limit, metadata, request, ttl};

const PLACES: [At; 14] = [
    At::FromLast(0),
    At::FromLast(1),
    At::FromLast(2),
    At::FromLast(3),
    At::FromLast(5),
    At::FromLast(-1),
    At::Exactly(0),
    At::Exactly(1),
    At::Exactly(2),
    At::Exactly(4),
    At::Exactly(-1),
    At::Exactly(-3),
    At::Exactly(i64::MIN),
    At::Exactly(i64::MAX),
];

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    /// The messages, repeated this number of times.
    Append {
        thread: Thread,
        messages: Vec<ChatMessage>,
        times: usize,
        options: AppendOptions,
        /// The last number that the thread must have.
        if_last: Option<At>,
        fence: Fence,
    },
    Get {
        thread: Thread,
        offset: u64,
        limit: usize,
    },
    Tail {
        thread: Thread,
        before: Option<At>,
        limit: usize,
    },
    TailMatching {
        thread: Thread,
        authors: Authors,
        before: Option<At>,
        limit: usize,
    },
    PageAfter {
        thread: Thread,
        after: At,
        limit: usize,
    },
    Info {
        thread: Thread,
    },
    Clear {
        thread: Thread,
        fence: Fence,
    },
    ClearRun {
        thread: Thread,
        run: RunId,
        fence: Fence,
    },
    Remove {
        thread: Thread,
        remove: Remove,
    },
    Update {
        thread: Thread,
        update: Update,
    },
    Fork {
        source: Thread,
        target: Thread,
        up_to: Option<At>,
        fence: Fence,
    },
    Replace {
        thread: Thread,
        up_to: At,
        seen: At,
        messages: Vec<ChatMessage>,
        fence: Fence,
    },
    ListThreads {
        agent: Option<AgentId>,
        page: PageRequest<Thread>,
    },
    SetTtl {
        thread: Thread,
        ttl: Option<Ttl>,
        fence: Fence,
    },
    Subscribe {
        thread: Thread,
        after: At,
    },
    Erase,
}

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[12, 4, 4, 4, 3, 2, 3, 4, 6, 3, 2, 3, 1, 5, 6, 6]) {
        1 => Operation::Get {
            thread: few(rng),
            offset: rng.of(&[0, 1, 2, 3, 7, 10_000, u64::MAX]),
            limit: limit(rng),
        },
        2 => Operation::Tail { thread: few(rng), before: maybe(rng), limit: limit(rng) },
        3 => Operation::PageAfter { thread: few(rng), after: rng.of(&PLACES), limit: limit(rng) },
        4 => Operation::Info { thread: any(rng) },
        5 => Operation::Clear { thread: few(rng), fence: fence::draw(rng) },
        6 => Operation::ClearRun { thread: few(rng), run: run(rng), fence: fence::draw(rng) },
        7 => {
            let (source, target, up_to) = (few(rng), any(rng), maybe(rng));
            Operation::Fork { source, target, up_to, fence: fence::draw(rng) }
        }
        8 => Operation::Replace {
            thread: few(rng),
            up_to: rng.of(&PLACES),
            seen: rng.of(&[
                At::FromLast(0),
                At::FromLast(0),
                At::FromLast(0),
                At::FromLast(1),
                At::FromLast(2),
                At::FromLast(-1),
                At::Exactly(0),
            ]),
            messages: messages(rng),
            fence: fence::draw(rng),
        },
        9 => {
            Operation::ListThreads { agent: (rng.below(2) == 1).then(|| agent(rng)), page: request(rng, any) }
        }
        10 => {
            let (thread, ttl) = (any(rng), (rng.below(3) > 0).then(|| life_of(rng)));
            Operation::SetTtl { thread, ttl, fence: fence::draw(rng) }
        }
        11 => Operation::Subscribe { thread: few(rng), after: rng.of(&PLACES) },
        12 if rng.one_in(4) => Operation::Erase,
        15 => {
            let (thread, message) = (few(rng), message(rng));
            Operation::Update { thread, update: update::draw(rng, &PLACES, message) }
        }
        14 => Operation::Remove { thread: few(rng), remove: remove::draw(rng, &PLACES) },
        13 => Operation::TailMatching {
            thread: few(rng),
            authors: authors::draw(rng),
            before: (rng.below(4) == 3).then(|| rng.of(&PLACES)),
            limit: limit(rng),
        },
        _ => append(rng),
    }
}

fn append(rng: &mut Rng<'_>) -> Operation {
    let thread = few(rng);
    let options = AppendOptions::default()
        .with_idempotency_key((rng.below(4) == 3).then(|| valid(IdempotencyKey::new(rng.id()))))
        .with_ttl((rng.below(8) == 7).then(|| life_of(rng)));
    // More messages than a search might scan, of one kind so that they are cheap to compare and to print.
    let many = rng.one_in(400);
    let messages = messages(rng);
    let times = if many { 1_100_usize.div_ceil(messages.len().max(1)) } else { 1 };
    // Often the last number, so that conditions hold as often as not.
    let conditions = [At::FromLast(0), At::FromLast(0), At::FromLast(0), At::FromLast(1), At::Exactly(0)];
    let conditions = [&conditions[..], &[At::FromLast(-1), At::Exactly(-1), At::Exactly(i64::MAX)]].concat();
    let if_last = (rng.below(4) == 3).then(|| rng.of(&conditions));
    Operation::Append { thread, messages, times, options, if_last, fence: fence::draw(rng) }
}

/// Draws from few threads, so that operations meet.
fn few(rng: &mut Rng<'_>) -> Thread {
    let [a, b, c, d] = &rng.ids.0;
    let threads = [(a, a), (a, a), (a, b), (b, a), (a, d), (b, c)];
    let (agent, session) = rng.of(&threads);
    valid(Thread::new(agent, session))
}

fn any(rng: &mut Rng<'_>) -> Thread {
    let (agent, session) = (rng.id(), rng.id());
    valid(Thread::new(agent, session))
}

fn run(rng: &mut Rng<'_>) -> RunId {
    let index = rng.below(2);
    valid(RunId::new(&rng.ids.0[index]))
}

fn maybe(rng: &mut Rng<'_>) -> Option<At> {
    (rng.below(2) == 1).then(|| rng.of(&PLACES))
}

fn life_of(rng: &mut Rng<'_>) -> Ttl {
    let after = ttl(rng);
    if after.as_millis().is_multiple_of(2) { Ttl::fixed(after) } else { Ttl::sliding(after) }
}

/// Draws up to four messages of one kind with different texts; sometimes none.
fn messages(rng: &mut Rng<'_>) -> Vec<ChatMessage> {
    let count = rng.of(&[1_usize, 1, 1, 2, 3, 4, 0]);
    let message = message(rng);
    (0..count)
        .map(|number| {
            let mut message = message.clone();
            if number > 0 {
                message.text.push_str(&number.to_string());
            }
            // Invalid input comes last, so that a batch that is validated while it is written is written in
            // part.
            if number + 1 < count && message.tool_calls.iter().any(|call| call.id.is_empty()) {
                message.tool_calls.clear();
            }
            // Every second message belongs to no run, so that a run's clear leaves holes.
            if number % 2 == 1 {
                message.run = None;
            }
            // One message in between is by the thread's agent.
            if number == 2 {
                message.author = None;
            }
            message
        })
        .collect()
}

/// Longer than small columns and pages.
static LONG_TEXT: LazyLock<String> = LazyLock::new(|| "é".repeat(40_000));

const TEXTS: [&str; 8] = ["m", "n", "", "é\0'\"\\", "e\u{301}", "{\"k\": 1}", "\u{1f980}%_*", "\r\n"];

fn message(rng: &mut Rng<'_>) -> ChatMessage {
    let text = if rng.one_in(150) { LONG_TEXT.clone() } else { rng.of(&TEXTS).to_owned() };
    // Times whose order differs from the order of appending.
    let stamp = rng.of(&[1_000_000, 1_000_001, 0, -1, 1_700_000_000_123_456]);
    let run = (rng.below(2) == 1).then(|| run(rng));
    let mut message = ChatMessage::user(text).with_created_at(valid(Timestamp::from_micros(stamp)));
    message.run = run;
    match rng.below(17) {
        5 => message.role = Role::System,
        6 => {
            message.role = Role::Assistant;
            message.tool_calls = vec![ToolCall::new("c", "t", "{\"a\":\"\0\"}"), ToolCall::new("d", "t", "")];
        }
        7 => {
            message.role = Role::Tool;
            message.tool_results = vec![ToolResult::new("c", "\0é"), ToolResult::error("d", "")];
        }
        8 => message.metadata = metadata(rng),
        9 => {
            let (agent, role) = (agent(rng), valid(AgentRole::new(rng.id())));
            message = message.with_author(agent, Some(role)).with_token_count(u32::MAX);
        }
        10 => {
            let key = valid(BlobKey::new("k/é"));
            let blob = BlobRef::new(key).with_content_type("t/é".to_owned()).with_size_bytes(u64::MAX);
            message = message.with_blob(blob);
        }
        12..15 => {
            let (agent, plays, role) = (agent(rng), rng.below(3) > 0, valid(AgentRole::new(rng.id())));
            message = message.with_author(agent, plays.then_some(role));
        }
        // Invalid.
        11 => message.tool_calls = vec![ToolCall::new("", "t", "")],
        _ => {}
    }
    message
}

/// Returns a time to live as an expression.
pub(super) fn life(ttl: Ttl) -> String {
    let after: Duration = ttl.after;
    let kind = if ttl.refresh_on_use { "sliding" } else { "fixed" };
    format!("Ttl::{kind}(Duration::from_micros({}))", after.as_micros())
}
