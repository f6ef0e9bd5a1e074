//! Conversion of boards and tasks to and from rows.

use larder_kernel::{
    Board, BoardId, BoardStatusCounts, Error, ErrorKind, FencingToken, Generation, Lease, Namespace,
    Revision, Task, TaskId, TaskPosition, TaskStatus,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::sqlite::failure::{Fallible, corrupt};
use crate::sqlite::value::{self, metadata_text};

/// The columns that [`task`] reads.
macro_rules! task_columns {
    () => {
        "id, position, revision, status, retries, retries_max, lease_worker, lease_token, lease_expires_ms,
         title, metadata, description, result"
    };
}
pub(super) use task_columns;

/// The row of a board.
#[derive(Clone, Copy)]
pub(super) struct BoardRow {
    pub(super) key: i64,
    pub(super) generation: Option<Generation>,
    /// False for a deleted board, whose numbers continue.
    pub(super) live: bool,
}

/// Returns the row of a board that exists or was deleted.
pub(super) fn any_board(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<Option<BoardRow>> {
    let read = |row: &Row<'_>| {
        Ok(BoardRow { key: row.get(0)?, generation: value::generation(row.get(1)?), live: row.get(2)? })
    };
    Ok(connection
        .prepare_cached(
            "SELECT key, generation, live FROM boards
             WHERE namespace = ?1 AND conversation = ?2 AND agent = ?3",
        )?
        .query_row(params![namespace.as_str(), board.conversation.as_str(), board.agent.as_str()], read)
        .optional()?)
}

/// Returns the row of an existing board.
pub(super) fn board_row(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<Option<BoardRow>> {
    Ok(any_board(connection, namespace, board)?.filter(|board| board.live))
}

/// Returns the error for a missing board or task.
pub(super) fn not_found(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, message)
}

/// Returns the status in a column.
pub(super) fn status(row: &Row<'_>, column: usize) -> Fallible<TaskStatus> {
    let name = row.get_ref(column)?.as_str().map_err(|_| corrupt("sqlite.read"))?;
    Ok(TaskStatus::from_name(name).ok_or_else(|| corrupt("sqlite.read"))?)
}

fn small(row: &Row<'_>, column: usize) -> Fallible<u32> {
    let number: i64 = row.get(column)?;
    Ok(u32::try_from(number).map_err(|_| corrupt("sqlite.read"))?)
}

/// Returns a task from the columns of [`task_columns`].
pub(super) fn task(row: &Row<'_>) -> Fallible<Task> {
    let expires_ms: Option<i64> = row.get(8)?;
    let lease = match expires_ms {
        None => None,
        Some(ms) => Some(Lease::new(
            value::id(row, 6)?,
            FencingToken::new(value::unsigned(row, 7)?),
            value::timestamp(ms)?,
        )),
    };
    Ok(Task::new(
        value::id(row, 0)?,
        value::text(row, 9)?,
        TaskPosition::new(value::unsigned(row, 1)?),
        Revision::new(value::unsigned(row, 2)?),
    )
    .with_status(status(row, 3)?)
    .with_retries(small(row, 4)?)
    .with_retries_max(small(row, 5)?)
    .with_lease(lease)
    .with_metadata(value::metadata(row, 10)?)
    .with_description(value::optional_text(row, 11)?)
    .with_result(value::optional_text(row, 12)?))
}

/// Returns the task with this id on the board of a row.
pub(super) fn find_task(connection: &Connection, board: BoardRow, id: &TaskId) -> Fallible<Option<Task>> {
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE board = ?1 AND id = ?2"
    ))?;
    let mut rows = statement.query(params![board.key, id.as_str()])?;
    Ok(rows.next()?.map(task).transpose()?.map(|task| task.in_generation(board.generation)))
}

/// Adds a task to a board. `None` if the id exists already.
pub(super) fn insert_task(connection: &Connection, board: i64, task: &Task) -> Fallible<Option<()>> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO tasks (board, id, position, revision, status, retries, retries_max, title, metadata,
                                description)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (board, id) DO NOTHING",
        )?
        .execute(params![
            board,
            task.id.as_str(),
            value::integer(task.position.get()),
            value::integer(task.revision.get()),
            task.status.as_str(),
            task.retries,
            task.retries_max,
            task.title.as_bytes(),
            metadata_text(&task.metadata)?,
            task.description.as_ref().map(String::as_bytes),
        ])?;
    Ok((inserted > 0).then_some(()))
}

/// Writes the mutable fields of a task: all but its id, its position and its initial fields.
pub(super) fn update_task(connection: &Connection, board: i64, task: &Task) -> Fallible<()> {
    let lease = task.lease.as_ref();
    connection
        .prepare_cached(
            "UPDATE tasks SET revision = ?3, status = ?4, retries = ?5, lease_worker = ?6, lease_token = ?7,
                              lease_expires_ms = ?8, result = ?9
             WHERE board = ?1 AND position = ?2",
        )?
        .execute(params![
            board,
            value::integer(task.position.get()),
            value::integer(task.revision.get()),
            task.status.as_str(),
            task.retries,
            lease.map(|lease| lease.worker.as_str()),
            lease.map(|lease| value::integer(lease.token.get())),
            lease.map(|lease| lease.expires_at.as_micros().div_euclid(1_000)),
            task.result.as_ref().map(String::as_bytes),
        ])?;
    Ok(())
}

/// Returns the number of tasks of a board in each status.
pub(super) fn counts(connection: &Connection, board: i64) -> Fallible<BoardStatusCounts> {
    let mut statement =
        connection.prepare_cached("SELECT status, count(*) FROM tasks WHERE board = ?1 GROUP BY status")?;
    let mut rows = statement.query([board])?;
    let mut counts = BoardStatusCounts::default();
    while let Some(row) = rows.next()? {
        *counts.of_mut(status(row, 0)?) = value::unsigned(row, 1)?;
    }
    Ok(counts)
}

/// Returns a board from the columns key, conversation, agent, parent and label.
pub(super) fn board(connection: &Connection, row: &Row<'_>) -> Fallible<Board> {
    let parent = match row.get_ref(3)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(value::id(row, 3)?),
    };
    Ok(Board::new(
        BoardId { conversation: value::id(row, 1)?, agent: value::id(row, 2)? },
        counts(connection, row.get(0)?)?,
    )
    .with_parent(parent)
    .with_label(value::optional_text(row, 4)?))
}
