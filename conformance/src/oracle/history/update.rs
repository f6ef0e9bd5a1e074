//! Updates of messages by a client of a thread.

use larder_kernel::{ChatMessage, IdempotencyKey, MessageUpdate, RequestOption, Result, Revision, Seq};

use super::{HistoryClient, State, TRIES_MAX};
use crate::harness::StoreSet;
use crate::oracle::{Answer, Defect, Ended, Op, is_outage, unexplained};

impl HistoryClient {
    /// Chooses the batch whose first message to update.
    pub(super) fn choose_update(&mut self) -> Option<Op> {
        let batch = self.batches.len().checked_sub(1)?;
        let of = &mut self.batches[batch];
        if !matches!(of.state, State::There(..)) || of.versions.0 != of.versions.1 {
            return None;
        }
        if !self.random.once_in(6) {
            return None;
        }
        // From now on: a writer that is killed may have updated the message.
        of.versions.1 += 1;
        self.updating = Some((batch, 1));
        Some(Op::UpdateBatch { batch })
    }

    pub(super) async fn update(&self, batch: usize, stores: &StoreSet) -> Result<Answer> {
        let (history, thread, of) = (stores.history()?, self.thread()?, &self.batches[batch]);
        let State::There(first, _) = of.state else { return Ok(Answer::Numbers(Vec::new())) };
        if !history.options().has(RequestOption::UpdateIdempotencyKey) {
            return Ok(Answer::Numbers(Vec::new()));
        }
        let seq = Seq::new(i64::try_from(first).unwrap_or(i64::MAX));
        let found = history.page_after(&thread, Seq::new(seq.get() - 1), 1).await?;
        let revision = found.first().map_or(Revision::at(seq), |stored| stored.revision);
        let version = of.versions.1;
        let message = ChatMessage::user(self.version(batch, version));
        let key = IdempotencyKey::new(format!("update {} {batch} {version}", self.era))?;
        let update = MessageUpdate::new(seq, revision, message).with_idempotency_key(key);
        let updated = history.update(&thread, update).await?;
        Ok(Answer::Numbers(vec![u64::try_from(updated.last.get()).unwrap_or(0)]))
    }

    pub(super) fn settle_update(&mut self, batch: usize, ended: Ended) -> Option<Defect> {
        let op = Op::UpdateBatch { batch };
        let (_, tries) = self.updating.take().unwrap_or((batch, 1));
        let of = &mut self.batches[batch];
        match ended {
            Ended::Done(Answer::Numbers(numbers)) => {
                let [last] = numbers[..] else {
                    of.versions.1 = of.versions.0;
                    return None;
                };
                of.versions.0 = of.versions.1;
                of.updated = last;
                let State::There(_, end) = of.state else { return None };
                let finding =
                    format!("an update of batch {batch}, which ends at {end}, has the number {last}");
                (last <= end).then(|| Defect::new("HIST-143", finding))
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                // An earlier attempt may have updated the message.
                if tries == 1 {
                    of.versions.1 = of.versions.0;
                }
                if tries > 1 && is_outage(&error) && tries < TRIES_MAX {
                    self.updating = Some((batch, tries + 1));
                }
                unexplained(Some(&error), &op)
            }
            Ended::Open(error) => {
                if tries < TRIES_MAX {
                    self.updating = Some((batch, tries + 1));
                }
                unexplained(error.as_ref(), &op)
            }
        }
    }
}
