//! Creating, reading and deleting sessions (ATH-1).

use larder_kernel::{Result, SessionId, check};
use tokio::time::Instant;

use super::profile::SessionProfile;
use super::sessions::{SYSTEM_PROMPT_BYTES_MAX, Session, SessionInfo, Sessions};

impl Sessions {
    /// Creates a session and returns its id, which nobody can guess (ATH-1).
    ///
    /// # Errors
    /// `InvalidInput` naming `system_prompt` or a field of the profile: a prompt over 1 MiB, or one that does not fit
    /// into `max_tokens`; the store's own.
    ///
    /// # Cancellation
    /// Created or not created.
    pub async fn create(
        &self,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<SessionId> {
        let id = SessionId::new(uuid::Uuid::new_v4().to_string())?;
        self.create_as(&id, profile, system_prompt).await?;
        Ok(id)
    }

    /// Creates a session with an id of the caller's.
    ///
    /// # Errors
    /// As [`create`](Self::create), and `AlreadyExists`.
    ///
    /// # Cancellation
    /// Created or not created.
    pub async fn create_as(
        &self,
        id: &SessionId,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<()> {
        const OPERATION: &str = "session.create";
        let prompt: String = system_prompt.into();
        profile.check()?;
        check::at_most(OPERATION, "system_prompt", prompt.len(), SYSTEM_PROMPT_BYTES_MAX)?;
        let tokens = self.reader.counter.count(&prompt);
        self.check_room(OPERATION, "max_tokens", &profile, tokens)?;
        let record = self.records.draft(id, profile, prompt, tokens, self.ttl);
        self.records.create(OPERATION, id, &record).await
    }

    /// Reads a session whole: its messages, its summary, its hints and its profile (ATH-1).
    ///
    /// # Errors
    /// `NotFound`; the stores' own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(messages).
    pub async fn get(&self, id: &SessionId) -> Result<Session> {
        let started = Instant::now();
        let (record, reader) = self.used("session.get", id).await?;
        let (messages, held) = reader.read_all(&self.thread(id)).await?;
        self.watch.loaded(started.elapsed());
        Ok(Session {
            id: id.clone(),
            profile: record.profile,
            system_prompt: record.system_prompt,
            messages,
            summary: held.map(|held| held.text),
            hints: record.hints.into_iter().map(|hint| hint.text).collect(),
        })
    }

    /// Reads what a session is apart from its messages and its summary. It is no use of the session: one that expires does
    /// not live longer by it.
    ///
    /// # Errors
    /// `NotFound`; the store's own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(prompt and hints).
    pub async fn info(&self, id: &SessionId) -> Result<SessionInfo> {
        let record = self.records.need("session.info", id).await?;
        Ok(SessionInfo {
            id: id.clone(),
            profile: record.profile,
            system_prompt: record.system_prompt,
            hints: record.hints.into_iter().map(|hint| hint.text).collect(),
        })
    }

    /// Deletes a session with its messages and its summary, and says whether it was there (ATH-1).
    ///
    /// Repeating it is harmless, and finishes a deletion that was cut off. An inference that completes afterwards is
    /// `NotFound` and leaves nothing behind.
    ///
    /// # Errors
    /// The stores' own.
    ///
    /// # Cancellation
    /// The session is there, or gone for everybody; what is left of it goes when the call is repeated.
    pub async fn delete(&self, id: &SessionId) -> Result<bool> {
        const OPERATION: &str = "session.delete";
        let was_there = self.records.mark_deleted(OPERATION, id).await?;
        self.wipe(id).await?;
        self.records.remove_deleted(OPERATION, id).await?;
        Ok(was_there)
    }
}
