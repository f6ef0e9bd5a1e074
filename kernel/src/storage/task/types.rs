//! Argument and result types of [`TaskStore`](super::TaskStore).

use serde::{Deserialize, Serialize};

use crate::id::{TaskId, WorkerId};
use crate::limits::TASK_RETRIES_DEFAULT;
use crate::metadata::Metadata;
use crate::position::{FencingToken, Generation, Revision, TaskPosition};
use crate::storage::options::{OptionSet, RequestOption};
use crate::timestamp::Timestamp;

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TaskStatus {
    /// Not started.
    Planned,
    /// In progress.
    InProgress,
    /// Waiting for an external event.
    Blocked,
    /// Finished successfully.
    Succeeded,
    /// Finished without success.
    Failed,
    /// Abandoned without another try.
    Abandoned,
}

impl TaskStatus {
    /// All statuses.
    pub const ALL: &'static [Self] =
        &[Self::Planned, Self::InProgress, Self::Blocked, Self::Succeeded, Self::Failed, Self::Abandoned];

    /// Returns the name used in JSON and in backends.
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

    /// Returns the status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == name)
    }

    /// Returns `true` if [`update_status`](super::TaskStore::update_status) may change a task from this
    /// status to `to`.
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

    /// Returns `true` if [`increment_retry`](super::TaskStore::increment_retry) may return a task from this
    /// status to planned.
    #[must_use]
    pub const fn allows_retry(self) -> bool {
        matches!(self, Self::InProgress | Self::Blocked | Self::Failed)
    }
}

/// The lease of a worker on a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The worker that holds the lease.
    pub worker: WorkerId,
    /// The number of the claim.
    pub token: FencingToken,
    /// The time when another worker may claim the task, by the store's clock, to the millisecond.
    pub expires_at: Timestamp,
}

impl Lease {
    /// Creates a lease.
    #[must_use]
    pub fn new(worker: WorkerId, token: FencingToken, expires_at: Timestamp) -> Self {
        Self { worker, token, expires_at }
    }
}

/// A task on a board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The id, unique on the board.
    pub id: TaskId,
    /// The title: the work to do, in one line.
    pub title: String,
    /// The description: the work to do, in detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The status.
    pub status: TaskStatus,
    /// The position on the board.
    pub position: TaskPosition,
    /// The version of the task.
    pub revision: Revision,
    /// The number of retries so far.
    pub retries: u32,
    /// The maximum number of retries.
    pub retries_max: u32,
    /// The result of the task, or the reason of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The lease of the worker that claimed the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Additional data.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl Task {
    /// Creates a planned task with three retries, at this position and revision.
    #[must_use]
    pub fn new(id: TaskId, title: impl Into<String>, position: TaskPosition, revision: Revision) -> Self {
        Self {
            id,
            title: title.into(),
            description: None,
            status: TaskStatus::Planned,
            position,
            revision,
            retries: 0,
            retries_max: TASK_RETRIES_DEFAULT,
            result: None,
            lease: None,
            metadata: Metadata::new(),
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<Option<String>>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: TaskStatus) -> Self {
        self.status = status;
        self
    }

    /// Sets the number of retries so far.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the maximum number of retries.
    #[must_use]
    pub fn with_retries_max(mut self, retries_max: u32) -> Self {
        self.retries_max = retries_max;
        self
    }

    /// Sets the result, or the reason of the failure.
    #[must_use]
    pub fn with_result(mut self, result: impl Into<Option<String>>) -> Self {
        self.result = result.into();
        self
    }

    /// Sets the lease of the worker that claimed the task.
    #[must_use]
    pub fn with_lease(mut self, lease: impl Into<Option<Lease>>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets the generation of the board, which the position, the revision and the token name.
    #[must_use]
    pub fn in_generation(mut self, generation: impl Into<Option<Generation>>) -> Self {
        let generation = generation.into();
        self.position = self.position.in_generation(generation);
        self.revision = self.revision.in_generation(generation);
        if let Some(lease) = &mut self.lease {
            lease.token = lease.token.in_generation(generation);
        }
        self
    }
}

/// A task to add.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NewTask {
    /// The id, unique on the board.
    pub id: TaskId,
    /// The title: the work to do, in one line of 1 to 4,096 bytes.
    pub title: String,
    /// The description: the work to do, in detail.
    pub description: Option<String>,
    /// The maximum number of retries, at most 1,000.
    pub retries_max: u32,
    /// Additional data.
    pub metadata: Metadata,
}

impl NewTask {
    /// Creates a task with three retries.
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

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the maximum number of retries.
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

    /// Converts the new task to a planned task with this position and revision.
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

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { id: _, title: _, description, retries_max: _, metadata } = self;
        OptionSet::NONE
            .with_if(description.is_some(), RequestOption::TaskDescription)
            .with_if(!metadata.is_empty(), RequestOption::TaskMetadata)
    }
}

/// The tasks to list. The default lists all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskQuery {
    /// The statuses of the tasks to list; empty for all.
    pub statuses: Vec<TaskStatus>,
}

impl TaskQuery {
    /// Creates a query for tasks in these statuses.
    #[must_use]
    pub fn in_statuses(statuses: impl IntoIterator<Item = TaskStatus>) -> Self {
        Self { statuses: statuses.into_iter().collect() }
    }

    /// Returns `true` if the query includes tasks in this status.
    #[must_use]
    pub fn wants(&self, status: TaskStatus) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { statuses } = self;
        OptionSet::NONE.with_if(!statuses.is_empty(), RequestOption::TasksStatuses)
    }
}

/// A transition of a task to another status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// The new status.
    pub to: TaskStatus,
    /// The revision that the caller read; `None` allows any revision.
    pub expected: Option<Revision>,
    /// The token of the caller's lease.
    pub token: Option<FencingToken>,
    /// The result to store; `None` keeps the stored result.
    pub result: Option<String>,
}

impl Transition {
    /// Creates a transition to a status.
    #[must_use]
    pub fn to(to: TaskStatus) -> Self {
        Self { to, expected: None, token: None, result: None }
    }

    /// Requires this revision.
    #[must_use]
    pub fn with_expected(mut self, expected: impl Into<Option<Revision>>) -> Self {
        self.expected = expected.into();
        self
    }

    /// Sets the token of the caller's lease.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<Option<FencingToken>>) -> Self {
        self.token = token.into();
        self
    }

    /// Sets the result to store.
    #[must_use]
    pub fn with_result(mut self, result: impl Into<String>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { to: _, expected, token, result } = self;
        OptionSet::NONE
            .with_if(expected.is_some(), RequestOption::TransitionExpected)
            .with_if(token.is_some(), RequestOption::TransitionToken)
            .with_if(result.is_some(), RequestOption::TransitionResult)
    }
}

/// The result of a retry request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOutcome {
    /// The task had a retry left and is planned again.
    Retried(Task),
    /// The task had no retry left and is unchanged.
    Exhausted(Task),
}

/// A task that a worker has claimed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claim {
    /// The task after the claim, with its lease.
    pub task: Task,
    /// The token to pass with every transition.
    pub token: FencingToken,
}

impl Claim {
    /// Creates a claim.
    #[must_use]
    pub fn new(task: Task, token: FencingToken) -> Self {
        Self { task, token }
    }
}
