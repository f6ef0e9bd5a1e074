//! Decides whether a recorded history is linearizable: whether the sequential specification allows some order
//! of its operations in which each takes effect between its call and its result.
//!
//! Definition: Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects" (1990).
//! The search is that of Wing and Gong, "Testing and verifying concurrent objects" (1993), in the
//! just-in-time form of Lowe, "Testing for linearizability" (2017). It walks the history along its calls and
//! results, and adds an operation to the order only when a result needs it. At each result it keeps the set
//! of all configurations. A configuration is the set of operations in the order and the state that they lead
//! to, so no configuration is searched twice.
//!
//! The search is exact: it decides, or reports that its budget ran out. A search that ran out of budget is
//! never a pass.

mod shrink;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

pub(crate) use shrink::{Shrunk, shrink};

/// The maximum number of operations of a history, because a 128-bit word holds the set of ordered operations.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// The maximum number of configurations that a search visits.
pub(crate) const BUDGET: usize = 400_000;

/// The sequential specification of an object.
pub(crate) trait Spec {
    /// The state of the object.
    type State: Clone + Eq + Hash;
    /// A call with its arguments.
    type Op: Clone;
    /// The result of a successful call.
    type Answer: Clone;

    /// Returns the state after the call, or `None` if the object would not have returned this result. With
    /// [`Reply::Unknown`], it returns the state after a call that took effect. The search itself covers the
    /// case that the call took no effect.
    fn step(state: &Self::State, op: &Self::Op, reply: &Reply<Self::Answer>) -> Option<Self::State>;

    /// Returns `true` if the call with this result may have changed the object.
    fn changes(op: &Self::Op, reply: &Reply<Self::Answer>) -> bool;

    /// Returns the part of the object that the call touches, if the parts are independent: an order of all
    /// calls stays valid without the calls of one part.
    fn part(_op: &Self::Op) -> Option<u8> {
        None
    }

    /// Returns `true` if the call touches several parts, which are then not independent in its history.
    fn spans(_op: &Self::Op) -> bool {
        false
    }
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply<A> {
    /// The call succeeded.
    Answered(A),
    /// The call failed and had no effect.
    Refused(Refusal),
    /// The outcome is unknown: the call may take effect at any later time, or never.
    Unknown,
}

/// The reason why a call had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    /// `NotFound`.
    NotFound,
    /// `AlreadyExists`.
    AlreadyExists,
    /// `Conflict`.
    Conflict,
    /// The store does not implement the named method.
    Missing(String),
    /// An error that no call of a history should return.
    Other(String),
}

/// One operation of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record<O, A> {
    /// The number of the client.
    pub(crate) client: u8,
    /// The number of the handle.
    pub(crate) handle: u8,
    /// The time of the call. Times of different clients are comparable.
    pub(crate) called: u64,
    /// The time of the result; `None` if no result has a known outcome.
    pub(crate) answered: Option<u64>,
    /// The call.
    pub(crate) op: O,
    /// The result.
    pub(crate) reply: Reply<A>,
}

/// A record of a specification's operations.
pub(crate) type RecordOf<S> = Record<<S as Spec>::Op, <S as Spec>::Answer>;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement<T> {
    /// An order exists.
    Linearizable,
    /// No order exists.
    Stuck(Stuck<T>),
    /// The budget ran out, or the history is longer than [`OPERATIONS_MAX`].
    TooMuch,
}

/// The point at which the search for an order ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stuck<T> {
    /// The index of the operation whose result no order explains.
    pub(crate) at: usize,
    /// The last moment before its call at which only one configuration was possible.
    pub(crate) certain: Option<Certain<T>>,
}

/// A moment at which only one configuration was possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certain<T> {
    /// The state of the object.
    pub(crate) state: T,
    /// The operations in the order; the others had no effect.
    pub(crate) done: u128,
}

/// A call or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: u64,
    /// True for a result. At equal times calls come first: neither is known to precede the other.
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

/// The operations in the order, and the state that they lead to.
type Configuration<S> = (u128, <S as Spec>::State);

/// Checks whether the history is linearizable, starting from `initial`.
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

/// Returns the configurations after the result of one operation. Each contains the operation and is reached
/// from a present one by adding pending operations. `None` if the budget ran out.
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
    // A configuration that already had the operation may be reached again.
    let mut kept: HashSet<Configuration<S>> = HashSet::with_capacity(next.len());
    next.retain(|configuration| kept.insert(configuration.clone()));
    Some(next)
}

fn bit(index: usize) -> u128 {
    1 << index
}
