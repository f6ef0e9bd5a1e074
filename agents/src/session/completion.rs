//! The writes at the end of an inference.

use std::sync::Arc;

use larder_kernel::limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX};
use larder_kernel::storage::history::append_digest;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, HistoryProvider, Replacement, Result, Seq,
    StoredMessage, Thread, Ttl,
};

use super::flush::Mark;
use super::inference::{Inference, Persisted};
use super::plan::{Base, Changes, Plan};
use super::state::{Held, State, extends, made_by};
use super::window::with_tokens;
use crate::compaction::{Covered, MessageMark, StoredSummary, Summary, SummaryStore, erase};

const COMPLETE: &str = "session.complete";
/// The number of lost races after which a new summary is not stored. In each race another caller used the
/// session.
const ATTEMPTS_MAX: u32 = 100;

impl Inference {
    /// Stores the new messages and the model's answer in one step, as the request's
    /// [`Persistence`](super::Persistence) defines. Then applies the results of the strategies: a new summary
    /// and erasures.
    ///
    /// A second call with the same answer stores nothing more and returns the same result, so you may retry
    /// after any error.
    ///
    /// A `FLUSH` whose window has more than 1,000 messages or 16 MiB appends the new messages and then
    /// removes the messages that left the window at its beginning. Messages that a strategy left out between
    /// others stay stored. A `FLUSH` whose summary was due and failed only appends. So does one with an
    /// idempotency key if the newest stored messages equal the new ones.
    ///
    /// # Errors
    /// `NotFound` if the session was deleted during the inference; nothing of the inference remains.
    /// `Conflict` if the idempotency key stored another answer, or if the session that this inference was to
    /// replace was cleared or replaced during it. `InvalidInput` for no messages, for more than 1,000, and
    /// for messages that the store rejects. The errors of the stores. After an error of the summary store,
    /// the messages are stored.
    ///
    /// # Cancellation
    /// All messages are stored or none.
    pub async fn complete(&self, answer: impl IntoIterator<Item = ChatMessage>) -> Result<Persisted> {
        let answer = self.sessions.stamped(answer.into_iter().collect(), self.run.as_ref());
        let new: Vec<_> = self.new.iter().cloned().chain(answer).collect();
        let idempotent = |error: Error| error.with_idempotent(true);
        let persisted = match &self.plan {
            Plan::Nothing => return Ok(Persisted::Nothing),
            Plan::Forget => {
                self.sessions.wipe(&self.id).await.map_err(idempotent)?;
                return Ok(Persisted::Nothing);
            }
            // The whole inference is repeated. Its summary is missing this time, so the `FLUSH` would append.
            Plan::Append(base, _) if self.has_replaced(base, &new)? => Persisted::Replaced,
            Plan::Append(base, changes) => {
                let appended = self.append(new).await?;
                self.change(base, changes).await.map_err(idempotent)?;
                Persisted::Appended(appended)
            }
            Plan::Replace(base, stored, changes) => {
                let appended = self.appended_before(base, &new).await?;
                if appended.is_none() {
                    self.flush(base, stored, new).await?;
                }
                // An empty thread has no time to live yet; a replacement keeps the existing one.
                if self.ttl.is_some() {
                    let set = self.history().set_ttl(&self.thread(), self.ttl.map(Ttl::sliding), None).await;
                    set.map_err(idempotent)?;
                }
                commit(changes).await.map_err(idempotent)?;
                if changes.made_by.is_some() {
                    let _ = self.sessions.reader.summaries.drop_drafts(&self.thread()).await;
                }
                appended.map_or(Persisted::Replaced, Persisted::Appended)
            }
        };
        self.sessions.check_still_there(COMPLETE, &self.id).await.map_err(idempotent)?;
        Ok(persisted)
    }

    /// Returns `true` if an inference with the same key has replaced the session with the same messages.
    fn has_replaced(&self, base: &Base, new: &[ChatMessage]) -> Result<bool> {
        let Some(there) = &base.state.mark else { return Ok(false) };
        let mark = Mark::new(&self.key, new)?;
        if there.id != mark.id {
            return Ok(false);
        }
        same(there, &mark).map(|()| true)
    }

    /// Returns the positions of the new messages if an inference with the same key has appended them, because
    /// its summary was missing.
    async fn appended_before(&self, base: &Base, new: &[ChatMessage]) -> Result<Option<Appended>> {
        if !self.is_keyed || new.is_empty() {
            return Ok(None);
        }
        let end = Seq::new(base.seen.get().saturating_add(1));
        let newest =
            self.history().tail(&self.thread(), Some(end), new.len().min(BATCH_MESSAGES_MAX)).await?;
        // One append fits into one page, so a page that left out messages has others than these.
        let newest: Vec<_> =
            newest.messages.into_iter().map(|stored| Arc::unwrap_or_clone(stored.message)).collect();
        if append_digest(&newest)? != append_digest(new)? {
            return Ok(None);
        }
        // The same was said last, under this key or another one. The store has remembered the key.
        let appended = self.append(new.to_vec()).await?;
        Ok(Some(appended))
    }

    async fn append(&self, new: Vec<ChatMessage>) -> Result<Appended> {
        let mut options = AppendOptions::default().with_idempotency_key(self.key.clone());
        let ttl = match self.record_unread {
            true => self.sessions.records.need(COMPLETE, &self.id).await?.ttl(),
            false => self.ttl,
        };
        options.ttl = ttl.map(Ttl::sliding);
        self.history().append_many(&self.thread(), new, options).await
    }

    /// Erases messages and stores the new summary.
    async fn change(&self, base: &Base, changes: &Changes) -> Result<()> {
        commit(changes).await?;
        let (thread, state) = (self.thread(), &base.state);
        if let Some(up_to) = changes.erases_up_to {
            match erase(self.history(), &thread, up_to, base.seen).await {
                // An earlier attempt erased the messages, or the thread has changed since the read and the
                // decision no longer applies.
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    if !self.is_erased(up_to).await? {
                        return Ok(());
                    }
                }
                erased => erased?,
            }
        }
        let mut summaries = self.sessions.reader.summaries.clone();
        if let Some(ttl) = self.ttl {
            summaries = summaries.with_ttl(ttl);
        }
        match (changes.made_by, &base.summary) {
            (Some(maker), Some(held)) => {
                let summary = kept(maker, held, state, changes.erases_up_to);
                put_summary(&summaries, &thread, state.stored.as_ref(), &summary).await?;
                // If this removal fails, the draft no longer fits any summary, and it expires.
                let _ = summaries.drop_drafts(&thread).await;
                Ok(())
            }
            // The summarized messages are erased, so the summary goes too.
            (_, None) if changes.erases_up_to.is_some() => summaries.remove(&thread).await.map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the thread has no message up to a position.
    async fn is_erased(&self, up_to: Seq) -> Result<bool> {
        let first = self.history().get_messages(&self.thread(), 0, 1).await?.messages;
        Ok(first.first().is_none_or(|first| first.seq > up_to))
    }

    /// Replaces the session with the conversation.
    async fn flush(&self, base: &Base, stored: &[StoredMessage], new: Vec<ChatMessage>) -> Result<()> {
        let mut mark = Mark::new(&self.key, &new)?;
        if let Some(there) = base.state.mark.as_ref().filter(|there| there.id == mark.id) {
            return same(there, &mark);
        }
        let summary = base.summary.as_ref().map(|held| {
            (mark.summary, mark.covers) = (true, held.messages);
            with_tokens(ChatMessage::system(held.text.as_str()), held.tokens)
        });
        let kept = stored.iter().map(|stored| &*stored.message);
        let all = || summary.iter().chain(kept.clone()).chain(&new);
        let bytes: usize = all().map(ChatMessage::size_bytes).sum();
        if all().count() > BATCH_MESSAGES_MAX || bytes > BATCH_BYTES_MAX {
            return self.flush_long(base, stored, new, summary, &mark).await;
        }
        self.put(base.seen, base, all().cloned().collect(), &mark).await
    }

    /// Appends the new messages and removes the messages that left the window at its beginning.
    async fn flush_long(
        &self,
        base: &Base,
        stored: &[StoredMessage],
        new: Vec<ChatMessage>,
        summary: Option<ChatMessage>,
        mark: &Mark,
    ) -> Result<()> {
        self.append(new).await?;
        let up_to = stored.first().map_or(base.seen, |first| Seq::new(first.seq.get().saturating_sub(1)));
        let leaves = base.state.thread_first.is_some_and(|first| first <= up_to);
        let has = base.state.mark.as_ref().is_some_and(|mark| mark.summary);
        // No replacement ends below position 0; a later replacement removes these messages.
        if !leaves || up_to < Seq::ZERO || (has && base.state.thread_first == Some(up_to)) {
            return Ok(());
        }
        match self.put(up_to, base, summary.into_iter().collect(), mark).await {
            // The messages that left the window stay stored.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            put => put.map_err(|error| error.with_idempotent(true)),
        }
    }

    /// Replaces everything up to a position with messages, and marks the first one.
    async fn put(&self, up_to: Seq, base: &Base, mut messages: Vec<ChatMessage>, mark: &Mark) -> Result<()> {
        if let Some(first) = messages.first_mut() {
            mark.put_on(first);
        } else if up_to == base.seen {
            return Err(Error::under_limit(COMPLETE, "messages", 0, 1));
        }
        let replacement = Replacement::new(up_to, messages).with_seen(base.seen);
        let error = match self.history().replace(&self.thread(), replacement).await {
            Ok(_) => {
                if base.state.stored.is_some() {
                    // The summary is obsolete. If this removal fails, the mark keeps readers from using it.
                    let _ = self.sessions.reader.summaries.remove(&self.thread()).await;
                }
                return Ok(());
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Conflict {
            // A retry finds the mark, or replaces the messages that are still stored.
            return Err(error.with_idempotent(true));
        }
        // An earlier attempt may have applied this replacement without the caller receiving the reply.
        let first = self.history().get_messages(&self.thread(), 0, 1).await?.messages;
        match first.first().and_then(|stored| Mark::of(&stored.message)) {
            Some(there) if there.id == mark.id => same(&there, mark),
            _ => Err(error),
        }
    }

    fn history(&self) -> &dyn HistoryProvider {
        &*self.sessions.reader.history
    }

    fn thread(&self) -> Thread {
        self.sessions.thread(&self.id)
    }
}

async fn commit(changes: &Changes) -> Result<()> {
    for write in &changes.writes {
        write.commit().await?;
    }
    Ok(())
}

/// Stores a new summary. Uses of the session restart the time to live of the stored one, which changes its
/// revision; then the new summary replaces it at the next attempt.
async fn put_summary(
    summaries: &SummaryStore,
    thread: &Thread,
    read: Option<&StoredSummary>,
    summary: &Summary,
) -> Result<()> {
    let mut expected = read.map(|read| read.revision);
    for _ in 0..ATTEMPTS_MAX {
        match summaries.put(thread, expected, summary).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            written => return written.map(drop),
        }
        match summaries.get(thread).await? {
            Some(there)
                if read.is_some_and(|read| read.summary == there.summary)
                    || extends(summary, &there.summary) =>
            {
                expected = Some(there.revision);
            }
            // Another caller has stored a summary that is equally valid, or has removed the messages.
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Builds a new summary for storage, with the marks of the messages that it covers.
fn kept(maker: &str, held: &Held, state: &State, erased: Option<Seq>) -> Summary {
    // An erasure removes the mark together with the thread's first message.
    let mark = state.mark.as_ref().filter(|_| erased.is_none());
    let first = match erased {
        Some(up_to) => state.messages.iter().find(|stored| stored.seq > up_to).map(MessageMark::from),
        None => state.first,
    };
    let last = state
        .covered_last
        .filter(|last| last.seq == held.up_to)
        .or_else(|| state.messages.iter().find(|stored| stored.seq == held.up_to).map(MessageMark::from));
    let covers = first.zip(last).map(|(first, last)| Covered { first, last });
    Summary { strategy: made_by(maker, mark), covers, ..held.summary() }
}

/// Compares a completed replacement with one that has the same key.
fn same(there: &Mark, mark: &Mark) -> Result<()> {
    if there.content == mark.content {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        COMPLETE,
        "the idempotency key was used for a different response; use a new key",
    )
    .with_field("idempotency_key"))
}
