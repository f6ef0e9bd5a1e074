//! The boards of [`TaskStore`](super::TaskStore).

use serde::{Deserialize, Serialize};

use super::types::{NewTask, TaskStatus};
use crate::error::{Error, Result};
use crate::id::{AgentId, ConversationId};
use crate::storage::options::{OptionSet, RequestOption};

/// The address of a board: an agent in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoardId {
    /// The conversation.
    pub conversation: ConversationId,
    /// The agent.
    pub agent: AgentId,
}

impl BoardId {
    /// Creates the address from its two ids.
    #[must_use]
    pub fn from_ids(conversation: ConversationId, agent: AgentId) -> Self {
        Self { conversation, agent }
    }

    /// Checks both names and creates the address.
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

/// A board to create.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct NewBoard {
    /// A label for display, at most 4,096 bytes.
    pub label: Option<String>,
    /// The agent, in the same conversation, that owns the parent board.
    pub parent: Option<AgentId>,
    /// The initial tasks.
    pub tasks: Vec<NewTask>,
}

impl NewBoard {
    /// Creates a board with these tasks.
    #[must_use]
    pub fn new(tasks: Vec<NewTask>) -> Self {
        Self { label: None, parent: None, tasks }
    }

    /// Sets the label for display.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the agent that owns the parent board.
    #[must_use]
    pub fn with_parent(mut self, parent: impl Into<Option<AgentId>>) -> Self {
        self.parent = parent.into();
        self
    }

    /// Returns the options that are set, those of the tasks included.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { label, parent, tasks } = self;
        tasks
            .iter()
            .map(NewTask::options)
            .fold(OptionSet::NONE, OptionSet::union)
            .with_if(label.is_some(), RequestOption::BoardLabel)
            .with_if(parent.is_some(), RequestOption::BoardParent)
    }
}

/// The number of tasks on a board in each status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardStatusCounts {
    /// Tasks that are not started.
    pub planned: u64,
    /// Tasks in progress.
    pub in_progress: u64,
    /// Tasks that wait.
    pub blocked: u64,
    /// Tasks that finished successfully.
    pub succeeded: u64,
    /// Tasks that finished without success.
    pub failed: u64,
    /// Tasks that were abandoned.
    pub abandoned: u64,
}

impl BoardStatusCounts {
    /// Returns a mutable reference to the count of one status.
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

    /// Returns the number of all tasks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.planned + self.in_progress + self.blocked + self.succeeded + self.failed + self.abandoned
    }

    /// Sets the number of tasks that are not started.
    #[must_use]
    pub fn with_planned(mut self, planned: u64) -> Self {
        self.planned = planned;
        self
    }

    /// Sets the number of tasks in progress.
    #[must_use]
    pub fn with_in_progress(mut self, in_progress: u64) -> Self {
        self.in_progress = in_progress;
        self
    }

    /// Sets the number of tasks that wait.
    #[must_use]
    pub fn with_blocked(mut self, blocked: u64) -> Self {
        self.blocked = blocked;
        self
    }

    /// Sets the number of tasks that finished successfully.
    #[must_use]
    pub fn with_succeeded(mut self, succeeded: u64) -> Self {
        self.succeeded = succeeded;
        self
    }

    /// Sets the number of tasks that finished without success.
    #[must_use]
    pub fn with_failed(mut self, failed: u64) -> Self {
        self.failed = failed;
        self
    }

    /// Sets the number of tasks that were abandoned.
    #[must_use]
    pub fn with_abandoned(mut self, abandoned: u64) -> Self {
        self.abandoned = abandoned;
        self
    }
}

/// A board without its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Board {
    /// The address of the board.
    pub id: BoardId,
    /// The label for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The agent that owns the parent board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// The number of tasks in each status.
    pub tasks: BoardStatusCounts,
}

impl Board {
    /// Creates a board without a label and without a parent.
    #[must_use]
    pub fn new(id: BoardId, tasks: BoardStatusCounts) -> Self {
        Self { id, tasks, label: None, parent: None }
    }

    /// Sets the label for display.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Option<String>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the agent that owns the parent board.
    #[must_use]
    pub fn with_parent(mut self, parent: impl Into<Option<AgentId>>) -> Self {
        self.parent = parent.into();
        self
    }
}
