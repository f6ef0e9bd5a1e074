//! Creating boards, listing them, and adding tasks to them.

use std::sync::Arc;

use larder_kernel::storage::task::check_add_tasks;
use larder_kernel::{BoardId, ConversationId, Metadata, NewBoard, NewTask, Result, TaskId, check, limits};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::view::{BoardView, board};
use crate::adapters::mcp::answer::Room;
use crate::adapters::mcp::argument::{Id, Limit, named, optional, page};
use crate::adapters::mcp::cursor;
use crate::adapters::mcp::registry::Shared;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct TaskInput {
    /// The id, unique on the board.
    id: Id,
    /// The title, one line of at most 4,096 bytes.
    #[schemars(length(min = 1, max = 4096))]
    title: String,
    /// The full description, at most 1 MiB.
    description: Option<String>,
    /// The maximum number of retries, at most 1,000; the default is 3.
    #[schemars(range(max = 1000))]
    retries_max: Option<u32>,
    /// Any metadata, at most 64 KiB.
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl TaskInput {
    fn made(self) -> Result<NewTask> {
        let mut task = NewTask::new(named("id", TaskId::new(&self.id))?, self.title)
            .with_retries_max(self.retries_max.unwrap_or(limits::TASK_RETRIES_DEFAULT))
            .with_metadata(Metadata::from(self.metadata));
        task.description = self.description;
        Ok(task)
    }
}

fn tasks(operation: &'static str, tasks: Vec<TaskInput>) -> Result<Vec<NewTask>> {
    check::at_most(operation, "tasks", tasks.len(), limits::BATCH_TASKS_MAX)?;
    tasks.into_iter().map(TaskInput::made).collect()
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateInput {
    conversation: Id,
    agent: Id,
    /// A name for people, at most 4,096 bytes.
    #[schemars(length(max = 4096))]
    label: Option<String>,
    /// The agent of the parent board, in the same conversation.
    parent: Option<Id>,
    /// The first tasks, at most 1,000.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    tasks: Vec<TaskInput>,
}

pub(crate) async fn create(shared: Arc<Shared>, input: CreateInput) -> Result<BoardView> {
    let board = board(&input.conversation, &input.agent)?;
    let parent = named("parent", optional(input.parent.as_ref()))?;
    let mut new = NewBoard::new(tasks("mcp.board_create", input.tasks)?).with_parent(parent);
    new.label = input.label;
    new.check()?;
    Ok(shared.stores.tasks()?.create_task_list(&board, new).await?.into())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct AddInput {
    conversation: Id,
    agent: Id,
    /// 1 to 1,000 tasks.
    #[schemars(length(min = 1, max = 1000))]
    tasks: Vec<TaskInput>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct AddOutput {
    /// The number of added tasks.
    added: usize,
}

pub(crate) async fn add(shared: Arc<Shared>, input: AddInput) -> Result<AddOutput> {
    let board = board(&input.conversation, &input.agent)?;
    let tasks = tasks("mcp.task_add", input.tasks)?;
    check_add_tasks(&tasks)?;
    let added = shared.stores.tasks()?.add_tasks(&board, tasks).await?;
    Ok(AddOutput { added: added.len() })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ListInput {
    /// List only boards of this conversation.
    conversation: Option<Id>,
    /// The maximum number of boards; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct ListOutput {
    boards: Vec<BoardView>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(crate) async fn list(shared: Arc<Shared>, input: ListInput) -> Result<ListOutput> {
    let conversation: Option<ConversationId> = optional(input.conversation.as_ref())?;
    let request = page::<BoardId>("mcp.board_list", input.cursor.as_deref(), &input.limit)?;
    let page = shared.stores.tasks()?.list_boards(conversation.as_ref(), request).await?;
    let (mut boards, mut room, mut last, mut next) = (Vec::new(), Room::new(), None, page.next);
    for board in page.items {
        let id = board.id.clone();
        let view = BoardView::from(board);
        if !room.takes(&view)? {
            next = last;
            break;
        }
        last = Some(id);
        boards.push(view);
    }
    Ok(ListOutput { boards, next_cursor: next.as_ref().map(cursor::encode).transpose()? })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteInput {
    conversation: Id,
    agent: Id,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct DeleteOutput {
    /// `true` if the board existed.
    existed: bool,
}

pub(crate) async fn delete(shared: Arc<Shared>, input: DeleteInput) -> Result<DeleteOutput> {
    let board = board(&input.conversation, &input.agent)?;
    Ok(DeleteOutput { existed: shared.stores.tasks()?.delete_board(&board).await? })
}
