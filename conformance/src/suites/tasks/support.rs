//! Functions that the cases of the contract share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_kernel::{
    Board, BoardId, Claim, ConversationId, NewBoard, NewTask, PageRequest, Task, TaskId, TaskQuery,
    TaskStatus, TaskStore, Transition, WorkerId,
};
use tokio::time::sleep;

use crate::case::CaseResult;
use crate::expect;

/// A lease that does not expire during any case.
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// A lease that cases wait for.
pub(super) const BRIEF: Duration = Duration::from_millis(250);
/// More pages than any listing of the suite has.
const PAGES_MAX: usize = 5_000;

pub(super) fn id(name: &str) -> CaseResult<TaskId> {
    Ok(TaskId::new(name)?)
}

pub(super) fn board(conversation: &str, agent: &str) -> CaseResult<BoardId> {
    Ok(BoardId::new(conversation, agent)?)
}

pub(super) fn worker(name: &str) -> CaseResult<WorkerId> {
    Ok(WorkerId::new(name)?)
}

/// Returns new tasks with these ids.
pub(super) fn new_tasks(names: &[&str]) -> CaseResult<Vec<NewTask>> {
    names.iter().map(|name| Ok(NewTask::new(id(name)?, format!("title of {name}")))).collect()
}

/// Creates the board `conversation`/`agent` with tasks of these ids.
pub(super) async fn make(
    store: &dyn TaskStore,
    conversation: &str,
    agent: &str,
    names: &[&str],
) -> CaseResult<BoardId> {
    let board = board(conversation, agent)?;
    store.create_task_list(&board, NewBoard::new(new_tasks(names)?)).await?;
    Ok(board)
}

/// Creates a board with one task in each status, none of them under a lease; each is named after its status.
pub(super) async fn make_in_every_status(
    store: &dyn TaskStore,
    conversation: &str,
    agent: &str,
) -> CaseResult<BoardId> {
    let names: Vec<_> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
    let board = make(store, conversation, agent, &names).await?;
    for &status in TaskStatus::ALL {
        bring(store, &board, status.as_str(), status).await?;
    }
    Ok(board)
}

/// Moves a planned task to a status by steps of the table, without a lease.
pub(super) async fn bring(
    store: &dyn TaskStore,
    board: &BoardId,
    name: &str,
    status: TaskStatus,
) -> CaseResult<Task> {
    if matches!(status, TaskStatus::Succeeded | TaskStatus::Failed) {
        step(store, board, name, TaskStatus::InProgress).await?;
    }
    if status == TaskStatus::Planned {
        return read(store, board, name).await;
    }
    step(store, board, name, status).await
}

pub(super) async fn step(
    store: &dyn TaskStore,
    board: &BoardId,
    name: &str,
    to: TaskStatus,
) -> CaseResult<Task> {
    Ok(store.update_status(board, &id(name)?, Transition::to(to)).await?)
}

/// Reads a task that must exist.
pub(super) async fn read(store: &dyn TaskStore, board: &BoardId, name: &str) -> CaseResult<Task> {
    expect::some("the task", store.get_task(board, &id(name)?).await?)
}

/// Reads a board that must exist.
pub(super) async fn read_board(store: &dyn TaskStore, board: &BoardId) -> CaseResult<Board> {
    expect::some("the board", store.get_board(board).await?)
}

/// Checks that the task reads as given.
pub(super) async fn reads(store: &dyn TaskStore, board: &BoardId, task: &Task) -> CaseResult {
    expect::equal("the task", &store.get_task(board, &task.id).await?.as_ref(), &Some(task))
}

/// Claims a task that must be free.
pub(super) async fn claim(
    store: &dyn TaskStore,
    board: &BoardId,
    name: &str,
    lease: Duration,
) -> CaseResult<Claim> {
    expect::some("a free task", store.claim(board, &worker(name)?, lease).await?)
}

/// Returns the tasks of a board that match the query, read in pages of `limit`.
pub(super) async fn listed(
    store: &dyn TaskStore,
    board: &BoardId,
    query: &TaskQuery,
    limit: usize,
) -> CaseResult<Vec<Task>> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
    for _ in 0..PAGES_MAX {
        let part = store.list_tasks(board, query, page).await?;
        expect::that(part.items.len() <= limit, format!("a page of at most {limit}"), part.items.len())?;
        found.extend(part.items);
        match part.next {
            Some(next) => page = PageRequest::after(next, limit),
            None => return Ok(found),
        }
    }
    Err(expect::broken("the listing to end", format!("{PAGES_MAX} pages and more")))
}

/// Returns all tasks of a board.
pub(super) async fn tasks(store: &dyn TaskStore, board: &BoardId) -> CaseResult<Vec<Task>> {
    listed(store, board, &TaskQuery::default(), 10_000).await
}

/// Returns the ids of tasks, in their order.
pub(super) fn names(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.id.as_str()).collect()
}

/// Returns the boards of a conversation, or of all conversations, read in pages of `limit`.
pub(super) async fn boards(
    store: &dyn TaskStore,
    conversation: Option<&ConversationId>,
    limit: usize,
) -> CaseResult<Vec<Board>> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
    for _ in 0..PAGES_MAX {
        let part = store.list_boards(conversation, page).await?;
        expect::that(part.items.len() <= limit, format!("a page of at most {limit}"), part.items.len())?;
        found.extend(part.items);
        match part.next {
            Some(next) => page = PageRequest::after(next, limit),
            None => return Ok(found),
        }
    }
    Err(expect::broken("the listing to end", format!("{PAGES_MAX} pages and more")))
}

/// Sleeps until `lease` has certainly passed since `begun`, an instant after the claim returned.
pub(super) async fn past(begun: Instant, lease: Duration) {
    const MARGIN: Duration = Duration::from_millis(50);
    sleep((lease + MARGIN).saturating_sub(begun.elapsed())).await;
}

/// Returns the result of a spawned task.
pub(super) fn joined<T>(result: Result<CaseResult<T>, tokio::task::JoinError>) -> CaseResult<T> {
    result?
}

/// Returns the handle of a worker by its number: workers alternate between the two.
pub(super) fn turn(a: &Arc<dyn TaskStore>, b: &Arc<dyn TaskStore>, worker: usize) -> Arc<dyn TaskStore> {
    Arc::clone(if worker.is_multiple_of(2) { a } else { b })
}
