//! The right to make a thread's summary, so that two who need it do not both pay for it.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, Result, Revision, Thread};

use super::summary_store::{StoredSummary, SummaryStore};

/// How often a waiter looks whether somebody else's summary is there.
const POLL: Duration = Duration::from_millis(50);

/// The right to summarize a thread, while it lasts.
///
/// It ends when it is [released](SummaryStore::release), and by itself when its time is over, so that a summarizer that
/// crashed blocks nobody for good. It saves the price of a model that is asked twice; what keeps two summaries from
/// overwriting each other is the revision that [`SummaryStore::put`] names.
#[derive(Debug)]
pub struct SummaryClaim {
    key: Key,
    revision: Revision,
    lasts: Duration,
}

impl SummaryStore {
    /// Takes the right to summarize a thread for a while; `None` where somebody else holds it.
    ///
    /// # Errors
    /// `InvalidInput` for a time of less than 1 ms or more than 100 years; the store's own.
    ///
    /// # Cancellation
    /// Taken or not taken; one that was taken ends by itself.
    pub async fn claim(&self, thread: &Thread, lasts: Duration) -> Result<Option<SummaryClaim>> {
        let key = self.key("claim", thread)?;
        let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent).with_ttl(lasts);
        match self.store.put(&self.bucket, &key, Bytes::new(), options).await {
            Ok(revision) => Ok(Some(SummaryClaim { key, revision, lasts })),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a claim last as long again from now.
    ///
    /// # Errors
    /// `Conflict` where its time was over; the store's own.
    ///
    /// # Cancellation
    /// After a renewal that was cut off the claim may only end by itself.
    pub async fn renew(&self, claim: &mut SummaryClaim) -> Result<()> {
        let options = KeyValuePutOptions::default()
            .with_condition(KeyValueCondition::AtRevision(claim.revision))
            .with_ttl(claim.lasts);
        claim.revision = self.store.put(&self.bucket, &claim.key, Bytes::new(), options).await?;
        Ok(())
    }

    /// Gives a claim back. One whose time was over is given back already, and whoever took it after that keeps it.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancellation
    /// The claim ends now or by itself.
    pub async fn release(&self, claim: SummaryClaim) -> Result<()> {
        match self.store.delete(&self.bucket, &claim.key, Some(claim.revision)).await {
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits, at most for `patience`, until nobody holds the right to summarize a thread, and returns its summary.
    ///
    /// # Errors
    /// As [`get`](Self::get). A wait that was too long is no error: the summary there is now is returned.
    ///
    /// # Cancellation
    /// Nothing to undo.
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
