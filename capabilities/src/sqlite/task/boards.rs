//! Creating, filling, reading, listing and deleting boards.

use std::cmp::Ordering;

use larder_kernel::{
    Board, BoardId, BoardStatusCounts, ConversationId, Error, ErrorKind, Namespace, NewBoard, NewTask, Page,
    PageRequest, Revision, Task, TaskId, TaskPosition, TaskQuery, TaskStatus, check,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{self, BoardRow, any_board, board_row, find_task, insert_task, not_found, task_columns};
use super::{ADD_TASKS, CREATE};
use crate::sqlite::failure::Fallible;
use crate::sqlite::value;

/// Creates a board with its tasks. Continues the revision numbers of an earlier board with the same id.
pub(super) fn create(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    new: NewBoard,
) -> Fallible<Board> {
    let NewBoard { label, parent, tasks, .. } = new;
    let row: Option<BoardRow> = connection
        .prepare_cached(
            "INSERT INTO boards (namespace, conversation, agent, live, last_position, last_revision,
                                 last_token, parent, label, generation)
             VALUES (?1, ?2, ?3, 1, 0, 0, 0, ?4, ?5, ?6)
             ON CONFLICT (namespace, conversation, agent)
             DO UPDATE SET live = 1, parent = excluded.parent, label = excluded.label WHERE live = 0
             RETURNING key, generation",
        )?
        .query_row(
            params![
                namespace.as_str(),
                board.conversation.as_str(),
                board.agent.as_str(),
                parent.as_ref().map(|parent| parent.as_str()),
                label.as_ref().map(String::as_bytes),
                value::new_generation(),
            ],
            |row| Ok(BoardRow { key: row.get(0)?, generation: value::generation(row.get(1)?), live: true }),
        )
        .optional()?;
    let row = row.ok_or_else(|| {
        Error::new(
            ErrorKind::AlreadyExists,
            CREATE,
            "the board already exists; add tasks to it or use another id",
        )
    })?;
    let planned = check::size(append(connection, row, tasks, CREATE)?.len());
    let tasks = BoardStatusCounts::default().with_planned(planned);
    Ok(Board::new(board.clone(), tasks).with_label(label).with_parent(parent))
}

/// Adds tasks at the end of a board.
pub(super) fn add(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    tasks: Vec<NewTask>,
) -> Fallible<Vec<Task>> {
    let row = board_row(connection, namespace, board)?
        .ok_or_else(|| not_found(ADD_TASKS, "the board does not exist; create it first"))?;
    append(connection, row, tasks, ADD_TASKS)
}

fn append(
    connection: &Connection,
    board: BoardRow,
    tasks: Vec<NewTask>,
    operation: &'static str,
) -> Fallible<Vec<Task>> {
    let count = value::length(tasks.len());
    let (last, revision): (i64, i64) = connection
        .prepare_cached(
            "UPDATE boards SET last_position = last_position + ?2, last_revision = last_revision + 1
             WHERE key = ?1 RETURNING last_position, last_revision",
        )?
        .query_row([board.key, count], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (first, revision) = (value::count(last - count + 1)?, Revision::new(value::count(revision)?));
    let mut added = Vec::with_capacity(tasks.len());
    for (position, task) in (first..).zip(tasks) {
        let task = task.into_task(TaskPosition::new(position), revision).in_generation(board.generation);
        insert_task(connection, board.key, &task)?.ok_or_else(|| {
            Error::new(
                ErrorKind::AlreadyExists,
                operation,
                "the board already has a task with one of these ids; use new ids",
            )
            .with_field("tasks.id")
        })?;
        added.push(task);
    }
    Ok(added)
}

/// Returns the board without its tasks.
pub(super) fn get(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<Option<Board>> {
    let mut statement = connection.prepare_cached(
        "SELECT key, conversation, agent, parent, label FROM boards
         WHERE namespace = ?1 AND conversation = ?2 AND agent = ?3 AND live = 1",
    )?;
    let mut found =
        statement.query(params![namespace.as_str(), board.conversation.as_str(), board.agent.as_str()])?;
    found.next()?.map(|row| rows::board(connection, row)).transpose()
}

/// Returns one task of a board.
pub(super) fn get_task(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    task: &TaskId,
) -> Fallible<Option<Task>> {
    match board_row(connection, namespace, board)? {
        Some(row) => find_task(connection, row, task),
        None => Ok(None),
    }
}

/// Returns one page of a board's tasks.
pub(super) fn list_tasks(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    query: &TaskQuery,
    page: &PageRequest<TaskPosition>,
) -> Fallible<Page<Task, TaskPosition>> {
    let found = any_board(connection, namespace, board)?;
    let generation = found.and_then(|found| found.generation);
    if let Some(after) = page.after {
        let place = TaskPosition::default().in_generation(generation);
        after.check_generation("tasks.list_tasks", "page.after", place)?;
    }
    let Some(board) = found.filter(|found| found.live) else { return Ok(Page::empty()) };
    let after = page.after.map_or(-1, |after| value::integer(after.get()));
    let limit = value::length(page.limit) + 1;
    // A status that was not requested is bound as NULL, which equals nothing. The `+` keeps the order of
    // positions.
    const { assert!(TaskStatus::ALL.len() == 6) };
    let [s0, s1, s2, s3, s4, s5] = std::array::from_fn(|at| {
        TaskStatus::ALL.get(at).filter(|status| query.wants(**status)).map(|status| status.as_str())
    });
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE board = ?1 AND position > ?2 AND +status IN (?4, ?5, ?6, ?7, ?8, ?9)
          ORDER BY position LIMIT ?3"
    ))?;
    let mut found = statement.query(params![board.key, after, limit, s0, s1, s2, s3, s4, s5])?;
    let mut tasks = Vec::new();
    while let Some(row) = found.next()? {
        tasks.push(rows::task(row)?.in_generation(generation));
    }
    Ok(Page::from_surplus(tasks, page.limit, |task| task.position))
}

/// Returns one page of boards.
pub(super) fn list_boards(
    connection: &Connection,
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
    let mut statement = connection.prepare_cached(match conversation {
        None => {
            "SELECT key, conversation, agent, parent, label FROM boards
             WHERE namespace = ?1 AND (conversation, agent) > (?2, ?3) AND live = 1
             ORDER BY conversation, agent LIMIT ?4"
        }
        Some(_) => {
            "SELECT key, conversation, agent, parent, label FROM boards
             WHERE namespace = ?1 AND conversation = ?2 AND agent > ?3 AND live = 1
             ORDER BY agent LIMIT ?4"
        }
    })?;
    let limit = value::length(page.limit) + 1;
    let mut found = statement.query(params![namespace.as_str(), after.0, after.1, limit])?;
    let mut boards = Vec::new();
    while let Some(row) = found.next()? {
        boards.push(rows::board(connection, row)?);
    }
    Ok(Page::from_surplus(boards, page.limit, |board| board.id.clone()))
}

/// Deletes a board with its tasks and keeps its revision numbers.
pub(super) fn delete(connection: &Connection, namespace: &Namespace, board: &BoardId) -> Fallible<bool> {
    let Some(BoardRow { key, .. }) = board_row(connection, namespace, board)? else { return Ok(false) };
    connection.prepare_cached("DELETE FROM tasks WHERE board = ?1")?.execute([key])?;
    connection
        .prepare_cached("UPDATE boards SET live = 0, parent = NULL, label = NULL WHERE key = ?1")?
        .execute([key])?;
    Ok(true)
}

/// Deletes every board of the namespace with its revision numbers.
pub(super) fn erase(connection: &Connection, namespace: &Namespace) -> Fallible<()> {
    connection.prepare_cached("DELETE FROM boards WHERE namespace = ?1")?.execute([namespace.as_str()])?;
    Ok(())
}
