//! A second run that begins where another stands (PK-1).

use larder_kernel::{ErrorKind, KeyValueStoreExt, Result, Seq};

use super::record::{Address, Chore, Copied};
use super::run::{Workflow, exists, unique};
use super::spec::Persistence;

impl Workflow {
    /// Begins a run under another id that stands where this one stands, with its history, its summaries and its
    /// conversations. From then on the two are independent (PK-1).
    ///
    /// # Errors
    /// `AlreadyExists` where the id has a run; `InvalidInput` naming `workflow`; `Conflict` while a turn is open;
    /// `NotFound` where this run is gone; the stores' own.
    ///
    /// # Cancellation
    /// Begun or not begun; a run that was begun gets the conversations as they stood, from whoever touches it next.
    ///
    /// # Complexity
    /// O(states, and messages copied).
    pub async fn fork(&mut self, id: &str) -> Result<Self> {
        let address = Address::new("workflow.fork", id)?;
        self.refresh().await?;
        self.settle().await?;
        let mut record = self.record.clone();
        record.token = unique();
        let threads = self.copies(&address).await?;
        for carried in record.carried.iter_mut().filter(|carried| carried.up_to.is_some()) {
            let state = self.address.persistent(&carried.visit.state)?;
            // A copy counts its messages from 1. Where that moves them, the next summary reads all of them again.
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
            turn: None,
        };
        // The run is there, and the chore with it: whoever comes next copies what cannot be copied now.
        let _ = fork.settle().await;
        Ok(fork)
    }

    /// The conversations that hold something now, up to their last message, and where they go.
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

    /// Copies what is not copied yet.
    pub(crate) async fn copy(&self, threads: &[Copied]) -> Result<()> {
        for Copied { from, to, up_to, .. } in threads {
            match self.history.fork(from, to, Some(*up_to)).await {
                // An earlier attempt did it, or the source has gone with its time to live.
                Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}
