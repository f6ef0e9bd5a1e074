//! Putting the window together (ATH-4, ATH-6, ATH-7).

use std::collections::HashSet;
use std::sync::Arc;

use larder_kernel::{
    ChatMessage, CompactionStrategy, Error, Origin, Reach, Result, StoredMessage, Thread, Window,
    WindowMessage,
};

use super::record::{Hint, Record};
use super::state::{Held, Reader};
use crate::compaction::pair_tool_calls;
use crate::compaction::turns::units;
use crate::context::explain::Stage;
use crate::tokens::{TokenCounter, tokens_of};

/// What stands over the hints.
pub const HINTS_HEADER: &str = "[Important context]";

/// Where the hints stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintOrder {
    /// System prompt, summary, hints, stored messages, new messages.
    #[default]
    AfterSummary,
    /// System prompt, hints, summary, stored messages, new messages.
    BeforeSummary,
}

/// The lines of the hints. A hint of several lines stays one item.
fn hints_text<'a>(hints: impl IntoIterator<Item = &'a str>) -> String {
    hints.into_iter().fold(HINTS_HEADER.to_owned(), |mut text, hint| {
        text.push_str("\n- ");
        text.push_str(&hint.replace('\n', "\n  "));
        text
    })
}

/// The tokens of one hint's line.
pub(crate) fn hint_tokens(counter: &dyn TokenCounter, hint: &str) -> u64 {
    counter.count(&format!("\n- {}", hint.replace('\n', "\n  ")))
}

/// The tokens of all hints, from those of their lines.
pub(crate) fn hints_tokens(counter: &dyn TokenCounter, hints: &[Hint]) -> u64 {
    if hints.is_empty() {
        return 0;
    }
    counter.count(HINTS_HEADER) + hints.iter().map(|hint| hint.tokens).sum::<u64>()
}

/// How windows are made of what a session holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assembler {
    pub(crate) hint_order: HintOrder,
    pub(crate) strategies: Vec<Arc<dyn CompactionStrategy>>,
}

/// A window, and which of its messages the session holds.
pub(crate) struct Assembled {
    pub(crate) window: Window,
    pub(crate) stored: Vec<StoredMessage>,
}

/// The window after each step, where it is to be explained.
#[derive(Default)]
pub(crate) struct Told(Option<Vec<Stage>>);

impl Told {
    pub(crate) fn explains() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn stages(self) -> Vec<Stage> {
        self.0.unwrap_or_default()
    }

    /// A step, with the summary in front unless the messages bring one along.
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
    /// How far back a window reads: as the first strategy that looks at more than single messages says, else as the
    /// profile does.
    pub(crate) fn reach(&self, record: &Record) -> Reach {
        let of_strategies =
            self.strategies.iter().map(|strategy| strategy.reach()).find(|reach| *reach != Reach::Each);
        of_strategies.unwrap_or_else(|| record.profile.max_tokens().map_or(Reach::Everything, Reach::Tokens))
    }

    pub(crate) async fn assemble(
        &self,
        reader: &Reader,
        thread: &Thread,
        record: &Record,
        (stored, summary): (Vec<StoredMessage>, Option<&Held>),
        new: &[ChatMessage],
        told: &mut Told,
    ) -> Result<Assembled> {
        let counter = &*reader.counter;
        let mut window = Window {
            thread: Some(thread.clone()),
            messages: stored.iter().cloned().map(WindowMessage::from).collect(),
        };
        let held = summary.map(summary_message);
        told.step("read", false, held.as_ref(), &window.messages);
        for strategy in &self.strategies {
            window = strategy.compact(window).await?;
            told.step(strategy.name(), strategy.drops(), held.as_ref(), &window.messages);
        }
        let summary = summary_first(&mut window.messages).or(held);
        let from_thread = window.messages.len();
        window.messages.extend(new.iter().cloned().map(WindowMessage::injected));
        if !new.is_empty() {
            told.step("new_messages", false, summary.as_ref(), &window.messages);
        }
        if let Some(max_tokens) = record.profile.max_tokens() {
            let fixed = record.system_prompt_tokens
                + hints_tokens(counter, &record.hints)
                + summary.as_ref().map_or(0, |summary| tokens_of(counter, &summary.message))
                + new.iter().map(|message| tokens_of(counter, message)).sum::<u64>();
            let room = max_tokens.saturating_sub(fixed);
            window.messages = roll(counter, window.messages, from_thread, room);
            told.step("rolling_window", true, summary.as_ref(), &window.messages);
        }
        check_answers(&window.messages, window.messages.len() - new.len())?;
        window.messages = pair_tool_calls(window.messages);
        told.step("pair_tool_calls", true, summary.as_ref(), &window.messages);
        let places: HashSet<_> = window.messages.iter().filter_map(|message| place(message.origin)).collect();
        let stored = stored.into_iter().filter(|stored| places.contains(&stored.seq)).collect();
        let mut messages = head(record, summary, self.hint_order);
        messages.append(&mut window.messages);
        window.messages = messages;
        told.step("session", false, None, &window.messages);
        Ok(Assembled { window, stored })
    }
}

fn place(origin: Origin) -> Option<larder_kernel::Seq> {
    match origin {
        Origin::Stored(seq) => Some(seq),
        _ => None,
    }
}

/// The summary that a strategy has put in front; it belongs before the hints, or after them.
fn summary_first(messages: &mut Vec<WindowMessage>) -> Option<WindowMessage> {
    let first = messages.first()?;
    matches!(first.origin, Origin::Summary(_)).then(|| messages.remove(0))
}

fn summary_message(held: &Held) -> WindowMessage {
    WindowMessage::summary(held.up_to, with_tokens(ChatMessage::system(held.text.as_str()), held.tokens))
}

/// What stands before the stored messages.
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

/// The message with its length, where it is known to be at most what fits.
pub(crate) fn with_tokens(message: ChatMessage, tokens: u64) -> ChatMessage {
    message.with_token_count(u32::try_from(tokens).unwrap_or(u32::MAX))
}

/// The newest units of the session's messages that fit into `room`, and all of the new messages. A unit that a new
/// message belongs to, such as a call that it answers, stays.
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

/// A result among the new messages must answer a call that the model has seen.
fn check_answers(messages: &[WindowMessage], new: usize) -> Result<()> {
    let calls = |messages: &[WindowMessage]| -> HashSet<String> {
        let calls = messages.iter().flat_map(|message| &message.message.tool_calls);
        calls.map(|call| call.id.clone()).collect()
    };
    let mut known = calls(&messages[..new]);
    for (index, message) in messages.iter().enumerate().skip(new) {
        if !message.message.tool_results.iter().all(|result| known.contains(&result.call_id)) {
            let error = "a tool's result answers no call of the session";
            return Err(Error::invalid("session.begin", "messages", error));
        }
        known.extend(calls(&messages[index..=index]));
    }
    Ok(())
}
