//! The values that [`TaskStore`](super::TaskStore) takes and returns.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{AgentId, ConversationId, FencingToken, Revision, TaskId, WorkerId};
use crate::limits::TASK_RETRIES_DEFAULT;
use crate::metadata::Metadata;
use crate::timestamp::Timestamp;

/// The address of a board: an agent in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoardId {
    /// The conversation.
    pub conversation: ConversationId,
    /// The agent.
    pub agent: AgentId,
}

impl BoardId {
    /// Checks both names and makes the address.
    ///
    /// ```
    /// let board = larder_kernel::BoardId::new("conversation-1", "planner")?;
    /// assert_eq!(board.agent.as_str(), "planner");
    /// # Ok::<(), larder_kernel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` naming `conversation` or `agent`.
    pub fn new(conversation: impl AsRef<str>, agent: impl AsRef<str>) -> Result<Self> {
        Ok(Self { conversation: ConversationId::new(conversation)?, agent: AgentId::new(agent)? })
    }
}

impl From<&Self> for BoardId {
    fn from(board: &Self) -> Self {
        board.clone()
    }
}

impl<C: AsRef<str>, A: AsRef<str>> TryFrom<(C, A)> for BoardId {
    type Error = Error;
    fn try_from((conversation, agent): (C, A)) -> Result<Self> {
        Self::new(conversation, agent)
    }
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    Planned,
    /// Being worked on.
    InProgress,
    /// Waiting for something.
    Blocked,
    /// Done.
    Succeeded,
    /// Tried without success.
    Failed,
    /// Given up.
    Abandoned,
}

impl TaskStatus {
    /// All statuses.
    pub const ALL: &'static [Self] =
        &[Self::Planned, Self::InProgress, Self::Blocked, Self::Succeeded, Self::Failed, Self::Abandoned];

    /// The name in JSON and in backends.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::InProgress => "in_progress",
            Self::Blocked => "blocked",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == name)
    }

    /// Whether [`update_status`](super::TaskStore::update_status) may take a task from here to `to`.
    #[must_use]
    pub const fn allows(self, to: Self) -> bool {
        match self {
            Self::Planned => matches!(to, Self::InProgress | Self::Blocked | Self::Abandoned),
            Self::InProgress => !matches!(to, Self::InProgress),
            Self::Blocked => matches!(to, Self::Planned | Self::InProgress | Self::Failed | Self::Abandoned),
            Self::Failed => matches!(to, Self::Abandoned),
            Self::Succeeded | Self::Abandoned => false,
        }
    }

    /// Whether [`increment_retry`](super::TaskStore::increment_retry) may take a task back to planned from here.
    #[must_use]
    pub const fn allows_retry(self) -> bool {
        matches!(self, Self::InProgress | Self::Blocked | Self::Failed)
    }
}

/// A worker's hold on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub worker: WorkerId,
    /// The number of the claim.
    pub token: FencingToken,
    /// When somebody else may claim the task, by the store's clock, to the millisecond.
    pub expires_at: Timestamp,
}

/// The place of a task on its board: greater for tasks added later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskPosition(pub u64);

/// A task on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, unique on the board.
    pub id: TaskId,
    /// What is to be done, in a line.
    pub title: String,
    /// What is to be done, at length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How it stands.
    pub status: TaskStatus,
    /// Its place on the board.
    pub position: TaskPosition,
    /// Its version.
    pub revision: Revision,
    /// How often it was retried.
    pub retries: u32,
    /// How often it may be.
    pub retries_max: u32,
    /// What came of it, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The worker's hold on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// A task to add.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its id, unique on the board.
    pub id: TaskId,
    /// What is to be done, in a line of 1 to 4,096 bytes.
    pub title: String,
    /// What is to be done, at length.
    pub description: Option<String>,
    /// How often it may be retried, at most 1,000.
    pub retries_max: u32,
    /// Anything else.
    pub metadata: Metadata,
}

impl NewTask {
    /// A task with three retries.
    #[must_use]
    pub fn new(id: TaskId, title: impl Into<String>) -> Self {
        Self {
            id,
            title: title.into(),
            description: None,
            retries_max: TASK_RETRIES_DEFAULT,
            metadata: Metadata::new(),
        }
    }

    /// Sets the long text.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets how often it may be retried.
    #[must_use]
    pub fn with_retries_max(mut self, retries_max: u32) -> Self {
        self.retries_max = retries_max;
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// The task as it stands on a board when it is added.
    #[must_use]
    pub fn into_task(self, position: TaskPosition, revision: Revision) -> Task {
        Task {
            id: self.id,
            title: self.title,
            description: self.description,
            status: TaskStatus::Planned,
            position,
            revision,
            retries: 0,
            retries_max: self.retries_max,
            result: None,
            lease: None,
            metadata: self.metadata,
        }
    }
}

/// A board to make.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewBoard {
    /// A name for people, at most 4,096 bytes.
    pub label: Option<String>,
    /// The agent, in the same conversation, whose board this one belongs under.
    pub parent: Option<AgentId>,
    /// Its first tasks.
    pub tasks: Vec<NewTask>,
}

impl NewBoard {
    /// A board with these tasks.
    #[must_use]
    pub fn new(tasks: Vec<NewTask>) -> Self {
        Self { label: None, parent: None, tasks }
    }

    /// Sets the name for people.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the agent whose board this one belongs under.
    #[must_use]
    pub fn with_parent(mut self, parent: AgentId) -> Self {
        self.parent = Some(parent);
        self
    }
}

/// How many tasks of a board stand how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BoardStatusCounts {
    /// Not begun.
    pub planned: u64,
    /// Being worked on.
    pub in_progress: u64,
    /// Waiting.
    pub blocked: u64,
    /// Done.
    pub succeeded: u64,
    /// Tried without success.
    pub failed: u64,
    /// Given up.
    pub abandoned: u64,
}

impl BoardStatusCounts {
    /// The count of one status, to read or to change.
    pub fn of_mut(&mut self, status: TaskStatus) -> &mut u64 {
        match status {
            TaskStatus::Planned => &mut self.planned,
            TaskStatus::InProgress => &mut self.in_progress,
            TaskStatus::Blocked => &mut self.blocked,
            TaskStatus::Succeeded => &mut self.succeeded,
            TaskStatus::Failed => &mut self.failed,
            TaskStatus::Abandoned => &mut self.abandoned,
        }
    }

    /// All tasks together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.planned + self.in_progress + self.blocked + self.succeeded + self.failed + self.abandoned
    }
}

/// A board, without its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// Its address.
    pub id: BoardId,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The agent whose board it belongs under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// How its tasks stand.
    pub tasks: BoardStatusCounts,
}

/// Which tasks to list. The default lists all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskQuery {
    /// In these statuses; empty for all.
    pub statuses: Vec<TaskStatus>,
}

impl TaskQuery {
    /// Tasks in these statuses.
    #[must_use]
    pub fn in_statuses(statuses: impl IntoIterator<Item = TaskStatus>) -> Self {
        Self { statuses: statuses.into_iter().collect() }
    }

    /// Whether a task in this status is asked for.
    #[must_use]
    pub fn wants(&self, status: TaskStatus) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }
}

/// A step of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Where to.
    pub to: TaskStatus,
    /// The revision that the caller read; `None` takes the step from whatever status allows it.
    pub expected: Option<Revision>,
    /// The token of the caller's lease.
    pub token: Option<FencingToken>,
    /// What came of it; `None` leaves what is there.
    pub result: Option<String>,
}

impl Transition {
    /// A step to a status.
    #[must_use]
    pub fn to(to: TaskStatus) -> Self {
        Self { to, expected: None, token: None, result: None }
    }

    /// Takes the step only from this revision.
    #[must_use]
    pub fn with_expected(mut self, expected: Revision) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Takes the step under a lease.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Stores what came of it.
    #[must_use]
    pub fn with_result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }
}

/// Whether a task had a retry left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOutcome {
    /// It had, and is planned again.
    Retried(Task),
    /// It had not, and stays as it is.
    Exhausted(Task),
}

/// A task that a worker may now work on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The task as it now reads, its lease included.
    pub task: Task,
    /// The token to show with every step.
    pub token: FencingToken,
}
