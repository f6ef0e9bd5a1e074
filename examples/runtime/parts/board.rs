//! The task boards of the agents.

use std::sync::Arc;
use std::time::Duration;

use larder::{
    AgentId, BoardId, Claim, ConversationId, ErrorKind, NewBoard, NewTask, PageRequest, Result, SessionId,
    Task, TaskId, TaskQuery, TaskStatus, TaskStore, Timestamp, Transition, WorkerId,
};

const TASKS_MAX: usize = 100;

/// The board of one agent.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    tasks: Arc<dyn TaskStore>,
    id: BoardId,
    lease: Duration,
}

impl Board {
    pub(super) fn new(
        tasks: Arc<dyn TaskStore>,
        session: &SessionId,
        agent: &AgentId,
        lease: Duration,
    ) -> Result<Self> {
        let conversation = ConversationId::new(session.as_str())?;
        Ok(Self { tasks, id: BoardId::from_ids(conversation, agent.clone()), lease })
    }

    /// Creates the board with its first tasks, unless it exists.
    pub(super) async fn open(&self, parent: Option<&AgentId>, first: &[(&str, &str)]) -> Result<()> {
        let mut tasks = Vec::new();
        for (id, title) in first {
            tasks.push(NewTask::new(TaskId::new(id)?, *title));
        }
        let mut new = NewBoard::new(tasks);
        new.parent = parent.cloned();
        there_is_enough(self.tasks.create_task_list(&self.id, new).await.map(|_| ()))
    }

    /// Adds a task, unless it exists.
    pub(super) async fn add(&self, id: &str, title: &str) -> Result<()> {
        let task = NewTask::new(TaskId::new(id)?, title);
        there_is_enough(self.tasks.add_tasks(&self.id, vec![task]).await.map(|_| ()))
    }

    /// Returns all tasks, in insertion order.
    pub(super) async fn all(&self) -> Result<Vec<Task>> {
        let page = PageRequest::first(TASKS_MAX);
        Ok(self.tasks.list_tasks(&self.id, &TaskQuery::default(), page).await?.items)
    }

    /// Returns the task in progress, even if its worker has died.
    pub(super) async fn begun(&self) -> Result<Option<Task>> {
        Ok(self.all().await?.into_iter().find(|task| task.status == TaskStatus::InProgress))
    }

    /// Claims a task in progress whose lease has expired.
    pub(super) async fn claim_again(&self, begun: &Task, worker: &WorkerId) -> Result<Option<Claim>> {
        if begun.lease.as_ref().is_none_or(|lease| lease.expires_at > Timestamp::now()) {
            return Ok(None);
        }
        let claim = self.claim(worker).await?;
        let Some(other) = claim.as_ref().filter(|claim| claim.task.id != begun.id) else { return Ok(claim) };
        // The store's clock is behind this one, so the store returned the next task instead.
        let back = Transition::to(TaskStatus::Planned).with_token(other.token);
        self.tasks.update_status(&self.id, &other.task.id, back).await?;
        Ok(None)
    }

    /// Claims the next task.
    pub(super) async fn claim(&self, worker: &WorkerId) -> Result<Option<Claim>> {
        self.tasks.claim(&self.id, worker, self.lease).await
    }

    /// Renews the lease of a task; returns `false` if another worker has claimed it.
    pub(super) async fn keep(&self, claim: &Claim) -> Result<bool> {
        lost_is_false(
            self.tasks.renew_lease(&self.id, &claim.task.id, claim.token, self.lease).await.map(|_| ()),
        )
    }

    /// Finishes a task with its result; returns `false` if another worker has claimed it.
    pub(super) async fn finish(&self, claim: &Claim, status: TaskStatus, result: &str) -> Result<bool> {
        let step = Transition::to(status).with_token(claim.token).with_result(result);
        lost_is_false(self.tasks.update_status(&self.id, &claim.task.id, step).await.map(|_| ()))
    }
}

/// Treats `AlreadyExists` as success: an earlier run created the item before a crash.
fn there_is_enough(made: Result<()>) -> Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn lost_is_false(done: Result<()>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
        Err(error) => Err(error),
    }
}
