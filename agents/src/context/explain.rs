//! What reached the model, and why.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use larder_kernel::{CompactionStrategy, Origin, Reach, Seq, Thread, Window, WindowMessage, check};
use serde::{Serialize, Serializer};

use super::reader::ReadBack;
use crate::compaction::Summary;
use crate::tokens::{TokenCounter, tokens_of};

/// How large a window is at one point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Its messages.
    pub messages: u64,
    /// Their bytes, as [`ChatMessage::size_bytes`](larder_kernel::ChatMessage::size_bytes) counts.
    pub bytes: u64,
    /// Their tokens.
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
pub struct Resized {
    /// Its place.
    pub seq: Seq,
    /// Its bytes before.
    pub bytes_before: u64,
    /// Its bytes after.
    pub bytes_after: u64,
}

/// What one step did to the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedStep {
    /// The strategy; `memory` for what the memory does not show, `pair_tool_calls` for calls without results and results
    /// without calls.
    pub name: &'static str,
    /// Whether messages may leave in it without being part of a summary.
    pub drops: bool,
    /// The window before.
    pub before: Size,
    /// The window after.
    pub after: Size,
    /// Stored messages that left.
    pub dropped: Vec<Seq>,
    /// Stored messages that left and are part of the summary that came.
    pub summarized: Vec<Seq>,
    /// Stored messages that were changed.
    pub shortened: Vec<Resized>,
    /// The last message that the new summary covers.
    pub summary_up_to: Option<Seq>,
    /// Messages that are not stored and came.
    pub injected: u64,
    /// Messages that are not stored and left.
    pub injected_dropped: u64,
}

impl ExplainedStep {
    /// Whether the step left the window as it was.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let parts = [self.dropped.len(), self.summarized.len(), self.shortened.len()];
        parts == [0; 3] && self.summary_up_to.is_none() && self.injected == 0 && self.injected_dropped == 0
    }
}

/// What reached the model, and why: what was read and what each step did to it.
///
/// Its `Display` is for people who debug prompts. It and the JSON tell places and sizes, not what is said; the window
/// itself is in [`window`](Self::window).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowExplanation {
    /// How far back the strategies look.
    #[serde(serialize_with = "serialize_reach")]
    pub reach: Reach,
    /// How many messages were read from the history, of those that the memory's filter keeps: the store hands over no
    /// others.
    pub messages_read: u64,
    /// In how many pages.
    pub pages_read: u64,
    /// Whether a filtered memory ended early, because it had read as many messages as it may.
    pub scan_ended: bool,
    /// The last message that the summary covers with which the window began.
    pub began_with_summary_up_to: Option<Seq>,
    /// What stands before the first step.
    pub read: Size,
    /// The steps in their order.
    pub steps: Vec<ExplainedStep>,
    /// What the model reads.
    pub result: Size,
    /// The window itself.
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

/// Places as people read them: `#1-#4, #7`.
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

/// A window in the making, with its stages where it is to be explained.
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

/// What each step did, from the stages after them; the first stage is what was read.
pub(crate) fn explain_steps(counter: &dyn TokenCounter, stages: &[Stage]) -> Vec<ExplainedStep> {
    stages.windows(2).map(|pair| explain_step(counter, &pair[0].messages, &pair[1])).collect()
}

impl Assembly {
    pub(super) fn new(thread: Thread, reach: Reach, explains: bool) -> Self {
        Self {
            reach,
            window: Window { thread: Some(thread), messages: Vec::new() },
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

    /// What a memory that is no history returned, with new messages behind.
    pub(super) fn read(&mut self, name: &'static str, mut window: Window, new: Vec<WindowMessage>) {
        let read = window.messages.iter().filter(|message| matches!(message.origin, Origin::Stored(_)));
        self.messages_read = check::size(read.count());
        window.messages.extend(new);
        self.step(name, false, window);
    }

    /// What was read of a history; `whole` where nothing but the strategies' reach limited it.
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

    /// New messages as they entered, and as each strategy in front left them.
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
    // Told here and not before: only a summary that came in this step covers what left in it.
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

/// How a reach is told to people.
fn reach_text(reach: Reach) -> String {
    match reach {
        Reach::Messages(messages) => format!("the newest {messages} messages"),
        Reach::Bytes(bytes) => format!("the newest {bytes} bytes"),
        Reach::Tokens(tokens) => format!("the newest {tokens} tokens"),
        _ => "everything".to_owned(),
    }
}
