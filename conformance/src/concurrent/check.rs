//! Decides whether a recorded history is linearizable: whether some order of its operations, in which each stands
//! between its call and its answer, is one that the sequential specification allows.
//!
//! Definition: Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects" (1990). The search is
//! that of Wing and Gong, "Testing and verifying concurrent objects" (1993), in the just-in-time form of Lowe, "Testing
//! for linearizability" (2017): the history is walked along its calls and answers, and an operation is put into the order
//! only when an answer needs it. What is remembered at each answer is the set of all configurations, each the operations
//! that are in the order and the state that they led to, so nothing is searched twice.
//!
//! The search is exact: it decides, or says that its budget ran out. A budget that ran out is never a pass.

mod shrink;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

pub(crate) use shrink::{Shrunk, shrink};

/// The operations that a history holds at most, as the set of those in the order is a word of so many bits.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// The configurations that a search visits at most.
pub(crate) const BUDGET: usize = 400_000;

/// What an object does when it is used by one caller at a time.
pub(crate) trait Spec {
    /// What the object holds.
    type State: Clone + Eq + Hash;
    /// A call with its arguments.
    type Op: Clone;
    /// What a call that succeeds answers.
    type Answer: Clone;

    /// The state after the call, or `None` where the object would not have answered so. With [`Reply::Unknown`], the
    /// state in which the call leaves the object if it takes effect at all; that it takes none is the search's own
    /// business.
    fn step(state: &Self::State, op: &Self::Op, reply: &Reply<Self::Answer>) -> Option<Self::State>;

    /// Whether the call, answered so, may have changed anything.
    fn changes(op: &Self::Op, reply: &Reply<Self::Answer>) -> bool;

    /// Which part of the object the call touches, where the parts do not depend on each other: an order of all calls
    /// without those of one part is still one that the specification allows.
    fn part(_op: &Self::Op) -> Option<u8> {
        None
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply<A> {
    /// Success.
    Answered(A),
    /// An error by which nothing happened.
    Refused(Refusal),
    /// Nothing that tells whether it happened: it may take effect at any later time, or never.
    Unknown,
}

/// Why nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    /// `NotFound`.
    NotFound,
    /// `AlreadyExists`.
    AlreadyExists,
    /// `Conflict`.
    Conflict,
    /// The store does not implement the method, which is named.
    Missing(String),
    /// An error that no call of a history should meet.
    Other(String),
}

/// One operation of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record<O, A> {
    /// Who called.
    pub(crate) client: u8,
    /// Through which handle.
    pub(crate) handle: u8,
    /// When it was called. Numbers of different clients compare.
    pub(crate) called: u64,
    /// When the answer came; `None` where none did that says what happened.
    pub(crate) answered: Option<u64>,
    /// The call.
    pub(crate) op: O,
    /// The answer.
    pub(crate) reply: Reply<A>,
}

/// A record of a specification's operations.
pub(crate) type RecordOf<S> = Record<<S as Spec>::Op, <S as Spec>::Answer>;

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement<T> {
    /// There is an order.
    Linearizable,
    /// There is none.
    Stuck(Stuck<T>),
    /// The budget ran out, or the history is longer than [`OPERATIONS_MAX`].
    TooMuch,
}

/// Where the search for an order ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stuck<T> {
    /// The operation whose answer no order explains, by its place in the history.
    pub(crate) at: usize,
    /// The last moment before its call at which one configuration alone was possible.
    pub(crate) certain: Option<Certain<T>>,
}

/// A moment at which one configuration alone was possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certain<T> {
    /// What the object held.
    pub(crate) state: T,
    /// Which operations were in the order, and are history; the others had had no effect.
    pub(crate) done: u128,
}

/// A call or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: u64,
    /// Calls before answers where the times are equal: then neither is known to come first.
    answer: bool,
    index: usize,
}

fn moments<O, A>(history: &[Record<O, A>]) -> Vec<Moment> {
    let mut moments = Vec::with_capacity(history.len() * 2);
    for (index, record) in history.iter().enumerate() {
        moments.push(Moment { at: record.called, answer: false, index });
        if let Some(at) = record.answered {
            moments.push(Moment { at, answer: true, index });
        }
    }
    moments.sort_unstable();
    moments
}

/// Operations in the order, and the state that they led to.
type Configuration<S> = (u128, <S as Spec>::State);

/// Whether the history is linearizable, beginning from `initial`.
pub(crate) fn check<S: Spec>(
    initial: &S::State,
    history: &[RecordOf<S>],
    budget: usize,
) -> Judgement<S::State> {
    if history.len() > OPERATIONS_MAX {
        return Judgement::TooMuch;
    }
    let mut spent = 0;
    let mut pending: Vec<usize> = Vec::new();
    let mut configurations: Vec<Configuration<S>> = vec![(0, initial.clone())];
    let mut certain: Vec<(u64, Certain<S::State>)> = Vec::new();
    for moment in moments(history) {
        if !moment.answer {
            pending.push(moment.index);
            continue;
        }
        let next = advance::<S>(history, &pending, configurations, moment.index, budget, &mut spent);
        let Some(next) = next else { return Judgement::TooMuch };
        if next.is_empty() {
            let called = history[moment.index].called;
            certain.retain(|(at, _)| *at < called);
            let certain = certain.pop().map(|(_, certain)| certain);
            return Judgement::Stuck(Stuck { at: moment.index, certain });
        }
        pending.retain(|index| *index != moment.index);
        if let [(done, state)] = &next[..] {
            certain.push((moment.at, Certain { state: state.clone(), done: *done }));
        }
        configurations = next;
    }
    Judgement::Linearizable
}

/// The configurations after the answer of one operation: those in which it is in the order, reached from the present
/// ones by putting pending operations into it. `None` where the budget ran out.
fn advance<S: Spec>(
    history: &[RecordOf<S>],
    pending: &[usize],
    present: Vec<Configuration<S>>,
    answered: usize,
    budget: usize,
    spent: &mut usize,
) -> Option<Vec<Configuration<S>>> {
    let mut next = Vec::new();
    let mut seen: HashSet<Configuration<S>> = HashSet::new();
    let mut open = present;
    while let Some((done, state)) = open.pop() {
        *spent += 1;
        if *spent > budget {
            return None;
        }
        if done & bit(answered) != 0 {
            next.push((done, state));
            continue;
        }
        for &index in pending {
            if done & bit(index) != 0 {
                continue;
            }
            let record = &history[index];
            if let Some(state) = S::step(&state, &record.op, &record.reply) {
                let configuration = (done | bit(index), state);
                if seen.insert(configuration.clone()) {
                    open.push(configuration);
                }
            }
        }
    }
    // A configuration that had the operation already may be reached anew as well.
    let mut kept: HashSet<Configuration<S>> = HashSet::with_capacity(next.len());
    next.retain(|configuration| kept.insert(configuration.clone()));
    Some(next)
}

fn bit(index: usize) -> u128 {
    1 << index
}
