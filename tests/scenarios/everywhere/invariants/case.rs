//! A generated combination of settings, and the conversation that runs with it.

use larder_agents::context::memory::{LimitedWindow, MemoryFilter};
use larder_agents::session::{
    Ephemeral, HintOrder, OnSummaryFailure, Persistence, SessionProfile, SummaryPolicy,
};
use larder_kernel::random::Random;
use larder_kernel::{AgentId, ChatMessage, ToolCall, ToolResult};

use super::step::{self, Step};

/// An agent that writes some of the messages.
const AUTHOR: &str = "critic";

/// The words of the user before a late result. They have no mark.
const INTERRUPTION: &str = "word";

/// A test case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) profile: SessionProfile,
    pub(super) steps: Vec<Step>,
    /// `true` if a configuration document sets the steps, where one can.
    pub(super) configured: bool,
    pub(super) summarizer: Option<(SummaryPolicy, OnSummaryFailure)>,
    pub(super) prompt_words: usize,
    pub(super) hints: usize,
    pub(super) hint_order: HintOrder,
    /// The part of the session that the agent sees, unless it is everything.
    pub(super) memory: Option<LimitedWindow>,
    pub(super) ephemeral: Ephemeral,
    /// `true` if the session has a time to live, which each use restarts.
    pub(super) ttl: bool,
    /// The conversation that is stored before the first turn.
    pub(super) stored: Vec<Interaction>,
    pub(super) turns: Vec<Turn>,
}

/// A question, calls of tools, and an answer. The numbers are the words of each message.
#[derive(Debug, Clone)]
pub(super) struct Interaction {
    pub(super) question: usize,
    pub(super) calls: Vec<Call>,
    pub(super) answer: usize,
    /// `true` if another agent wrote it.
    pub(super) by_other: bool,
}

/// A call of a tool and its result.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) words: usize,
    pub(super) result_words: usize,
    pub(super) fails: bool,
    pub(super) reply: Reply,
}

/// The place of a call's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    After,
    /// The tool was interrupted.
    Never,
    Before,
    Twice,
    /// The user speaks in between.
    Late,
}

/// The actions of a turn.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) persistence: Persistence,
    pub(super) words: usize,
    pub(super) model_fails: bool,
    /// `true` if an explanation asks the model before the turn.
    pub(super) explained: bool,
    /// `true` if the request turns the memory off.
    pub(super) forgetful: bool,
    /// `true` if another agent reads the session and writes to it while the model works.
    pub(super) shared: bool,
    pub(super) end: End,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    /// The future of `complete` is dropped after this number of polls, and `complete` is called again.
    Retried(usize),
    Cancelled,
    /// The future of `begin` is dropped after this number of polls.
    Dropped(usize),
}

impl Case {
    pub(super) fn new(random: &mut Random) -> Self {
        let profile = match random.below(4) {
            0 => SessionProfile::Everything,
            _ => {
                let max_tokens = 20 + random.below(160);
                let threshold = 1 + random.below(max_tokens);
                let size = |size| u64::try_from(size).unwrap();
                SessionProfile::rolling_window(size(max_tokens), size(threshold)).unwrap()
            }
        };
        let small = random.one_in(3);
        let interactions = random.pick(&[0, 2, 5, 8, 12]);
        let policy = random.pick(&[None, Some(SummaryPolicy::Once), Some(SummaryPolicy::Rolling)]);
        let on_failure = if random.one_in(4) { OnSummaryFailure::Fail } else { OnSummaryFailure::Keep };
        Self {
            profile,
            steps: step::generate(random),
            configured: random.one_in(2),
            summarizer: policy.map(|policy| (policy, on_failure)),
            prompt_words: random.pick(&[0, 2, 5, 19]),
            hints: random.pick(&[0, 0, 1, 3]),
            hint_order: random.pick(&[HintOrder::AfterSummary, HintOrder::BeforeSummary]),
            memory: random.one_in(8).then(|| memory(random)),
            ephemeral: if random.one_in(8) { Ephemeral::LosesSession } else { Ephemeral::KeepsSession },
            ttl: random.one_in(3),
            stored: (0..interactions).map(|_| Interaction::new(random)).collect(),
            turns: (0..2 + random.below(4)).map(|_| Turn::new(random, small)).collect(),
        }
    }

    pub(super) fn erases(&self) -> bool {
        self.steps.iter().any(Step::erases)
    }

    pub(super) fn keeps(&self) -> usize {
        self.steps.iter().filter(|step| step.erases()).map(Step::keeps).min().unwrap_or(0)
    }
}

fn memory(random: &mut Random) -> LimitedWindow {
    let memory = LimitedWindow::new();
    let author = AgentId::new(AUTHOR).unwrap();
    match random.below(5) {
        0 => memory.read_last(1 + random.below(9)),
        1 => memory.with_max_bytes(1 + u64::try_from(random.below(400)).unwrap()),
        2 => memory.filtered(MemoryFilter::new().include_agent(author)).without_max_bytes(),
        3 => memory.write_only(),
        _ => memory.without_max_bytes().read_only(),
    }
}

impl Turn {
    fn new(random: &mut Random, small: bool) -> Self {
        let end = match random.below(7) {
            0 => End::Cancelled,
            1 => End::Dropped(random.below(12)),
            2 => End::Retried(random.below(12)),
            _ => End::Completed,
        };
        let words = if small { 1 } else { random.pick(&[1, 3, 8, 30]) };
        let persistence = random.pick(&[
            Persistence::Incremental,
            Persistence::Flush,
            Persistence::Flush,
            Persistence::Ephemeral,
        ]);
        Self {
            persistence,
            words,
            model_fails: random.one_in(6),
            explained: random.one_in(6),
            forgetful: random.one_in(12),
            shared: random.one_in(4),
            end,
        }
    }
}

impl Interaction {
    fn new(random: &mut Random) -> Self {
        let call = |random: &mut Random| Call {
            words: random.below(8),
            result_words: random.below(8),
            fails: random.one_in(3),
            reply: match random.below(10) {
                0 => Reply::Never,
                1 => Reply::Before,
                2 => Reply::Twice,
                3 => Reply::Late,
                _ => Reply::After,
            },
        };
        Self {
            question: random.below(8),
            calls: (0..random.below(5).saturating_sub(2)).map(|_| call(random)).collect(),
            answer: random.below(8),
            by_other: random.one_in(3),
        }
    }

    /// Returns the messages, with one mark each, from `mark` on.
    pub(super) fn messages(&self, mark: &mut usize) -> Vec<ChatMessage> {
        let mut said = |words: usize| {
            *mark += 1;
            format!("m{mark}{}", " word".repeat(words))
        };
        let mut messages = vec![ChatMessage::user(said(self.question))];
        for (number, call) in self.calls.iter().enumerate() {
            let id = format!("c{number}");
            // The ids come again in each interaction.
            let ask =
                ChatMessage::assistant(said(call.words)).with_tool_call(ToolCall::new(&id, "look", "{}"));
            let result = if call.fails { ToolResult::error } else { ToolResult::new };
            let mut reply = || ChatMessage::tool([result(&id, said(call.result_words))]);
            messages.extend(match call.reply {
                Reply::After => vec![ask, reply()],
                Reply::Never => vec![ask],
                Reply::Before => vec![reply(), ask],
                Reply::Twice => vec![ask, reply(), reply()],
                Reply::Late => vec![ask, ChatMessage::user(INTERRUPTION), reply()],
            });
        }
        messages.push(ChatMessage::assistant(said(self.answer)));
        if self.by_other {
            let author = AgentId::new(AUTHOR).unwrap();
            let written = |message: ChatMessage| message.with_author(author.clone(), None);
            messages = messages.into_iter().map(written).collect();
        }
        messages
    }
}
