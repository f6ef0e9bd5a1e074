//! Hints: what the model should always know (ATH-6).

use larder_kernel::{Result, SessionId, check};

use super::record::{Hint, Record, Update};
use super::sessions::{HINT_BYTES_MAX, HINTS_MAX, Sessions};
use super::window::{hint_tokens, hints_tokens};

impl Sessions {
    /// Adds a hint at the end, and says whether it is new (ATH-6). Hints survive every summary.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` naming `hint` for an empty one, one over 4 KiB, one that does not fit into
    /// `max_tokens` beside the others, or more than 256 hints; the store's own.
    ///
    /// # Cancellation
    /// Added or not added.
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

    /// Removes a hint and says whether it was there.
    ///
    /// # Errors
    /// `NotFound`; the store's own.
    ///
    /// # Cancellation
    /// Removed or not removed.
    pub async fn remove_hint(&self, id: &SessionId, hint: &str) -> Result<bool> {
        let change = |record: &mut Record| {
            let before = record.hints.len();
            record.hints.retain(|known| known.text != hint);
            Ok(if record.hints.len() == before { Update::Keep(false) } else { Update::Write(true) })
        };
        self.records.update("session.remove_hint", id, change).await
    }
}
