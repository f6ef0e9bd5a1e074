//! The claim on making a thread's summary, so that two readers do not both pay for it.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, Result, Revision, Thread};

use super::summary_store::{StoredSummary, SummaryStore};

/// The interval at which a waiting reader checks for a finished summary.
const POLL: Duration = Duration::from_millis(50);

/// The exclusive right to summarize a thread, for a limited time.
///
/// A claim ends when it is [released](SummaryStore::release) or when it expires, so a crashed process does
/// not block others forever. A claim only saves the cost of a second model call. The revision that the caller
/// passes to [`SummaryStore::put`] keeps two summaries from overwriting each other.
#[derive(Debug)]
pub struct SummaryClaim {
    key: Key,
    revision: Revision,
    lasts: Duration,
}

impl SummaryStore {
    /// Claims the right to summarize a thread for `lasts`. Returns `None` if another caller holds the claim.
    ///
    /// # Errors
    /// `InvalidInput` for a duration below 1 ms or above 100 years, and the errors of the store.
    ///
    /// # Cancellation
    /// The claim is taken or not. A taken claim expires.
    pub async fn claim(&self, thread: &Thread, lasts: Duration) -> Result<Option<SummaryClaim>> {
        let key = self.key("claim", thread)?;
        let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent).with_ttl(lasts);
        match self.store.put(&self.bucket, &key, Bytes::new(), options).await {
            Ok(revision) => Ok(Some(SummaryClaim { key, revision, lasts })),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Extends a claim: it lasts for its full duration from now.
    ///
    /// # Errors
    /// `Conflict` if the claim has expired, and the errors of the store.
    ///
    /// # Cancellation
    /// After an interrupted renewal, the claim may end only when it expires.
    pub async fn renew(&self, claim: &mut SummaryClaim) -> Result<()> {
        let options = KeyValuePutOptions::default()
            .with_condition(KeyValueCondition::AtRevision(claim.revision))
            .with_ttl(claim.lasts);
        claim.revision = self.store.put(&self.bucket, &claim.key, Bytes::new(), options).await?;
        Ok(())
    }

    /// Releases a claim. Releasing an expired claim has no effect, even if another caller has claimed the
    /// thread since.
    ///
    /// # Errors
    /// The errors of the store.
    ///
    /// # Cancellation
    /// The claim ends now or when it expires.
    pub async fn release(&self, claim: SummaryClaim) -> Result<()> {
        match self.store.delete(&self.bucket, &claim.key, Some(claim.revision)).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for at most `patience` until no caller holds the claim on a thread, and returns the thread's
    /// summary.
    ///
    /// # Errors
    /// As [`get`](Self::get). A wait that reaches the limit is not an error: it returns the current summary.
    ///
    /// # Cancellation
    /// The call changes nothing.
    pub async fn wait(&self, thread: &Thread, patience: Duration) -> Result<Option<StoredSummary>> {
        let claim = self.key("claim", thread)?;
        let held = async {
            while self.store.get(&self.bucket, &claim).await?.is_some() {
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        match tokio::time::timeout(patience, held).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => self.get(thread).await,
        }
    }
}
