//! Updates of messages in place.

use std::sync::Arc;

use larder_kernel::storage::history::{
    check_if_last, check_revision, check_update, check_update_at, no_such_message,
};
use larder_kernel::{
    ChatMessage, ErrorKind, HistoryProvider, IdempotencyKey, MessageUpdate, Removed, Revision, Seq, Thread,
    Updated,
};

use super::fence::{self, Fence};
use super::names::{At, thread as shown};
use super::remove::Answered;
use super::{Held, History, Kind};
use crate::model::compare::{Checked, Expected, Mismatch, same};
use crate::model::recorder::{Recorder, json, typed_id, with};
use crate::model::rng::{Rng, valid};

/// An update whose positions depend on the thread.
#[derive(Debug, Clone)]
pub(in crate::model) struct Update {
    at: At,
    /// The difference between the revision and that of the message, or of an appended message.
    off: u64,
    message: ChatMessage,
    if_last: Option<At>,
    key: Option<IdempotencyKey>,
    fence: Fence,
}

pub(super) fn draw(rng: &mut Rng<'_>, places: &[At], message: ChatMessage) -> Update {
    let lasts = [At::FromLast(0), At::FromLast(0), At::FromLast(1), At::FromLast(-1), At::Exactly(0)];
    Update {
        at: rng.of(places),
        off: rng.of(&[0, 0, 0, 0, 1]),
        message,
        if_last: (rng.below(6) == 5).then(|| rng.of(&lasts)),
        key: (rng.below(3) == 2).then(|| valid(IdempotencyKey::new(rng.id()))),
        fence: fence::draw(rng),
    }
}

impl Held {
    fn index_of(&self, seq: Seq) -> Option<usize> {
        self.messages.iter().position(|message| message.seq == seq.get())
    }

    fn update(&self, update: &Update) -> MessageUpdate {
        let seq = self.seq(update.at);
        let found = self.index_of(seq).map(|index| Revision::at(Seq::new(self.messages[index].revision)));
        let revision = Revision::new(found.unwrap_or_else(|| Revision::at(seq)).get() + update.off);
        MessageUpdate::new(seq, revision, update.message.clone())
            .with_if_last(update.if_last.map(|at| self.seq(at)))
            .with_idempotency_key(update.key.clone())
            .with_fence(self.token(update.fence))
    }

    /// Returns the clause that a call tests, and the error of a call that is refused.
    fn refusal(&self, update: &MessageUpdate) -> (&'static str, larder_kernel::Result<()>) {
        let last = Seq::new(self.last);
        if let Err(error) = check_if_last("history.update", update.if_last, last) {
            return ("HIST-149", Err(error));
        }
        if let Err(error) = check_update_at(update, last) {
            return ("HIST-152", Err(error));
        }
        match self.index_of(update.seq) {
            None => ("HIST-148", Err(no_such_message())),
            Some(index) => {
                let revision = Revision::at(Seq::new(self.messages[index].revision));
                let checked = check_revision(update, revision.get());
                (if checked.is_ok() { "HIST-143" } else { "HIST-141" }, checked)
            }
        }
    }
}

/// Returns an update as an expression.
fn expression(update: &MessageUpdate) -> String {
    let (seq, revision, message) = (update.seq, update.revision, json(&update.message));
    let if_last = with("if_last", update.if_last, |last| format!("Seq::new({last})"));
    let key = with("idempotency_key", update.idempotency_key.as_ref(), |key| typed_id("IdempotencyKey", key));
    let fence = fence::set(update.fence);
    format!("MessageUpdate::new(Seq::new({seq}), Revision::new({revision}), {message}){if_last}{key}{fence}")
}

impl History {
    pub(super) async fn update(
        &mut self,
        store: &dyn HistoryProvider,
        (thread, update): (&Thread, &Update),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.held(thread);
        let update = held.update(update);
        let digest = update.digest().map_err(|error| Mismatch::trouble(&error))?;
        let known = update.idempotency_key.as_ref().and_then(|key| held.removals.get(key));
        let (clause, expected): (_, Expected<Updated>) = if let Err(error) = check_update(&update) {
            ("STORE-010", Err(error.into()))
        } else if let Some(known) = known {
            match known.is_of(&digest) {
                true => ("HIST-150", Ok(Updated::new(known.last()))),
                false => ("HIST-151", Err(ErrorKind::Conflict.into())),
            }
        } else if let Some(refusal) = held.fenced_off("history.update", update.fence) {
            ("HIST-130", Err(refusal))
        } else {
            let (clause, checked) = held.refusal(&update);
            (clause, checked.map(|()| Updated::new(Seq::new(held.last + 1))).map_err(Into::into))
        };
        recorder.call(clause, |_| format!("update({}, {})", shown(thread), expression(&update)));
        same(recorder, clause, &store.update(thread, update.clone()).await, &expected)?;
        let Ok(updated) = expected else { return Ok(()) };
        let held = self.held_mut(thread);
        held.raise(update.fence);
        if clause == "HIST-150" {
            return Ok(());
        }
        if let Some(index) = held.index_of(update.seq) {
            let message = &mut held.messages[index];
            message.message = Arc::new(update.message.clone());
            message.revision = updated.last.get();
        }
        let thread_bytes = held.bytes();
        held.log(Kind::Updated { of: update.seq.get(), thread_bytes });
        if let Some(key) = update.idempotency_key {
            held.removals.insert(key, Answered::new(digest, Removed::new(1, updated.last)));
        }
        Ok(())
    }
}
