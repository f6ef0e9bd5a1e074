//! Copies of a run.

use larder_kernel::{ErrorKind, KeyValueStoreExt, Result, Seq};

use super::record::{Address, Chore, Copied};
use super::run::{Workflow, exists, unique};
use super::spec::Persistence;

impl Workflow {
    /// Starts a run under another id in the current state of this one, with its history, its summaries and
    /// its conversations. Later changes to one do not affect the other.
    ///
    /// # Errors
    /// `AlreadyExists` if the id has a run. `InvalidInput` with `workflow`. `Conflict` while a turn is open.
    /// `NotFound` if this run no longer exists. The errors of the stores.
    ///
    /// # Cancellation
    /// The run is started or not. If it is started, the next worker that uses it completes the copies of the
    /// conversations.
    ///
    /// # Complexity
    /// O(states + copied messages).
    pub async fn fork(&mut self, id: &str) -> Result<Self> {
        let address = Address::new("workflow.fork", id)?;
        self.refresh().await?;
        self.settle().await?;
        let mut record = self.record.clone();
        record.token = unique();
        let threads = self.copies(&address).await?;
        for carried in record.carried.iter_mut().filter(|carried| carried.up_to.is_some()) {
            let state = self.address.persistent(&carried.visit.state)?;
            // A copy numbers its messages from 1. If that moves them, the next summary reads all of them
            // again.
            if threads.iter().any(|copied| copied.from == state && copied.moved) {
                carried.up_to = Some(Seq::ZERO);
            }
        }
        record.chore = (!threads.is_empty()).then_some(Chore::Copy { threads });
        let created = self.state.create(&self.bucket, &address.key, record.to_bytes()?).await;
        let revision = created.map_err(|error| exists("workflow.fork", error))?;
        let mut fork = Self {
            history: self.history.clone(),
            state: self.state.clone(),
            bucket: self.bucket.clone(),
            id: id.to_owned(),
            address,
            spec: self.spec.clone(),
            options: self.options.clone(),
            record,
            revision,
            local: self.local.clone(),
            transient: self.transient.clone(),
            turn: None,
        };
        // The run and its remaining work are stored, so the next worker can copy the conversations that
        // cannot be copied now.
        let _ = fork.settle().await;
        Ok(fork)
    }

    /// Returns the conversations that are not empty, up to their last message, and their targets.
    async fn copies(&self, to: &Address) -> Result<Vec<Copied>> {
        let anchor = &self.record.anchor;
        let persistent =
            self.spec.states().iter().filter(|(_, state)| state.persistence() == Persistence::Persistent);
        let mut pairs = Vec::new();
        for (name, _) in persistent {
            pairs.push((self.address.persistent(name)?, to.persistent(name)?));
        }
        if self.state_of(anchor)?.persistence() == Persistence::Transient && self.home(anchor)?.is_some() {
            pairs.push((self.address.transient(anchor)?, to.transient(anchor)?));
        }
        let mut copies = Vec::new();
        for (from, to) in pairs {
            let info = self.history.thread_info(&from).await?;
            if info.messages > 0 {
                let moved = u64::try_from(info.last.get()) != Ok(info.messages);
                copies.push(Copied { from, to, up_to: info.last, moved });
            }
        }
        Ok(copies)
    }

    /// Copies the conversations that are not copied yet.
    pub(crate) async fn copy(&self, threads: &[Copied]) -> Result<()> {
        for Copied { from, to, up_to, .. } in threads {
            match self.history.fork(from, to, Some(*up_to), None).await {
                // An earlier attempt copied it, or the source has expired.
                Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}
