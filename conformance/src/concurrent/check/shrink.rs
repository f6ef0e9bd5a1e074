//! Makes a history that is not linearizable as short as it goes.
//!
//! Leaving out a write could make a history wrong that was right, such as a read of what the write put there. So only
//! steps are taken that cannot: if the shorter history has no order, the longer one has none either.
//! - What was called after the answer that no order explains is cut off, and calls that went on then are left open.
//! - Calls that changed nothing are left out, and so is all that touches one independent part.
//! - Where one configuration alone was possible, what led to it becomes the state that the history begins with.

use super::{BUDGET, Judgement, RecordOf, Reply, Spec, Stuck, bit, check};

/// A history that is not linearizable, and nothing more.
pub(crate) struct Shrunk<S: Spec> {
    /// What the object held at the beginning.
    pub(crate) initial: S::State,
    /// The operations, in the order of their calls.
    pub(crate) history: Vec<RecordOf<S>>,
    /// The one whose answer no order explains, by its place.
    pub(crate) at: usize,
}

/// Shrinks a history that is not linearizable. `None` where it is, or nobody knows.
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

/// The history up to the answer of one operation. What was called before it and answered later is left open, or out if it
/// is a read, unless its answer matters.
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
