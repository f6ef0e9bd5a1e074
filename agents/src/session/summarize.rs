//! Making the summary of a session's older messages (ATH-5).

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Result, Role, Seq, StoredMessage,
    Thread,
};

use super::flush::Mark;
use super::state::{Held, Reader, State};
use crate::compaction::turns::units;
use crate::compaction::{Answers, SummaryClaim};

const OPERATION: &str = "session.summarize";
/// Messages that are read at a time.
const PAGE: usize = 500;
/// How much longer than one answer of the model the right to summarize lasts.
const CLAIM_MARGIN: Duration = Duration::from_secs(10);
/// A summary is asked to be at most this part of the threshold, and never shorter than the second figure.
const OUTPUT_PART: u64 = 4;
const OUTPUT_TOKENS_MIN: u64 = 64;

const INSTRUCTIONS: &str = "Summarize the conversation below for somebody who goes on with it. Keep names, numbers, \
decisions, open questions and what was promised. Write plain sentences and nothing but the summary.";

/// When a session is summarized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SummaryPolicy {
    /// Past the threshold, where there is no summary yet.
    #[default]
    Once,
    /// Each time that what follows the summary is past the threshold; the new summary takes in the one before.
    Rolling,
}

/// What becomes of a window when its summary fails: the model errs, answers nothing or is late, or a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnSummaryFailure {
    /// The window is made without a new summary, and says so; the stored messages are all there.
    #[default]
    Keep,
    /// The error is returned.
    Fail,
}

#[derive(Debug, Clone)]
pub(crate) struct Summarizer {
    pub(crate) model: Arc<dyn LanguageModel>,
    pub(crate) policy: SummaryPolicy,
    pub(crate) on_failure: OnSummaryFailure,
    pub(crate) timeout: Duration,
    pub(crate) answers: Arc<Answers>,
}

/// What limits a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) max_tokens: u64,
    pub(crate) threshold: u64,
    /// The tokens of what is always in the window: the prompt, the hints and the new messages.
    pub(crate) fixed: u64,
}

impl Sizes {
    /// The tokens that stored messages may have besides a summary of so many.
    fn room(self, summary: u64) -> u64 {
        self.max_tokens.saturating_sub(self.fixed).saturating_sub(summary)
    }

    /// The tokens that a summary is asked to have at most.
    fn summary_tokens(self) -> u64 {
        (self.threshold / OUTPUT_PART).max(OUTPUT_TOKENS_MIN).min(self.max_tokens / 2)
    }
}

impl Summarizer {
    /// Whether a summary that fails is an error.
    pub(crate) fn fails(&self) -> bool {
        self.on_failure == OnSummaryFailure::Fail
    }

    /// Whether a session in this state is due for a summary: past the threshold, or where messages would leave the
    /// window before they are past it.
    pub(crate) fn is_due(&self, reader: &Reader, state: &State, sizes: Sizes) -> bool {
        let held = state.summary.as_ref();
        let allowed = self.policy == SummaryPolicy::Rolling || held.is_none();
        let tokens = tokens_of_all(reader, &state.messages);
        allowed && (tokens > sizes.threshold || tokens > sizes.room(held.map_or(0, |held| held.tokens)))
    }

    /// Makes the summary, without storing it: none where somebody else is at it, or where there is nothing older to
    /// summarize.
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
        let lasts = self.timeout + CLAIM_MARGIN;
        let Some(mut claim) = reader.summaries.claim(thread, lasts).await? else { return Ok(None) };
        let made = async {
            let mut job = Job { summarizer: self, reader, thread, sizes, held: state.summary.clone() };
            let mut next = Some(first);
            while let Some(up_to) = next {
                job.take_in_up_to(up_to, &mut claim).await?;
                let Some(held) = &job.held else { break };
                let left = state.messages.partition_point(|stored| stored.seq <= held.up_to);
                let left = &state.messages[left..];
                // The summary may be longer than was asked for; what it leaves no room for becomes part of it.
                let fits = tokens_of_all(reader, left) <= sizes.room(held.tokens);
                next = if fits { None } else { split(reader, left, sizes, held.tokens) };
            }
            Ok(job.held)
        }
        .await;
        // A claim that cannot be given back ends by itself; the summary counts either way.
        let _ = reader.summaries.release(claim).await;
        made
    }
}

/// A summary in the making.
struct Job<'a> {
    summarizer: &'a Summarizer,
    reader: &'a Reader,
    thread: &'a Thread,
    sizes: Sizes,
    held: Option<Held>,
}

impl Job<'_> {
    /// Summarizes what there is so far and everything after it up to a place, by parts.
    async fn take_in_up_to(&mut self, up_to: Seq, claim: &mut SummaryClaim) -> Result<()> {
        let Reader { history, summaries, .. } = self.reader;
        let mut after = self.held.as_ref().map_or(Seq::MIN, |held| held.up_to);
        let mut chunk = Vec::new();
        loop {
            let page = history.page_after(self.thread, after, PAGE).await?;
            let ended = page.len() < PAGE;
            for stored in page {
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

    /// Summarizes what there is so far and these messages.
    async fn take_in(&mut self, messages: Vec<StoredMessage>) -> Result<()> {
        let marked = |stored: &StoredMessage| Mark::of(&stored.message).is_some_and(|mark| mark.summary);
        // A summary that a replacement put into the thread is what there is so far.
        let messages: Vec<_> = messages.into_iter().filter(|stored| !marked(stored)).collect();
        let Some(last) = messages.last().map(|stored| stored.seq) else { return Ok(()) };
        let text = self.ask(&messages).await?;
        self.held = Some(Held {
            up_to: last,
            tokens: self.reader.tokens(&ChatMessage::system(text.as_str())),
            text,
            messages: self.held.as_ref().map_or(0, |held| held.messages)
                + larder_kernel::check::size(messages.len()),
        });
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
        let answer = tokio::time::timeout(self.summarizer.timeout, self.summarizer.model.generate(request))
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, OPERATION, "the model did not answer in time"))??;
        let text = answer.text.trim();
        if answer.role != Role::Assistant || text.is_empty() || !answer.tool_calls.is_empty() {
            return Err(Error::new(ErrorKind::Unexpected, OPERATION, "the model's answer is no summary"));
        }
        if crate::model::is_cut_off(&answer) {
            return Err(Error::new(ErrorKind::Unexpected, OPERATION, "the model's summary was cut off"));
        }
        if self.reader.tokens(&ChatMessage::system(text)) > self.sizes.max_tokens / 2 {
            return Err(Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the summary is too long for the window",
            ));
        }
        self.summarizer.answers.put(key, text.to_owned());
        Ok(text.to_owned())
    }
}

/// The last message that becomes part of the summary: the newer half of the tokens stays as it is, as far as there is
/// room besides a summary of so many tokens, in whole units, and always the newest unit.
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
