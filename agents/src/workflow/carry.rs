//! Summaries of earlier states for later ones.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use larder_kernel::{
    ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Result, Role, check,
};

use super::record::Carried;

const OPERATION: &str = "workflow.carry_forward";
/// The longest text that one state may carry forward, in bytes.
const TEXT_BYTES_MAX: usize = 32 * 1024;
/// The largest number of states whose texts a state receives.
pub(crate) const STATES_MAX: usize = 32;
/// The instructions for the model.
const INSTRUCTIONS: &str = "Summarize the conversation below for the agent that takes over. Keep names, \
                            numbers, decisions, promises and open questions. Reply with only the summary.";

/// A function that summarizes the conversation of a state. Its arguments are the state's name, the text of an
/// earlier summary, and the messages since.
pub type SummaryFunction = dyn Fn(&str, Option<&str>, &[ChatMessage]) -> Result<String> + Send + Sync;

/// The source of the summaries. Clones share it.
#[derive(Clone)]
#[non_exhaustive]
pub enum Summarizer {
    /// A language model.
    Model(Arc<dyn LanguageModel>),
    /// A function.
    Function(Arc<SummaryFunction>),
}

impl Summarizer {
    /// Creates a summarizer from a function. Its arguments are the state's name, the text of an earlier
    /// summary, and the messages since.
    pub fn function<F>(function: F) -> Self
    where
        F: Fn(&str, Option<&str>, &[ChatMessage]) -> Result<String> + Send + Sync + 'static,
    {
        Self::Function(Arc::new(function))
    }

    async fn summarize(
        &self,
        state: &str,
        earlier: Option<&str>,
        messages: &[ChatMessage],
    ) -> Result<String> {
        match self {
            Self::Function(function) => function(state, earlier, messages),
            Self::Model(model) => {
                let mut text = format!("State: {state}\n");
                if let Some(earlier) = earlier {
                    let _ = writeln!(text, "Earlier summary: {earlier}");
                }
                messages.iter().for_each(|message| render(&mut text, message));
                let request = vec![ChatMessage::system(INSTRUCTIONS), ChatMessage::user(text)];
                Ok(model.generate(LanguageModelRequest::new(request)).await?.text)
            }
        }
    }
}

impl fmt::Debug for Summarizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => f.debug_tuple("Model").field(&model.name()).finish(),
            Self::Function(_) => f.write_str("Function"),
        }
    }
}

/// The reaction to a missing summary: the summarizer fails, or returns no text or too much text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CarryFailure {
    /// Carries the end of the conversation forward verbatim, with a line that gives the number of earlier
    /// messages.
    #[default]
    Keep,
    /// The transition fails with the summarizer's error, and nothing changes.
    Fail,
}

/// Carries summaries of earlier states forward to the next ones.
///
/// When the workflow leaves a state for one with its own conversation, the left conversation is summarized.
/// Every later state receives the summaries, oldest first, before its own conversation. On a further visit to
/// a persistent state, the new summary extends its earlier one.
///
/// The summary of a persistent state is stored with the run. The summary of a transient state is held by the
/// handle that made it, and no store ever holds it: after a restart, or through another handle, later states
/// do not receive it. This also applies to [`UntilLeft`](super::TransientConversations::UntilLeft).
///
/// ```
/// use larder_agents::workflow::{CarryFailure, CarryForward, Summarizer, WorkflowOptions};
///
/// // `Summarizer::Model` asks a language model instead.
/// let count =
///     Summarizer::function(|state, _, messages| Ok(format!("{} messages in {state}", messages.len())));
/// let carry_forward = CarryForward::new(count).with_on_failure(CarryFailure::Fail).with_states_max(4);
/// let options = WorkflowOptions::default().with_carry_forward(carry_forward);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct CarryForward {
    summarizer: Summarizer,
    on_failure: CarryFailure,
    text_bytes_max: usize,
    states_max: usize,
}

impl CarryForward {
    /// Carries forward the summaries of `summarizer`: at most 8 KiB from each of the last 8 states. If no
    /// summary can be made, carries the end of the conversation forward.
    #[must_use]
    pub fn new(summarizer: Summarizer) -> Self {
        Self { summarizer, on_failure: CarryFailure::Keep, text_bytes_max: 8 * 1024, states_max: 8 }
    }

    /// Sets the reaction to a missing summary.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: CarryFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the longest text that one state may carry forward: 256 bytes to 32 KiB.
    #[must_use]
    pub fn with_text_bytes_max(mut self, text_bytes_max: usize) -> Self {
        self.text_bytes_max = text_bytes_max;
        self
    }

    /// Sets the number of states whose summaries are kept: 1 to 32. The window notes that older ones were
    /// left out.
    #[must_use]
    pub fn with_states_max(mut self, states_max: usize) -> Self {
        self.states_max = states_max;
        self
    }

    pub(crate) fn states_max(&self) -> usize {
        self.states_max
    }

    pub(crate) fn check(&self) -> Result<()> {
        check::at_least(OPERATION, "text_bytes_max", self.text_bytes_max, 256)?;
        check::at_most(OPERATION, "text_bytes_max", self.text_bytes_max, TEXT_BYTES_MAX)?;
        check::batch(OPERATION, "states_max", self.states_max, STATES_MAX)
    }

    /// Returns the text to carry forward, and `true` if it is the conversation itself.
    pub(crate) async fn text(
        &self,
        state: &str,
        earlier: Option<&str>,
        messages: &[ChatMessage],
    ) -> Result<(String, bool)> {
        let made =
            self.summarizer.summarize(state, earlier, messages).await.and_then(|text| self.fitting(text));
        match (made, self.on_failure) {
            (Ok(text), _) => Ok((text, false)),
            (Err(_), CarryFailure::Keep) => Ok((self.verbatim(earlier, messages), true)),
            (Err(error), CarryFailure::Fail) => Err(error),
        }
    }

    fn fitting(&self, text: String) -> Result<String> {
        if text.trim().is_empty() {
            return Err(Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the summarizer returned no text; try again or use another one",
            ));
        }
        if text.len() > self.text_bytes_max {
            let error = Error::new(
                ErrorKind::Unexpected,
                OPERATION,
                "the summary is too long; request a shorter one",
            );
            return Err(error.with_limit(check::size(text.len()), check::size(self.text_bytes_max)));
        }
        Ok(text)
    }

    /// Returns the newest messages that fit, after a line that describes the omitted part.
    fn verbatim(&self, earlier: Option<&str>, messages: &[ChatMessage]) -> String {
        let mut lines = Vec::with_capacity(messages.len() + 1);
        if let Some(earlier) = earlier {
            lines.push(format!("Earlier: {earlier}\n"));
        }
        lines.extend(messages.iter().map(|message| {
            let mut line = String::new();
            render(&mut line, message);
            line
        }));
        // 96 bytes are reserved for the line that describes the omitted part.
        let room = self.text_bytes_max.saturating_sub(96);
        let mut used = 0;
        let fitting = lines.iter().rev().take_while(|line| {
            used += line.len();
            used <= room
        });
        let first = lines.len() - fitting.count();
        let mut text = String::new();
        match lines.get(first) {
            // Not even the last message fits, so its end is used.
            None if !lines.is_empty() => {
                let last = lines.last().map(String::as_str).unwrap_or_default();
                let cut = last.ceil_char_boundary(last.len() - room.min(last.len()));
                let _ = writeln!(
                    text,
                    "[{} earlier entries and the beginning of this are left out]",
                    lines.len() - 1
                );
                text.push_str(&last[cut..]);
            }
            _ => {
                if first > 0 {
                    let _ = writeln!(text, "[{first} earlier entries are left out]");
                }
                lines.iter().skip(first).for_each(|line| text.push_str(line));
            }
        }
        text
    }
}

/// Returns the message with the texts of the earlier states.
pub(crate) fn told(carried: &[&Carried], left_out: u64) -> Option<ChatMessage> {
    if carried.is_empty() {
        return None;
    }
    let mut text = String::from("Summaries of earlier states of this workflow:\n");
    if left_out > 0 {
        let _ = writeln!(text, "[{left_out} earlier summaries are left out]");
    }
    for carried in carried {
        let how = if carried.verbatim { "its conversation, not summarized" } else { "summary" };
        let _ = writeln!(text, "\n## {} ({how})\n{}", carried.visit.state, carried.text.trim_end());
    }
    Some(ChatMessage::system(text))
}

fn render(text: &mut String, message: &ChatMessage) {
    let role = match message.role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
        role => role.as_str(),
    };
    let mut line = |what: &str| {
        let _ = writeln!(text, "{role}: {what}");
    };
    if !message.text.is_empty() {
        line(&message.text);
    }
    for call in &message.tool_calls {
        line(&format!("called {} with {}", call.name, call.arguments));
    }
    for result in &message.tool_results {
        line(&format!("{} {}", if result.is_error { "failed:" } else { "answered:" }, result.content));
    }
    for blob in &message.blobs {
        line(&format!("file {}", blob.key.as_str()));
    }
}
