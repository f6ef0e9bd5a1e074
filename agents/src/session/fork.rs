//! Copies of sessions that are independent of their source.

use larder_kernel::{ErrorKind, Result, Seq, SessionId, Thread, Ttl};

use super::record::Record;
use super::sessions::Sessions;
use crate::compaction::{Covered, MessageMark, StoredSummary, Summary};

const OPERATION: &str = "session.fork";
/// The page size for reading messages.
const PAGE: usize = 1_000;

impl Sessions {
    /// Copies a session with its prompt, hints, profile, messages and summary to an unused id. Later changes
    /// to one do not affect the other.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` if the target is a session, or is being created or deleted; the errors of
    /// the stores.
    ///
    /// # Cancellation
    /// The copy is complete or does not exist. [`delete`](Self::delete) removes an interrupted copy and frees
    /// its id.
    ///
    /// # Complexity
    /// O(messages).
    pub async fn fork(&self, source: &SessionId, target: &SessionId) -> Result<()> {
        let mut record = self.records.need(OPERATION, source).await?;
        let ttl = record.ttl();
        let Record { profile, system_prompt, system_prompt_tokens, hints, .. } = &mut record;
        let (profile, prompt) = (profile.clone(), std::mem::take(system_prompt));
        let mut copy = self.records.draft(target, profile, prompt, *system_prompt_tokens, ttl);
        copy.hints = std::mem::take(hints);
        // The record is marked as deleted until the copy is complete, so no reader finds a partial session.
        copy.deleted = true;
        self.records.create(OPERATION, target, &copy).await?;
        let copied = match self.copy(&self.thread(source), &self.thread(target), ttl.map(Ttl::sliding)).await
        {
            Ok(()) => self.records.publish(OPERATION, target).await,
            Err(error) => Err(error),
        };
        if copied.is_err() {
            // If this cleanup fails, a call of `delete` removes the rest.
            let _ = self.wipe(target).await;
            let _ = self.records.remove_deleted(OPERATION, target).await;
        }
        copied
    }

    /// Copies the messages and the summary.
    async fn copy(&self, source: &Thread, target: &Thread, ttl: Option<Ttl>) -> Result<()> {
        let history = &*self.reader.history;
        // Removes the summary of an earlier session with this id.
        self.reader.summaries.remove(target).await?;
        history.clear(target, None).await?;
        let end = history.thread_info(source).await?.last;
        let kept = self.reader.summaries.look(history, source).await?;
        let forked = match history.fork(source, target, Some(end), None).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            forked => forked?,
        };
        if ttl.is_some() {
            history.set_ttl(target, ttl, None).await?;
        }
        let Some((StoredSummary { summary, .. }, true)) = kept else { return Ok(()) };
        let after = self.count_after(source, summary.up_to, end).await?;
        // The positions of the copy are contiguous.
        let up_to = Seq::new(forked.last.get().saturating_sub(after));
        let first = history.get_messages(target, 0, 1).await?.messages;
        let last = history.page_after(target, Seq::new(up_to.get().saturating_sub(1)), 1).await?;
        let marks = first.first().map(MessageMark::from).zip(last.messages.first().map(MessageMark::from));
        let covers = marks.map(|(first, last)| Covered { first, last });
        let mut summaries = self.reader.summaries.clone();
        if let Some(ttl) = ttl {
            summaries = summaries.with_ttl(ttl.after);
        }
        summaries.put(target, None, &Summary { up_to, covers, ..summary }).await?;
        Ok(())
    }

    /// Counts the messages after one position, up to another.
    async fn count_after(&self, thread: &Thread, mut after: Seq, end: Seq) -> Result<i64> {
        let mut count = 0;
        loop {
            let page = self.reader.history.page_after(thread, after, PAGE).await?;
            let inside = page.messages.iter().take_while(|stored| stored.seq <= end).count();
            count += i64::try_from(inside).unwrap_or(i64::MAX);
            match page.next(PAGE) {
                Some(next) if inside == page.messages.len() => after = next,
                _ => return Ok(count),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_kernel::ChatMessage;

    use super::*;
    use crate::session::testing::{Words, World};
    use crate::session::{InferenceRequest, SessionProfile};

    async fn say(sessions: &Sessions, id: &SessionId, text: &str) {
        let turn = sessions.begin(id, InferenceRequest::new([ChatMessage::user(text)])).await.unwrap();
        turn.complete([ChatMessage::assistant("answer of four words")]).await.unwrap();
    }

    /// Proves: PK-1
    #[tokio::test]
    async fn a_fork_has_prompt_hints_and_summary_and_is_independent() {
        let world = World::new();
        let sessions = Sessions::new(world.history.clone(), world.store.clone())
            .unwrap()
            .with_token_counter(Arc::new(Words))
            .with_summarizer(world.model());
        let id = sessions.create(SessionProfile::rolling_window(60, 20).unwrap(), "prompt").await.unwrap();
        sessions.add_hint(&id, "a hint").await.unwrap();
        for mark in 1..6 {
            say(&sessions, &id, &format!("m{mark} and more")).await;
        }
        let source = sessions.get(&id).await.unwrap();
        let target = SessionId::new("fork").unwrap();
        sessions.fork(&id, &target).await.unwrap();
        let copy = sessions.get(&target).await.unwrap();
        assert_eq!((&copy.system_prompt, &copy.hints), (&source.system_prompt, &source.hints));
        assert!(copy.summary.is_some() && copy.summary == source.summary);
        let texts = |session: &crate::session::Session| -> Vec<String> {
            session.messages.iter().map(|stored| stored.text().to_owned()).collect()
        };
        assert_eq!(texts(&copy), texts(&source));
        let window = |id: SessionId| {
            let sessions = sessions.clone();
            async move {
                let told = sessions.explain_window(&id).await.unwrap();
                told.window
                    .into_messages()
                    .iter()
                    .map(|message| message.text().to_owned())
                    .collect::<Vec<_>>()
            }
        };
        assert_eq!(window(target.clone()).await, window(id.clone()).await);

        say(&sessions, &target, "only in the fork").await;
        sessions.add_hint(&target, "another").await.unwrap();
        assert_eq!(sessions.get(&id).await.unwrap(), source);
        assert!(sessions.delete(&id).await.unwrap());
        assert_eq!(sessions.get(&target).await.unwrap().messages.len(), 12);
        let missing = sessions.fork(&id, &SessionId::new("x").unwrap()).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let taken = sessions.fork(&target, &target).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    }
}
