//! Conversations: one thread that all clients append to, read, clear and replace.
//!
//! An append returns the positions of its messages, so the search has few orders to try.

mod state;

use std::sync::Arc;

use larder_kernel::{
    AppendOptions, Capabilities, ChatMessage, Contract, FencingToken, HistoryProvider, IdempotencyKey,
    MessageUpdate, Removal, Replacement, Result, RunId, Seq, StoredMessage, Thread,
};
use serde::{Deserialize, Serialize};

use self::state::State;
use super::check::{RecordOf, Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in};
use crate::harness::StoreSet;

/// The number of keys that the clients share, so that several clients append with the same key.
const KEYS: u8 = 3;
/// The number of the first call of a client that carries a fencing token. A fence is never removed, so
/// earlier calls have none.
const FENCED_FROM: u8 = 8;

/// A thread.
pub(crate) struct OneThread;

/// Messages that are appended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Batch {
    first: u32,
    count: u8,
}

impl Batch {
    fn ids(self) -> impl Iterator<Item = u32> {
        self.first..self.first + u32::from(self.count)
    }

    fn last_from(self, first: i64) -> i64 {
        first + i64::from(self.count) - 1
    }

    fn placed_from(self, first: i64) -> impl Iterator<Item = (i64, u32)> {
        (first..).zip(self.ids())
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Append {
        batch: Batch,
        key: Option<u8>,
        if_last: Option<i64>,
        fence: Option<u8>,
    },
    Get {
        offset: u8,
        limit: u8,
    },
    Tail {
        before: Option<i64>,
        limit: u8,
    },
    After {
        after: i64,
        limit: u8,
    },
    Info,
    Clear {
        fence: Option<u8>,
    },
    ClearRun {
        run: u8,
        fence: Option<u8>,
    },
    Pop {
        count: u8,
        fence: Option<u8>,
    },
    /// Reads the message at a position, and updates it if it is still `was`.
    Update {
        seq: i64,
        was: u32,
        id: u32,
        fence: Option<u8>,
    },
    Replace {
        up_to: i64,
        seen: i64,
        batch: Batch,
        fence: Option<u8>,
    },
}

/// A result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Appended {
        first: i64,
        last: i64,
    },
    Messages(Vec<(i64, u32)>),
    Info {
        messages: u64,
        bytes: u64,
        last: i64,
    },
    Removed(u64),
    Popped {
        messages: Vec<(i64, u32)>,
        last: i64,
    },
    Updated {
        last: i64,
    },
    /// The message was another one, so nothing was updated.
    Stale,
    Replaced {
        removed: u64,
        seq: i64,
    },
}

impl Op {
    /// Returns the fencing token of a write, or none; `None` for a read.
    fn fence(&self) -> Option<Option<u8>> {
        match *self {
            Self::Append { fence, .. }
            | Self::Clear { fence }
            | Self::ClearRun { fence, .. }
            | Self::Pop { fence, .. }
            | Self::Update { fence, .. }
            | Self::Replace { fence, .. } => Some(fence),
            Self::Get { .. } | Self::Tail { .. } | Self::After { .. } | Self::Info => None,
        }
    }
}

fn token(fence: Option<u8>) -> Option<FencingToken> {
    fence.map(|number| FencingToken::new(number.into()))
}

/// The client's knowledge of the thread.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    places: Vec<i64>,
    seen: Vec<(i64, u32)>,
    last: i64,
}

impl Spec for OneThread {
    type State = State;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &State, op: &Op, reply: &Reply<Answer>) -> Option<State> {
        state.after(op, reply)
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        let Some(fence) = op.fence() else { return false };
        let nothing = match reply {
            Reply::Refused(_) | Reply::Answered(Answer::Stale) => true,
            // A write that finds nothing raises the fence.
            Reply::Answered(Answer::Removed(0)) => fence.is_none(),
            Reply::Answered(Answer::Popped { messages, .. }) => messages.is_empty() && fence.is_none(),
            _ => false,
        };
        !nothing
    }
}

fn thread() -> Result<Thread> {
    Thread::new("agent", "session")
}

fn run(number: u8) -> Result<RunId> {
    RunId::new(format!("run{number}"))
}

/// Returns the run of a message.
fn run_of(id: u32) -> Option<u8> {
    u8::try_from(id % 3).ok().filter(|run| *run > 0)
}

fn text_of(id: u32) -> String {
    format!("m{id}")
}

fn messages(batch: Batch) -> Result<Vec<ChatMessage>> {
    let message = |id| {
        let message = ChatMessage::user(text_of(id));
        Ok(match run_of(id) {
            Some(number) => message.with_run(run(number)?),
            None => message,
        })
    };
    batch.ids().map(message).collect()
}

fn placed(stored: &[StoredMessage]) -> Vec<(i64, u32)> {
    stored.iter().map(|stored| (stored.seq.get(), number_in(&stored.message.text, "m"))).collect()
}

fn seen(stored: &[StoredMessage]) -> Answer {
    Answer::Messages(placed(stored))
}

/// Returns the token of a write: none at first, and later a number that grows with the client's calls.
fn fence(rng: &mut Rng, turn: Turn) -> Option<u8> {
    (turn.number >= FENCED_FROM && rng.percent(90)).then(|| turn.number / 2 + rng.below(2))
}

fn append(memory: &Memory, rng: &mut Rng, turn: Turn) -> Op {
    let fence = fence(rng, turn);
    let count = rng.below(3) + 1;
    if rng.percent(70) {
        let if_last = rng.percent(25).then_some(memory.last);
        let batch = Batch { first: turn.value() * 10, count };
        return Op::Append { batch, key: None, if_last, fence };
    }
    // The same key usually has the same messages, but not always.
    let key = rng.below(KEYS);
    let other = u32::from(rng.percent(15));
    let batch = Batch { first: 90_000 + u32::from(key) * 100 + other * 10, count: key + 1 };
    Op::Append { batch, key: Some(key), if_last: None, fence }
}

fn update(memory: &Memory, rng: &mut Rng, turn: Turn) -> Option<Op> {
    let (seq, was) = rng.of(&memory.seen)?;
    Some(Op::Update { seq, was, id: turn.value() * 10, fence: fence(rng, turn) })
}

fn replace(memory: &Memory, rng: &mut Rng, turn: Turn) -> Option<Op> {
    // A message that a longer replacement moved below 0 has no valid name.
    let up_to = rng.of(&memory.places)?.max(0);
    let seen = if rng.percent(30) { up_to } else { memory.last.max(up_to) };
    let batch = Batch { first: turn.value() * 10, count: rng.below(3) + 1 };
    Some(Op::Replace { up_to, seen, batch, fence: fence(rng, turn) })
}

impl Subject for OneThread {
    const CONTRACT: Contract = Contract::History;
    type Store = dyn HistoryProvider;
    type Memory = Memory;

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.history()
    }

    fn initial() -> State {
        State::new()
    }

    fn choose(memory: &Memory, rng: &mut Rng, turn: Turn, _: &Capabilities) -> Op {
        match rng.below(100) {
            0..36 => append(memory, rng, turn),
            36..42 => update(memory, rng, turn).unwrap_or(Op::Info),
            42..50 => Op::Get { offset: 0, limit: 100 },
            50..54 => Op::Get { offset: rng.below(6), limit: rng.below(6) },
            54..60 => Op::Tail { before: None, limit: rng.below(6) },
            60..64 => Op::Tail { before: rng.of(&memory.places), limit: rng.below(6) },
            64..72 => Op::After { after: memory.last, limit: 100 },
            72..80 => Op::Info,
            80..84 => Op::Clear { fence: fence(rng, turn) },
            84..87 => Op::ClearRun { run: rng.below(2) + 1, fence: fence(rng, turn) },
            87..91 => Op::Pop { count: rng.below(3) + 1, fence: fence(rng, turn) },
            _ => replace(memory, rng, turn).unwrap_or(Op::Info),
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        let thread = thread()?;
        match *op {
            Op::Append { batch, key, if_last, fence } => {
                let mut options = AppendOptions::default().with_if_last(if_last.map(Seq::new));
                options = options.with_fence(token(fence));
                if let Some(key) = key {
                    options = options.with_idempotency_key(IdempotencyKey::new(format!("key{key}"))?);
                }
                let appended = store.append_many(&thread, messages(batch)?, options).await?;
                Ok(Answer::Appended { first: appended.first.get(), last: appended.last.get() })
            }
            Op::Get { offset, limit } => {
                Ok(seen(&store.get_messages(&thread, offset.into(), limit.into()).await?))
            }
            Op::Tail { before, limit } => {
                Ok(seen(&store.tail(&thread, before.map(Seq::new), limit.into()).await?))
            }
            Op::After { after, limit } => {
                Ok(seen(&store.page_after(&thread, Seq::new(after), limit.into()).await?))
            }
            Op::Info => {
                let info = store.thread_info(&thread).await?;
                Ok(Answer::Info { messages: info.messages, bytes: info.bytes, last: info.last.get() })
            }
            Op::Clear { fence } => Ok(Answer::Removed(store.clear(&thread, token(fence)).await?)),
            Op::ClearRun { run, fence } => {
                let cleared = store.clear_run(&thread, &self::run(run)?, token(fence)).await?;
                Ok(Answer::Removed(cleared))
            }
            Op::Pop { count, fence } => {
                let removal = Removal::newest(count.into()).with_fence(token(fence));
                let removed = store.remove(&thread, removal).await?;
                Ok(Answer::Popped { messages: placed(&removed.messages), last: removed.last.get() })
            }
            Op::Update { seq, was, id, fence } => {
                let before = Seq::new(seq.saturating_sub(1));
                let found = store.page_after(&thread, before, 1).await?;
                let Some(stored) = found.first().filter(|_| placed(&found) == [(seq, was)]) else {
                    return Ok(Answer::Stale);
                };
                let message = messages(Batch { first: id, count: 1 })?.swap_remove(0);
                let update = MessageUpdate::of(stored, message).with_fence(token(fence));
                Ok(Answer::Updated { last: store.update(&thread, update).await?.last.get() })
            }
            Op::Replace { up_to, seen, batch, fence } => {
                let replacement = Replacement::new(Seq::new(up_to), messages(batch)?);
                let replacement = replacement.with_fence(token(fence));
                let done = store.replace(&thread, replacement.with_seen(Seq::new(seen))).await?;
                Ok(Answer::Replaced { removed: done.removed, seq: done.seq.get() })
            }
        }
    }

    fn learn(memory: &mut Memory, op: &Op, answer: &Answer) {
        match answer {
            Answer::Appended { first, last } => memory.places.extend(*first..=*last),
            Answer::Messages(seen) => {
                memory.places = seen.iter().map(|(seq, _)| *seq).collect();
                memory.seen.clone_from(seen);
                let last = memory.places.last().copied().unwrap_or(0);
                memory.last = memory.last.max(last);
            }
            // Only a call that reads or assigns the last number proves that the thread has no later events.
            Answer::Info { last, .. } | Answer::Popped { last, .. } | Answer::Updated { last } => {
                memory.last = *last;
            }
            Answer::Replaced { seq, .. } => memory.last = *seq,
            Answer::Removed(_) | Answer::Stale => {}
        }
        if let (Op::Append { key: None, .. }, Answer::Appended { last, .. }) = (op, answer) {
            memory.last = memory.last.max(*last);
        }
    }

    fn clause(op: &Op, reply: &Reply<Answer>) -> &'static str {
        match (op, reply) {
            (Op::Append { key: Some(_), .. }, Reply::Answered(_)) => "HIST-011",
            (Op::Append { key: Some(_), .. }, _) => "HIST-008",
            (Op::Append { if_last: Some(_), .. }, Reply::Answered(_)) => "HIST-109",
            (Op::Append { if_last: Some(_), .. }, _) => "HIST-106",
            (Op::Append { .. }, _) => "HIST-005",
            (Op::Get { .. } | Op::Tail { .. } | Op::After { .. }, _) => "HIST-004",
            (Op::Info, _) => "HIST-031",
            (Op::Clear { .. }, _) => "HIST-034",
            (Op::ClearRun { .. }, _) => "HIST-038",
            (Op::Pop { .. }, _) => "HIST-116",
            (Op::Update { .. }, Reply::Answered(_)) => "HIST-144",
            (Op::Update { .. }, _) => "HIST-141",
            (Op::Replace { .. }, Reply::Answered(_)) => "HIST-053",
            (Op::Replace { .. }, _) => "HIST-052",
        }
    }

    fn broken(history: &[RecordOf<Self>], call: &RecordOf<Self>) -> &'static str {
        let greater = |other: &RecordOf<Self>| {
            let answered = matches!(other.reply, Reply::Answered(_));
            let may_be_before = call.answered.is_none_or(|end| other.called < end);
            let fences = other.op.fence().is_some_and(|fence| fence > call.op.fence().flatten());
            answered && may_be_before && fences
        };
        let succeeds = matches!(call.reply, Reply::Answered(_));
        match call.op {
            // Appends alone, because their success has no other condition.
            Op::Append { key: None, if_last: None, .. } if succeeds && history.iter().any(greater) => {
                "HIST-137"
            }
            _ => Self::clause(&call.op, &call.reply),
        }
    }

    fn show_op(op: &Op) -> String {
        let fence = op.fence().flatten().map(|token| format!(" with token {token}")).unwrap_or_default();
        match op {
            Op::Append { batch, key, if_last, .. } => {
                let key = key.map(|key| format!(" as key{key}")).unwrap_or_default();
                let if_last = if_last.map(|last| format!(" if the last is {last}")).unwrap_or_default();
                format!("append {}{key}{if_last}{fence}", show_batch(*batch))
            }
            Op::Get { offset, limit } => format!("get {limit} from {offset}"),
            Op::Tail { before: None, limit } => format!("tail {limit}"),
            Op::Tail { before: Some(before), limit } => format!("tail {limit} before {before}"),
            Op::After { after, limit } => format!("page of {limit} after {after}"),
            Op::Info => "info".to_owned(),
            Op::Clear { .. } => format!("clear{fence}"),
            Op::ClearRun { run, .. } => format!("clear run{run}{fence}"),
            Op::Pop { count, .. } => format!("pop {count}{fence}"),
            Op::Update { seq, was, id, .. } => {
                format!("update {seq}:{} to {}{fence}", text_of(*was), text_of(*id))
            }
            Op::Replace { up_to, seen, batch, .. } => {
                format!("replace up to {up_to}, seen {seen}, by {}{fence}", show_batch(*batch))
            }
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match answer {
            Answer::Appended { first, last } => format!("at {first} to {last}"),
            Answer::Messages(seen) => show_messages(seen),
            Answer::Info { messages, bytes, last } => {
                format!("{messages} messages, {bytes} bytes, last {last}")
            }
            Answer::Removed(count) => format!("{count} removed"),
            Answer::Popped { messages, last } => format!("{}, last {last}", show_messages(messages)),
            Answer::Updated { last } => format!("updated, event {last}"),
            Answer::Stale => "another message".to_owned(),
            Answer::Replaced { removed, seq } => format!("{removed} replaced, event {seq}"),
        }
    }

    fn show_state(state: &State) -> String {
        let about = if state.last.exact { "" } else { " or more" };
        let last = state.last.at_least;
        let fence = state.fence.map(|token| format!("; fence {token}")).unwrap_or_default();
        format!("{}; last number {last}{about}{fence}", show_messages(&state.messages))
    }
}

fn show_batch(batch: Batch) -> String {
    let ids: Vec<String> = batch.ids().map(text_of).collect();
    ids.join(" ")
}

fn show_messages(messages: &[(i64, u32)]) -> String {
    let all: Vec<String> = messages.iter().map(|(seq, id)| format!("{seq}:{}", text_of(*id))).collect();
    if all.is_empty() { "no message".to_owned() } else { all.join(" ") }
}
