//! Assembly of the window.

use std::collections::HashSet;
use std::sync::Arc;

use larder_kernel::{
    ChatMessage, CompactionStrategy, Error, Origin, PendingWrite, Preparation, Prepared, Reach, Result, Seq,
    StoredMessage, StrategyEffect, Thread, Window, WindowMessage,
};

use super::left_out::{LeftOut, Present};
use super::record::{Hint, Record};
use super::state::{Held, Reader, State};
use crate::compaction::turns::units;
use crate::compaction::{self, close_tool_calls, summary_in};
use crate::context::explain::Stage;
use crate::tokens::{TokenCounter, tokens_of};

/// The header above the hints.
pub const HINTS_HEADER: &str = "[Important context]";

const BEGIN: &str = "session.begin";
/// The name of the step that keeps a window within its profile's limit.
const ROLLING_WINDOW: &str = "rolling_window";

/// The position of the hints in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HintOrder {
    /// System prompt, summary, hints, stored messages, new messages.
    #[default]
    AfterSummary,
    /// System prompt, hints, summary, stored messages, new messages.
    BeforeSummary,
}

/// Returns the text of the hints. A hint of several lines stays one list item.
fn hints_text<'a>(hints: impl IntoIterator<Item = &'a str>) -> String {
    hints.into_iter().fold(HINTS_HEADER.to_owned(), |mut text, hint| {
        text.push_str("\n- ");
        text.push_str(&hint.replace('\n', "\n  "));
        text
    })
}

/// Returns the number of tokens in one hint's line.
pub(crate) fn hint_tokens(counter: &dyn TokenCounter, hint: &str) -> u64 {
    counter.count(&format!("\n- {}", hint.replace('\n', "\n  ")))
}

/// Returns the number of tokens in all hints, from the counts of their lines.
pub(crate) fn hints_tokens(counter: &dyn TokenCounter, hints: &[Hint]) -> u64 {
    if hints.is_empty() {
        return 0;
    }
    counter.count(HINTS_HEADER) + hints.iter().map(|hint| hint.tokens).sum::<u64>()
}

/// Makes windows from a session's stored data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembler {
    pub(crate) hint_order: HintOrder,
    pub(crate) strategies: Vec<Arc<dyn CompactionStrategy>>,
}

/// The input of a window.
pub(crate) struct Parts<'a> {
    pub(crate) thread: &'a Thread,
    pub(crate) record: &'a Record,
    pub(crate) state: &'a State,
    pub(crate) new: &'a [ChatMessage],
    /// `true` if strategies may ask their models.
    pub(crate) asks_model: bool,
}

impl Parts<'_> {
    /// Returns the preparation data that strategies receive with the window. `fixed` is the size of the
    /// content that is always in it.
    fn preparation(&self, fixed: u64) -> Preparation {
        let mut preparation = Preparation::default().with_tokens_beside(fixed);
        if self.asks_model {
            preparation = preparation.with_model();
        }
        if !self.new.is_empty() {
            let asked: Vec<&str> = self.new.iter().map(ChatMessage::text).collect();
            preparation = preparation.with_query(asked.join("\n"));
        }
        preparation
    }
}

/// A window, and the results of strategies that are to be stored.
pub(crate) struct Assembled {
    pub(crate) window: Window,
    pub(crate) left_out: Vec<LeftOut>,
    /// The messages of the window that are stored in the session.
    pub(crate) stored: Vec<StoredMessage>,
    /// The summary of the session after the window has been used.
    pub(crate) summary: Option<Held>,
    /// The strategy that made this summary, if it is new.
    pub(crate) made_by: Option<&'static str>,
    pub(crate) erases_up_to: Option<Seq>,
    pub(crate) summary_missing: bool,
    pub(crate) failure: Option<Error>,
    pub(crate) writes: Vec<Arc<dyn PendingWrite>>,
}

/// The window after each step, if an explanation is requested.
#[derive(Default)]
pub(crate) struct Told(Option<Vec<Stage>>);

impl Told {
    pub(crate) fn explains() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn stages(self) -> Vec<Stage> {
        self.0.unwrap_or_default()
    }

    /// Records a step, with the summary in front unless the messages already contain it.
    fn step(
        &mut self,
        name: &'static str,
        drops: bool,
        summary: Option<&WindowMessage>,
        messages: &[WindowMessage],
    ) {
        if let Some(stages) = &mut self.0 {
            let known = messages.first().is_some_and(|first| matches!(first.origin, Origin::Summary(_)));
            let summary = summary.filter(|_| !known);
            let messages = summary.into_iter().chain(messages).cloned().collect();
            stages.push(Stage { name, drops, messages });
        }
    }
}

impl Assembler {
    /// Returns the lookback of a window: that of the first strategy that looks at more than single messages,
    /// otherwise that of the profile.
    pub(crate) fn reach(&self, record: &Record) -> Reach {
        if self.effect() > StrategyEffect::None {
            // Summaries and erasures are decided on the whole conversation.
            return Reach::Everything;
        }
        self.reaching().map_or_else(
            || record.profile.max_tokens().map_or(Reach::Everything, Reach::Tokens),
            |strategy| strategy.reach(),
        )
    }

    /// Returns the data that the strategies store.
    pub(crate) fn effect(&self) -> StrategyEffect {
        self.strategies.iter().map(|strategy| strategy.effect()).max().unwrap_or_default()
    }

    fn reaching(&self) -> Option<&dyn CompactionStrategy> {
        self.strategies.iter().map(|strategy| &**strategy).find(|strategy| strategy.reach() != Reach::Each)
    }

    /// Returns the number of tokens that are always in a window: the prompt, the hints, the new messages and
    /// the stored calls that these answer.
    ///
    /// # Errors
    /// `InvalidInput` with `messages` if they exceed the budget.
    pub(crate) fn fixed(&self, counter: &dyn TokenCounter, parts: &Parts<'_>) -> Result<u64> {
        let Parts { record, state, new, .. } = parts;
        let tokens = |messages: &[ChatMessage]| -> u64 {
            messages.iter().map(|message| tokens_of(counter, message)).sum()
        };
        let head = record.system_prompt_tokens + hints_tokens(counter, &record.hints);
        let pinned = pinned(counter, &state.messages, new);
        let fixed = head + tokens(new) + pinned;
        match record.profile.max_tokens() {
            Some(max_tokens) if fixed > max_tokens => Err(Error::invalid(
                BEGIN,
                "messages",
                "the prompt, the hints and the new messages exceed `max_tokens` of the session's profile; \
                 shorten them or raise it",
            )
            .with_limit(fixed, max_tokens)),
            _ => Ok(fixed),
        }
    }

    pub(crate) async fn assemble(
        &self,
        reader: &Reader,
        parts: &Parts<'_>,
        fixed: u64,
        told: &mut Told,
    ) -> Result<Assembled> {
        let Parts { record, state, new, .. } = parts;
        let counter = &*reader.counter;
        let mut present = Present::default();
        let (mut made, mut shown) = self.run(reader, parts, fixed, &mut present, told).await?;
        let mut window = std::mem::take(&mut made.window);
        let from_thread = window.messages.len();
        window.messages.extend(new.iter().cloned().map(WindowMessage::injected));
        if !new.is_empty() {
            told.step("new_messages", false, shown.as_ref(), &window.messages);
        }
        if let Some(max_tokens) = record.profile.max_tokens() {
            let mut room = max_tokens.saturating_sub(fixed);
            let summary = shown.as_ref().map_or(0, |summary| tokens_of(counter, &summary.message));
            if summary <= room {
                room -= summary;
            } else if let Some(Origin::Summary(up_to)) = shown.take().map(|summary| summary.origin) {
                present.all_before(ROLLING_WINDOW, after(up_to));
            }
            let room = room + pinned(counter, &state.messages, new);
            window.messages = roll(counter, window.messages, from_thread, room);
            told.step(ROLLING_WINDOW, true, shown.as_ref(), &window.messages);
            present.step(ROLLING_WINDOW, &window.messages, (None, None));
        }
        check_answers(&window.messages, window.messages.len() - new.len())?;
        window.messages = close_tool_calls(&window.messages);
        told.step("pair_tool_calls", true, shown.as_ref(), &window.messages);
        present.step("pair_tool_calls", &window.messages, (None, None));
        let mut messages = head(record, shown, self.hint_order);
        messages.append(&mut window.messages);
        window.messages = messages;
        told.step("session", false, None, &window.messages);
        let stored = state.messages.iter().filter(|stored| present.has(stored.seq)).cloned().collect();
        Ok(Assembled { window, stored, left_out: present.left_out, ..made })
    }

    /// Runs the strategies on the stored messages. Returns the summary to show separately from the window.
    async fn run(
        &self,
        reader: &Reader,
        parts: &Parts<'_>,
        fixed: u64,
        present: &mut Present,
        told: &mut Told,
    ) -> Result<(Assembled, Option<WindowMessage>)> {
        let Parts { thread, state, .. } = parts;
        let messages: Vec<_> = state.messages.iter().cloned().map(WindowMessage::from).collect();
        let headed = self.effect() > StrategyEffect::None;
        let mut summary = state.summary.clone();
        let mut shown = summary.as_ref().map(|held| shown_as(held, headed));
        let since_summary: Vec<_> = shown.iter().chain(&messages).cloned().collect();
        let preparation = parts.preparation(fixed).with_since_summary(since_summary);
        let mut made_by = None;
        let mut prepared = Prepared::from(Window::new(messages).with_thread((*thread).clone()));
        *present = Present::new(&prepared.window.messages);
        if let Some(before) = state.unread_before {
            let reaching = || self.reaching().map_or(ROLLING_WINDOW, |strategy| strategy.name());
            present.all_before(if state.limited { "memory" } else { reaching() }, before);
        }
        told.step("read", false, shown.as_ref(), &prepared.window.messages);
        for strategy in &self.strategies {
            let (name, erased) = (strategy.name(), prepared.erases_up_to);
            if strategy.effect() == StrategyEffect::None {
                // The strategy limits a summary of the other strategies together with the messages.
                let before = shown.take();
                prepared.window.messages.splice(0..0, before.clone().filter(|_| headed));
                prepared = prepared.then(&**strategy, &preparation).await?;
                shown = summary_first(&mut prepared.window.messages);
                match covered_by(before.as_ref()) {
                    Some(up_to) if shown.is_none() && headed => present.all_before(name, after(up_to)),
                    _ => shown = shown.or(before.filter(|_| !headed)),
                }
            } else {
                prepared.window.messages.splice(0..0, shown.take());
                prepared = prepared.then(&**strategy, &preparation).await?;
                let told_now = summary_in(&prepared.window.messages, &*reader.counter);
                shown = summary_first(&mut prepared.window.messages);
                // An erasure also removes the summary before it.
                let erases = prepared.erases_up_to != erased;
                if let Some(held) = summary.take_if(|_| erases) {
                    present.all_before(name, after(held.up_to));
                }
                match (told_now, &summary) {
                    (Some(new), held) if held.as_ref().is_none_or(|held| held.up_to != new.up_to) => {
                        made_by = Some(name);
                        summary = Some(Held::from(new));
                    }
                    (None, Some(held)) => present.all_before(name, after(held.up_to)),
                    _ => {}
                }
            }
            told.step(name, strategy.drops(), shown.as_ref(), &prepared.window.messages);
            let covered = covered_by(shown.as_ref());
            present.step(name, &prepared.window.messages, (covered, prepared.erases_up_to));
        }
        let Prepared { window, erases_up_to, summary_missing, failure, writes, .. } = prepared;
        let made = Assembled {
            window,
            left_out: Vec::new(),
            stored: Vec::new(),
            summary,
            made_by,
            erases_up_to,
            summary_missing,
            failure,
            writes,
        };
        Ok((made, shown))
    }
}

/// Returns the last position that a summary covers.
fn covered_by(summary: Option<&WindowMessage>) -> Option<Seq> {
    match summary?.origin {
        Origin::Summary(up_to) => Some(up_to),
        _ => None,
    }
}

fn after(seq: Seq) -> Seq {
    Seq::new(seq.get().saturating_add(1))
}

/// Converts a summary for the window, in the format of the strategies that summarize, if any is set.
fn shown_as(held: &Held, headed: bool) -> WindowMessage {
    if headed { compaction::summary_message(&held.summary()) } else { summary_message(held) }
}

/// Counts the tokens of the stored messages that new ones depend on, such as the calls that they answer.
fn pinned(counter: &dyn TokenCounter, stored: &[StoredMessage], new: &[ChatMessage]) -> u64 {
    if new.iter().all(|message| message.tool_results.is_empty()) {
        return 0;
    }
    let plain: Vec<_> = stored.iter().map(|stored| &*stored.message).chain(new).collect();
    let pinned = units(&plain).into_iter().filter(|unit| unit.end > stored.len());
    let places = pinned.flat_map(|unit| unit.start..unit.end.min(stored.len()));
    places.map(|place| tokens_of(counter, plain[place])).sum()
}

/// Takes out the summary that a strategy has put in front, because it belongs before or after the hints.
fn summary_first(messages: &mut Vec<WindowMessage>) -> Option<WindowMessage> {
    let first = messages.first()?;
    matches!(first.origin, Origin::Summary(_)).then(|| messages.remove(0))
}

fn summary_message(held: &Held) -> WindowMessage {
    WindowMessage::summary(held.up_to, with_tokens(ChatMessage::system(held.text.as_str()), held.tokens))
}

/// Returns the part of a window before the stored messages.
fn head(record: &Record, summary: Option<WindowMessage>, order: HintOrder) -> Vec<WindowMessage> {
    let prompt = (!record.system_prompt.is_empty()).then(|| {
        WindowMessage::injected(with_tokens(
            ChatMessage::system(record.system_prompt.as_str()),
            record.system_prompt_tokens,
        ))
    });
    let hints = (!record.hints.is_empty()).then(|| {
        WindowMessage::injected(ChatMessage::system(hints_text(record.hints.iter().map(|hint| &*hint.text))))
    });
    match order {
        HintOrder::AfterSummary => [prompt, summary, hints],
        HintOrder::BeforeSummary => [prompt, hints, summary],
    }
    .into_iter()
    .flatten()
    .collect()
}

/// Sets the token count of a message.
pub(crate) fn with_tokens(message: ChatMessage, tokens: u64) -> ChatMessage {
    message.with_token_count(u32::try_from(tokens).unwrap_or(u32::MAX))
}

/// Returns the newest units of the session's messages that fit into `room`, and all new messages. A unit that
/// a new message depends on, such as the call of a new result, stays.
fn roll(
    counter: &dyn TokenCounter,
    mut messages: Vec<WindowMessage>,
    from_thread: usize,
    room: u64,
) -> Vec<WindowMessage> {
    let plain: Vec<_> = messages.iter().map(|message| &*message.message).collect();
    let (mut left, mut cut) = (room, messages.len());
    for unit in units(&plain).into_iter().rev() {
        let old = unit.start.min(from_thread)..unit.end.min(from_thread);
        let tokens: u64 = plain[old].iter().map(|message| tokens_of(counter, message)).sum();
        let pinned = unit.end > from_thread;
        if !pinned && tokens > left {
            break;
        }
        left = left.saturating_sub(tokens);
        cut = unit.start;
    }
    messages.split_off(cut)
}

/// Checks that each new tool result belongs to a call that the model has seen.
pub(super) fn check_answers(messages: &[WindowMessage], new: usize) -> Result<()> {
    let calls = |messages: &[WindowMessage]| -> HashSet<String> {
        let calls = messages.iter().flat_map(|message| &message.message.tool_calls);
        calls.map(|call| call.id.clone()).collect()
    };
    let mut known = calls(&messages[..new]);
    for (index, message) in messages.iter().enumerate().skip(new) {
        if !message.message.tool_results.iter().all(|result| known.contains(&result.call_id)) {
            let error = "a tool result belongs to no tool call of the session; append the call first";
            return Err(Error::invalid(BEGIN, "messages", error));
        }
        known.extend(calls(&messages[index..=index]));
    }
    Ok(())
}
