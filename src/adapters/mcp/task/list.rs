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

/// The number of tasks per store call: a task can have 2 MiB of texts.
const TASKS_STEP: usize = 20;
/// The size of one piece of a task's JSON, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInput {
    conversation: Id,
    agent: Id,
    /// List only tasks in one of these statuses; the default is all.
    #[serde(default)]
    #[schemars(length(max = 6))]
    statuses: Vec<Status>,
    /// The maximum number of tasks; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct ListOutput {
    /// The tasks, in the order they were added.
    tasks: Vec<TaskView>,
    /// The cursor of the next page; absent at the end.
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

/// Returns as many tasks as the call requests and the size limit permits.
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
    /// The offset in the JSON of description and result, in bytes: the `next_offset` of the previous result.
    #[serde(default)]
    offset: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct GetOutput {
    /// The task, with long texts cut.
    task: TaskView,
    /// The description and the result as JSON, from `offset` on.
    json: String,
    /// The size of the whole JSON, in bytes.
    json_bytes: usize,
    /// The offset of the next piece; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

pub(crate) async fn get(shared: Arc<Shared>, input: GetInput) -> Result<GetOutput> {
    const OPERATION: &str = "mcp.task_get";
    let (board, id) = (board(&input.conversation, &input.agent)?, TaskId::new(&input.task)?);
    let Some(task) = shared.stores.tasks()?.get_task(&board, &id).await? else {
        return Err(Error::new(
            ErrorKind::NotFound,
            OPERATION,
            "the board has no task with this id; check the id",
        )
        .with_field("task"));
    };
    let texts = serde_json::json!({ "description": task.description, "result": task.result }).to_string();
    let (part, next_offset) = piece(OPERATION, &texts, input.offset, PIECE_BYTES)?;
    let (json, json_bytes) = (part.to_owned(), texts.len());
    Ok(GetOutput { task: task.into(), json, json_bytes, next_offset })
}
