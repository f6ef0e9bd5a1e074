//! The sequential specification of a thread.

use std::collections::BTreeMap;

use super::{Answer, Batch, Op, run_of, text_of};
use crate::concurrent::check::{Refusal, Reply};

/// The state of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The messages with their positions, in order.
    pub(super) messages: Vec<(i64, u32)>,
    /// The last number given to a message or an event.
    pub(super) last: Number,
    /// The number of the last clear, run's clear, removal, update or replacement.
    pub(super) changed: Number,
    /// The batch of each idempotency key, and its position.
    pub(super) keys: BTreeMap<u8, (Batch, i64)>,
    /// The greatest fencing token with which a write succeeded.
    pub(super) fence: Option<u8>,
}

/// A number that the store assigned, possibly without returning it: the event of a clear has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Number {
    pub(super) at_least: i64,
    pub(super) exact: bool,
}

impl Number {
    fn known(number: i64) -> Self {
        Self { at_least: number, exact: true }
    }

    fn following(self) -> Self {
        Self { at_least: self.at_least + 1, exact: false }
    }

    /// Returns `true` if the number can be the bound or less.
    fn may_be_within(self, bound: i64) -> bool {
        self.at_least <= bound
    }

    /// Returns `true` if the number can be less.
    fn may_be_below(self, bound: i64) -> bool {
        self.at_least < bound
    }

    /// Returns `true` if the number can be more.
    fn may_exceed(self, bound: i64) -> bool {
        !self.exact || self.at_least > bound
    }
}

impl State {
    /// Returns a thread that was never written.
    pub(super) fn new() -> Self {
        Self {
            messages: Vec::new(),
            last: Number::known(0),
            changed: Number::known(0),
            keys: BTreeMap::new(),
            fence: None,
        }
    }

    /// Returns the thread after the call, or `None` if the thread would not have returned this result.
    pub(super) fn after(&self, op: &Op, reply: &Reply<Answer>) -> Option<Self> {
        // A client that finds another message calls no update.
        let wrote = !matches!(reply, Reply::Answered(Answer::Stale));
        let Some(fence) = op.fence().filter(|_| wrote) else { return self.regardless(op, reply) };
        if self.fence > fence && !self.repeats(op) {
            return matches!(reply, Reply::Refused(Refusal::Conflict)).then(|| self.clone());
        }
        let mut state = self.regardless(op, reply)?;
        // A thread that was never written remembers no token.
        if !matches!(reply, Reply::Refused(_)) && state.last != Number::known(0) {
            state.fence = state.fence.max(fence);
        }
        Some(state)
    }

    /// Returns `true` if the call repeats an append with an idempotency key.
    fn repeats(&self, op: &Op) -> bool {
        match op {
            Op::Append { batch, key: Some(key), .. } => {
                self.keys.get(key).is_some_and(|(first, _)| first == batch)
            }
            _ => false,
        }
    }

    /// Works as `after` for a thread whose fence admits the call.
    fn regardless(&self, op: &Op, reply: &Reply<Answer>) -> Option<Self> {
        match (op, reply) {
            (Op::Append { batch, key, if_last, .. }, Reply::Answered(Answer::Appended { first, last })) => {
                let whole = *last == batch.last_from(*first)
                    && self.meets(*if_last)
                    && if_last.is_none_or(|wanted| *first > wanted);
                whole.then(|| self.append(*batch, *key, Some(*first)))?
            }
            (Op::Append { batch, key, if_last, .. }, Reply::Unknown) if self.meets(*if_last) => {
                self.append(*batch, *key, if_last.map(|last| last + 1))
            }
            (Op::Append { batch, key: Some(key), .. }, Reply::Refused(Refusal::Conflict)) => {
                let other = self.keys.get(key).is_some_and(|(first, _)| first != batch);
                other.then(|| self.clone())
            }
            (Op::Append { if_last: Some(wanted), .. }, Reply::Refused(Refusal::Conflict)) => {
                let differs = !self.last.exact || self.last.at_least != *wanted;
                differs.then(|| self.clone())
            }
            (Op::Info, Reply::Answered(Answer::Info { messages, bytes, last })) => {
                self.informed(*messages, *bytes, *last)
            }
            (Op::Clear { .. }, reply) => self.removed(reply, |_| true),
            (Op::ClearRun { run, .. }, reply) => self.removed(reply, |id| run_of(id) == Some(*run)),
            (Op::Pop { count, .. }, Reply::Answered(Answer::Popped { messages, last })) => {
                self.popped(usize::from(*count), Some((messages, *last)))
            }
            (Op::Pop { count, .. }, Reply::Unknown) => self.popped(usize::from(*count), None),
            (Op::Update { .. }, Reply::Answered(Answer::Stale)) => Some(self.clone()),
            (Op::Update { seq, was, id, .. }, reply) => self.updated((*seq, *was), *id, reply),
            (Op::Replace { up_to, seen, batch, .. }, reply) => self.replaced(*up_to, *seen, *batch, reply),
            (read, Reply::Answered(Answer::Messages(seen))) => {
                (self.window(read)? == seen).then(|| self.clone())
            }
            _ => None,
        }
    }

    /// Returns `true` if the thread's last number can be this one.
    fn meets(&self, if_last: Option<i64>) -> bool {
        if_last.is_none_or(|wanted| {
            self.last.may_be_within(wanted) && (!self.last.exact || self.last.at_least == wanted)
        })
    }

    fn append(&self, batch: Batch, key: Option<u8>, first: Option<i64>) -> Option<Self> {
        if let Some((stored, place)) = key.and_then(|key| self.keys.get(&key)) {
            let same = *stored == batch && first.is_none_or(|first| first == *place);
            return same.then(|| self.clone());
        }
        // A write without a result is assumed to have got the next number.
        let next = self.last.at_least + 1;
        let first = first.unwrap_or(next);
        let new = self.last == Number::known(0);
        if first < next || (new && first != 1) {
            return None;
        }
        let mut state = self.clone();
        state.messages.extend(batch.placed_from(first));
        state.last = Number::known(batch.last_from(first));
        if let Some(key) = key {
            state.keys.insert(key, (batch, first));
        }
        Some(state)
    }

    /// Returns the messages that a read returns.
    fn window(&self, read: &Op) -> Option<&[(i64, u32)]> {
        let all = &self.messages[..];
        let below = |bound: i64| all.partition_point(|(seq, _)| *seq < bound);
        Some(match *read {
            Op::Get { offset, limit } => {
                let start = usize::from(offset).min(all.len());
                &all[start..(start + usize::from(limit)).min(all.len())]
            }
            Op::Tail { before, limit } => {
                let end = before.map_or(all.len(), below);
                &all[end.saturating_sub(usize::from(limit))..end]
            }
            Op::After { after, limit } => {
                let start = below(after + 1);
                &all[start..(start + usize::from(limit)).min(all.len())]
            }
            _ => return None,
        })
    }

    fn informed(&self, messages: u64, bytes: u64, last: i64) -> Option<Self> {
        let size = |id: u32| u64::try_from(text_of(id).len()).unwrap_or(u64::MAX);
        let sizes: u64 = self.messages.iter().map(|(_, id)| size(*id)).sum();
        let count = u64::try_from(self.messages.len()).unwrap_or(u64::MAX);
        let fits = if self.last.exact { last == self.last.at_least } else { last >= self.last.at_least };
        (count == messages && sizes == bytes && fits).then(|| {
            let mut state = self.clone();
            state.last = Number::known(last);
            state
        })
    }

    fn removed(&self, reply: &Reply<Answer>, goes: impl Fn(u32) -> bool) -> Option<Self> {
        let mut state = self.clone();
        state.messages.retain(|(_, id)| !goes(*id));
        let gone = self.messages.len() - state.messages.len();
        let right = match reply {
            Reply::Answered(Answer::Removed(count)) => u64::try_from(gone) == Ok(*count),
            Reply::Unknown => true,
            _ => false,
        };
        if gone > 0 {
            state.last = self.last.following();
            state.changed = state.last;
        }
        right.then_some(state)
    }

    fn popped(&self, count: usize, answer: Option<(&Vec<(i64, u32)>, i64)>) -> Option<Self> {
        let mut state = self.clone();
        let gone = state.messages.split_off(self.messages.len().saturating_sub(count));
        if gone.is_empty() {
            let same = |(messages, last): (&Vec<(i64, u32)>, i64)| {
                let fits =
                    if self.last.exact { last == self.last.at_least } else { last >= self.last.at_least };
                messages.is_empty() && fits
            };
            let right = answer.is_none_or(same);
            state.last = answer.map_or(self.last, |(_, last)| Number::known(last));
            return right.then_some(state);
        }
        let right = answer.is_none_or(|(messages, last)| *messages == gone && last > self.last.at_least);
        state.last = answer.map_or_else(|| self.last.following(), |(_, last)| Number::known(last));
        state.changed = state.last;
        right.then_some(state)
    }

    /// Each message has another id, so a message with the same id was not updated in between.
    fn updated(&self, (seq, was): (i64, u32), id: u32, reply: &Reply<Answer>) -> Option<Self> {
        let found = self.messages.iter().position(|message| *message == (seq, was));
        let (index, last) = match (found, reply) {
            (None, Reply::Refused(Refusal::Conflict)) => return Some(self.clone()),
            (None, Reply::Refused(Refusal::NotFound)) => {
                let missing = self.messages.iter().all(|message| message.0 != seq);
                return missing.then(|| self.clone());
            }
            (Some(index), Reply::Answered(Answer::Updated { last })) => (index, Some(*last)),
            (Some(index), Reply::Unknown) => (index, None),
            _ => return None,
        };
        if last.is_some_and(|last| last <= self.last.at_least) {
            return None;
        }
        let mut state = self.clone();
        state.messages[index].1 = id;
        state.last = last.map_or_else(|| self.last.following(), Number::known);
        state.changed = state.last;
        Some(state)
    }

    fn replaced(&self, up_to: i64, seen: i64, batch: Batch, reply: &Reply<Answer>) -> Option<Self> {
        let furthest = seen.max(up_to);
        let (removed, seq) = match reply {
            Reply::Refused(Refusal::Conflict) => {
                let refuses = self.changed.may_exceed(seen) || self.last.may_be_below(furthest);
                return refuses.then(|| self.clone());
            }
            Reply::Answered(Answer::Replaced { removed, seq }) => (Some(*removed), Some(*seq)),
            Reply::Unknown => (None, None),
            _ => return None,
        };
        if !self.changed.may_be_within(seen) || (self.last.exact && self.last.may_be_below(furthest)) {
            return None;
        }
        let mut state = self.clone();
        state.messages.retain(|(seq, _)| *seq > up_to);
        let gone = u64::try_from(self.messages.len() - state.messages.len()).unwrap_or(u64::MAX);
        let next = self.last.at_least.max(furthest) + 1;
        if removed.is_some_and(|removed| removed != gone) || seq.is_some_and(|seq| seq < next) {
            return None;
        }
        let placed = batch.placed_from(up_to - i64::from(batch.count) + 1);
        state.messages.splice(0..0, placed);
        state.last = seq.map_or(Number { at_least: next, exact: false }, Number::known);
        state.changed = state.last;
        Some(state)
    }
}
