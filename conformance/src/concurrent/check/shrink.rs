//! Makes a non-linearizable history as short as possible.
//!
//! Leaving out a write could make a correct history wrong, for example a read of the written value. So every
//! step keeps this rule: if the shorter history has no order, the longer one has none either.
//! - Calls after the unexplained result are cut off, and calls in flight at that time are left open.
//! - Calls that changed nothing are left out, and so are all calls of an independent part.
//! - At a moment with only one possible configuration, its state replaces the calls before it.

use super::{BUDGET, Judgement, RecordOf, Reply, Spec, Stuck, bit, check};

/// A shrunk history that is not linearizable.
pub(crate) struct Shrunk<S: Spec> {
    /// The initial state of the object.
    pub(crate) initial: S::State,
    /// The operations, in the order of their calls.
    pub(crate) history: Vec<RecordOf<S>>,
    /// The index of the operation whose result no order explains.
    pub(crate) at: usize,
}

/// Shrinks a non-linearizable history. `None` if the history is linearizable, or the search cannot decide.
pub(crate) fn shrink<S: Spec>(initial: &S::State, history: &[RecordOf<S>]) -> Option<Shrunk<S>> {
    let (mut initial, mut history) = (initial.clone(), history.to_vec());
    history.sort_by_key(|record| record.called);
    let mut stuck = stuck::<S>(&initial, &history)?;
    loop {
        let before = history.len();
        history = cut::<S>(&initial, &history, stuck.at);
        history = without_parts::<S>(&initial, history);
        history = without_reads::<S>(&initial, history);
        stuck = self::stuck::<S>(&initial, &history)?;
        if let Some(certain) = &stuck.certain {
            initial = certain.state.clone();
            let mut index = 0;
            history.retain(|_| {
                index += 1;
                certain.done & bit(index - 1) == 0
            });
            stuck = self::stuck::<S>(&initial, &history)?;
        }
        if history.len() == before {
            return Some(Shrunk { initial, history, at: stuck.at });
        }
    }
}

fn stuck<S: Spec>(initial: &S::State, history: &[RecordOf<S>]) -> Option<Stuck<S::State>> {
    match check::<S>(initial, history, BUDGET) {
        Judgement::Stuck(stuck) => Some(stuck),
        Judgement::Linearizable | Judgement::TooMuch => None,
    }
}

/// Returns the history up to the result of one operation. A call that started before it and ended later is
/// left open, or left out if it is a read, unless its result matters.
fn cut<S: Spec>(initial: &S::State, history: &[RecordOf<S>], at: usize) -> Vec<RecordOf<S>> {
    let Some(end) = history[at].answered else { return history.to_vec() };
    let mut kept: Vec<RecordOf<S>> = history.iter().filter(|record| record.called <= end).cloned().collect();
    for index in (0..kept.len()).rev() {
        if kept[index].answered.is_none_or(|answered| answered <= end) {
            continue;
        }
        let mut shorter = kept.clone();
        let record = &mut shorter[index];
        if S::changes(&record.op, &record.reply) {
            (record.answered, record.reply) = (None, Reply::Unknown);
        } else {
            shorter.remove(index);
        }
        if stuck::<S>(initial, &shorter).is_some() {
            kept = shorter;
        }
    }
    kept
}

fn without_parts<S: Spec>(initial: &S::State, mut history: Vec<RecordOf<S>>) -> Vec<RecordOf<S>> {
    // The parts are independent only if no call touches several.
    if history.iter().any(|record| S::spans(&record.op)) {
        return history;
    }
    let mut parts: Vec<u8> = history.iter().filter_map(|record| S::part(&record.op)).collect();
    parts.sort_unstable();
    parts.dedup();
    for part in parts {
        let mut shorter = history.clone();
        shorter.retain(|record| S::part(&record.op) != Some(part));
        if stuck::<S>(initial, &shorter).is_some() {
            history = shorter;
        }
    }
    history
}

fn without_reads<S: Spec>(initial: &S::State, mut history: Vec<RecordOf<S>>) -> Vec<RecordOf<S>> {
    for index in (0..history.len()).rev() {
        let record = &history[index];
        if S::changes(&record.op, &record.reply) {
            continue;
        }
        let mut shorter = history.clone();
        shorter.remove(index);
        if stuck::<S>(initial, &shorter).is_some() {
            history = shorter;
        }
    }
    history
}
