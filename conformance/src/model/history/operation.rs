//! The operations on conversations: how they are drawn, and how they are written in Rust.

use std::sync::LazyLock;
use std::time::Duration;

use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobKey, BlobRef, ChatMessage, IdempotencyKey, PageRequest, Role,
    RunId, Thread, Timestamp, ToolCall, ToolResult, Ttl,
};

use super::authors::{self, Authors};

use crate::model::dice::{Dice, valid};
use crate::model::shared::{limit, metadata, request, ttl};
use crate::model::tape::owned_id;

/// Which place in a thread an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum At {
    /// So many before the thread's last number.
    FromLast(i64),
    /// This one.
    Exactly(i64),
}

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
    /// The messages so many times over.
    Append {
        thread: Thread,
        messages: Vec<ChatMessage>,
        times: usize,
        options: AppendOptions,
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
    },
    ClearRun {
        thread: Thread,
        run: RunId,
    },
    Fork {
        source: Thread,
        target: Thread,
        up_to: Option<At>,
    },
    Replace {
        thread: Thread,
        up_to: At,
        seen: At,
        messages: Vec<ChatMessage>,
    },
    ListThreads {
        agent: Option<AgentId>,
        page: PageRequest<Thread>,
    },
    SetTtl {
        thread: Thread,
        ttl: Option<Ttl>,
    },
    Subscribe {
        thread: Thread,
        after: At,
    },
    Erase,
}

pub(super) fn draw(dice: &mut Dice<'_>) -> Operation {
    match dice.weighted(&[12, 4, 4, 4, 3, 2, 3, 4, 6, 3, 2, 3, 1, 5]) {
        1 => Operation::Get {
            thread: few(dice),
            offset: dice.of(&[0, 1, 2, 3, 7, 10_000, u64::MAX]),
            limit: limit(dice),
        },
        2 => Operation::Tail { thread: few(dice), before: maybe(dice), limit: limit(dice) },
        3 => Operation::PageAfter { thread: few(dice), after: dice.of(&PLACES), limit: limit(dice) },
        4 => Operation::Info { thread: any(dice) },
        5 => Operation::Clear { thread: few(dice) },
        6 => Operation::ClearRun { thread: few(dice), run: run(dice) },
        7 => Operation::Fork { source: few(dice), target: any(dice), up_to: maybe(dice) },
        8 => Operation::Replace {
            thread: few(dice),
            up_to: dice.of(&PLACES),
            seen: dice.of(&[
                At::FromLast(0),
                At::FromLast(0),
                At::FromLast(0),
                At::FromLast(1),
                At::FromLast(2),
                At::FromLast(-1),
                At::Exactly(0),
            ]),
            messages: messages(dice),
        },
        9 => Operation::ListThreads {
            agent: (dice.below(2) == 1).then(|| agent(dice)),
            page: request(dice, any),
        },
        10 => Operation::SetTtl { thread: any(dice), ttl: (dice.below(3) > 0).then(|| life_of(dice)) },
        11 => Operation::Subscribe { thread: few(dice), after: dice.of(&PLACES) },
        12 if dice.one_in(4) => Operation::Erase,
        13 => Operation::TailMatching {
            thread: few(dice),
            authors: authors::draw(dice),
            before: (dice.below(4) == 3).then(|| dice.of(&PLACES)),
            limit: limit(dice),
        },
        _ => append(dice),
    }
}

fn append(dice: &mut Dice<'_>) -> Operation {
    let thread = few(dice);
    let options = AppendOptions {
        idempotency_key: (dice.below(4) == 3).then(|| valid(IdempotencyKey::new(dice.id()))),
        ttl: (dice.below(8) == 7).then(|| life_of(dice)),
    };
    // More than a search might look at, of one kind so that they cost little to compare and to print.
    let many = dice.one_in(400);
    let messages = messages(dice);
    let times = if many { 1_100_usize.div_ceil(messages.len().max(1)) } else { 1 };
    Operation::Append { thread, messages, times, options }
}

/// Few threads, so that operations meet.
fn few(dice: &mut Dice<'_>) -> Thread {
    let [a, b, c, d] = &dice.ids.0;
    let threads = [(a, a), (a, a), (a, b), (b, a), (a, d), (b, c)];
    let (agent, session) = dice.of(&threads);
    valid(Thread::new(agent, session))
}

fn any(dice: &mut Dice<'_>) -> Thread {
    let (agent, session) = (dice.id(), dice.id());
    valid(Thread::new(agent, session))
}

pub(super) fn agent(dice: &mut Dice<'_>) -> AgentId {
    valid(AgentId::new(dice.id()))
}

fn run(dice: &mut Dice<'_>) -> RunId {
    let index = dice.below(2);
    valid(RunId::new(&dice.ids.0[index]))
}

fn maybe(dice: &mut Dice<'_>) -> Option<At> {
    (dice.below(2) == 1).then(|| dice.of(&PLACES))
}

fn life_of(dice: &mut Dice<'_>) -> Ttl {
    let after = ttl(dice);
    if after.as_millis().is_multiple_of(2) { Ttl::fixed(after) } else { Ttl::sliding(after) }
}

/// Up to four messages of one kind, told apart by their texts; none now and then.
fn messages(dice: &mut Dice<'_>) -> Vec<ChatMessage> {
    let count = dice.of(&[1_usize, 1, 1, 2, 3, 4, 0]);
    let message = message(dice);
    (0..count)
        .map(|number| {
            let mut message = message.clone();
            if number > 0 {
                message.text.push_str(&number.to_string());
            }
            // Bad input stands last, so that a batch which is checked as it is written is written in part.
            if number + 1 < count && message.tool_calls.iter().any(|call| call.id.is_empty()) {
                message.tool_calls.clear();
            }
            // Every other one belongs to no run, so that a run's clear leaves holes.
            if number % 2 == 1 {
                message.run = None;
            }
            // One in between is the thread's own agent's.
            if number == 2 {
                message.author = None;
            }
            message
        })
        .collect()
}

/// Beyond what small columns and pages hold.
static LONG_TEXT: LazyLock<String> = LazyLock::new(|| "é".repeat(40_000));

const TEXTS: [&str; 8] = ["m", "n", "", "é\0'\"\\", "e\u{301}", "{\"k\": 1}", "\u{1f980}%_*", "\r\n"];

fn message(dice: &mut Dice<'_>) -> ChatMessage {
    let text = if dice.one_in(150) { LONG_TEXT.clone() } else { dice.of(&TEXTS).to_owned() };
    // Times that do not follow the order of appending.
    let stamp = dice.of(&[1_000_000, 1_000_001, 0, -1, 1_700_000_000_123_456]);
    let run = (dice.below(2) == 1).then(|| run(dice));
    let mut message = ChatMessage::user(text).with_created_at(valid(Timestamp::from_micros(stamp)));
    message.run = run;
    match dice.below(17) {
        5 => message.role = Role::System,
        6 => {
            message.role = Role::Assistant;
            message.tool_calls = vec![ToolCall::new("c", "t", "{\"a\":\"\0\"}"), ToolCall::new("d", "t", "")];
        }
        7 => {
            message.role = Role::Tool;
            message.tool_results = vec![ToolResult::new("c", "\0é"), ToolResult::error("d", "")];
        }
        8 => message.metadata = metadata(dice),
        9 => {
            let (agent, role) = (agent(dice), valid(AgentRole::new(dice.id())));
            message = message.with_author(agent, Some(role)).with_token_count(u32::MAX);
        }
        10 => {
            let key = valid(BlobKey::new("k/é"));
            let blob = BlobRef { key, content_type: Some("t/é".to_owned()), size_bytes: Some(u64::MAX) };
            message = message.with_blob(blob);
        }
        12..15 => {
            let (agent, plays, role) = (agent(dice), dice.below(3) > 0, valid(AgentRole::new(dice.id())));
            message = message.with_author(agent, plays.then_some(role));
        }
        // Refused.
        11 => message.tool_calls = vec![ToolCall::new("", "t", "")],
        _ => {}
    }
    message
}

/// A thread as an argument.
pub(super) fn thread(thread: &Thread) -> String {
    format!("&Thread {{ agent: {}, session: {} }}", owned_id(&thread.agent), owned_id(&thread.session))
}

/// A time to live as a value.
pub(super) fn life(ttl: Ttl) -> String {
    let after: Duration = ttl.after;
    let refresh = ttl.refresh_on_use;
    format!("Ttl {{ after: Duration::from_micros({}), refresh_on_use: {refresh} }}", after.as_micros())
}
