//! Creating, reading and deleting sessions.

use larder_kernel::{Result, SessionId, check};
use tokio::time::Instant;

use super::profile::SessionProfile;
use super::sessions::{SYSTEM_PROMPT_BYTES_MAX, Session, SessionInfo, Sessions};

const CREATE: &str = "session.create";

impl Sessions {
    /// Creates a session and returns its id, which cannot be guessed.
    ///
    /// # Errors
    /// `InvalidInput` with `system_prompt` or a field of the profile, for a prompt over 1 MiB or one that
    /// does not fit into `max_tokens`. The errors of the store.
    ///
    /// # Cancellation
    /// The session is created or not.
    pub async fn create(
        &self,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<SessionId> {
        let id = SessionId::new(uuid::Uuid::new_v4().to_string())?;
        self.insert(&id, profile, system_prompt.into()).await?;
        Ok(id)
    }

    /// Creates a session with an id that the caller chooses.
    ///
    /// # Errors
    /// As [`create`](Self::create), and `AlreadyExists`.
    ///
    /// # Cancellation
    /// The session is created or not.
    pub async fn create_as(
        &self,
        id: &SessionId,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<()> {
        // The id may have been that of a session that expired, and the entries of a collection do not expire.
        if !self.bases.is_empty() && self.records.read(CREATE, id).await?.is_none() {
            self.forget_knowledge(&self.thread(id)).await?;
        }
        self.insert(id, profile, system_prompt.into()).await
    }

    async fn insert(&self, id: &SessionId, profile: SessionProfile, prompt: String) -> Result<()> {
        profile.check()?;
        check::at_most(CREATE, "system_prompt", prompt.len(), SYSTEM_PROMPT_BYTES_MAX)?;
        let tokens = self.reader.counter.count(&prompt);
        self.check_room(CREATE, "max_tokens", &profile, tokens)?;
        let record = self.records.draft(id, profile, prompt, tokens, self.ttl);
        self.records.create(CREATE, id, &record).await
    }

    /// Reads a whole session: its messages, its summary, its hints and its profile.
    ///
    /// # Errors
    /// `NotFound`, and the errors of the stores.
    ///
    /// # Cancellation
    /// The call changes nothing.
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

    /// Reads a session without its messages and its summary. This call does not count as a use of the
    /// session, so it does not extend its time to live.
    ///
    /// # Errors
    /// `NotFound`, and the errors of the store.
    ///
    /// # Cancellation
    /// The call changes nothing.
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

    /// Deletes a session with its messages and its summary, and returns `true` if it existed. Also deletes
    /// its summaries in the collections that the [document](Self::configured) of these sessions searches.
    ///
    /// You may repeat the call safely; it also finishes an interrupted deletion. An inference that completes
    /// after the deletion fails with `NotFound` and leaves nothing behind.
    ///
    /// # Errors
    /// The errors of the stores.
    ///
    /// # Cancellation
    /// For all readers, the session either exists or does not. Repeat the call to remove the remaining data.
    pub async fn delete(&self, id: &SessionId) -> Result<bool> {
        const OPERATION: &str = "session.delete";
        let was_there = self.records.mark_deleted(OPERATION, id).await?;
        self.wipe(id).await?;
        self.records.remove_deleted(OPERATION, id).await?;
        Ok(was_there)
    }
}
