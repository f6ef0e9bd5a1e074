//! Explanations of a window: the messages that reached the model, and the effect of each step.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use larder_kernel::{CompactionStrategy, Origin, Reach, Seq, Thread, Window, WindowMessage, check};
use serde::{Serialize, Serializer};

use super::reader::ReadBack;
use crate::compaction::Summary;
use crate::tokens::{TokenCounter, tokens_of};

/// The size of a window at one point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Size {
    /// The number of messages.
    pub messages: u64,
    /// The number of bytes, as counted by
    /// [`ChatMessage::size_bytes`](larder_kernel::ChatMessage::size_bytes).
    pub bytes: u64,
    /// The number of tokens.
    pub tokens: u64,
}

impl Size {
    pub(crate) fn of(counter: &dyn TokenCounter, messages: &[WindowMessage]) -> Self {
        messages.iter().fold(Self::default(), |size, WindowMessage { message, .. }| Self {
            messages: size.messages + 1,
            bytes: size.bytes + check::size(message.size_bytes()),
            tokens: size.tokens.saturating_add(tokens_of(counter, message)),
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages, {} bytes, {} tokens", self.messages, self.bytes, self.tokens)
    }
}

/// A stored message that a step changed in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Resized {
    /// The position of the message.
    #[serde(serialize_with = "crate::stored_seq::number")]
    pub seq: Seq,
    /// The size before, in bytes.
    pub bytes_before: u64,
    /// The size after, in bytes.
    pub bytes_after: u64,
}

/// The effect of one step on the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedStep {
    /// The name of the strategy. Other values are `memory` for messages that the memory does not show, and
    /// `pair_tool_calls` for calls without results and results without calls.
    pub name: &'static str,
    /// `true` if the step may remove messages that do not become part of a summary.
    pub drops: bool,
    /// The size of the window before the step.
    pub before: Size,
    /// The size of the window after the step.
    pub after: Size,
    /// The stored messages that the step removed.
    #[serde(serialize_with = "crate::stored_seq::list")]
    pub dropped: Vec<Seq>,
    /// The stored messages that the step replaced with a summary.
    #[serde(serialize_with = "crate::stored_seq::list")]
    pub summarized: Vec<Seq>,
    /// The stored messages that the step changed.
    pub shortened: Vec<Resized>,
    /// The last message that the new summary covers.
    #[serde(serialize_with = "crate::stored_seq::optional")]
    pub summary_up_to: Option<Seq>,
    /// The number of messages added that are not stored.
    pub injected: u64,
    /// The number of messages removed that are not stored.
    pub injected_dropped: u64,
}

impl ExplainedStep {
    /// Returns `true` if the step left the window unchanged.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let parts = [self.dropped.len(), self.summarized.len(), self.shortened.len()];
        parts == [0; 3] && self.summary_up_to.is_none() && self.injected == 0 && self.injected_dropped == 0
    }
}

/// An explanation of a window: the messages that were read, and the effect of each step.
///
/// The `Display` form is for debugging prompts. It and the JSON form show positions and sizes, not message
/// content; the window itself is in [`window`](Self::window).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WindowExplanation {
    /// The lookback of the strategies.
    #[serde(serialize_with = "serialize_reach")]
    pub reach: Reach,
    /// The number of messages that were read from the history. It counts only messages that pass the memory's
    /// filter, because the store returns no others.
    pub messages_read: u64,
    /// The number of pages that were read.
    pub pages_read: u64,
    /// `true` if a filtered memory reached its limit on messages to read.
    pub scan_ended: bool,
    /// The last message that the window's initial summary covers.
    #[serde(serialize_with = "crate::stored_seq::optional")]
    pub began_with_summary_up_to: Option<Seq>,
    /// The size of the window before the first step.
    pub read: Size,
    /// The steps, in order.
    pub steps: Vec<ExplainedStep>,
    /// The size of the final window.
    pub result: Size,
    /// The final window.
    #[serde(skip)]
    pub window: Window,
}

fn serialize_reach<S: Serializer>(reach: &Reach, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&reach_text(*reach))
}

impl fmt::Display for WindowExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "window: {}", self.result)?;
        let pages = if self.pages_read == 1 { "page" } else { "pages" };
        let (read, reach) = (self.messages_read, reach_text(self.reach));
        writeln!(f, "  read: {read} messages in {} {pages} ({reach})", self.pages_read)?;
        if self.scan_ended {
            writeln!(f, "  reading messages that the filter keeps ended at its limit")?;
        }
        if let Some(up_to) = self.began_with_summary_up_to {
            writeln!(f, "  began with the summary up to #{up_to}")?;
        }
        for step in &self.steps {
            writeln!(f, "  {}: {} -> {}", step.name, step.before, step.after)?;
            if step.is_unchanged() {
                writeln!(f, "    nothing changed")?;
            }
            for (what, places) in [("dropped", &step.dropped), ("summarized", &step.summarized)] {
                if !places.is_empty() {
                    writeln!(f, "    {what} {}: {}", places.len(), Places(places))?;
                }
            }
            if let Some(up_to) = step.summary_up_to {
                writeln!(f, "    put a summary up to #{up_to}")?;
            }
            for Resized { seq, bytes_before, bytes_after } in &step.shortened {
                writeln!(f, "    changed #{seq}: {bytes_before} -> {bytes_after} bytes")?;
            }
            for (what, count) in [("injected", step.injected), ("dropped injected", step.injected_dropped)] {
                if count > 0 {
                    writeln!(f, "    {what} {count}")?;
                }
            }
        }
        Ok(())
    }
}

/// Positions in readable form: `#1-#4, #7`.
struct Places<'a>(&'a [Seq]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(first) = rest.first() {
            let next = |pair: &[Seq]| pair[0].get().checked_add(1) == Some(pair[1].get());
            let run = 1 + rest.windows(2).take_while(|pair| next(pair)).count();
            let comma = if rest.len() < self.0.len() { ", " } else { "" };
            write!(f, "{comma}#{first}")?;
            if run > 1 {
                write!(f, "-#{}", rest[run - 1])?;
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

/// A window under construction, with its stages if an explanation is requested.
pub(super) struct Assembly {
    pub(super) reach: Reach,
    pub(super) window: Window,
    stages: Option<Vec<Stage>>,
    messages_read: u64,
    pages_read: u64,
    scan_ended: bool,
    summary_up_to: Option<Seq>,
}

/// The window after one step.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) drops: bool,
    pub(crate) messages: Vec<WindowMessage>,
}

/// Returns the effect of each step, from the stages. The first stage is the messages that were read.
pub(crate) fn explain_steps(counter: &dyn TokenCounter, stages: &[Stage]) -> Vec<ExplainedStep> {
    stages.windows(2).map(|pair| explain_step(counter, &pair[0].messages, &pair[1])).collect()
}

impl Assembly {
    pub(super) fn new(thread: Thread, reach: Reach, explains: bool) -> Self {
        Self {
            reach,
            window: Window::new(Vec::new()).with_thread(thread),
            stages: explains.then(Vec::new),
            messages_read: 0,
            pages_read: 0,
            scan_ended: false,
            summary_up_to: None,
        }
    }

    pub(super) fn explains(&self) -> bool {
        self.stages.is_some()
    }

    /// Starts with the window that a custom memory returned, followed by new messages.
    pub(super) fn read(&mut self, name: &'static str, mut window: Window, new: Vec<WindowMessage>) {
        let read = window.messages.iter().filter(|message| matches!(message.origin, Origin::Stored(_)));
        self.messages_read = check::size(read.count());
        window.messages.extend(new);
        self.step(name, false, window);
    }

    /// Starts with messages that were read from a history. `whole` is `true` if only the strategies' reach
    /// limited them.
    pub(super) fn read_back(
        &mut self,
        back: ReadBack,
        whole: bool,
        each: &[Arc<dyn CompactionStrategy>],
        summary: Option<&Summary>,
    ) {
        self.messages_read = back.messages_read;
        self.pages_read = back.pages;
        self.scan_ended = back.scan_ended;
        self.summary_up_to = summary.map(|summary| summary.up_to);
        if !whole {
            self.window.thread = None;
        }
        self.window.messages = back.stages.last().cloned().unwrap_or_default();
        if let Some(stages) = &mut self.stages {
            let names = std::iter::once(("read", false))
                .chain(each.iter().map(|strategy| (strategy.name(), strategy.drops())));
            let named = names.zip(back.stages);
            stages.extend(named.map(|((name, drops), messages)| Stage { name, drops, messages }));
        }
    }

    /// Adds new messages, with their form after each strategy that processes each message independently.
    pub(super) fn add(&mut self, new: Vec<Vec<WindowMessage>>) {
        self.window.messages.extend(new.last().cloned().unwrap_or_default());
        if let Some(stages) = &mut self.stages {
            for (stage, new) in stages.iter_mut().zip(new) {
                stage.messages.extend(new);
            }
        }
    }

    pub(super) fn step(&mut self, name: &'static str, drops: bool, window: Window) {
        self.window = window;
        if let Some(stages) = &mut self.stages {
            stages.push(Stage { name, drops, messages: self.window.messages.clone() });
        }
    }

    pub(super) fn explain(self, counter: &dyn TokenCounter) -> WindowExplanation {
        let stages = self.stages.unwrap_or_default();
        let steps = explain_steps(counter, &stages);
        WindowExplanation {
            reach: self.reach,
            messages_read: self.messages_read,
            pages_read: self.pages_read,
            scan_ended: self.scan_ended,
            began_with_summary_up_to: self.summary_up_to,
            read: stages.first().map_or_else(Size::default, |stage| Size::of(counter, &stage.messages)),
            steps,
            result: Size::of(counter, &self.window.messages),
            window: self.window,
        }
    }
}

fn stored(messages: &[WindowMessage]) -> impl Iterator<Item = (Seq, &WindowMessage)> {
    messages.iter().filter_map(|message| match message.origin {
        Origin::Stored(seq) => Some((seq, message)),
        _ => None,
    })
}

fn summary_of(messages: &[WindowMessage]) -> Option<&WindowMessage> {
    messages.iter().find(|message| matches!(message.origin, Origin::Summary(_)))
}

fn injected(messages: &[WindowMessage]) -> u64 {
    check::size(messages.iter().filter(|message| message.origin == Origin::Injected).count())
}

fn explain_step(counter: &dyn TokenCounter, before: &[WindowMessage], stage: &Stage) -> ExplainedStep {
    let after = &*stage.messages;
    let left: HashMap<Seq, &WindowMessage> = stored(after).collect();
    // Only a summary that this step made covers the messages that left in this step.
    let told = summary_of(after).filter(|summary| summary_of(before) != Some(*summary));
    let up_to = told.and_then(|summary| match summary.origin {
        Origin::Summary(up_to) => Some(up_to),
        _ => None,
    });
    let gone = stored(before).map(|(seq, _)| seq).filter(|seq| !left.contains_key(seq));
    let (summarized, dropped) = gone.partition(|seq| up_to.is_some_and(|up_to| *seq <= up_to));
    let mut seen = HashSet::new();
    let shortened = stored(before).filter(|(seq, _)| seen.insert(*seq)).filter_map(|(seq, message)| {
        let now = left.get(&seq)?;
        (now.message != message.message).then(|| Resized {
            seq,
            bytes_before: check::size(message.message.size_bytes()),
            bytes_after: check::size(now.message.size_bytes()),
        })
    });
    ExplainedStep {
        name: stage.name,
        drops: stage.drops,
        before: Size::of(counter, before),
        after: Size::of(counter, after),
        dropped,
        summarized,
        shortened: shortened.collect(),
        summary_up_to: up_to,
        injected: injected(after).saturating_sub(injected(before)),
        injected_dropped: injected(before).saturating_sub(injected(after)),
    }
}

/// Returns a reach in readable form.
fn reach_text(reach: Reach) -> String {
    match reach {
        Reach::Messages(messages) => format!("the newest {messages} messages"),
        Reach::Bytes(bytes) => format!("the newest {bytes} bytes"),
        Reach::Tokens(tokens) => format!("the newest {tokens} tokens"),
        _ => "everything".to_owned(),
    }
}
