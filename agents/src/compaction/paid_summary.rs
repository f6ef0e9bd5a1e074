//! Drafts: summaries and replies that a model was paid for and that are not stored yet.
//!
//! A turn stores its summary when it completes. Until then the draft is in the same bucket, where readers
//! do not look for it. Another process that needs the same summary uses the draft instead of a second model
//! call, even if the first turn is cancelled or its process ends. A summary that takes several model calls
//! keeps each reply in the same way until its draft exists.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{ErrorKind, KeyValuePutOptions, Result, Seq, Thread, WindowMessage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::covered::MessageMark;
use super::summary::Summary;
use super::summary_store::SummaryStore;
use crate::internal::hex;

/// The longest time that drafts are kept.
const TTL: Duration = Duration::from_secs(24 * 3600);
/// The number of drafts of a thread. A turn makes one for each strategy that summarizes.
const DRAFTS_MAX: usize = 4;
/// The number of replies kept for a thread. A summary takes a reply for each pass.
const REPLIES_MAX: usize = 16;

/// The stored document.
#[derive(Default, Serialize, Deserialize)]
struct Drafts {
    drafts: Vec<Draft>,
    /// The digests of questions and the replies, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replies: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct Draft {
    base: String,
    last: MessageMark,
    summary: Summary,
}

/// Returns the identity of the data that a new summary extends: the previous summary, otherwise the first
/// covered message. Returns `None` if neither exists.
pub(crate) fn base_of(before: Option<(Seq, &str)>, first: Option<MessageMark>) -> Option<String> {
    match before {
        Some((up_to, text)) => Some(format!("{up_to}/{}", hex(&Sha256::digest(text)))),
        None => first.map(|first| format!("{}@{}", first.seq, first.created_at.as_micros())),
    }
}

/// Returns the identity of the data that a summary of these messages extends.
pub(super) fn base_of_messages(before: Option<&Summary>, old: &[WindowMessage]) -> Option<String> {
    base_of(before.map(|before| (before.up_to, &*before.text)), old.first().and_then(MessageMark::of))
}

impl SummaryStore {
    /// Returns the draft that extends `base` and whose last covered message is one that the caller has read.
    pub(crate) async fn draft(
        &self,
        thread: &Thread,
        base: &str,
        has_read: impl Fn(MessageMark) -> bool,
    ) -> Result<Option<Summary>> {
        let drafts = self.drafts(thread).await?.drafts.into_iter();
        let mut fitting = drafts.filter(|draft| draft.base == base && has_read(draft.last));
        Ok(fitting.next().map(|draft| draft.summary))
    }

    /// Keeps a draft, and replaces the one that extends the same base. The caller holds the thread's claim.
    pub(crate) async fn keep_draft(
        &self,
        thread: &Thread,
        base: &str,
        last: MessageMark,
        summary: &Summary,
    ) -> Result<()> {
        let mut kept = self.drafts(thread).await?;
        kept.replies.clear();
        kept.drafts.retain(|draft| draft.base != base);
        kept.drafts.push(Draft { base: base.to_owned(), last, summary: summary.clone() });
        let surplus = kept.drafts.len().saturating_sub(DRAFTS_MAX);
        kept.drafts.drain(..surplus);
        self.put_drafts(thread, &kept).await
    }

    /// Returns the kept reply to the question with this digest.
    pub(super) async fn reply(&self, thread: &Thread, question: &[u8]) -> Result<Option<String>> {
        let (digest, kept) = (hex(question), self.drafts(thread).await?);
        Ok(kept.replies.into_iter().find(|(known, _)| *known == digest).map(|(_, reply)| reply))
    }

    /// Keeps a reply until the summary has a draft. The caller holds the thread's claim.
    pub(super) async fn keep_reply(&self, thread: &Thread, question: &[u8], reply: &str) -> Result<()> {
        let mut kept = self.drafts(thread).await?;
        kept.replies.push((hex(question), reply.to_owned()));
        let surplus = kept.replies.len().saturating_sub(REPLIES_MAX);
        kept.replies.drain(..surplus);
        self.put_drafts(thread, &kept).await
    }

    /// Removes the replies of a thread.
    pub(super) async fn drop_replies(&self, thread: &Thread) -> Result<()> {
        let mut kept = self.drafts(thread).await?;
        if kept.replies.is_empty() {
            return Ok(());
        }
        kept.replies.clear();
        self.put_drafts(thread, &kept).await
    }

    async fn put_drafts(&self, thread: &Thread, kept: &Drafts) -> Result<()> {
        let Ok(value) = serde_json::to_vec(kept) else { return Ok(()) };
        let options = KeyValuePutOptions::default().with_ttl(self.ttl().map_or(TTL, |ttl| ttl.min(TTL)));
        self.store.put(&self.bucket, &self.key("draft", thread)?, Bytes::from(value), options).await?;
        Ok(())
    }

    /// Removes the drafts and replies of a thread.
    pub(crate) async fn drop_drafts(&self, thread: &Thread) -> Result<()> {
        self.store.delete(&self.bucket, &self.key("draft", thread)?, None).await.map(drop)
    }

    /// Reads the drafts. Unreadable drafts are ignored, because a draft only saves a model call.
    async fn drafts(&self, thread: &Thread) -> Result<Drafts> {
        match self.store.get(&self.bucket, &self.key("draft", thread)?).await {
            Ok(entry) => {
                Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default())
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Drafts::default()),
            Err(error) => Err(error),
        }
    }
}
