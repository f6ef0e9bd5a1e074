//! The runtime: two agents, their boards, and the order of their tasks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larder::Stores;
use larder::compaction::{
    Pipeline, SelectiveToolCall, SlidingWindow, Summarization, SummarizationConfig, SummaryMaker,
    SummarySettings, SummaryStore, ToolResultTruncation,
};
use larder::context::memory::MemoryProvider;
use larder::context::{AgentContext, ContextConfig};
use larder::tokens::EstimatedTokenCounter;
use larder::{AgentId, AgentRole, Author, Claim, CollectionName, Result, SessionId, WorkerId};

use super::agent::{Agent, Tell};
use super::board::Board;
use super::models::Models;
use super::steps::Steps;
use super::tools::Tools;

/// The lease of a task. After a crash, the task becomes available when it expires.
const LEASE: Duration = Duration::from_secs(3);
/// The interval at which the runtime checks for an available task.
const LOOK: Duration = Duration::from_millis(20);
/// Both agents write to the session of this agent.
const SHARED: &str = "trip";

const TASKS: [(&str, &str); 3] = [
    ("plan", "Plan a weekend in Bergen for two who like the sea."),
    ("sleep", "Find a room near the old wharf."),
    ("write", "Write down the plan for the weekend."),
];

/// An agent runtime in the stores of one namespace.
pub(crate) struct Runtime {
    pub(super) stores: Stores,
    pub(super) session: SessionId,
    pub(super) notes: CollectionName,
    pub(super) summaries: SummaryStore,
    pub(super) planner: Agent,
    pub(super) scout: Agent,
    worker: WorkerId,
    lease: Duration,
    // Keeps the models' server running as long as the runtime.
    _models: Models,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("stores", &self.stores).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Creates a runtime for one session, with a log output.
    pub(crate) fn new(stores: Stores, models: Models, session: SessionId, tell: &Tell) -> Result<Self> {
        Self::with_lease(stores, models, session, tell, LEASE)
    }

    /// Creates a runtime with this lease for its tasks.
    pub(crate) fn with_lease(
        stores: Stores,
        models: Models,
        session: SessionId,
        tell: &Tell,
        lease: Duration,
    ) -> Result<Self> {
        let notes = CollectionName::new(format!("notes-{session}"))?;
        let summaries = SummaryStore::new(stores.set().key_value()?)?;
        let (planner, scout) = (AgentId::new("planner")?, AgentId::new("scout")?);
        let board = |agent: &AgentId| Board::new(stores.set().tasks()?, &session, agent, lease);
        let tools = Tools {
            vectors: stores.set().vectors()?,
            notes: notes.clone(),
            graph: stores.set().graph()?,
            embedder: models.embedder.clone(),
            scout: board(&scout)?,
        };
        let shared = AgentId::new(SHARED)?;
        let agent = |id: &AgentId, instructions, config: ContextConfig| -> Result<Agent> {
            Ok(Agent {
                id: id.clone(),
                instructions,
                board: board(id)?,
                context: AgentContext::new(config)?.for_agent(shared.clone()),
                session: session.clone(),
                history: stores.set().history()?,
                model: models.chat.clone(),
                tools: tools.clone(),
                tell: tell.clone(),
            })
        };
        Ok(Self {
            planner: agent(
                &planner,
                "You plan a trip. The scout looks things up for you.",
                planner_context(&stores, &models, &summaries, &planner)?,
            )?,
            scout: agent(&scout, "You look things up for the planner.", scout_context(&stores, &scout)?)?,
            worker: WorkerId::new("runtime")?,
            stores,
            session,
            notes,
            summaries,
            lease,
            _models: models,
        })
    }

    /// Works until all tasks are finished; returns `None` if the steps end earlier.
    pub(crate) async fn run(&self, steps: &Steps) -> Result<Option<()>> {
        tokio::select! {
            biased;
            () = steps.stopped() => Ok(None),
            done = self.work(steps) => done.map(Some),
        }
    }

    /// Returns the tasks of the planner with their results.
    pub(crate) async fn answers(&self) -> Result<Vec<(String, String)>> {
        let tasks = self.planner.board.all().await?;
        Ok(tasks.into_iter().map(|task| (task.title, task.result.unwrap_or_default())).collect())
    }

    async fn work(&self, steps: &Steps) -> Result<()> {
        self.planner.board.open(None, &TASKS).await?;
        self.scout.board.open(Some(&self.planner.id), &[]).await?;
        while let Some((agent, claim)) = self.next().await? {
            agent.work(&claim, steps).await?;
        }
        Ok(())
    }

    /// Returns the next task: first a task in progress, then the scout's, then the planner's.
    async fn next(&self) -> Result<Option<(&Agent, Claim)>> {
        let both = [&self.scout, &self.planner];
        for agent in both {
            let mut waited = false;
            while let Some(begun) = agent.board.begun().await? {
                // The worker of the task may have died. Then the task becomes available when its lease
                // expires.
                if let Some(claim) = agent.board.claim_again(&begun, &self.worker).await? {
                    return Ok(Some((agent, claim)));
                }
                if !waited {
                    (agent.tell)(&format!("waiting {:?} at most for a task that was begun", self.lease));
                    waited = true;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        for agent in both {
            if let Some(claim) = agent.board.claim(&self.worker).await? {
                return Ok(Some((agent, claim)));
            }
        }
        Ok(None)
    }
}

/// The planner sees the whole session: old messages as a summary, recent messages verbatim.
fn planner_context(
    stores: &Stores,
    models: &Models,
    summaries: &SummaryStore,
    planner: &AgentId,
) -> Result<ContextConfig> {
    let maker = SummaryMaker::new(
        models.summaries.clone(),
        Arc::new(EstimatedTokenCounter),
        summaries.clone(),
        SummarySettings::default(),
    )?;
    let config = SummarizationConfig::default().with_recent_token_budget(200).with_min_old_tokens(120);
    let pipeline =
        Pipeline::new().then(ToolResultTruncation::new(160)?).then(Summarization::new(maker, config)?);
    Ok(ContextConfig::new(stores.set().history()?)
        .with_pipeline(pipeline)
        .with_summaries(summaries.clone())
        .with_author(Author::new(planner.clone()).with_role(AgentRole::new("lead")?)))
}

/// The scout sees the recent messages and the pages that it read last.
fn scout_context(stores: &Stores, scout: &AgentId) -> Result<ContextConfig> {
    let pipeline = Pipeline::new().then(SelectiveToolCall::new(2)?).then(SlidingWindow::new(8)?);
    Ok(ContextConfig::new(stores.set().history()?)
        .with_pipeline(pipeline)
        .with_memory(MemoryProvider::limited_window().with_max_bytes(4 * 1024))
        .with_author(Author::new(scout.clone()).with_role(AgentRole::new("field")?)))
}
