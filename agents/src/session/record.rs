//! The state of a session apart from its messages: a small record in the key-value store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{
    AgentId, BucketName, Error, ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore,
    PageRequest, Result, Revision, SessionId,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::profile::SessionProfile;
use crate::internal::hex;

/// The bucket that holds sessions.
pub const SESSION_BUCKET: &str = "larder.sessions";

/// The record format that this version writes, and the newest that it can read.
const VERSION: u32 = 1;
/// The number of lost races after which an update fails. In each race another writer succeeded, so normal use
/// never reaches this number.
const ATTEMPTS_MAX: u32 = 10_000;
/// The page size of a count, in keys.
const PAGE_KEYS: usize = 10_000;

/// A hint and its token count, computed once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hint {
    pub(crate) text: String,
    pub(crate) tokens: u64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    agent: String,
    session: String,
    pub(crate) profile: SessionProfile,
    pub(crate) system_prompt: String,
    pub(crate) system_prompt_tokens: u64,
    #[serde(default)]
    pub(crate) hints: Vec<Hint>,
    /// The time to live from the last use. It is part of the record, so any caller that uses the session can
    /// extend it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// Set before any data of the session is removed, so that concurrent writers notice the deletion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
}

impl Record {
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.ttl_ms.map(Duration::from_millis)
    }

    fn options(&self, condition: KeyValueCondition) -> KeyValuePutOptions {
        let options = KeyValuePutOptions::default().with_condition(condition);
        self.ttl().map_or(options, |ttl| options.with_ttl(ttl))
    }
}

/// The decision of an update function.
pub(crate) enum Update<T> {
    /// Writes the changed record.
    Write(T),
    /// Writes nothing.
    Keep(T),
}

/// The records of one agent's sessions.
#[derive(Clone)]
pub(crate) struct Records {
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
    agent: AgentId,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Records {
    pub(crate) fn new(store: Arc<dyn KeyValueStore>, agent: AgentId) -> Result<Self> {
        Ok(Self { store, bucket: BucketName::new(SESSION_BUCKET)?, agent })
    }

    pub(crate) fn with_agent(&self, agent: AgentId) -> Self {
        Self { agent, ..self.clone() }
    }

    /// Returns a new record that is not yet written.
    pub(crate) fn draft(
        &self,
        id: &SessionId,
        profile: SessionProfile,
        system_prompt: String,
        system_prompt_tokens: u64,
        ttl: Option<Duration>,
    ) -> Record {
        Record {
            version: VERSION,
            agent: self.agent.as_str().to_owned(),
            session: id.as_str().to_owned(),
            profile,
            system_prompt,
            system_prompt_tokens,
            hints: Vec::new(),
            ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            deleted: false,
        }
    }

    pub(crate) async fn create(
        &self,
        operation: &'static str,
        id: &SessionId,
        record: &Record,
    ) -> Result<()> {
        let value = encode(operation, record)?;
        let options = record.options(KeyValueCondition::Absent);
        let created = self.store.put(&self.bucket, &self.key(id)?, value, options).await;
        created.map(drop).map_err(|error| match error.kind() {
            ErrorKind::Conflict => Error::new(
                ErrorKind::AlreadyExists,
                operation,
                "the session already exists; open it or use another id",
            ),
            _ => error,
        })
    }

    /// Reads the record, including one that is being deleted.
    pub(crate) async fn read(
        &self,
        operation: &'static str,
        id: &SessionId,
    ) -> Result<Option<(Record, Revision)>> {
        let Some(entry) = self.store.get(&self.bucket, &self.key(id)?).await? else { return Ok(None) };
        let corrupt = |message: &'static str| Error::new(ErrorKind::Corrupt, operation, message);
        let record: Record = serde_json::from_slice(&entry.value)
            .map_err(|_| corrupt("the stored session record is corrupt; delete the session"))?;
        if record.version > VERSION {
            let version = record.version;
            return Err(Error::new(
                ErrorKind::Unsupported,
                operation,
                format!(
                    "the session's record has format {version}; this release supports up to format {VERSION} \
                     (upgrade this program)"
                ),
            ));
        }
        if record.agent != self.agent.as_str() || record.session != id.as_str() {
            return Err(corrupt("the stored record belongs to another session; delete the session"));
        }
        Ok(Some((record, entry.revision)))
    }

    /// Reads the record of an existing session.
    pub(crate) async fn need(&self, operation: &'static str, id: &SessionId) -> Result<Record> {
        self.need_at(operation, id).await.map(|(record, _)| record)
    }

    /// Works as [`need`](Self::need) and restarts the session's time to live.
    pub(crate) async fn touch(&self, operation: &'static str, id: &SessionId) -> Result<Record> {
        let (record, revision) = self.need_at(operation, id).await?;
        if record.ttl_ms.is_none() {
            return Ok(record);
        }
        let (key, value) = (self.key(id)?, encode(operation, &record)?);
        let options = record.options(KeyValueCondition::AtRevision(revision));
        match self.store.put(&self.bucket, &key, value, options).await {
            Ok(_) => Ok(record),
            // A concurrent writer has already restarted the time to live.
            Err(error) if error.kind() == ErrorKind::Conflict => self.need(operation, id).await,
            Err(error) => Err(error),
        }
    }

    async fn need_at(&self, operation: &'static str, id: &SessionId) -> Result<(Record, Revision)> {
        self.read(operation, id).await?.filter(|(record, _)| !record.deleted).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, operation, "the session does not exist; create it first")
        })
    }

    /// Changes a record by compare-and-set. After a lost race, repeats the decision on the other writer's
    /// record.
    pub(crate) async fn update<T>(
        &self,
        operation: &'static str,
        id: &SessionId,
        mut change: impl FnMut(&mut Record) -> Result<Update<T>>,
    ) -> Result<T> {
        let key = self.key(id)?;
        for _ in 0..ATTEMPTS_MAX {
            let (mut record, revision) = self.need_at(operation, id).await?;
            let answer = match change(&mut record)? {
                Update::Keep(answer) => return Ok(answer),
                Update::Write(answer) => answer,
            };
            let value = encode(operation, &record)?;
            let options = record.options(KeyValueCondition::AtRevision(revision));
            match self.store.put(&self.bucket, &key, value, options).await {
                Ok(_) => return Ok(answer),
                Err(error) if error.kind() == ErrorKind::Conflict => tokio::task::yield_now().await,
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            operation,
            "other writers changed the session during every attempt; try again later",
        ))
    }

    /// Marks a session as deleted and returns `true` if it existed. A session may be marked already.
    pub(crate) async fn mark_deleted(&self, operation: &'static str, id: &SessionId) -> Result<bool> {
        let marked = self.update(operation, id, |record| {
            record.deleted = true;
            // The record that remains during the deletion holds no text.
            record.system_prompt.clear();
            record.hints.clear();
            Ok(Update::Write(()))
        });
        match marked.await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the deletion mark from a session that was created under it.
    pub(crate) async fn publish(&self, operation: &'static str, id: &SessionId) -> Result<()> {
        let gone = || {
            Error::new(
                ErrorKind::Conflict,
                operation,
                "the session was deleted during its creation; create it again",
            )
        };
        let (mut record, revision) = self.read(operation, id).await?.ok_or_else(gone)?;
        record.deleted = false;
        let options = record.options(KeyValueCondition::AtRevision(revision));
        let value = encode(operation, &record)?;
        self.store.put(&self.bucket, &self.key(id)?, value, options).await?;
        Ok(())
    }

    /// Removes a record that is marked as deleted, and no other: the id may be in use again.
    pub(crate) async fn remove_deleted(&self, operation: &'static str, id: &SessionId) -> Result<()> {
        let Some((record, revision)) = self.read(operation, id).await? else { return Ok(()) };
        if !record.deleted {
            return Ok(());
        }
        match self.store.delete(&self.bucket, &self.key(id)?, Some(revision)).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Counts the sessions of the agent.
    pub(crate) async fn count(&self) -> Result<u64> {
        let prefix = self.prefix();
        let mut page = PageRequest::first(PAGE_KEYS);
        let mut count = 0;
        loop {
            let listed = self.store.list(&self.bucket, &prefix, page).await?;
            count += larder_kernel::check::size(listed.items.len());
            let Some(next) = listed.next else { return Ok(count) };
            page = PageRequest::after(next, PAGE_KEYS);
        }
    }

    fn prefix(&self) -> String {
        format!("{}/", hex(&Sha256::digest(self.agent.as_str())))
    }

    /// Returns the key of a record. Agent and session together may exceed the size of a key, so each is
    /// replaced by its digest.
    fn key(&self, id: &SessionId) -> Result<Key> {
        Key::new(format!("{}{}", self.prefix(), hex(&Sha256::digest(id.as_str()))))
    }
}

fn encode(operation: &'static str, record: &Record) -> Result<Bytes> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|_| Error::new(ErrorKind::Unexpected, operation, "the session cannot be written as JSON"))
}
