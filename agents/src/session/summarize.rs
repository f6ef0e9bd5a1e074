//! Making the summary of a session's older messages (ATH-5).

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Result, Role, Seq, StoredMessage,
    Thread,
};

use super::flush::Mark;
use super::state::{Held, Reader, State, strategy};
use crate::compaction::turns::units;
use crate::compaction::{Covered, Summary};

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
}

/// What the profile says about summaries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) max_tokens: u64,
    pub(crate) threshold: u64,
}

impl Summarizer {
    /// Whether a session that stands so is due for a summary.
    pub(crate) fn is_due(&self, reader: &Reader, state: &State, sizes: Sizes) -> bool {
        let allowed = self.policy == SummaryPolicy::Rolling || state.summary.is_none();
        allowed && tokens_of_all(reader, &state.messages) > sizes.threshold
    }

    /// Makes the summary, and says whether one was written.
    ///
    /// Nothing is written where somebody else is at it, or where there is nothing older to summarize.
    pub(crate) async fn run(
        &self,
        reader: &Reader,
        thread: &Thread,
        state: &State,
        sizes: Sizes,
    ) -> Result<bool> {
        let Some(up_to) = split(reader, state, sizes) else { return Ok(false) };
        let lasts = self.timeout + CLAIM_MARGIN;
        let Some(mut claim) = reader.summaries.claim(thread, lasts).await? else { return Ok(false) };
        let made = async {
            // Somebody may have made it between the look at the session and the claim.
            let there = reader.summaries.current(&*reader.history, thread).await?;
            if there.map(|stored| stored.revision) != state.revision {
                return Ok(true);
            }
            let mut job = Job { summarizer: self, reader, sizes, held: state.summary.clone() };
            let mut after = state.summary.as_ref().map_or(Seq::MIN, |held| held.up_to);
            let mut chunk = Vec::new();
            loop {
                let page = reader.history.page_after(thread, after, PAGE).await?;
                let ended = page.len() < PAGE;
                for stored in page {
                    after = stored.seq;
                    if after > up_to {
                        break;
                    }
                    chunk.push(stored);
                    if tokens_of_all(reader, &chunk) > sizes.threshold {
                        job.take_in(std::mem::take(&mut chunk)).await?;
                        reader.summaries.renew(&mut claim).await?;
                    }
                }
                if ended || after >= up_to {
                    break;
                }
            }
            job.take_in(chunk).await?;
            let Some(held) = job.held else { return Ok(false) };
            let summary = Summary {
                up_to,
                text: held.text,
                tokens: held.tokens,
                messages: held.messages,
                strategy: strategy(state.mark.as_ref()),
                covers: covered(state, up_to),
            };
            match reader.summaries.put(thread, state.revision, &summary).await {
                // Somebody else's summary is there: it is as good.
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(true),
                written => written.map(|_| true),
            }
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
    sizes: Sizes,
    held: Option<Held>,
}

impl Job<'_> {
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
        Ok(text.to_owned())
    }
}

/// The messages by which a summary up to this place recognizes the session.
fn covered(state: &State, up_to: Seq) -> Option<Covered> {
    let last = state.messages.iter().find(|stored| stored.seq == up_to)?;
    Some(Covered { first: state.first?, last: last.into() })
}

/// The last message that becomes part of the summary: the newer half of the tokens stays as it is, in whole units, and
/// always the newest unit.
fn split(reader: &Reader, state: &State, sizes: Sizes) -> Option<Seq> {
    let messages = &state.messages;
    let plain: Vec<_> = messages.iter().map(|stored| &*stored.message).collect();
    let keep_max = (tokens_of_all(reader, messages) / 2).min(sizes.max_tokens);
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
