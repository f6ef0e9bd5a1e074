//! The representation of tasks and boards in tool arguments and results.

use larder_kernel::{Board, BoardId, Result, Task, TaskStatus};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::adapters::mcp::answer::cut;
use crate::adapters::mcp::argument::Id;

/// The maximum size of a description, and of a result, in a listing, in bytes.
const TEXT_BYTES_SHOWN: usize = 8 * 1024;

/// The status of a task, under the kernel's names.
#[derive(Deserialize, Serialize, JsonSchema, Clone, Copy)]
#[schemars(crate = "rmcp::schemars", inline)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Planned,
    InProgress,
    Blocked,
    Succeeded,
    Failed,
    Abandoned,
}

impl From<Status> for TaskStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Planned => Self::Planned,
            Status::InProgress => Self::InProgress,
            Status::Blocked => Self::Blocked,
            Status::Succeeded => Self::Succeeded,
            Status::Failed => Self::Failed,
            Status::Abandoned => Self::Abandoned,
        }
    }
}

/// Returns the id of a board.
pub(super) fn board(conversation: &Id, agent: &Id) -> Result<BoardId> {
    BoardId::new(conversation, agent)
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct TaskView {
    id: String,
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    // The name, and not `Status`, so that a status of a later version is shown as it is.
    #[schemars(with = "Status")]
    status: &'static str,
    /// The revision, for `if_revision`.
    revision: u64,
    /// The number of retries so far.
    retries: u32,
    /// The maximum number of retries.
    retries_max: u32,
    /// The result, or the reason of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseView>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
    /// `true` if the description or the result was cut; task_get reads the whole texts.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct LeaseView {
    /// The worker that holds the lease.
    worker: String,
    /// The expiry of the lease, in RFC 3339. After it, another worker can claim the task.
    expires_at: String,
}

impl From<Task> for TaskView {
    fn from(task: Task) -> Self {
        let mut truncated = false;
        let mut shown = |text: Option<String>| {
            text.map(|text| {
                let shown = cut(&text, TEXT_BYTES_SHOWN);
                truncated |= shown.len() < text.len();
                shown.to_owned()
            })
        };
        Self {
            id: task.id.into(),
            title: task.title,
            description: shown(task.description),
            status: task.status.as_str(),
            revision: task.revision.get(),
            retries: task.retries,
            retries_max: task.retries_max,
            result: shown(task.result),
            lease: task.lease.map(|lease| LeaseView {
                worker: lease.worker.into(),
                expires_at: lease.expires_at.to_string(),
            }),
            metadata: task.metadata.into_map(),
            truncated,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct BoardView {
    conversation: String,
    agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// The agent of the parent board.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// The number of tasks in each status.
    tasks: CountsView,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct CountsView {
    planned: u64,
    in_progress: u64,
    blocked: u64,
    succeeded: u64,
    failed: u64,
    abandoned: u64,
}

impl From<Board> for BoardView {
    fn from(board: Board) -> Self {
        let counts = board.tasks;
        Self {
            conversation: board.id.conversation.into(),
            agent: board.id.agent.into(),
            label: board.label,
            parent: board.parent.map(Into::into),
            tasks: CountsView {
                planned: counts.planned,
                in_progress: counts.in_progress,
                blocked: counts.blocked,
                succeeded: counts.succeeded,
                failed: counts.failed,
                abandoned: counts.abandoned,
            },
        }
    }
}
