//! `larder window`: shows the part of a thread that a model would read.

mod knowledge;
mod model;
mod profile;
mod session;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use larder::compaction::{Pipeline, PipelineConfig, SummaryMaker, SummarySettings, SummaryStore};
use larder::context::memory::MemoryProvider;
use larder::context::{AgentContext, ContextConfig, WindowExplanation};
use larder::memory::InMemoryKeyValueStore;
use larder::tokens::{EstimatedTokenCounter, TokenCounter, counter_for};
use larder::{Registry, Stores};
use larder_kernel::{Contract, HistoryProvider, KeyValueStore, Thread};

use self::knowledge::Knowledge;
use self::model::{ModelArgs, Models};
use self::profile::Profile;
use crate::opening::Access;
use crate::output;
use crate::thread::Place;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `larder window`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of the backend, such as `sqlite:./larder.db`.
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    place: Place,
    /// JSON file with the profile of a session, the memory settings of an agent, a pipeline of strategies, or
    /// the memory of agents that share sessions; the default window is the newest 100 messages.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// System prompt at the start of the window; the default for a session's profile is the session's prompt.
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Show the messages that were read, and the effect of each strategy.
    #[arg(long)]
    explain: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::report(window(registry, args))
}

async fn window(registry: &Registry, args: &Args) -> Result<String, String> {
    let counter: Arc<dyn TokenCounter> = match args.model.name() {
        Some(model) => counter_for(model),
        None => Arc::new(EstimatedTokenCounter),
    };
    let profile = args.profile.as_deref().map(Profile::read).transpose()?;
    if let Some(profile) = &profile {
        profile.check_room(args.system_prompt.as_deref().map_or(0, |prompt| counter.count(prompt)))?;
    }
    let models = Models::new(&args.model)?;
    // The key-value store holds the thread's summary and the session's data.
    let mut contracts = vec![Contract::History, Contract::KeyValue];
    if profile.as_ref().and_then(Profile::knowledge_base).is_some() && models.embeds() {
        contracts.push(Contract::Vectors);
    }
    let stores = args.place.open(registry, &args.from, &contracts, Access::Read).await?;
    let explained = explain(args, &stores, counter, models, profile.as_ref()).await;
    stores.close().await;
    let explained = explained?;
    match args.format {
        Format::Text => Ok(show::text(&explained, args.explain)),
        Format::Json => show::json_text(&explained, args.explain),
    }
}

async fn explain(
    args: &Args,
    stores: &Stores,
    counter: Arc<dyn TokenCounter>,
    models: Models,
    profile: Option<&Profile>,
) -> Result<WindowExplanation, String> {
    let look = Look::new(args, stores, counter, models, profile).await?;
    match look.explain(profile, args, stores).await {
        Err(reason) if look.models.give_up() => {
            output::note(format_args!("the window is shown without a new summary: {reason}"));
            look.explain(profile, args, stores).await
        }
        explained => explained,
    }
}

/// The inputs of a window. Strategies write to stores in memory, so the command changes nothing.
struct Look {
    history: Arc<dyn HistoryProvider>,
    thread: Thread,
    counter: Arc<dyn TokenCounter>,
    /// Initially contains the summary of the thread.
    scratch: Arc<dyn KeyValueStore>,
    models: Models,
    knowledge: Knowledge,
}

impl Look {
    async fn new(
        args: &Args,
        stores: &Stores,
        counter: Arc<dyn TokenCounter>,
        models: Models,
        profile: Option<&Profile>,
    ) -> Result<Self, String> {
        let history = stores.set().history().map_err(|error| error.to_string())?;
        let thread = args.place.thread.clone();
        let scratch: Arc<dyn KeyValueStore> = Arc::new(InMemoryKeyValueStore::new());
        let knowledge = match profile.and_then(|profile| Some((profile, profile.knowledge_base()?))) {
            Some((profile, collection)) => {
                let knowledge = models.knowledge(stores, collection).await;
                knowledge.map_err(|error| format!("{}: {error}", profile.name()))?
            }
            None => knowledge::empty(),
        };
        let look = Self { history, thread, counter, scratch, models, knowledge };
        if let Ok(key_value) = stores.set().key_value() {
            look.take_summary(key_value).await.map_err(|error| error.to_string())?;
        }
        Ok(look)
    }

    async fn explain(
        &self,
        profile: Option<&Profile>,
        args: &Args,
        stores: &Stores,
    ) -> Result<WindowExplanation, String> {
        let Some(profile) = profile else { return self.context(None, None, args).await };
        let named = |reason: String| format!("{}: {reason}", profile.name());
        let pipeline = match profile {
            Profile::Session { profile, .. } => {
                return self.session(args, stores, profile.clone()).await.map_err(named);
            }
            Profile::Memory { document, .. } => {
                let explained = self.memory(args, stores, document).await;
                return explained.map_err(|error| named(error.to_string()));
            }
            Profile::Pipeline { config, .. } => self.pipeline(config),
            Profile::Agent { memory, .. } => {
                let memory =
                    if memory.is_enabled() { memory.window().into() } else { MemoryProvider::none() };
                return self.context(Some(Pipeline::new()), Some(memory), args).await.map_err(named);
            }
        };
        let pipeline = pipeline.map_err(|error| named(error.to_string()))?;
        self.context(Some(pipeline), None, args).await.map_err(named)
    }

    async fn take_summary(&self, from: Arc<dyn KeyValueStore>) -> larder_kernel::Result<()> {
        if let Some(kept) = SummaryStore::new(from)?.get(&self.thread).await? {
            SummaryStore::new(self.scratch.clone())?.put(&self.thread, None, &kept.summary).await?;
        }
        Ok(())
    }

    fn summary_store(&self) -> larder_kernel::Result<SummaryStore> {
        SummaryStore::new(self.scratch.clone())
    }

    fn maker(&self, field: &'static str) -> larder_kernel::Result<SummaryMaker> {
        let settings = SummarySettings::default()
            .with_timeout_ms(self.models.timeout_ms)
            .with_on_failure(self.models.on_failure());
        SummaryMaker::new(self.models.model(field), self.counter.clone(), self.summary_store()?, settings)
    }

    fn pipeline(&self, config: &PipelineConfig) -> larder_kernel::Result<Pipeline> {
        config.build(&self.counter, &|| self.maker("pipeline"))
    }

    /// Returns the window of a context with these strategies, or of the default context.
    async fn context(
        &self,
        pipeline: Option<Pipeline>,
        memory: Option<MemoryProvider>,
        args: &Args,
    ) -> Result<WindowExplanation, String> {
        let summaries = self.summary_store().map_err(|error| error.to_string())?;
        let mut config = ContextConfig::new(self.history.clone())
            .with_counter(self.counter.clone())
            .with_summaries(summaries);
        if let Some(pipeline) = pipeline {
            let memory = memory.unwrap_or_else(MemoryProvider::everything);
            config = config.with_memory(memory).with_pipeline(pipeline);
        }
        let context = AgentContext::new(config).map_err(|error| error.to_string())?;
        let context = context.for_agent(self.thread.agent.clone());
        let explained = context.explain_window(&self.thread.session).await;
        let mut explained = explained.map_err(|error| error.to_string())?;
        if let Some(prompt) = &args.system_prompt {
            show::begin_with(&mut explained, prompt, &*self.counter);
        }
        Ok(explained)
    }
}

/// The behavior if the model fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Failure {
    /// Show the window without a new summary, and report the failure.
    Keep,
    /// Fail the command.
    Fail,
}
