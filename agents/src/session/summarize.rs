//! Summaries of a session's older messages.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Outcome, Result, Role, Seq,
    StoredMessage, Thread,
};

use super::flush::Mark;
use super::state::{Held, Reader, State};
use crate::compaction::turns::units;
use crate::compaction::{Answers, MessageMark, SummaryClaim, base_of};

const OPERATION: &str = "session.summarize";
/// The page size for reading messages.
const PAGE: usize = 500;
/// The default time limit for one summary from the model.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The time that a claim lasts beyond the time limit of one model call.
const CLAIM_MARGIN: Duration = Duration::from_secs(10);
/// The largest requested size of a summary is the threshold divided by this, but not below the minimum.
const OUTPUT_PART: u64 = 4;
const OUTPUT_TOKENS_MIN: u64 = 64;

const INSTRUCTIONS: &str = "Summarize the conversation below for a reader who must continue it. Keep names, \
                            numbers, decisions, open questions and what was promised. Write plain sentences \
                            and nothing but the summary.";

/// The occasions on which a session is summarized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SummaryPolicy {
    /// Makes a summary above the threshold if the session has none.
    #[default]
    Once,
    /// Makes a summary each time that the messages after the last one exceed the threshold. The new summary
    /// includes the previous one.
    Rolling,
}

/// The reaction to a failed summary. A summary fails if the model fails, returns no text or is late, or if a
/// store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnSummaryFailure {
    /// Makes the window without a new summary and reports the failure. All stored messages are kept.
    #[default]
    Keep,
    /// Returns the error.
    Fail,
}

/// The settings of summaries, which apply to every model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SummaryOptions {
    pub(crate) policy: SummaryPolicy,
    pub(crate) on_failure: OnSummaryFailure,
    /// The time limit of one model call, if it is not the default.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(crate) struct Summarizer {
    pub(crate) model: Arc<dyn LanguageModel>,
    pub(crate) options: SummaryOptions,
    pub(crate) answers: Arc<Answers>,
}

/// The limits of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) max_tokens: u64,
    pub(crate) threshold: u64,
    /// The tokens that are always in the window: the prompt, the hints and the new messages.
    pub(crate) fixed: u64,
}

impl Sizes {
    /// Returns the tokens available for stored messages, given the size of the summary.
    fn room(self, summary: u64) -> u64 {
        self.max_tokens.saturating_sub(self.fixed).saturating_sub(summary)
    }

    /// Returns the requested largest size of a summary, in tokens.
    fn summary_tokens(self) -> u64 {
        (self.threshold / OUTPUT_PART).max(OUTPUT_TOKENS_MIN).min(self.max_tokens / 2)
    }
}

impl Summarizer {
    /// Returns `true` if a failed summary is an error.
    pub(crate) fn fails(&self) -> bool {
        self.options.on_failure == OnSummaryFailure::Fail
    }

    fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Returns `true` if a session in this state needs a summary: it is above the threshold, or messages
    /// would leave the window before it is.
    pub(crate) fn is_due(&self, reader: &Reader, state: &State, sizes: Sizes) -> bool {
        let held = state.summary.as_ref();
        let allowed = self.options.policy == SummaryPolicy::Rolling || held.is_none();
        let tokens = tokens_of_all(reader, &state.messages);
        allowed && (tokens > sizes.threshold || tokens > sizes.room(held.map_or(0, |held| held.tokens)))
    }

    /// Makes the summary without storing it. Returns `None` if another caller holds the claim, or if no older
    /// messages can be summarized.
    pub(crate) async fn run(
        &self,
        reader: &Reader,
        thread: &Thread,
        state: &State,
        sizes: Sizes,
    ) -> Result<Option<Held>> {
        let Some(first) = split(reader, &state.messages, sizes, sizes.summary_tokens()) else {
            return Ok(None);
        };
        let lasts = self.timeout() + CLAIM_MARGIN;
        let Some(mut claim) = reader.summaries.claim(thread, lasts).await? else { return Ok(None) };
        let made = async {
            let before = state.summary.as_ref().map(|held| (held.up_to, &*held.text));
            let base = base_of(before, state.first);
            let drafted = match &base {
                Some(base) => reader.summaries.draft(thread, base, |mark| has_read(state, mark)).await?,
                None => None,
            };
            let drafted = drafted.map(Held::from);
            let mut next = match &drafted {
                Some(held) => over(reader, state, sizes, held),
                None => Some(first),
            };
            let held = drafted.or_else(|| state.summary.clone());
            let mut job = Job { summarizer: self, reader, thread, sizes, base, held };
            while let Some(up_to) = next {
                job.take_in_up_to(up_to, &mut claim).await?;
                let Some(held) = &job.held else { break };
                next = over(reader, state, sizes, held);
                if next.is_some() {
                    reader.summaries.renew(&mut claim).await?;
                }
            }
            Ok(job.held)
        }
        .await;
        // If the release fails, the claim expires; the summary is valid either way.
        let _ = reader.summaries.release(claim).await;
        made
    }
}

/// The state of making one summary.
struct Job<'a> {
    summarizer: &'a Summarizer,
    reader: &'a Reader,
    thread: &'a Thread,
    sizes: Sizes,
    /// The identity of the data that the summary extends.
    base: Option<String>,
    held: Option<Held>,
}

impl Job<'_> {
    /// Adds everything up to a position to the summary so far, in parts.
    async fn take_in_up_to(&mut self, up_to: Seq, claim: &mut SummaryClaim) -> Result<()> {
        let Reader { history, summaries, .. } = self.reader;
        let mut after = self.held.as_ref().map_or(Seq::MIN, |held| held.up_to);
        let mut chunk = Vec::new();
        loop {
            let page = history.page_after(self.thread, after, PAGE).await?;
            let ended = page.next(PAGE).is_none();
            for stored in page.messages {
                after = stored.seq;
                if after > up_to {
                    break;
                }
                chunk.push(stored);
                if tokens_of_all(self.reader, &chunk) > self.sizes.threshold {
                    self.take_in(std::mem::take(&mut chunk)).await?;
                    summaries.renew(claim).await?;
                }
            }
            if ended || after >= up_to {
                return self.take_in(chunk).await;
            }
        }
    }

    /// Adds these messages to the summary so far.
    async fn take_in(&mut self, messages: Vec<StoredMessage>) -> Result<()> {
        let marked = |stored: &StoredMessage| Mark::of(&stored.message).is_some_and(|mark| mark.summary);
        // If a replacement stored a summary in the thread, that summary is the summary so far.
        let messages: Vec<_> = messages.into_iter().filter(|stored| !marked(stored)).collect();
        let Some(last) = messages.last().map(MessageMark::from) else { return Ok(()) };
        let text = self.ask(&messages).await?;
        let held = Held {
            up_to: last.seq,
            tokens: self.reader.tokens(&ChatMessage::system(text.as_str())),
            text,
            messages: self.held.as_ref().map_or(0, |held| held.messages)
                + larder_kernel::check::size(messages.len()),
        };
        if let Some(base) = &self.base {
            // The summary is valid without its draft, which only saves another process a model call.
            let _ = self.reader.summaries.keep_draft(self.thread, base, last, &held.summary()).await;
        }
        self.held = Some(held);
        Ok(())
    }

    async fn ask(&self, messages: &[StoredMessage]) -> Result<String> {
        let mut text = String::new();
        if let Some(held) = &self.held {
            text.push_str("Summary so far:\n");
            text.push_str(&held.text);
            text.push_str("\n\n");
        }
        text.push_str("Conversation:\n");
        messages.iter().for_each(|stored| write_out(&mut text, &stored.message));
        let key = Answers::key(self.thread, INSTRUCTIONS, &text);
        if let Some(answer) = self.summarizer.answers.find(&key) {
            return Ok(answer);
        }
        let tokens_max = (self.sizes.threshold / OUTPUT_PART).max(OUTPUT_TOKENS_MIN);
        let request =
            LanguageModelRequest::new(vec![ChatMessage::system(INSTRUCTIONS), ChatMessage::user(text)])
                .with_output_tokens_max(u32::try_from(tokens_max).unwrap_or(u32::MAX));
        let answer = tokio::time::timeout(self.summarizer.timeout(), self.summarizer.model.generate(request))
            .await
            .map_err(|_| {
                Error::new(
                    ErrorKind::Timeout,
                    OPERATION,
                    "the model did not respond in time; try again or raise the time limit",
                )
                .with_outcome(Outcome::NotApplied)
            })??;
        let text = answer.text.trim();
        if answer.role != Role::Assistant || text.is_empty() || !answer.tool_calls.is_empty() {
            return Err(Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the model's response is not a summary; try again or use another model",
            ));
        }
        if crate::model::is_cut_off(&answer) {
            return Err(Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the model's summary was cut off at its token limit; raise the limit of the model",
            ));
        }
        if self.reader.tokens(&ChatMessage::system(text)) > self.sizes.max_tokens / 2 {
            return Err(Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the summary does not fit into the window; raise `max_tokens`",
            ));
        }
        self.summarizer.answers.put(key, text.to_owned());
        Ok(text.to_owned())
    }
}

fn has_read(state: &State, mark: MessageMark) -> bool {
    state.messages.iter().any(|stored| MessageMark::from(stored) == mark)
}

/// Returns the last message that must become part of the summary too. The summary may be longer than
/// requested, so that the messages after it do not fit into the window.
fn over(reader: &Reader, state: &State, sizes: Sizes, held: &Held) -> Option<Seq> {
    let left = state.messages.partition_point(|stored| stored.seq <= held.up_to);
    let left = &state.messages[left..];
    let fits = tokens_of_all(reader, left) <= sizes.room(held.tokens);
    if fits { None } else { split(reader, left, sizes, held.tokens) }
}

/// Returns the last message that becomes part of the summary. The newer half of the tokens stays verbatim, in
/// whole units, as far as it fits next to a summary of the given size. The newest unit always stays.
fn split(reader: &Reader, messages: &[StoredMessage], sizes: Sizes, summary: u64) -> Option<Seq> {
    let plain: Vec<_> = messages.iter().map(|stored| &*stored.message).collect();
    let keep_max = (tokens_of_all(reader, messages) / 2).min(sizes.room(summary));
    let (mut kept, mut cut) = (0, messages.len());
    for unit in units(&plain).into_iter().rev() {
        let start = unit.start;
        kept += tokens_of_all(reader, &messages[unit]);
        if kept > keep_max && cut < messages.len() {
            break;
        }
        cut = start;
    }
    cut.checked_sub(1).map(|last| messages[last].seq)
}

pub(crate) fn tokens_of_all(reader: &Reader, messages: &[StoredMessage]) -> u64 {
    messages.iter().map(|stored| reader.tokens(&stored.message)).sum()
}

fn write_out(text: &mut String, message: &ChatMessage) {
    let mut line = |who: &str, what: &str| {
        text.push_str(who);
        text.push_str(": ");
        text.push_str(what);
        text.push('\n');
    };
    if !message.text.is_empty() {
        line(message.role.as_str(), &message.text);
    }
    for call in &message.tool_calls {
        line("tool call", &format!("{} {}", call.name, call.arguments));
    }
    for result in &message.tool_results {
        line(if result.is_error { "tool error" } else { "tool result" }, &result.content);
    }
}
