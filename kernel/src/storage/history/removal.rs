//! Argument and result of [`remove`](super::HistoryProvider::remove).

use serde::{Deserialize, Serialize};

use super::check::{check_last, named_bound};
use super::fence::check_token;
use super::types::StoredMessage;
use crate::check;
use crate::error::Result;
use crate::id::IdempotencyKey;
use crate::limits::BATCH_MESSAGES_MAX;
use crate::position::{FencingToken, Generation, Revision, Seq};
use crate::storage::options::{OptionSet, RequestOption};

const OPERATION: &str = "history.remove";

/// The messages that a removal removes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalTarget {
    /// The messages with these numbers, at most 1,000.
    Numbers(Vec<Seq>),
    /// Every message after this position: a rewind.
    After(Seq),
    /// The newest messages, at most 1,000: a pop.
    Newest(usize),
}

/// A removal of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// The messages to remove.
    pub target: RemovalTarget,
    /// The last `Seq` that the thread must have; `None` removes in any state.
    pub if_last: Option<Seq>,
    /// The idempotency key, which makes a repeated removal harmless.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The fencing token of the writer; `None` for a thread that is not fenced.
    pub fence: Option<FencingToken>,
}

impl Removal {
    /// Creates a removal of the messages with these numbers.
    #[must_use]
    pub fn numbers(numbers: impl IntoIterator<Item = Seq>) -> Self {
        Self::of(RemovalTarget::Numbers(numbers.into_iter().collect()))
    }

    /// Creates a removal of every message after a position.
    #[must_use]
    pub fn after(position: Seq) -> Self {
        Self::of(RemovalTarget::After(position))
    }

    /// Creates a removal of the newest messages.
    #[must_use]
    pub fn newest(count: usize) -> Self {
        Self::of(RemovalTarget::Newest(count))
    }

    fn of(target: RemovalTarget) -> Self {
        Self { target, if_last: None, idempotency_key: None, fence: None }
    }

    /// Sets the last `Seq` that the thread must have.
    #[must_use]
    pub fn with_if_last(mut self, last: impl Into<Option<Seq>>) -> Self {
        self.if_last = last.into();
        self
    }

    /// Sets the idempotency key, which makes a repeated removal harmless.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: impl Into<Option<IdempotencyKey>>) -> Self {
        self.idempotency_key = key.into();
        self
    }

    /// Sets the fencing token of the writer.
    #[must_use]
    pub fn with_fence(mut self, token: impl Into<Option<FencingToken>>) -> Self {
        self.fence = token.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { target: _, if_last, idempotency_key, fence } = self;
        OptionSet::NONE
            .with_if(if_last.is_some(), RequestOption::RemoveIfLast)
            .with_if(idempotency_key.is_some(), RequestOption::RemoveIdempotencyKey)
            .with_if(fence.is_some(), RequestOption::Fence)
    }

    /// Returns the digest by which a store recognizes a repeated removal: SHA-256 over the target. The
    /// condition and the fencing token do not count.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let mut digest = Sha256::new();
        match &self.target {
            RemovalTarget::Numbers(numbers) => {
                let mut numbers: Vec<i64> = numbers.iter().map(|seq| seq.get()).collect();
                numbers.sort_unstable();
                digest.update(b"numbers");
                numbers.iter().for_each(|number| digest.update(number.to_be_bytes()));
            }
            RemovalTarget::After(position) => {
                digest.update(b"after");
                digest.update(position.get().to_be_bytes());
            }
            RemovalTarget::Newest(count) => {
                digest.update(b"newest");
                digest.update(check::size(*count).to_be_bytes());
            }
        }
        digest.finalize().into()
    }

    /// Returns the position that the thread must have reached: the one to rewind to, or the greatest of the
    /// numbers that name a generation. A number without a generation is a bound and fits every thread.
    ///
    /// # Errors
    /// `Conflict` if the numbers name different generations.
    pub fn bound(&self) -> Result<Option<Seq>> {
        match &self.target {
            RemovalTarget::Numbers(numbers) => named_bound(OPERATION, "numbers", numbers),
            RemovalTarget::After(position) => Ok(Some(*position)),
            RemovalTarget::Newest(_) => Ok(None),
        }
    }
}

/// Checks the arguments of [`remove`](super::HistoryProvider::remove).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_remove(removal: &Removal) -> Result<()> {
    check_last(OPERATION, removal.if_last)?;
    check_token(OPERATION, removal.fence)?;
    match &removal.target {
        RemovalTarget::Numbers(numbers) => {
            check::batch(OPERATION, "numbers", numbers.len(), BATCH_MESSAGES_MAX)?;
            check::distinct(OPERATION, "numbers", numbers)
        }
        RemovalTarget::After(_) => Ok(()),
        RemovalTarget::Newest(count) => check::batch(OPERATION, "newest", *count, BATCH_MESSAGES_MAX),
    }
}

/// Checks the positions of a removal in a thread whose last position is `last`.
///
/// # Errors
/// `Conflict` naming `numbers` or `after` if a position is of another generation or beyond the last one.
pub fn check_remove_at(removal: &Removal, last: Seq) -> Result<()> {
    let field = if matches!(removal.target, RemovalTarget::After(_)) { "after" } else { "numbers" };
    removal.bound()?.map_or(Ok(()), |bound| bound.check_resume(OPERATION, field, last))
}

/// Checks the total size of the messages that a removal returns.
///
/// # Errors
/// `InvalidInput` naming `numbers` or `newest`, with the size and the limit.
pub fn check_removed_bytes(removal: &Removal, bytes: u64) -> Result<()> {
    let field = if matches!(removal.target, RemovalTarget::Newest(_)) { "newest" } else { "numbers" };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    check::at_most(OPERATION, field, bytes, crate::limits::BATCH_BYTES_MAX)
}

/// The result of a removal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Removed {
    /// The number of removed messages.
    pub removed: u64,
    /// The numbers of the removed messages, in order; none for a rewind.
    pub seqs: Vec<Seq>,
    /// The removed messages, oldest first. None for a rewind, for a repeated removal by number, and for a
    /// repeated pop whose messages the store no longer keeps. Each has the revision of an appended message,
    /// because it can no longer be updated.
    pub messages: Vec<StoredMessage>,
    /// The thread's last `Seq` after the removal: that of its event if it removed a message.
    pub last: Seq,
}

impl Removed {
    /// Creates the result of a removal that returns no messages.
    #[must_use]
    pub fn new(removed: u64, last: Seq) -> Self {
        Self { removed, seqs: Vec::new(), messages: Vec::new(), last }
    }

    /// Sets the numbers of the removed messages.
    #[must_use]
    pub fn with_seqs(mut self, seqs: Vec<Seq>) -> Self {
        self.seqs = seqs;
        self
    }

    /// Sets the removed messages, without the revisions that they had.
    #[must_use]
    pub fn with_messages(mut self, messages: Vec<StoredMessage>) -> Self {
        self.messages = messages;
        self.messages.iter_mut().for_each(|stored| stored.revision = Revision::at(stored.seq));
        self
    }

    /// Sets the generation of the thread, which all numbers name.
    #[must_use]
    pub fn in_generation(mut self, generation: impl Into<Option<Generation>>) -> Self {
        let generation = generation.into();
        self.last = self.last.in_generation(generation);
        self.seqs.iter_mut().for_each(|seq| *seq = seq.in_generation(generation));
        self.messages.iter_mut().for_each(|stored| *stored = stored.clone().in_generation(generation));
        self
    }
}
