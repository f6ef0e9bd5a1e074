//! Hints: facts that every window contains.

use larder_kernel::{Result, SessionId, check};

use super::record::{Hint, Record, Update};
use super::sessions::{HINT_BYTES_MAX, HINTS_MAX, Sessions};
use super::window::{hint_tokens, hints_tokens};

impl Sessions {
    /// Adds a hint at the end and returns `true` if it is new. Hints are not part of a summary, so they never
    /// get lost.
    ///
    /// # Errors
    /// `NotFound`. `InvalidInput` with `hint` for an empty hint, for one over 4 KiB, for one that does not
    /// fit into `max_tokens` with the other hints, and for more than 256 hints. The errors of the store.
    ///
    /// # Cancellation
    /// The hint is added or not.
    pub async fn add_hint(&self, id: &SessionId, hint: &str) -> Result<bool> {
        const OPERATION: &str = "session.add_hint";
        check::at_least(OPERATION, "hint", hint.trim().len(), 1)?;
        check::at_most(OPERATION, "hint", hint.len(), HINT_BYTES_MAX)?;
        let tokens = hint_tokens(&*self.reader.counter, hint);
        let change = |record: &mut Record| {
            if record.hints.iter().any(|known| known.text == hint) {
                return Ok(Update::Keep(false));
            }
            check::at_most(OPERATION, "hint", record.hints.len() + 1, HINTS_MAX)?;
            record.hints.push(Hint { text: hint.to_owned(), tokens });
            let fixed = record.system_prompt_tokens + hints_tokens(&*self.reader.counter, &record.hints);
            self.check_room(OPERATION, "hint", &record.profile, fixed)?;
            Ok(Update::Write(true))
        };
        self.records.update(OPERATION, id, change).await
    }

    /// Removes a hint and returns `true` if it existed.
    ///
    /// # Errors
    /// `NotFound`, and the errors of the store.
    ///
    /// # Cancellation
    /// The hint is removed or not.
    pub async fn remove_hint(&self, id: &SessionId, hint: &str) -> Result<bool> {
        let change = |record: &mut Record| {
            let before = record.hints.len();
            record.hints.retain(|known| known.text != hint);
            Ok(if record.hints.len() == before { Update::Keep(false) } else { Update::Write(true) })
        };
        self.records.update("session.remove_hint", id, change).await
    }
}
