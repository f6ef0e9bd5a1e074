//! Generated strategies, built directly or from a configuration document.

use std::sync::Arc;

use larder_agents::compaction::{
    KnowledgeBaseConfig, MaxTokens, MaxTokensConfig, Neuralyzer, NeuralyzerConfig, SearchMode,
    SelectiveToolCall, SlidingWindow, Summarization, SummarizationConfig, Summarizer, SummarizerConfig,
    SummaryMaker, SummarySettings, TokenBudgetComposed, ToolResultTruncation, Truncation,
};
use larder_kernel::random::Random;
use larder_kernel::{CollectionName, CompactionStrategy};
use serde_json::{Value, json};

use super::world::{COLLECTION, World};
use crate::everywhere::support::Words;

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
                let config = MaxTokensConfig::default().with_memory_max_tokens(*memory_max_tokens);
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

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Neuralyzer(_) => "neuralyzer",
            Self::Summarizer(_) => "summarizer",
            Self::Summarization(_) => "summarization",
            Self::MaxTokens(_) => "max_tokens",
            Self::Sliding(_) => "sliding_window",
            Self::Truncation(_) => "truncation",
            Self::ToolResults(_) => "tool_result_truncation",
            Self::ToolGroups(_) => "selective_tool_call",
            Self::Budget(..) => "token_budget_composed",
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

    /// Returns the strategy with less to do, in each possible way. The last settings are the most distant.
    pub(super) fn smaller(&self) -> Vec<Self> {
        match self {
            Self::Neuralyzer(config) => neuralyzers(config).into_iter().map(Self::Neuralyzer).collect(),
            Self::Summarizer(config) => summarizers(config).into_iter().map(Self::Summarizer).collect(),
            Self::Budget(tokens, steps) => {
                let one_less = (0..steps.len()).map(|gone| {
                    let mut rest = steps.clone();
                    rest.remove(gone);
                    Self::Budget(*tokens, rest)
                });
                steps.iter().cloned().chain(one_less.filter(|_| steps.len() > 1)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn maker(world: &World) -> SummaryMaker {
    let settings = SummarySettings::default().with_input_tokens_max(60).with_wait_ms(0);
    SummaryMaker::new(world.model(), Arc::new(Words), world.summaries(), settings).unwrap()
}

fn neuralyzers(config: &NeuralyzerConfig) -> Vec<NeuralyzerConfig> {
    let mut found = Vec::new();
    let mut with = |differs: bool, change: fn(&mut NeuralyzerConfig)| {
        if differs {
            let mut smaller = config.clone();
            change(&mut smaller);
            found.push(smaller);
        }
    };
    with(config.input_tokens_threshold != -1, |config| config.input_tokens_threshold = -1);
    with(config.interaction_threshold_qty != -1, |config| config.interaction_threshold_qty = -1);
    with(config.interaction_threshold_tokens != -1, |config| config.interaction_threshold_tokens = -1);
    with(!config.on_tools_success_threshold.is_empty(), |config| config.on_tools_success_threshold.clear());
    with(!config.on_tools_error_threshold.is_empty(), |config| config.on_tools_error_threshold.clear());
    with(config.interaction_keep > 0, |config| config.interaction_keep -= 1);
    found
}

fn summarizers(config: &SummarizerConfig) -> Vec<SummarizerConfig> {
    let mut found = Vec::new();
    let mut with = |differs: bool, change: fn(&mut SummarizerConfig)| {
        if differs {
            let mut smaller = config.clone();
            change(&mut smaller);
            found.push(smaller);
        }
    };
    with(config.knowledge_base.is_some(), |config| config.knowledge_base = None);
    with(config.cod_max_loops > 1, |config| config.cod_max_loops = 1);
    with(config.input_tokens_threshold != -1, |config| config.input_tokens_threshold = -1);
    with(config.interaction_threshold_qty != -1, |config| config.interaction_threshold_qty = -1);
    with(config.interaction_threshold_tokens != -1, |config| config.interaction_threshold_tokens = -1);
    with(!config.on_tools_success_threshold.is_empty(), |config| config.on_tools_success_threshold.clear());
    with(!config.on_tools_error_threshold.is_empty(), |config| config.on_tools_error_threshold.clear());
    with(config.interaction_keep > 0, |config| config.interaction_keep -= 1);
    found
}

/// Returns the document that configures these steps: the memory settings of an agent, or a pipeline.
pub(super) fn document(steps: &[Step]) -> Option<String> {
    let is_long = |step: &Step| matches!(step, Step::Neuralyzer(_) | Step::Summarizer(_));
    let is_short = |step: &Step| matches!(step, Step::MaxTokens(_));
    let long = steps.iter().take_while(|step| is_long(step)).count();
    if steps[long..].iter().all(is_short) {
        let (long, short) = steps.split_at(long);
        let written = |steps: &[Step]| steps.iter().map(written).collect::<Vec<_>>();
        let settings = json!({
            "long_term_memory_strategy": written(long),
            "short_term_memory_strategy": written(short),
        });
        return Some(json!({ "profile": settings }).to_string());
    }
    let in_pipeline = |step: &Step| !is_long(step) && !is_short(step);
    let nested = |step: &Step| match step {
        Step::Budget(_, steps) => steps.iter().all(in_pipeline),
        step => in_pipeline(step),
    };
    steps.iter().all(nested).then(|| {
        let steps: Vec<_> = steps.iter().map(written).collect();
        json!({ "pipeline": steps }).to_string()
    })
}

/// Returns the settings of a step as a document contains them.
fn written(step: &Step) -> Value {
    let named = |key: &str, name: &str, mut settings: Value| {
        if let Some(fields) = settings.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
            fields.insert(key.to_owned(), name.into());
        }
        settings
    };
    match step {
        Step::Neuralyzer(config) => named("long_term_memory_id", "neuralyzer", json!(config)),
        Step::Summarizer(config) => named("long_term_memory_id", "summarizer", json!(config)),
        Step::Summarization(config) => named("type", "summarization", json!(config)),
        Step::MaxTokens(tokens) => json!({"memory_strategy_id": "max_tokens", "memory_max_tokens": tokens}),
        Step::Sliding(messages) => json!({"type": "sliding_window", "max_messages": messages}),
        Step::Truncation(chars) => json!({"type": "truncation", "max_chars": chars}),
        Step::ToolResults(chars) => json!({"type": "tool_result_truncation", "max_chars": chars}),
        Step::ToolGroups(groups) => json!({"type": "selective_tool_call", "keep_recent_groups": groups}),
        Step::Budget(tokens, steps) => {
            let steps: Vec<_> = steps.iter().map(written).collect();
            json!({"type": "token_budget_composed", "token_budget": tokens, "strategies": steps})
        }
    }
}

pub(super) fn generate(random: &mut Random) -> Vec<Step> {
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
        _ => Step::Summarization(
            SummarizationConfig::default()
                .with_recent_token_budget(u64::try_from(random.below(60)).unwrap())
                .with_min_old_tokens(1 + u64::try_from(random.below(20)).unwrap()),
        ),
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
        Step::Neuralyzer(
            NeuralyzerConfig::default()
                .with_input_tokens_threshold(input)
                .with_interaction_threshold_qty(quantity)
                .with_interaction_threshold_tokens(tokens)
                .with_on_tools_success_threshold(tools(random))
                .with_on_tools_error_threshold(tools(random))
                .with_interaction_keep(interaction_keep),
        )
    } else {
        let config = SummarizerConfig::default()
            .with_input_tokens_threshold(input)
            .with_interaction_threshold_qty(quantity)
            .with_interaction_threshold_tokens(tokens)
            .with_on_tools_success_threshold(tools(random))
            .with_on_tools_error_threshold(tools(random))
            .with_interaction_keep(interaction_keep)
            .with_cod_max_loops(1 + u32::try_from(random.below(3)).unwrap());
        let collection = CollectionName::new(COLLECTION).unwrap();
        let searched = random.one_in(3).then(|| KnowledgeBaseConfig::new(collection, SearchMode::Always));
        Step::Summarizer(config.with_knowledge_base(searched))
    }
}
