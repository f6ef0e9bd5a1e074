//! Argument and result of [`update`](super::HistoryProvider::update).

use serde::{Deserialize, Serialize};

use super::check::{append_digest, check_last};
use super::fence::check_token;
use super::types::StoredMessage;
use crate::error::{Error, ErrorKind, Result};
use crate::id::IdempotencyKey;
use crate::message::ChatMessage;
use crate::position::{FencingToken, Revision, Seq};
use crate::storage::options::{OptionSet, RequestOption};

const OPERATION: &str = "history.update";

/// An update of one message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MessageUpdate {
    /// The `Seq` of the message.
    pub seq: Seq,
    /// The revision of the message that the caller read.
    pub revision: Revision,
    /// The new message.
    pub message: ChatMessage,
    /// The last `Seq` that the thread must have; `None` updates in any state.
    pub if_last: Option<Seq>,
    /// The idempotency key, which makes a repeated update harmless.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The fencing token of the writer; `None` for a thread that is not fenced.
    pub fence: Option<FencingToken>,
}

impl MessageUpdate {
    /// Creates an update of a message that has this revision. The revision of an appended message is its
    /// `Seq` until the first update; see [`appended`](Self::appended).
    #[must_use]
    pub fn new(seq: Seq, revision: Revision, message: ChatMessage) -> Self {
        Self { seq, revision, message, if_last: None, idempotency_key: None, fence: None }
    }

    /// Creates an update of a message as it was read.
    #[must_use]
    pub fn of(stored: &StoredMessage, message: ChatMessage) -> Self {
        Self::new(stored.seq, stored.revision, message)
    }

    /// Creates the first update of a message that was appended at this `Seq`.
    #[must_use]
    pub fn appended(seq: Seq, message: ChatMessage) -> Self {
        Self::new(seq, Revision::at(seq), message)
    }

    /// Sets the last `Seq` that the thread must have.
    #[must_use]
    pub fn with_if_last(mut self, last: impl Into<Option<Seq>>) -> Self {
        self.if_last = last.into();
        self
    }

    /// Sets the idempotency key, which makes a repeated update harmless.
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
        let Self { seq: _, revision: _, message: _, if_last, idempotency_key, fence } = self;
        OptionSet::NONE
            .with_if(if_last.is_some(), RequestOption::UpdateIfLast)
            .with_if(idempotency_key.is_some(), RequestOption::UpdateIdempotencyKey)
            .with_if(fence.is_some(), RequestOption::Fence)
    }

    /// Returns the digest by which a store recognizes a repeated update: SHA-256 over the number and the new
    /// message without `created_at`. The revision, the condition and the fencing token do not count. It
    /// differs from the digest of every removal.
    ///
    /// # Errors
    /// As [`append_digest`].
    pub fn digest(&self) -> Result<[u8; 32]> {
        use sha2::{Digest, Sha256};
        let mut digest = Sha256::new();
        digest.update(b"update");
        digest.update(self.seq.get().to_be_bytes());
        digest.update(append_digest(std::slice::from_ref(&self.message))?);
        Ok(digest.finalize().into())
    }

    /// Returns the generation that the number or the revision names, as a position that the thread must have
    /// reached. A number without a generation is compared by its number alone.
    ///
    /// # Errors
    /// `Conflict` if they name different generations.
    pub fn bound(&self) -> Result<Option<Seq>> {
        let number = Seq::new(i64::try_from(self.revision.get()).unwrap_or(i64::MAX));
        let revision = number.in_generation(self.revision.generation());
        super::check::named_bound(OPERATION, "seq", &[self.seq, revision])
    }
}

/// Checks the arguments of [`update`](super::HistoryProvider::update).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_update(update: &MessageUpdate) -> Result<()> {
    update.message.checked_bytes(OPERATION)?;
    check_last(OPERATION, update.if_last)?;
    check_token(OPERATION, update.fence)
}

/// Checks the positions of an update in a thread whose last position is `last`.
///
/// # Errors
/// `Conflict` naming `seq` if a position is of another generation or beyond the last one.
pub fn check_update_at(update: &MessageUpdate, last: Seq) -> Result<()> {
    update.bound()?.map_or(Ok(()), |bound| bound.check_resume(OPERATION, "seq", last))
}

/// Creates the error of an update of a number that no message has.
#[must_use]
pub fn no_such_message() -> Error {
    let message = "the thread has no message with this number: it was removed or replaced; read the thread \
                   again";
    Error::new(ErrorKind::NotFound, OPERATION, message).with_field("seq")
}

/// Checks the revision of an update of a message whose revision has the number `found`.
///
/// # Errors
/// `Conflict` naming `revision`, with the message's revision as the fact `revision`.
pub fn check_revision(update: &MessageUpdate, found: u64) -> Result<()> {
    if update.revision.get() == found {
        return Ok(());
    }
    let message = "the message has another revision: it was updated or replaced; read the message again, and \
                   repeat the call with its new revision";
    Err(Error::new(ErrorKind::Conflict, OPERATION, message)
        .with_field("revision")
        .with_context("revision", found))
}

/// Creates the error of an update whose idempotency key was used for another update or a removal.
#[must_use]
pub fn used_for_another(operation: &'static str) -> Error {
    let message = "the idempotency key was used for another removal or update; use a new key";
    Error::new(ErrorKind::Conflict, operation, message)
}

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Updated {
    /// The new revision of the message.
    pub revision: Revision,
    /// The `Seq` of the update's event, which was then the thread's last. The revision has the same number.
    pub last: Seq,
}

impl Updated {
    /// Creates the result of an update whose event has this `Seq`.
    #[must_use]
    pub fn new(last: Seq) -> Self {
        Self { revision: Revision::at(last), last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Generation;
    use crate::storage::history::Removal;

    fn update(seq: i64, text: &str) -> MessageUpdate {
        MessageUpdate::appended(Seq::new(seq), ChatMessage::user(text))
    }

    #[test]
    fn an_update_is_recognized_by_its_number_and_its_message() {
        let digest = |update: MessageUpdate| update.digest().unwrap();
        let first = digest(update(3, "new"));
        let later = MessageUpdate::new(Seq::new(3), Revision::new(9), ChatMessage::user("new"));
        assert_eq!(digest(later.with_if_last(Seq::new(9)).with_fence(FencingToken::new(1))), first);
        for other in [update(2, "new"), update(3, "old")] {
            assert_ne!(digest(other), first);
        }
        assert_ne!(Removal::numbers([Seq::new(3)]).digest(), first);
    }

    #[test]
    fn a_lost_revision_is_named_and_generations_are_compared() {
        assert!(check_revision(&update(3, ""), 3).is_ok());
        let error = check_revision(&update(3, ""), 7).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("revision")));
        let (one, two) = (Generation::new(1), Generation::new(2));
        let last = Seq::new(9).in_generation(one);
        let named = |seq: Option<Generation>, revision: Option<Generation>| {
            let (seq, revision) = (Seq::new(3).in_generation(seq), Revision::new(3).in_generation(revision));
            check_update_at(&MessageUpdate::new(seq, revision, ChatMessage::user("")), last)
        };
        for fits in [(None, None), (one, None), (None, one), (one, one)] {
            assert!(named(fits.0, fits.1).is_ok(), "{fits:?}");
        }
        for other in [(two, None), (None, two), (two, one), (one, two)] {
            assert_eq!(named(other.0, other.1).unwrap_err().kind(), ErrorKind::Conflict, "{other:?}");
        }
        let beyond = MessageUpdate::appended(Seq::new(10).in_generation(one), ChatMessage::user(""));
        assert_eq!(check_update_at(&beyond, last).unwrap_err().field(), Some("seq"));
        // A message of a longer replacement may have a number below 1.
        assert_eq!(Revision::at(Seq::new(-3)).get(), 0);
    }
}
