//! A dump of all readable data, and sample data.

use std::time::Duration;

use larder_kernel::{
    AgentId, Board, BoardId, Metadata, NewBoard, NewTask, PageRequest, Task, TaskQuery, TaskStatus,
    TaskStore, Transition,
};
use serde_json::Value;

use super::support::{board, boards, id, listed, worker};
use crate::case::{CaseResult, Failure, implemented};
use crate::expect;
use crate::suites::known;

/// Reads all boards with their tasks.
pub(crate) async fn dump(store: &dyn TaskStore) -> CaseResult<Value> {
    let mut whole = Vec::new();
    if implemented(store.list_boards(None, PageRequest::first(1)).await)?.is_none() {
        return known_boards(store).await;
    }
    for board in boards(store, None, 100).await? {
        whole.push(row(Some(&board), &tasks(store, &board.id).await?)?);
    }
    Ok(Value::Array(whole))
}

fn row(board: Option<&Board>, tasks: &[Task]) -> CaseResult<Value> {
    let row = serde_json::to_value((board, tasks));
    let mut row = row.map_err(|error| Failure::Engine(format!("cannot write a dump: {error}")))?;
    row.sort_all_objects();
    Ok(row)
}

/// Reads the boards that the suite writes, from a store that cannot list them yet.
async fn known_boards(store: &dyn TaskStore) -> CaseResult<Value> {
    let called =
        [("talk", "agent"), ("talk", "their"), ("talk", "second"), ("other", "agent"), ("their", "agent")];
    let mut known = Vec::new();
    for (conversation, agent) in called.into_iter().chain([("fresh", "fresh"), ("new", "new")]) {
        known.push(board(conversation, agent)?);
    }
    for boards in known::marked(|marker| AGENTS.map(|agent| marked_board(marker, agent))) {
        known.extend(boards.into_iter().collect::<CaseResult<Vec<_>>>()?);
    }
    let mut whole = Vec::new();
    for id in known {
        let (board, tasks) = (implemented(store.get_board(&id).await)?.flatten(), tasks(store, &id).await?);
        if board.is_some() || !tasks.is_empty() {
            whole.push(row(board.as_ref(), &tasks)?);
        }
    }
    Ok(Value::Array(whole))
}

/// Returns all tasks of a board. If the store cannot list yet, returns the tasks that the suite writes.
async fn tasks(store: &dyn TaskStore, board: &BoardId) -> CaseResult<Vec<Task>> {
    let (all, first) = (TaskQuery::default(), PageRequest::first(1));
    if implemented(store.list_tasks(board, &all, first).await)?.is_some() {
        return listed(store, board, &all, 100).await;
    }
    let mut names: Vec<String> = ["t1", "t2", "t3", "t9", "their", "good"].map(str::to_owned).into();
    names.extend(known::marked(|marker| [0, 1, 2].map(|number| format!("{marker}-task-{number}"))).flatten());
    let mut found = Vec::new();
    for name in names {
        found.extend(store.get_task(board, &id(&name)?).await?);
    }
    Ok(found)
}

/// The agents of a marker's boards. The board of the last one is removed again.
const AGENTS: [&str; 3] = ["agent", "agent-2", "removed"];

fn marked_board(marker: &str, agent: &str) -> CaseResult<BoardId> {
    board(&format!("{marker}-talk"), &format!("{marker}-{agent}"))
}

/// Creates two boards of a conversation with tasks that are planned, claimed and failed; a third board is
/// removed again. The calls of methods that the store does not implement yet are left out.
pub(crate) async fn populate(store: &dyn TaskStore, marker: &str) -> CaseResult {
    const LEASE: Duration = Duration::from_secs(3600);
    for agent in AGENTS {
        let board = marked_board(marker, agent)?;
        let mut tasks = Vec::new();
        for number in 0..3 {
            let task = NewTask::new(id(&format!("{marker}-task-{number}"))?, format!("title {marker}"));
            let metadata = Metadata::new().with(format!("key {marker}"), format!("value {marker}"));
            tasks.push(task.with_description(format!("about {marker}")).with_metadata(metadata));
        }
        let new = NewBoard::new(tasks).with_label(format!("label {marker}"));
        store.create_task_list(&board, new.with_parent(AgentId::new(format!("{marker}-chief"))?)).await?;
        let worker = worker(&format!("{marker}-worker"))?;
        if let Some(first) = implemented(store.claim(&board, &worker, LEASE).await)? {
            let first = expect::some("a free task", first)?;
            let failed = Transition::to(TaskStatus::Failed).with_token(first.token);
            let failed = failed.with_result(format!("why {marker}"));
            implemented(store.update_status(&board, &first.task.id, failed).await)?;
            expect::some("a free task", store.claim(&board, &worker, LEASE).await?)?;
        }
        if agent == "removed" {
            implemented(store.delete_board(&board).await)?;
        }
    }
    Ok(())
}
