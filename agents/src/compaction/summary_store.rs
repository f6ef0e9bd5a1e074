//! A store of summaries: one per thread, in a key-value store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{
    BucketName, Error, ErrorKind, HistoryProvider, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore,
    Result, Revision, Thread,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::summary::{Summary, is_current};
use crate::internal::hex;

/// The bucket that holds summaries.
pub const SUMMARY_BUCKET: &str = "larder.summaries";

/// A summary with its revision, which the next write must name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSummary {
    /// The summary.
    pub summary: Summary,
    /// The revision of the write that stored it.
    pub revision: Revision,
}

/// The stored document. It contains the thread, so that a digest collision is detected.
#[derive(Serialize, Deserialize)]
struct Record {
    agent: String,
    session: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    view: String,
    #[serde(flatten)]
    summary: Summary,
}

/// Summaries of threads, in any [`KeyValueStore`].
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::InMemoryKeyValueStore;
/// use larder_agents::compaction::{Summary, SummaryStore};
/// use larder_kernel::{ErrorKind, Seq, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = SummaryStore::new(Arc::new(InMemoryKeyValueStore::new()))?;
/// let thread = Thread::new("assistant", "session-1")?;
/// let summary = Summary::new(Seq::new(40), "They planned a trip to Oslo.").with_tokens(8).with_messages(40);
/// let revision = store.put(&thread, None, &summary).await?;
/// assert_eq!(store.get(&thread).await?.map(|stored| stored.summary), Some(summary.clone()));
///
/// // A writer that has not read this summary cannot overwrite it.
/// let lost = store.put(&thread, None, &summary).await.unwrap_err();
/// assert_eq!(lost.kind(), ErrorKind::Conflict);
/// store.put(&thread, Some(revision), &summary).await?;
/// # Ok(())
/// # }
/// ```
///
/// The store receives no notice when a thread is cleared, replaced or expires, when single messages or those
/// of a run are removed, or when a message is updated. To make a window, read the [current](Self::current)
/// summary: one whose [`Covered`](super::Covered) messages are in the thread unchanged. If you update a
/// covered message, for example to redact it, or remove messages between these two, [remove](Self::remove)
/// the summary.
#[derive(Clone)]
pub struct SummaryStore {
    pub(super) store: Arc<dyn KeyValueStore>,
    pub(super) bucket: BucketName,
    view: Arc<str>,
    ttl: Option<Duration>,
}

impl fmt::Debug for SummaryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummaryStore").field("store", &self.store).finish_non_exhaustive()
    }
}

impl SummaryStore {
    /// Creates a store that keeps summaries in the bucket [`SUMMARY_BUCKET`] of `store`.
    ///
    /// # Errors
    /// None in practice: the fixed bucket name is valid.
    pub fn new(store: Arc<dyn KeyValueStore>) -> Result<Self> {
        Ok(Self { store, bucket: BucketName::new(SUMMARY_BUCKET)?, view: Arc::from(""), ttl: None })
    }

    /// Sets the time to live of each summary, from when it is written or [touched](Self::touch). Use the time
    /// to live of the thread.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Selects the summaries of one view of the threads, for example of the messages that pass one agent's
    /// filters. Each view of a thread has its own summary; `""` is the view of everything.
    #[must_use]
    pub fn with_view(mut self, view: &str) -> Self {
        self.view = Arc::from(view);
        self
    }

    /// Reads the summary of a thread.
    ///
    /// # Errors
    /// `Corrupt` if the stored value is not a summary of this thread, and the errors of the store.
    ///
    /// # Cancellation
    /// The call changes nothing.
    pub async fn get(&self, thread: &Thread) -> Result<Option<StoredSummary>> {
        const OPERATION: &str = "summary.get";
        let Some(entry) = self.store.get(&self.bucket, &self.key("summary", thread)?).await? else {
            return Ok(None);
        };
        let record: Record = serde_json::from_slice(&entry.value).map_err(|_| {
            Error::new(ErrorKind::Corrupt, OPERATION, "the stored summary is corrupt; delete it")
        })?;
        if record.agent != thread.agent.as_str()
            || record.session != thread.session.as_str()
            || record.view != *self.view
        {
            return Err(Error::new(
                ErrorKind::Corrupt,
                OPERATION,
                "the stored summary belongs to another thread; delete it",
            ));
        }
        Ok(Some(StoredSummary { summary: record.summary, revision: entry.revision }))
    }

    /// Reads the summary of a thread if it still describes the messages in `history`. Removes an outdated
    /// summary, so that no later summary includes it.
    ///
    /// # Errors
    /// As [`get`](Self::get), and the errors of the history.
    ///
    /// # Cancellation
    /// An outdated summary is removed or not.
    pub async fn current(
        &self,
        history: &dyn HistoryProvider,
        thread: &Thread,
    ) -> Result<Option<StoredSummary>> {
        let Some((kept, current)) = self.look(history, thread).await? else { return Ok(None) };
        if current {
            return Ok(Some(kept));
        }
        match self.store.delete(&self.bucket, &self.key("summary", thread)?, Some(kept.revision)).await {
            // Another writer has stored a new summary.
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(None),
        }
    }

    /// Reads the summary of a thread, and checks that it still describes the messages in `history`. Removes
    /// nothing.
    pub(crate) async fn look(
        &self,
        history: &dyn HistoryProvider,
        thread: &Thread,
    ) -> Result<Option<(StoredSummary, bool)>> {
        let Some(kept) = self.get(thread).await? else { return Ok(None) };
        let current = is_current(history, thread, &kept.summary).await?;
        Ok(Some((kept, current)))
    }

    /// Writes the summary of a thread. Replaces the one at the revision `expected`, or creates the first one
    /// if `expected` is `None`.
    ///
    /// # Errors
    /// `Conflict` if the thread has another summary than the caller saw; nothing changes. `InvalidInput` for
    /// a summary over the size limit of a value, and the errors of the store.
    ///
    /// # Cancellation
    /// The summary is written or not.
    pub async fn put(
        &self,
        thread: &Thread,
        expected: Option<Revision>,
        summary: &Summary,
    ) -> Result<Revision> {
        const OPERATION: &str = "summary.put";
        let record = Record {
            agent: thread.agent.as_str().to_owned(),
            session: thread.session.as_str().to_owned(),
            view: self.view.as_ref().to_owned(),
            summary: summary.clone(),
        };
        let value = serde_json::to_vec(&record).map_err(|_| {
            Error::new(ErrorKind::Unexpected, OPERATION, "the summary cannot be written as JSON")
        })?;
        let key = self.key("summary", thread)?;
        let options = self.options(expected.map_or(KeyValueCondition::Absent, KeyValueCondition::AtRevision));
        self.store.put(&self.bucket, &key, Bytes::from(value), options).await
    }

    /// Restarts the time to live of a thread's summary. Does nothing without [a time to
    /// live](Self::with_ttl).
    ///
    /// # Errors
    /// The errors of the store.
    ///
    /// # Cancellation
    /// The time to live is restarted or not.
    pub async fn touch(&self, thread: &Thread) -> Result<()> {
        let key = self.key("summary", thread)?;
        let Some(entry) = (match self.ttl {
            Some(_) => self.store.get(&self.bucket, &key).await?,
            None => None,
        }) else {
            return Ok(());
        };
        let options = self.options(KeyValueCondition::AtRevision(entry.revision));
        match self.store.put(&self.bucket, &key, entry.value, options).await {
            // A concurrent writer has already restarted the time to live.
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    fn options(&self, condition: KeyValueCondition) -> KeyValuePutOptions {
        let options = KeyValuePutOptions::default().with_condition(condition);
        self.ttl.map_or(options, |ttl| options.with_ttl(ttl))
    }

    pub(super) fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Removes the summary of a thread and returns `true` if it existed. Also removes a summary that was made
    /// and not stored yet. Call this when you clear a thread, and when you remove a message that the summary
    /// may describe. Each [view](Self::with_view) has its own summary.
    ///
    /// # Errors
    /// The errors of the store.
    ///
    /// # Cancellation
    /// The summary is removed or not.
    pub async fn remove(&self, thread: &Thread) -> Result<bool> {
        self.drop_drafts(thread).await?;
        self.store.delete(&self.bucket, &self.key("summary", thread)?, None).await
    }

    pub(super) fn key(&self, kind: &str, thread: &Thread) -> Result<Key> {
        Key::new(format!("{kind}/{}", self.digest(thread)))
    }

    /// Returns the digest that identifies a thread. Agent and session together may exceed the size of a key.
    /// The length prefixes keep `("a", "bc")` distinct from `("ab", "c")`.
    pub(super) fn digest(&self, thread: &Thread) -> String {
        let mut digest = Sha256::new();
        for part in [thread.agent.as_str(), thread.session.as_str(), &*self.view] {
            digest.update(larder_kernel::check::size(part.len()).to_be_bytes());
            digest.update(part);
        }
        hex(&digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{KeyValueStoreExt, Seq};

    use super::*;
    use crate::InMemoryKeyValueStore;

    fn summary(text: &str, up_to: i64) -> Summary {
        Summary {
            up_to: Seq::new(up_to),
            text: text.into(),
            tokens: 3,
            messages: 7,
            strategy: "summarization".into(),
            covers: None,
        }
    }

    fn open() -> (Arc<InMemoryKeyValueStore>, SummaryStore) {
        let store = Arc::new(InMemoryKeyValueStore::new());
        (store.clone(), SummaryStore::new(store).unwrap())
    }

    /// Proves: RAVI-9
    #[tokio::test]
    async fn of_two_summaries_of_one_state_one_is_kept() {
        let (_, store) = open();
        let thread = Thread::new("a", "s").unwrap();
        assert_eq!(store.get(&thread).await.unwrap(), None);
        let (first, second) = (summary("one", 5), summary("two", 6));
        let (left, right) = tokio::join!(store.put(&thread, None, &first), store.put(&thread, None, &second));
        assert!(left.is_ok() != right.is_ok());
        assert_eq!(left.and(right).unwrap_err().kind(), ErrorKind::Conflict);

        let seen = store.get(&thread).await.unwrap().unwrap();
        store.put(&thread, Some(seen.revision), &second).await.unwrap();
        let late = store.put(&thread, Some(seen.revision), &first).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Conflict);
        assert_eq!(store.get(&thread).await.unwrap().unwrap().summary, second);
        assert!(store.remove(&thread).await.unwrap());
        assert!(!store.remove(&thread).await.unwrap());
    }

    #[tokio::test]
    async fn threads_whose_names_join_to_the_same_text_have_separate_summaries() {
        let (_, store) = open();
        let long = "x".repeat(512);
        let names = [("a", "bc"), ("ab", "c"), ("a/b", "c"), ("a", "b/c"), (&*long, "s"), ("s", &*long)];
        for (index, (agent, session)) in names.iter().enumerate() {
            let thread = Thread::new(agent, session).unwrap();
            store.put(&thread, None, &summary(&index.to_string(), 1)).await.unwrap();
        }
        for (index, (agent, session)) in names.iter().enumerate() {
            let thread = Thread::new(agent, session).unwrap();
            assert_eq!(store.get(&thread).await.unwrap().unwrap().summary.text, index.to_string());
            assert_eq!(store.clone().with_view("critic").get(&thread).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_summary_of_another_thread_is_corrupt() {
        let (key_value, store) = open();
        let (mine, other) = (Thread::new("a", "mine").unwrap(), Thread::new("a", "other").unwrap());
        let bucket = BucketName::new(SUMMARY_BUCKET).unwrap();
        store.put(&other, None, &summary("other", 1)).await.unwrap();
        let foreign =
            key_value.get(&bucket, &store.key("summary", &other).unwrap()).await.unwrap().unwrap().value;
        for value in [Bytes::from_static(b"{"), Bytes::new(), Bytes::from_static(b"[]"), foreign] {
            key_value.set(&bucket, &store.key("summary", &mine).unwrap(), value).await.unwrap();
            let error = store.get(&mine).await.unwrap_err();
            assert_eq!((error.kind(), error.operation()), (ErrorKind::Corrupt, "summary.get"));
        }
    }

    #[tokio::test]
    async fn a_claim_has_one_holder_and_ends_on_release_or_expiry() {
        let (_, store) = open();
        let thread = Thread::new("a", "s").unwrap();
        let lasts = Duration::from_secs(60);
        let mut claim = store.claim(&thread, lasts).await.unwrap().unwrap();
        assert!(store.claim(&thread, lasts).await.unwrap().is_none());
        assert!(store.claim(&Thread::new("a", "t").unwrap(), lasts).await.unwrap().is_some());
        store.renew(&mut claim).await.unwrap();
        assert!(store.claim(&thread, lasts).await.unwrap().is_none());
        store.release(claim).await.unwrap();

        let mut crashed = store.claim(&thread, Duration::from_millis(1)).await.unwrap().unwrap();
        assert_eq!(store.wait(&thread, lasts).await.unwrap(), None);
        let next = store.claim(&thread, lasts).await.unwrap().unwrap();
        assert_eq!(store.renew(&mut crashed).await.unwrap_err().kind(), ErrorKind::Conflict);
        store.release(crashed).await.unwrap();
        assert!(store.claim(&thread, lasts).await.unwrap().is_none(), "the next owner keeps the claim");
        store.release(next).await.unwrap();
    }
}
