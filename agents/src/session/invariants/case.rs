//! A generated combination of settings, and the conversation that runs with it.

use std::sync::Arc;

use larder_kernel::{AgentId, ChatMessage, CollectionName, CompactionStrategy, ToolCall, ToolResult};

use super::world::{Words, World};
use crate::compaction::{
    KnowledgeBaseConfig, MaxTokens, MaxTokensConfig, Neuralyzer, NeuralyzerConfig, SearchMode,
    SelectiveToolCall, SlidingWindow, Summarization, SummarizationConfig, Summarizer, SummarizerConfig,
    SummaryMaker, SummarySettings, TokenBudgetComposed, ToolResultTruncation, Truncation,
};
use crate::context::memory::{LimitedWindow, MemoryFilter};
use crate::session::{Persistence, SessionProfile, SummaryPolicy};

/// An agent that writes some of the messages.
const AUTHOR: &str = "critic";

/// A generator whose state is its seed: SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// A strategy with its settings.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Neuralyzer(NeuralyzerConfig),
    Summarizer(SummarizerConfig),
    Summarization(SummarizationConfig),
    MaxTokens(i64),
    Sliding(usize),
    Truncation(usize),
    ToolResults(usize),
    ToolGroups(usize),
    Budget(u64, Vec<Self>),
}

impl Step {
    pub(super) fn build(&self, world: &World) -> Arc<dyn CompactionStrategy> {
        let counter = Arc::new(Words);
        match self {
            Self::Neuralyzer(config) => Arc::new(
                Neuralyzer::new(world.history.clone(), counter, config)
                    .unwrap()
                    .with_summaries(world.summaries()),
            ),
            Self::Summarizer(config) => {
                let mut maker = maker(world);
                if let Some(base) = &config.knowledge_base {
                    maker = maker.with_knowledge_base(world.knowledge(base));
                }
                Arc::new(Summarizer::new(maker, config.clone()).unwrap())
            }
            Self::Summarization(config) => {
                Arc::new(Summarization::new(maker(world), config.clone()).unwrap())
            }
            Self::MaxTokens(memory_max_tokens) => {
                let config =
                    MaxTokensConfig { memory_max_tokens: *memory_max_tokens, ..MaxTokensConfig::default() };
                Arc::new(MaxTokens::new(&config, counter).unwrap())
            }
            Self::Sliding(messages) => Arc::new(SlidingWindow::new(*messages).unwrap()),
            Self::Truncation(chars) => Arc::new(Truncation::chars(*chars).unwrap()),
            Self::ToolResults(chars) => Arc::new(ToolResultTruncation::new(*chars).unwrap()),
            Self::ToolGroups(groups) => Arc::new(SelectiveToolCall::new(*groups).unwrap()),
            Self::Budget(tokens, steps) => {
                let steps: Vec<_> = steps.iter().map(|step| step.build(world)).collect();
                Arc::new(TokenBudgetComposed::new(*tokens, counter, steps).unwrap())
            }
        }
    }

    pub(super) fn erases(&self) -> bool {
        match self {
            Self::Neuralyzer(_) => true,
            Self::Budget(_, steps) => steps.iter().any(Self::erases),
            _ => false,
        }
    }

    /// Returns the number of interactions that the strategy must keep.
    pub(super) fn keeps(&self) -> usize {
        match self {
            Self::Neuralyzer(config) => config.interaction_keep,
            Self::Budget(_, steps) => {
                steps.iter().filter(|step| step.erases()).map(Self::keeps).min().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

fn maker(world: &World) -> SummaryMaker {
    let settings = SummarySettings { input_tokens_max: 60, wait_ms: 0, ..SummarySettings::default() };
    SummaryMaker::new(world.model(), Arc::new(Words), world.summaries(), settings).unwrap()
}

/// A test case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) profile: SessionProfile,
    pub(super) steps: Vec<Step>,
    pub(super) summarizer: Option<SummaryPolicy>,
    pub(super) prompt_words: usize,
    pub(super) hints: usize,
    /// The part of the session that the agent sees, unless it is everything.
    pub(super) memory: Option<LimitedWindow>,
    pub(super) interactions: usize,
    pub(super) turns: Vec<Turn>,
}

/// The actions of a turn.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) persistence: Persistence,
    pub(super) words: usize,
    pub(super) model_fails: bool,
    pub(super) end: End,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Completed,
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
        let turns = (0..2 + random.below(4)).map(|_| turn(random, small)).collect();
        Self {
            profile,
            steps: steps(random),
            summarizer: random.pick(&[None, Some(SummaryPolicy::Once), Some(SummaryPolicy::Rolling)]),
            prompt_words: random.pick(&[0, 2, 5, 19]),
            hints: random.pick(&[0, 0, 1, 3]),
            memory: random.one_in(8).then(|| memory(random)),
            interactions: random.pick(&[0, 2, 5, 8, 12]),
            turns,
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

fn turn(random: &mut Random, small: bool) -> Turn {
    let end = match random.below(6) {
        0 => End::Cancelled,
        1 => End::Dropped(random.below(12)),
        _ => End::Completed,
    };
    let words = if small { 1 } else { random.pick(&[1, 3, 8, 30]) };
    let persistence = random.pick(&[
        Persistence::Incremental,
        Persistence::Flush,
        Persistence::Flush,
        Persistence::Ephemeral,
    ]);
    Turn { persistence, words, model_fails: random.one_in(6), end }
}

fn steps(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    match random.below(7) {
        0 => {}
        1..=3 => {
            for _ in 0..1 + random.below(2) {
                steps.push(long_term(random));
            }
            if random.one_in(2) {
                steps.push(Step::MaxTokens(i64::try_from(random.below(60)).unwrap() - 1));
            }
        }
        4 | 5 => {
            for _ in 0..1 + random.below(3) {
                steps.push(pipeline_step(random));
            }
        }
        _ => {
            let inner = (0..1 + random.below(2)).map(|_| pipeline_step(random)).collect();
            steps.push(Step::Budget(1 + u64::try_from(random.below(80)).unwrap(), inner));
        }
    }
    steps
}

fn pipeline_step(random: &mut Random) -> Step {
    match random.below(7) {
        0 => Step::Sliding(1 + random.below(20)),
        1 => Step::Truncation(1 + random.below(200)),
        2 => Step::ToolResults(1 + random.below(30)),
        3 => Step::ToolGroups(1 + random.below(4)),
        4 => long_term(random),
        _ => Step::Summarization(SummarizationConfig {
            recent_token_budget: u64::try_from(random.below(60)).unwrap(),
            min_old_tokens: 1 + u64::try_from(random.below(20)).unwrap(),
            instructions: None,
        }),
    }
}

fn long_term(random: &mut Random) -> Step {
    let any = |random: &mut Random, most: usize| match random.below(3) {
        0 => -1,
        _ => i64::try_from(random.below(most)).unwrap(),
    };
    let (quantity, tokens, input) = (any(random, 9), any(random, 120), any(random, 150));
    let interaction_keep = random.below(4);
    let tools = |random: &mut Random| if random.one_in(4) { vec!["look".to_owned()] } else { Vec::new() };
    if random.one_in(2) {
        Step::Neuralyzer(NeuralyzerConfig {
            input_tokens_threshold: input,
            interaction_threshold_qty: quantity,
            interaction_threshold_tokens: tokens,
            on_tools_success_threshold: tools(random),
            on_tools_error_threshold: tools(random),
            interaction_keep,
        })
    } else {
        Step::Summarizer(SummarizerConfig {
            input_tokens_threshold: input,
            interaction_threshold_qty: quantity,
            interaction_threshold_tokens: tokens,
            on_tools_success_threshold: tools(random),
            on_tools_error_threshold: tools(random),
            interaction_keep,
            cod_max_loops: 1 + u32::try_from(random.below(3)).unwrap(),
            knowledge_base: random.one_in(3).then(|| KnowledgeBaseConfig {
                collection_id: CollectionName::new("summaries").unwrap(),
                search_mode: SearchMode::Always,
            }),
            ..SummarizerConfig::default()
        })
    }
}

/// Returns an interaction whose messages have one mark each, from `mark` on.
pub(super) fn interaction(random: &mut Random, mark: &mut usize) -> Vec<ChatMessage> {
    let mut said = |random: &mut Random| {
        *mark += 1;
        format!("m{mark}{}", " word".repeat(random.below(8)))
    };
    let mut messages = vec![ChatMessage::user(said(random))];
    for call in 0..random.below(5).saturating_sub(2) {
        let id = format!("c{call}");
        let ask = ChatMessage::assistant(said(random)).with_tool_call(ToolCall::new(&id, "look", "{}"));
        let result = if random.one_in(3) { ToolResult::error } else { ToolResult::new };
        let mut answer = |random: &mut Random| ChatMessage::tool([result(&id, said(random))]);
        // Ids repeat in each interaction. Some tools are interrupted, or answer early, late or twice.
        let answers = match random.below(10) {
            0 => vec![ask],
            1 => vec![answer(random), ask],
            2 => vec![ask, answer(random), answer(random)],
            3 => vec![ask, ChatMessage::user("word"), answer(random)],
            _ => vec![ask, answer(random)],
        };
        messages.extend(answers);
    }
    messages.push(ChatMessage::assistant(said(random)));
    if random.one_in(3) {
        let author = AgentId::new(AUTHOR).unwrap();
        messages = messages.into_iter().map(|message| message.with_author(author.clone(), None)).collect();
    }
    messages
}
