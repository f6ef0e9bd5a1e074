//! Commits of a run by compare-and-set, and the work that they leave.

use larder_kernel::{AppendOptions, Error, ErrorKind, IdempotencyKey, KeyValueStoreExt, Result, Revision};

use super::record::{Chore, Record};
use super::run::{Workflow, unique};
use super::spec::Persistence;

impl Workflow {
    /// Continues with a record that was read or written.
    pub(crate) fn adopt(&mut self, mut record: Record, revision: Revision) {
        // A state may have become transient in the specification since its summary was stored.
        record.carried.retain(|carried| {
            let state = self.spec.state(&carried.visit.state);
            state.is_none_or(|state| state.persistence() == Persistence::Persistent)
        });
        self.transient.settle(&record, self.states_max());
        if self.local.as_ref().is_some_and(|(visit, _)| *visit != record.anchor) {
            self.local = None;
        }
        (self.record, self.revision) = (record, revision);
    }

    /// Replaces the record that this handle last read, or detects that an earlier attempt already did.
    pub(crate) async fn commit(&mut self, next: Record) -> Result<()> {
        let bytes = next.to_bytes()?;
        match self.state.put_at(&self.bucket, &self.address.key, bytes, self.revision).await {
            Ok(revision) => {
                self.adopt(next, revision);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let (stored, revision) = self.load().await?;
                let event = |record: &Record| record.history.last().map(|last| last.event.clone());
                let own = stored.token == next.token && stored.current == next.current;
                if own && event(&stored) == event(&next) {
                    self.adopt(stored, revision);
                    return Ok(());
                }
                let message = "another worker moved the workflow first; begin the turn again";
                Err(Error::new(ErrorKind::Conflict, "workflow.commit", message))
            }
            Err(error) => Err(error),
        }
    }

    /// Does the remaining work of a commit. Repeating it has no second effect, so any number of workers may
    /// call it.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        while let Some(chore) = self.record.chore.clone() {
            let mut next = self.record.clone();
            next.chore = None;
            next.token = unique();
            match chore {
                Chore::Clear { thread } => {
                    self.history.clear(&thread, None).await?;
                }
                Chore::Copy { threads } => self.copy(&threads).await?,
                Chore::Append { thread, turn, messages } => {
                    let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new(turn)?);
                    let placed = self.history.append_many(&thread, messages, options).await?;
                    next.covered(&thread.session, placed);
                }
            }
            match self.commit(next).await {
                Err(error) if error.kind() == ErrorKind::Conflict => self.read().await?,
                other => other?,
            }
        }
        Ok(())
    }
}
