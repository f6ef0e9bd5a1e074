//! The common part of the strategies that summarize: one summary at a time, and validation before it is
//! stored.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Origin, Outcome, PendingWrite,
    Result, Thread, Window, WindowMessage, check,
};
use tokio::runtime::Handle;

use super::answers::{Answers, Question};
use super::knowledge::KnowledgeBase;
use super::paid_summary::base_of_messages;
use super::render::render_transcript;
use super::summary::{HEADING, Summary, begin_with_summary};
use super::summary_claim::SummaryClaim;
use super::summary_settings::SummarySettings;
use super::summary_store::{StoredSummary, SummaryStore};
use super::turns;
use crate::model::is_cut_off;
use crate::tokens::{TokenCounter, tokens_of};

const OPERATION: &str = "compaction.summarize";

/// The strategy-specific part of making a summary.
#[async_trait]
pub(super) trait Writer: Send + Sync {
    /// Returns the strategy's name.
    fn strategy(&self) -> &'static str;
    /// Returns the number of messages to summarize, oldest first. `tokens` is the size of the whole window.
    fn plan(&self, conversation: &[&ChatMessage], tokens: u64) -> usize;
    /// Writes a summary of a part of the conversation and of the previous summary.
    async fn write(
        &self,
        asking: &mut Asking<'_>,
        previous: Option<&str>,
        transcript: &str,
    ) -> Result<String>;
}

/// A claim on a thread, with access to the model. Dropping it releases the claim in the background. If the
/// process ends, the claim expires.
pub(super) struct Asking<'a> {
    pub(super) maker: &'a SummaryMaker,
    pub(super) thread: &'a Thread,
    pub(super) claim: Option<SummaryClaim>,
}

impl Asking<'_> {
    /// Asks the model and returns its text. A question that this or another process asked is not asked again.
    pub(super) async fn ask(&mut self, instructions: &str, question: String) -> Result<String> {
        let SummaryMaker { answers, store, .. } = self.maker;
        let key = Answers::key(self.thread, instructions, &question);
        if let Some(answer) = self.known(&key).await {
            return Ok(answer);
        }
        if let Some(claim) = &mut self.claim {
            store.renew(claim).await?;
        }
        let answer = self.maker.ask(instructions, question).await?;
        answers.put(key, answer.clone());
        let _ = store.keep_reply(self.thread, &key, &answer).await;
        Ok(answer)
    }

    async fn known(&self, key: &Question) -> Option<String> {
        let SummaryMaker { answers, store, .. } = self.maker;
        if let Some(answer) = answers.find(key) {
            return Some(answer);
        }
        // A stored reply only saves a model call: the summary does not depend on it.
        let answer = store.reply(self.thread, key).await.ok()??;
        answers.put(*key, answer.clone());
        Some(answer)
    }

    pub(super) async fn release(mut self) {
        if let Some(claim) = self.claim.take() {
            // If the release fails, the claim expires.
            let _ = self.maker.store.release(claim).await;
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let (Some(claim), Ok(runtime)) = (self.claim.take(), Handle::try_current()) {
            let store = self.maker.store.clone();
            runtime.spawn(async move { store.release(claim).await });
        }
    }
}

/// Makes summaries with a language model and keeps them in a [`SummaryStore`].
///
/// The strategies [`Summarization`](super::Summarization) and [`Summarizer`](super::Summarizer) use it. Only
/// one caller at a time summarizes a thread, across all processes. A summary takes effect only when it is
/// stored: if the model fails, returns no text, returns too much text or is late, the window loses nothing.
pub struct SummaryMaker {
    model: Arc<dyn LanguageModel>,
    counter: Arc<dyn TokenCounter>,
    pub(super) store: SummaryStore,
    pub(super) settings: SummarySettings,
    pub(super) knowledge: Option<KnowledgeBase>,
    answers: Arc<Answers>,
    pub(super) failures: AtomicU64,
}

impl fmt::Debug for SummaryMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummaryMaker").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl SummaryMaker {
    /// Creates a maker that asks `model`, counts tokens with `counter` and stores summaries in `store`.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting.
    pub fn new(
        model: Arc<dyn LanguageModel>,
        counter: Arc<dyn TokenCounter>,
        store: SummaryStore,
        settings: SummarySettings,
    ) -> Result<Self> {
        settings.check()?;
        let (answers, failures) = (Arc::default(), AtomicU64::new(0));
        Ok(Self { model, counter, store, settings, knowledge: None, answers, failures })
    }

    /// Also writes each summary to a searchable collection.
    #[must_use]
    pub fn with_knowledge_base(mut self, knowledge: KnowledgeBase) -> Self {
        self.knowledge = Some(knowledge);
        self
    }

    /// Shares the replies of the model with other makers, so that none of them asks a question again.
    pub(crate) fn with_answers(mut self, answers: Arc<Answers>) -> Self {
        self.answers = answers;
        self
    }

    /// Returns the number of summaries that failed and left the window unchanged.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn counter(&self) -> &dyn TokenCounter {
        &*self.counter
    }

    pub(super) fn has_knowledge_base(&self) -> bool {
        self.knowledge.is_some()
    }

    async fn ask(&self, instructions: &str, question: String) -> Result<String> {
        let messages = vec![ChatMessage::system(instructions), ChatMessage::user(question)];
        let request =
            LanguageModelRequest::new(messages).with_output_tokens_max(self.settings.summary_tokens_max);
        let timeout = Duration::from_millis(self.settings.timeout_ms);
        let late = |_| {
            failed(ErrorKind::Timeout, "the model did not respond in time; try again or raise the time limit")
        };
        let answer = tokio::time::timeout(timeout, self.model.generate(request)).await.map_err(late)??;
        if is_cut_off(&answer) {
            return Err(failed(
                ErrorKind::Unexpected,
                "the summary was cut off at `summary_tokens_max`; raise it",
            ));
        }
        if !answer.tool_calls.is_empty() || answer.text.trim().is_empty() {
            return Err(failed(
                ErrorKind::Unexpected,
                "the model's response is not a summary; try again or use another model",
            ));
        }
        // The limit is doubled because the model may count tokens differently. A longer reply ignored the
        // instructions.
        if self.counter.count(&answer.text) > 2 * u64::from(self.settings.summary_tokens_max) {
            return Err(failed(ErrorKind::Unexpected, "the summary exceeds `summary_tokens_max`; raise it"));
        }
        Ok(answer.text.trim().to_owned())
    }

    /// Returns the window, with the part that the writer selects replaced by a summary.
    pub(super) async fn compact(&self, mut window: Window, writer: &dyn Writer) -> Result<Window> {
        let Some(thread) = window.thread.clone() else { return Ok(window) };
        let shortened = self.shorten(&thread, &mut window, writer).await;
        self.tolerated(shortened)?;
        let recalled = self.recall(&thread, &mut window, None).await;
        self.tolerated(recalled)?;
        Ok(window)
    }

    /// Returns the duration of a claim. It is renewed before each question, so it outlives the longest reply.
    pub(super) fn claim_lasts(&self) -> Duration {
        Duration::from_millis(self.settings.timeout_ms) + Duration::from_secs(30)
    }

    /// On return or failure, the window holds a stored summary and every message after it.
    async fn shorten(&self, thread: &Thread, window: &mut Window, writer: &dyn Writer) -> Result<()> {
        if !self.refresh(thread, window).await? || self.plan(window, writer, 0) == 0 {
            return Ok(());
        }
        let lasts = self.claim_lasts();
        let mut claim = self.store.claim(thread, lasts).await?;
        if claim.is_none() && self.settings.wait_ms > 0 {
            self.store.wait(thread, Duration::from_millis(self.settings.wait_ms)).await?;
            if !self.refresh(thread, window).await? || self.plan(window, writer, 0) == 0 {
                return Ok(());
            }
            claim = self.store.claim(thread, lasts).await?;
        }
        // Another caller holds the claim for too long: this window stays unchanged.
        if claim.is_none() {
            return Ok(());
        }
        let mut asking = Asking { maker: self, thread, claim };
        let outcome = self.summarize(thread, window, writer, &mut asking).await;
        asking.release().await;
        outcome
    }

    /// Begins the window with the stored summary. Returns `false` if the window has a newer summary than the
    /// store: the stored summary was removed while the window was being made.
    async fn refresh(&self, thread: &Thread, window: &mut Window) -> Result<bool> {
        Ok(self.adopt(self.store.get(thread).await?.as_ref(), window))
    }

    fn adopt(&self, kept: Option<&StoredSummary>, window: &mut Window) -> bool {
        let known = window.messages.iter().filter_map(|message| match message.origin {
            Origin::Summary(up_to) => Some(up_to),
            _ => None,
        });
        match (kept, known.max()) {
            (None, known) => known.is_none(),
            (Some(kept), Some(known)) if kept.summary.up_to < known => false,
            (Some(kept), _) => {
                begin_with_summary(window, &kept.summary);
                true
            }
        }
    }

    pub(super) fn plan(&self, window: &Window, writer: &dyn Writer, tokens_beside: u64) -> usize {
        let counted = window.messages.iter().map(|message| tokens_of(self.counter(), &message.message));
        let tokens = counted.fold(tokens_beside, u64::saturating_add);
        let conversation: Vec<&ChatMessage> = stored(window).map(|message| &*message.message).collect();
        writer.plan(&conversation, tokens)
    }

    async fn summarize(
        &self,
        thread: &Thread,
        window: &mut Window,
        writer: &dyn Writer,
        asking: &mut Asking<'_>,
    ) -> Result<()> {
        // Read the summary again: another caller may have finished before this one took the claim.
        let mut kept = self.store.get(thread).await?;
        if !self.adopt(kept.as_ref(), window) {
            return Ok(());
        }
        let before = kept.as_ref().map(|kept| &kept.summary);
        let extends = base_of_messages(before, &self.old(window, writer, 0));
        if let Some(drafted) = self.drafted(thread, extends.as_deref(), &window.messages).await? {
            let part: Vec<_> = stored(window)
                .filter(|message| matches!(message.origin, Origin::Stored(seq) if seq <= drafted.up_to))
                .cloned()
                .collect();
            let covers = Summary::covers_with_part(before, &part);
            if !self.keep(thread, window, &mut kept, Summary { covers, ..drafted }).await? {
                return Ok(());
            }
        }
        let old = self.old(window, writer, 0);
        for part in self.parts(&old) {
            let before = kept.as_ref().map(|kept| &kept.summary);
            let summary = self.write(before, part, writer, asking).await?;
            self.keep_draft(thread, base_of_messages(before, part).as_deref(), part, &summary).await;
            if !self.keep(thread, window, &mut kept, summary).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the messages to summarize, oldest first.
    pub(super) fn old(&self, window: &Window, writer: &dyn Writer, tokens_beside: u64) -> Vec<WindowMessage> {
        stored(window).take(self.plan(window, writer, tokens_beside)).cloned().collect()
    }

    /// Stores a summary and begins the window with it. Returns `false` if another caller stored its summary
    /// first.
    async fn keep(
        &self,
        thread: &Thread,
        window: &mut Window,
        kept: &mut Option<StoredSummary>,
        summary: Summary,
    ) -> Result<bool> {
        if let Some(knowledge) = &self.knowledge {
            knowledge.entry(self.store.digest(thread), thread.clone(), summary.clone()).commit().await?;
        }
        let expected = kept.as_ref().map(|kept| kept.revision);
        let revision = match self.store.put(thread, expected, &summary).await {
            // Another caller stored its summary first; use that one.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.refresh(thread, window).await?;
                return Ok(false);
            }
            put => put?,
        };
        // If this removal fails, the draft no longer fits any summary, and it expires.
        let _ = self.store.drop_drafts(thread).await;
        begin_with_summary(window, &summary);
        *kept = Some(StoredSummary { summary, revision });
        Ok(true)
    }

    /// Splits the messages to summarize into parts that fit the model's input, never between a call and its
    /// results.
    pub(super) fn parts<'a>(&self, old: &'a [WindowMessage]) -> Vec<&'a [WindowMessage]> {
        let messages: Vec<&ChatMessage> = old.iter().map(|message| &*message.message).collect();
        let mut parts = Vec::new();
        let (mut start, mut tokens) = (0, 0);
        for unit in turns::units(&messages) {
            let more: u64 =
                messages[unit.clone()].iter().map(|message| tokens_of(self.counter(), message)).sum();
            if unit.start > start && tokens + more > self.settings.input_tokens_max {
                parts.push(&old[start..unit.start]);
                (start, tokens) = (unit.start, 0);
            }
            tokens += more;
        }
        if start < old.len() {
            parts.push(&old[start..]);
        }
        parts
    }

    /// Writes a summary that includes one more part.
    pub(super) async fn write(
        &self,
        before: Option<&Summary>,
        part: &[WindowMessage],
        writer: &dyn Writer,
        asking: &mut Asking<'_>,
    ) -> Result<Summary> {
        let told: u64 = part.iter().map(|message| tokens_of(self.counter(), &message.message)).sum();
        let transcript = render_transcript(part.iter().map(|message| &*message.message));
        // Only a call and its results, which stay together, can exceed the model's input limit.
        let limit = self.settings.input_tokens_max;
        let pieces = if told > limit { pieces(&transcript, limit) } else { vec![&*transcript] };
        let mut text = before.map(|summary| summary.text.clone());
        for piece in pieces {
            text = Some(writer.write(asking, text.as_deref(), piece).await?);
        }
        let text = text.unwrap_or_default();
        let replaced = before.map_or(0, |summary| summary.tokens) + told;
        let tokens = self.counter.count(HEADING) + self.counter.count(&text);
        // A summary that includes a short part may grow by more than the part, within its limit.
        let grown = before.is_some() && tokens <= u64::from(self.settings.summary_tokens_max);
        if tokens >= replaced && !grown {
            // Another process asks again, because this reply would fail again.
            let _ = self.store.drop_replies(asking.thread).await;
            return Err(failed(
                ErrorKind::Unexpected,
                "the summary is not shorter than the messages that it replaces; the messages stay",
            ));
        }
        let Some(Origin::Stored(up_to)) = part.last().map(|message| message.origin) else {
            return Err(failed(ErrorKind::Unexpected, "no messages to summarize"));
        };
        let messages = before.map_or(0, |summary| summary.messages) + check::size(part.len());
        let covers = Summary::covers_with_part(before, part);
        Ok(Summary { up_to, text, tokens, messages, strategy: writer.strategy().to_owned(), covers })
    }
}

/// Creates the error of a failure that changed nothing.
pub(super) fn failed(kind: ErrorKind, message: &'static str) -> Error {
    Error::new(kind, OPERATION, message).with_outcome(Outcome::NotApplied).with_idempotent(true)
}

pub(super) fn stored(window: &Window) -> impl Iterator<Item = &WindowMessage> {
    window.messages.iter().filter(|message| matches!(message.origin, Origin::Stored(_)))
}

/// Splits a text that exceeds the model's input, at about 4 bytes per token and between words if possible.
fn pieces(text: &str, tokens_max: u64) -> Vec<&str> {
    let bytes_max = usize::try_from(tokens_max.saturating_mul(4)).unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > bytes_max {
        let end = rest.floor_char_boundary(bytes_max);
        let cut = rest[..end].rfind(char::is_whitespace).filter(|cut| *cut > end / 2).unwrap_or(end);
        let (piece, after) = rest.split_at(cut);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}
