//! Summaries that are made but not yet stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_kernel::{Error, Origin, Preparation, Prepared, Result, Seq, Thread, Window, WindowMessage};

use super::covered::MessageMark;
use super::paid_summary::base_of_messages;
use super::summary::{COVERS, HEADING, Summary, begin_with_summary};
use super::summary_maker::{Asking, SummaryMaker, Writer};
use super::summary_settings::OnFailure;
use super::turns::is_human_turn;
use crate::tokens::{TokenCounter, tokens_of};

/// Returns the summary at the front of a window, read back from its message.
pub(crate) fn summary_in(messages: &[WindowMessage], counter: &dyn TokenCounter) -> Option<Summary> {
    messages.iter().find_map(|message| {
        let Origin::Summary(up_to) = message.origin else { return None };
        let text = &*message.message.text;
        let messages = message.message.metadata.get(COVERS).and_then(serde_json::Value::as_u64);
        Some(Summary {
            up_to,
            text: text.strip_prefix(HEADING).unwrap_or(text).to_owned(),
            tokens: tokens_of(counter, &message.message),
            messages: messages.unwrap_or_default(),
            strategy: String::new(),
            covers: None,
        })
    })
}

impl SummaryMaker {
    /// Works as [`compact`](Self::compact), but stores nothing. The previous summary is the one in the
    /// window.
    pub(super) async fn prepare(
        &self,
        window: Window,
        writer: &dyn Writer,
        preparation: &Preparation,
    ) -> Result<Prepared> {
        let Some(thread) = window.thread.clone() else { return Ok(window.into()) };
        let mut prepared = self.prepare_summary(&thread, window, writer, preparation).await?;
        let recalled = self.recall(&thread, &mut prepared.window, preparation.query.as_deref()).await;
        prepared.failure = prepared.failure.or(self.tolerated(recalled)?);
        Ok(prepared)
    }

    /// Returns a failure that leaves the window unchanged. Returns it as an error if the settings ask for
    /// that.
    pub(super) fn tolerated(&self, outcome: Result<()>) -> Result<Option<Error>> {
        match outcome {
            Err(error) if self.settings.on_failure == OnFailure::Fail => Err(error),
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Ok(Some(error))
            }
            Ok(()) => Ok(None),
        }
    }

    /// Adds earlier summaries that match the question after the window's summary.
    pub(super) async fn recall(
        &self,
        thread: &Thread,
        window: &mut Window,
        query: Option<&str>,
    ) -> Result<()> {
        let Some(knowledge) = &self.knowledge else { return Ok(()) };
        let questions = window.messages.iter().filter(|message| is_human_turn(&message.message));
        let newest = questions.map(|message| message.message.text.clone()).next_back();
        // Results of tools have no text; the question that the model works on is still the newest.
        let query = query.filter(|query| !query.trim().is_empty()).map(str::to_owned).or(newest);
        let is_summary = |message: &WindowMessage| matches!(message.origin, Origin::Summary(_));
        let place = window.messages.iter().position(is_summary);
        let known = summary_in(&window.messages, self.counter());
        let query = query.unwrap_or_default();
        if let Some(recalled) = knowledge.recall(thread, &query, known.as_ref()).await? {
            // Two strategies may search the same collection.
            let is_there = |message: &WindowMessage| {
                message.origin == Origin::Injected && message.message.text == recalled.message.text
            };
            if !window.messages.iter().any(is_there) {
                window.messages.insert(place.map_or(0, |place| place + 1), recalled);
            }
        }
        Ok(())
    }

    async fn prepare_summary(
        &self,
        thread: &Thread,
        window: Window,
        writer: &dyn Writer,
        preparation: &Preparation,
    ) -> Result<Prepared> {
        let mut prepared = Prepared::from(window);
        if self.plan(&prepared.window, writer, preparation.tokens_beside) == 0 {
            return Ok(prepared);
        }
        prepared.summary_missing = true;
        if !preparation.asks_model {
            return Ok(prepared);
        }
        match self.draft(thread, &mut prepared, writer, preparation).await {
            Err(error) => prepared.failure = self.tolerated(Err(error))?,
            Ok(done) => prepared.summary_missing = !done,
        }
        Ok(prepared)
    }

    /// Replaces the oldest messages of the window with a summary. Returns `false` if another caller holds the
    /// claim.
    async fn draft(
        &self,
        thread: &Thread,
        prepared: &mut Prepared,
        writer: &dyn Writer,
        preparation: &Preparation,
    ) -> Result<bool> {
        let Some(claim) = self.store.claim(thread, self.claim_lasts()).await? else { return Ok(false) };
        let mut asking = Asking { maker: self, thread, claim: Some(claim) };
        let outcome = async {
            // An earlier strategy may have dropped the summary from the window.
            let mut before = summary_in(&prepared.window.messages, self.counter())
                .or_else(|| summary_in(&preparation.since_summary, self.counter()));
            let mut old = self.whole(&prepared.window, writer, preparation, before.as_ref());
            let base = base_of_messages(before.as_ref(), &old);
            let read = match &*preparation.since_summary {
                [] => &*prepared.window.messages,
                since_summary => since_summary,
            };
            if let Some(drafted) = self.drafted(thread, base.as_deref(), read).await? {
                self.take_in(thread, prepared, &drafted);
                old = self.whole(&prepared.window, writer, preparation, Some(&drafted));
                before = Some(drafted);
            }
            for part in self.parts(&old) {
                let summary = self.write(before.as_ref(), part, writer, &mut asking).await?;
                self.keep_draft(thread, base.as_deref(), part, &summary).await;
                self.take_in(thread, prepared, &summary);
                before = Some(summary);
            }
            Ok(true)
        }
        .await;
        asking.release().await;
        outcome
    }

    /// Begins the window with a summary, and plans the write of its entry in the knowledge base.
    fn take_in(&self, thread: &Thread, prepared: &mut Prepared, summary: &Summary) {
        if let Some(knowledge) = &self.knowledge {
            let digest = self.store.digest(thread);
            prepared.writes.push(Arc::new(knowledge.entry(digest, thread.clone(), summary.clone())));
        }
        begin_with_summary(&mut prepared.window, summary);
    }

    /// Returns the messages after the last summary to summarize, oldest first, including messages that an
    /// earlier strategy dropped from the window.
    fn whole(
        &self,
        window: &Window,
        writer: &dyn Writer,
        preparation: &Preparation,
        before: Option<&Summary>,
    ) -> Vec<WindowMessage> {
        let old = self.old(window, writer, preparation.tokens_beside);
        let Some(up_to) = old.last().and_then(place) else { return old };
        if preparation.since_summary.is_empty() {
            return old;
        }
        let is_covered = |seq| seq <= up_to && before.is_none_or(|before| seq > before.up_to);
        let whole = preparation.since_summary.iter();
        whole.filter(|message| place(message).is_some_and(is_covered)).cloned().collect()
    }

    /// Returns the draft of another caller that extends `base` and covers messages that this one has read.
    pub(super) async fn drafted(
        &self,
        thread: &Thread,
        base: Option<&str>,
        read: &[WindowMessage],
    ) -> Result<Option<Summary>> {
        let Some(base) = base else { return Ok(None) };
        let has_read = |mark| read.iter().any(|message| MessageMark::of(message) == Some(mark));
        self.store.draft(thread, base, has_read).await
    }

    /// Keeps a summary for other callers until it is stored.
    pub(super) async fn keep_draft(
        &self,
        thread: &Thread,
        base: Option<&str>,
        part: &[WindowMessage],
        summary: &Summary,
    ) {
        if let Some((base, last)) = base.zip(part.last().and_then(MessageMark::of)) {
            // The summary is valid without its draft, which only saves another process a model call.
            let _ = self.store.keep_draft(thread, base, last, summary).await;
        }
    }
}

fn place(message: &WindowMessage) -> Option<Seq> {
    match message.origin {
        Origin::Stored(seq) => Some(seq),
        _ => None,
    }
}
