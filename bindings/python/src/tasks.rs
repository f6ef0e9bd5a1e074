//! Task boards. Tasks cross the border as JSON.

use std::sync::Arc;
use std::time::Duration;

use larder::{
    AgentId, BoardId, ConversationId, FencingToken, Metadata, NewBoard, NewTask, PageRequest, Revision,
    TaskId, TaskPosition, TaskQuery, TaskStatus, Tasks, Transition, WorkerId,
};
use pyo3::prelude::*;
use serde::Deserialize;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, id, invalid, json, optional, position, text};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

/// A board: the conversation and the agent.
type BoardPair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pyclass(frozen, module = "larder._native", name = "Tasks")]
pub(crate) struct NativeTasks {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<Tasks>,
}

/// A task to add.
#[derive(Deserialize)]
struct Given {
    id: TaskId,
    title: String,
    description: Option<String>,
    retries_max: Option<u32>,
    #[serde(default)]
    metadata: Metadata,
}

fn new_tasks(operation: &'static str, given: &str) -> larder::Result<Vec<NewTask>> {
    let given: Vec<Given> = json(operation, "tasks", given)?;
    let task = |given: Given| {
        let mut task = NewTask::new(given.id, given.title).with_metadata(given.metadata);
        task.description = given.description;
        task.retries_max = given.retries_max.unwrap_or(task.retries_max);
        task
    };
    Ok(given.into_iter().map(task).collect())
}

fn board((conversation, agent): &BoardPair<'_>) -> PyResult<BoardId> {
    let conversation = id::<ConversationId>("conversation", conversation)?;
    Ok(BoardId::from_ids(conversation, id::<AgentId>("agent", agent)?))
}

fn status(value: &Bound<'_, PyAny>) -> PyResult<TaskStatus> {
    let known = || invalid(value.py(), "status", "is unknown; pass for example `succeeded`");
    TaskStatus::from_name(text("status", value)?).ok_or_else(known)
}

impl NativeTasks {
    fn handle(&self, py: Python<'_>) -> PyResult<Tasks> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeTasks {
    fn create_board(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        label: Option<String>,
        parent: Option<&Bound<'_, PyAny>>,
        tasks: String,
    ) -> PyResult<Call> {
        let (board, handle) = (board(&of)?, self.handle(py)?);
        let parent = optional(parent, |parent| id::<AgentId>("parent", parent))?;
        self.shared.encoded(py, async move {
            let mut new = NewBoard::new(new_tasks("tasks.create_task_list", &tasks)?).with_parent(parent);
            new.label = label;
            handle.provider().create_task_list(&board, new).await
        })
    }

    fn add(&self, py: Python<'_>, of: BoardPair<'_>, tasks: String) -> PyResult<Call> {
        let (board, handle) = (board(&of)?, self.handle(py)?);
        self.shared.encoded(py, async move {
            handle.provider().add_tasks(&board, new_tasks("tasks.add_tasks", &tasks)?).await
        })
    }

    fn board(&self, py: Python<'_>, of: BoardPair<'_>) -> PyResult<Call> {
        let (board, handle) = (board(&of)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.provider().get_board(&board).await })
    }

    fn get(&self, py: Python<'_>, of: BoardPair<'_>, task: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (board, task, handle) = (board(&of)?, id::<TaskId>("task", task)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.provider().get_task(&board, &task).await })
    }

    fn tasks(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        statuses: Vec<Bound<'_, PyAny>>,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let (board, handle) = (board(&of)?, self.handle(py)?);
        let statuses = statuses.iter().map(status).collect::<PyResult<Vec<_>>>()?;
        let after = optional(after, |after| position::<TaskPosition>("after", after))?;
        let page = PageRequest::first(limit.0).with_after(after);
        self.shared.encoded(py, async move {
            handle.provider().list_tasks(&board, &TaskQuery::in_statuses(statuses), page).await
        })
    }

    fn boards(
        &self,
        py: Python<'_>,
        conversation: Option<&Bound<'_, PyAny>>,
        after: Option<BoardPair<'_>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let conversation = optional(conversation, |value| id::<ConversationId>("conversation", value))?;
        let page = PageRequest::first(limit.0).with_after(after.as_ref().map(board).transpose()?);
        let handle = self.handle(py)?;
        self.shared
            .encoded(py, async move { handle.provider().list_boards(conversation.as_ref(), page).await })
    }

    fn claim(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        worker: &Bound<'_, PyAny>,
        lease_ms: u64,
    ) -> PyResult<Call> {
        let (board, worker, handle) = (board(&of)?, id::<WorkerId>("worker", worker)?, self.handle(py)?);
        let lease = Duration::from_millis(lease_ms);
        self.shared.encoded(py, async move { handle.provider().claim(&board, &worker, lease).await })
    }

    fn renew(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        task: &Bound<'_, PyAny>,
        token: &Bound<'_, PyAny>,
        lease_ms: u64,
    ) -> PyResult<Call> {
        let (board, task, handle) = (board(&of)?, id::<TaskId>("task", task)?, self.handle(py)?);
        let token: FencingToken = position("token", token)?;
        let lease = Duration::from_millis(lease_ms);
        self.shared
            .encoded(py, async move { handle.provider().renew_lease(&board, &task, token, lease).await })
    }

    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        task: &Bound<'_, PyAny>,
        to: &Bound<'_, PyAny>,
        token: Option<&Bound<'_, PyAny>>,
        at: Option<&Bound<'_, PyAny>>,
        result: Option<String>,
    ) -> PyResult<Call> {
        let (board, task, handle) = (board(&of)?, id::<TaskId>("task", task)?, self.handle(py)?);
        let mut step = Transition::to(status(to)?)
            .with_token(optional(token, |token| position::<FencingToken>("token", token))?)
            .with_expected(optional(at, |at| position::<Revision>("at", at))?);
        step.result = result;
        self.shared.encoded(py, async move { handle.provider().update_status(&board, &task, step).await })
    }

    fn retry(
        &self,
        py: Python<'_>,
        of: BoardPair<'_>,
        task: &Bound<'_, PyAny>,
        token: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Call> {
        let (board, task, handle) = (board(&of)?, id::<TaskId>("task", task)?, self.handle(py)?);
        let token = optional(token, |token| position::<FencingToken>("token", token))?;
        self.shared.encoded(py, async move { handle.provider().increment_retry(&board, &task, token).await })
    }

    fn force_retry(&self, py: Python<'_>, of: BoardPair<'_>, task: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (board, task, handle) = (board(&of)?, id::<TaskId>("task", task)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.provider().force_retry(&board, &task).await })
    }

    fn settle(&self, py: Python<'_>, conversation: &Bound<'_, PyAny>) -> PyResult<Call> {
        let conversation: ConversationId = id("conversation", conversation)?;
        let handle = self.handle(py)?;
        let work = async move { handle.provider().settle_conversation(&conversation).await };
        self.shared.call(py, work, output::count)
    }

    fn delete_board(&self, py: Python<'_>, of: BoardPair<'_>) -> PyResult<Call> {
        let (board, handle) = (board(&of)?, self.handle(py)?);
        let work = async move { handle.provider().delete_board(&board).await };
        self.shared.call(py, work, output::flag)
    }
}
