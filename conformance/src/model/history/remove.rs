//! Removals: by number, after a position, and from the end.

use larder_kernel::check::size;
use larder_kernel::storage::history::{check_if_last, check_remove, check_remove_at, check_removed_bytes};
use larder_kernel::{
    ErrorKind, HistoryProvider, IdempotencyKey, Removal, RemovalTarget, Removed, Seq, StoredMessage, Thread,
};

use super::fence::{self, Fence};
use super::names::{At, thread as shown};
use super::{Held, History, Kind, Message};
use crate::model::compare::{Checked, Expected, same};
use crate::model::recorder::{Recorder, typed_id, with};
use crate::model::rng::{Rng, valid};

/// The messages that an operation removes.
#[derive(Debug, Clone)]
pub(in crate::model) enum Target {
    Numbers(Vec<At>),
    After(At),
    Newest(usize),
}

/// A removal whose positions depend on the thread.
#[derive(Debug, Clone)]
pub(in crate::model) struct Remove {
    target: Target,
    if_last: Option<At>,
    key: Option<IdempotencyKey>,
    fence: Fence,
}

/// The result of a removal or an update with an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    digest: [u8; 32],
    /// Without messages.
    answer: Removed,
    /// The messages of a pop, until the thread is cleared.
    popped: Vec<StoredMessage>,
}

impl Answered {
    /// Returns the result of a call without messages.
    pub(super) fn new(digest: [u8; 32], answer: Removed) -> Self {
        Self { digest, answer, popped: Vec::new() }
    }

    pub(super) fn is_of(&self, digest: &[u8; 32]) -> bool {
        self.digest == *digest
    }

    /// Returns the last number after the call.
    pub(super) fn last(&self) -> Seq {
        self.answer.last
    }
}

pub(super) fn draw(rng: &mut Rng<'_>, places: &[At]) -> Remove {
    let target = match rng.below(6) {
        0 | 1 => {
            let count = rng.of(&[1_usize, 1, 2, 3, 4, 0]);
            Target::Numbers((0..count).map(|_| rng.of(places)).collect())
        }
        2 => Target::After(rng.of(places)),
        _ => Target::Newest(rng.of(&[1, 1, 1, 2, 3, 1_000, 0, 1_001])),
    };
    let lasts = [At::FromLast(0), At::FromLast(0), At::FromLast(1), At::FromLast(-1), At::Exactly(0)];
    Remove {
        target,
        if_last: (rng.below(4) == 3).then(|| rng.of(&lasts)),
        key: (rng.below(3) == 2).then(|| valid(IdempotencyKey::new(rng.id()))),
        fence: fence::draw(rng),
    }
}

impl Held {
    fn removal(&self, remove: &Remove) -> Removal {
        let removal = match &remove.target {
            Target::Numbers(places) => Removal::numbers(places.iter().map(|at| self.seq(*at))),
            Target::After(at) => Removal::after(self.seq(*at)),
            Target::Newest(count) => Removal::newest(*count),
        };
        let removal = removal.with_if_last(remove.if_last.map(|at| self.seq(at)));
        removal.with_idempotency_key(remove.key.clone()).with_fence(self.token(remove.fence))
    }

    /// Returns the messages that a removal removes, in order.
    fn doomed(&self, target: &RemovalTarget) -> Vec<Message> {
        let oldest_kept = match target {
            RemovalTarget::Newest(count) => self.messages.len().saturating_sub(*count),
            _ => 0,
        };
        let goes = |message: &&Message| match target {
            RemovalTarget::Numbers(numbers) => numbers.contains(&Seq::new(message.seq)),
            RemovalTarget::After(position) => message.seq > position.get(),
            _ => true,
        };
        self.messages.iter().skip(oldest_kept).filter(goes).cloned().collect()
    }

    /// Removes the messages and returns the result.
    fn remove(&mut self, target: &RemovalTarget, goes: &[Message]) -> Removed {
        if goes.is_empty() {
            return Removed::new(0, Seq::new(self.last));
        }
        let seqs: Vec<i64> = goes.iter().map(|message| message.seq).collect();
        self.messages.retain(|message| !seqs.contains(&message.seq));
        let count = size(goes.len());
        if let RemovalTarget::After(position) = target {
            let last = self.log(Kind::Rewound { after: position.get(), removed: count });
            return Removed::new(count, Seq::new(last));
        }
        let last = self.log(Kind::Removed { seqs: seqs.clone() });
        let removed = Removed::new(count, Seq::new(last)).with_seqs(seqs.into_iter().map(Seq::new).collect());
        removed.with_messages(goes.iter().map(Message::stored).collect())
    }

    /// Forgets the messages of pops.
    pub(super) fn forget_popped(&mut self) {
        self.removals.values_mut().for_each(|answered| answered.popped.clear());
    }
}

/// Returns a removal as an expression.
fn expression(removal: &Removal) -> String {
    let made = match &removal.target {
        RemovalTarget::Numbers(numbers) => {
            let numbers: Vec<i64> = numbers.iter().map(|seq| seq.get()).collect();
            format!("Removal::numbers({numbers:?}.map(Seq::new))")
        }
        RemovalTarget::After(position) => format!("Removal::after(Seq::new({position}))"),
        RemovalTarget::Newest(count) => format!("Removal::newest({count})"),
        other => format!("{other:?}"),
    };
    let if_last = with("if_last", removal.if_last, |last| format!("Seq::new({last})"));
    let key =
        with("idempotency_key", removal.idempotency_key.as_ref(), |key| typed_id("IdempotencyKey", key));
    let fence = fence::set(removal.fence);
    format!("{made}{if_last}{key}{fence}")
}

impl History {
    pub(super) async fn remove(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, remove): (&Thread, &Remove),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let removal = held.removal(remove);
        let (last, goes) = (Seq::new(held.last), held.doomed(&removal.target));
        let bytes = size(goes.iter().map(|message| message.message.size_bytes()).sum());
        let returns = !matches!(removal.target, RemovalTarget::After(_));
        let known = removal.idempotency_key.as_ref().and_then(|key| held.removals.get(key));
        let (clause, refused): (_, Option<Expected<Removed>>) = if let Err(error) = check_remove(&removal) {
            ("STORE-010", Some(Err(error.into())))
        } else if let Some(known) = known {
            let same = known.digest == removal.digest();
            let answer = known.answer.clone().with_messages(known.popped.clone());
            let clause = if same { "HIST-121" } else { "HIST-122" };
            (clause, Some(if same { Ok(answer) } else { Err(ErrorKind::Conflict.into()) }))
        } else if let Some(refusal) = held.fenced_off("history.remove", removal.fence) {
            ("HIST-130", Some(Err(refusal)))
        } else if let Err(error) = check_if_last("history.remove", removal.if_last, last) {
            ("HIST-120", Some(Err(error.into())))
        } else if let Err(error) = check_remove_at(&removal, last) {
            ("HIST-127", Some(Err(error.into())))
        } else if let (true, Err(error)) = (returns, check_removed_bytes(&removal, bytes)) {
            ("HIST-126", Some(Err(error.into())))
        } else {
            let clause = match removal.target {
                RemovalTarget::Numbers(_) => "HIST-113",
                RemovalTarget::After(_) => "HIST-114",
                _ => "HIST-115",
            };
            (clause, None)
        };
        recorder.call(clause, |_| format!("remove({}, {})", shown(thread), expression(&removal)));
        let got = store.remove(thread, removal.clone()).await;
        if let Some(expected) = refused {
            if expected.is_ok() {
                self.held_mut(thread).raise(removal.fence);
            }
            return same(recorder, clause, &got, &expected);
        }
        let mut after = held.clone();
        let answer = after.remove(&removal.target, &goes);
        same(recorder, clause, &got, &Ok(answer.clone()))?;
        if let Some(key) = &removal.idempotency_key {
            let keeps = matches!(removal.target, RemovalTarget::Newest(_));
            let popped = if keeps { answer.messages.clone() } else { Vec::new() };
            let answer = answer.with_messages(Vec::new());
            after.removals.insert(key.clone(), Answered { digest: removal.digest(), answer, popped });
        } else if goes.is_empty() {
            // The store need not have created the thread.
            if let Some(held) = self.threads.get_mut(thread) {
                held.raise(removal.fence);
            }
            return Ok(());
        }
        after.raise(removal.fence);
        *self.held_mut(thread) = after;
        Ok(())
    }
}
