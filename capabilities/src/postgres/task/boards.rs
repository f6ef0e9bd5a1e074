//! Creating, filling, reading, listing and deleting boards.

use std::cmp::Ordering;

use larder_kernel::{
    Board, BoardId, BoardStatusCounts, ConversationId, Error, ErrorKind, Generation, Namespace, NewBoard,
    NewTask, Page, PageRequest, Revision, Task, TaskPosition, TaskQuery, TaskStatus, check,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::rows::{self, board_columns, insert_tasks, not_found, task_columns};
use super::{ADD_TASKS, CREATE};
use crate::postgres::decode;
use crate::postgres::encode::{integer, length};
use crate::postgres::failure::Fallible;

/// Creates a board with its tasks. Continues the revision numbers of an earlier board with the same id.
pub(super) async fn create(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    new: &NewBoard,
) -> Fallible<Board> {
    let numbers = sqlx::query(
        "INSERT INTO larder.boards AS b (namespace, conversation, agent, live, last_position, last_revision, \
         last_token,
                                  parent, label)
         VALUES ($1, $2, $3, TRUE, $6, 1, 0, $4, $5)
         ON CONFLICT (namespace, conversation, agent)
         DO UPDATE SET live = TRUE, parent = excluded.parent, label = excluded.label,
                       last_position = b.last_position + $6, last_revision = b.last_revision + 1
         WHERE NOT b.live
         RETURNING last_position, last_revision, generation",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(new.parent.as_ref().map(|parent| parent.as_str()))
    .bind(new.label.as_ref().map(String::as_bytes))
    .bind(length(new.tasks.len()))
    .fetch_optional(&mut *connection)
    .await?
    .ok_or_else(|| Error::new(ErrorKind::AlreadyExists, CREATE, "the board already exists; add tasks to it \
                                                                 or use another id"))?;
    append(connection, namespace, board, &numbers, &new.tasks, CREATE).await?;
    let tasks = BoardStatusCounts::default().with_planned(check::size(new.tasks.len()));
    Ok(Board::new(board.clone(), tasks).with_label(new.label.clone()).with_parent(new.parent.clone()))
}

/// Adds tasks at the end of a board.
pub(super) async fn add(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    tasks: &[NewTask],
) -> Fallible<Vec<Task>> {
    let numbers = sqlx::query(
        "UPDATE larder.boards SET last_position = last_position + $4, last_revision = last_revision + 1
         WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND live
         RETURNING last_position, last_revision, generation",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(length(tasks.len()))
    .fetch_optional(&mut *connection)
    .await?
    .ok_or_else(|| not_found(ADD_TASKS, "the board does not exist; create it first"))?;
    append(connection, namespace, board, &numbers, tasks, ADD_TASKS).await
}

/// Writes tasks at the end of a board; `numbers` holds the columns last_position, last_revision
/// and generation.
async fn append(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    numbers: &PgRow,
    tasks: &[NewTask],
    operation: &'static str,
) -> Fallible<Vec<Task>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let count = check::size(tasks.len());
    let first = decode::unsigned(numbers, 0)?.saturating_sub(count).saturating_add(1);
    let revision = Revision::new(decode::unsigned(numbers, 1)?);
    let generation = decode::generation(numbers.try_get(2)?);
    let tasks: Vec<Task> = (first..)
        .zip(tasks)
        .map(|(position, task)| {
            task.clone().into_task(TaskPosition::new(position), revision).in_generation(generation)
        })
        .collect();
    if insert_tasks(connection, namespace, board, &tasks).await? != count {
        let error = Error::new(
            ErrorKind::AlreadyExists,
            operation,
            "the board already has a task with one of these ids; use new ids",
        );
        return Err(error.with_field("tasks.id").into());
    }
    Ok(tasks)
}

/// Returns the board without its tasks.
pub(super) async fn get(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<Option<Board>> {
    let row = sqlx::query(concat!(
        "SELECT ",
        board_columns!(),
        " WHERE b.namespace = $1 AND b.conversation = $2 AND b.agent = $3 AND b.live"
    ))
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(rows::board).transpose()
}

/// Returns the generation of a board that exists or was deleted.
async fn generation(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<Option<Generation>> {
    let generation = sqlx::query_scalar(
        "SELECT generation FROM larder.boards WHERE namespace = $1 AND conversation = $2 AND agent = $3",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str());
    Ok(decode::generation(generation.fetch_optional(connection).await?))
}

/// Returns one page of a board's tasks.
pub(super) async fn list_tasks(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    query: &TaskQuery,
    page: &PageRequest<TaskPosition>,
) -> Fallible<Page<Task, TaskPosition>> {
    let statuses: Vec<&str> = TaskStatus::ALL
        .iter()
        .copied()
        .filter(|status| query.wants(*status))
        .map(TaskStatus::as_str)
        .collect();
    let found = sqlx::query(concat!(
        "SELECT ",
        task_columns!(),
        " FROM larder.tasks WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND position > $4
          AND status = ANY($5) ORDER BY position LIMIT $6"
    ))
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(page.after.map_or(-1, |after| integer(after.get())))
    .bind(statuses)
    .bind(length(page.limit.saturating_add(1)))
    .fetch_all(&mut *connection)
    .await?;
    let tasks = found.iter().map(rows::task).collect::<Fallible<Vec<_>>>()?;
    if let Some(after) = page.after.filter(|after| after.generation().is_some()) {
        let place = match tasks.first() {
            Some(task) => task.position,
            None => TaskPosition::default().in_generation(generation(connection, namespace, board).await?),
        };
        after.check_generation("tasks.list_tasks", "page.after", place)?;
    }
    Ok(Page::from_surplus(tasks, page.limit, |task| task.position))
}

/// Returns one page of boards.
pub(super) async fn list_boards(
    connection: &mut PgConnection,
    namespace: &Namespace,
    conversation: Option<&ConversationId>,
    page: &PageRequest<BoardId>,
) -> Fallible<Page<Board, BoardId>> {
    let mut after = page.after.as_ref().map_or(("", ""), |id| (id.conversation.as_str(), id.agent.as_str()));
    if let Some(conversation) = conversation {
        after = match after.0.cmp(conversation.as_str()) {
            Ordering::Less => (conversation.as_str(), ""),
            Ordering::Equal => after,
            Ordering::Greater => return Ok(Page::empty()),
        };
    }
    let sql = match conversation {
        None => concat!(
            "SELECT ",
            board_columns!(),
            " WHERE b.namespace = $1 AND (b.conversation, b.agent) > ($2, $3) AND b.live
              ORDER BY b.conversation, b.agent LIMIT $4"
        ),
        Some(_) => concat!(
            "SELECT ",
            board_columns!(),
            " WHERE b.namespace = $1 AND b.conversation = $2 AND b.agent > $3 AND b.live
              ORDER BY b.agent LIMIT $4"
        ),
    };
    let found = sqlx::query(sql)
        .bind(namespace.as_str())
        .bind(after.0)
        .bind(after.1)
        .bind(length(page.limit.saturating_add(1)))
        .fetch_all(connection)
        .await?;
    let boards = found.iter().map(rows::board).collect::<Fallible<Vec<_>>>()?;
    Ok(Page::from_surplus(boards, page.limit, |board| board.id.clone()))
}

/// Deletes a board with its tasks and keeps its revision numbers.
pub(super) async fn delete(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<bool> {
    let closed = sqlx::query(
        "UPDATE larder.boards SET live = FALSE, parent = NULL, label = NULL
         WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND live",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .execute(&mut *connection)
    .await?;
    if closed.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query("DELETE FROM larder.tasks WHERE namespace = $1 AND conversation = $2 AND agent = $3")
        .bind(namespace.as_str())
        .bind(board.conversation.as_str())
        .bind(board.agent.as_str())
        .execute(connection)
        .await?;
    Ok(true)
}

/// Deletes every board of the namespace with its revision numbers.
pub(super) async fn erase(connection: &mut PgConnection, namespace: &Namespace) -> Fallible<()> {
    sqlx::query("SELECT 1 FROM larder.boards WHERE namespace = $1 ORDER BY conversation, agent FOR UPDATE")
        .bind(namespace.as_str())
        .execute(&mut *connection)
        .await?;
    sqlx::query("DELETE FROM larder.boards WHERE namespace = $1")
        .bind(namespace.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
