//! Reading tasks.

use std::sync::Arc;

use larder_kernel::{
    BoardId, Error, ErrorKind, PageRequest, Result, TaskId, TaskPosition, TaskQuery, TaskStatus, TaskStore,
    check,
};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::view::{Status, TaskView, board};
use crate::adapters::mcp::answer::{Room, piece};
use crate::adapters::mcp::argument::{Id, Limit, page};
use crate::adapters::mcp::cursor;
use crate::adapters::mcp::registry::Shared;

/// Tasks that are read from the store at once: a task may have 2 MiB of texts.
const TASKS_STEP: usize = 20;
/// Bytes of one piece of a task's JSON.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInput {
    conversation: Id,
    agent: Id,
    /// Only tasks in one of these statuses; all unless said.
    #[serde(default)]
    #[schemars(length(max = 6))]
    statuses: Vec<Status>,
    /// Most tasks to list; 50 unless said.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the answer before.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct ListOutput {
    /// The tasks, in the order they were added.
    tasks: Vec<TaskView>,
    /// Where the list goes on; absent at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(crate) async fn list(shared: Arc<Shared>, input: ListInput) -> Result<ListOutput> {
    const OPERATION: &str = "mcp.task_list";
    let board = board(&input.conversation, &input.agent)?;
    check::at_most(OPERATION, "statuses", input.statuses.len(), TaskStatus::ALL.len())?;
    let query = TaskQuery::in_statuses(input.statuses.into_iter().map(Into::into));
    let request = page(OPERATION, input.cursor.as_deref(), &input.limit)?;
    tasks(&*shared.stores.tasks()?, &board, &query, request).await
}

/// As many tasks as are asked for and have room.
pub(crate) async fn tasks(
    store: &dyn TaskStore,
    board: &BoardId,
    query: &TaskQuery,
    request: PageRequest<TaskPosition>,
) -> Result<ListOutput> {
    let (mut tasks, mut room, mut after) = (Vec::new(), Room::new(), request.after);
    loop {
        let step = TASKS_STEP.min(request.limit - tasks.len());
        let found = store.list_tasks(board, query, PageRequest { after, limit: step }).await?;
        for task in found.items {
            let position = task.position;
            let view = TaskView::from(task);
            if !room.takes(&view)? {
                return more(tasks, after);
            }
            after = Some(position);
            tasks.push(view);
        }
        if found.next.is_none() {
            return Ok(ListOutput { tasks, next_cursor: None });
        }
        if tasks.len() >= request.limit {
            return more(tasks, after);
        }
    }
}

fn more(tasks: Vec<TaskView>, after: Option<TaskPosition>) -> Result<ListOutput> {
    Ok(ListOutput { tasks, next_cursor: after.as_ref().map(cursor::encode).transpose()? })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct GetInput {
    conversation: Id,
    agent: Id,
    /// The id of the task.
    task: Id,
    /// Where in the task's description and result to begin, in bytes: the `next_offset` of the answer before.
    #[serde(default)]
    offset: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct GetOutput {
    /// The task; its texts are cut where they are long.
    task: TaskView,
    /// Description and result as JSON, from `offset` on.
    json: String,
    /// The size of that JSON as a whole, in bytes.
    json_bytes: usize,
    /// Where the next piece begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

pub(crate) async fn get(shared: Arc<Shared>, input: GetInput) -> Result<GetOutput> {
    const OPERATION: &str = "mcp.task_get";
    let (board, id) = (board(&input.conversation, &input.agent)?, TaskId::new(&input.task)?);
    let Some(task) = shared.stores.tasks()?.get_task(&board, &id).await? else {
        return Err(
            Error::new(ErrorKind::NotFound, OPERATION, "the board has no such task").with_field("task")
        );
    };
    let texts = serde_json::json!({ "description": task.description, "result": task.result }).to_string();
    let (part, next_offset) = piece(OPERATION, &texts, input.offset, PIECE_BYTES)?;
    let (json, json_bytes) = (part.to_owned(), texts.len());
    Ok(GetOutput { task: task.into(), json, json_bytes, next_offset })
}
