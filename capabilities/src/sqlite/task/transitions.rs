//! The transitions of a task. Each one reads, decides and writes inside one transaction.

use std::time::Duration;

use larder_kernel::storage::task::{check_lease, check_transition};
use larder_kernel::{
    BoardId, Claim, ConversationId, Error, ErrorKind, FencingToken, Lease, Namespace, RetryOutcome, Revision,
    Task, TaskId, TaskStatus, Transition, WorkerId,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{BoardRow, board_row, find_task, not_found, task, task_columns, update_task};
use super::{RENEW, RETRY, UPDATE};
use crate::sqlite::failure::{Fallible, corrupt};
use crate::sqlite::value::{self, now_ms};

/// A task with the row of its board.
struct Found {
    board: BoardRow,
    task: Task,
}

fn find(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    operation: &'static str,
) -> Fallible<Found> {
    let board = board_row(connection, namespace, board)?
        .ok_or_else(|| not_found(operation, "the board does not exist; create it first"))?;
    let task = find_task(connection, board, id)?
        .ok_or_else(|| not_found(operation, "the board has no task with this id; check the id"))?;
    Ok(Found { board, task })
}

impl Found {
    /// Writes the task at the board's next revision.
    fn store(mut self, connection: &Connection) -> Fallible<Task> {
        self.task.revision = next_revision(connection, self.board.key)?;
        update_task(connection, self.board.key, &self.task)?;
        Ok(self.task.in_generation(self.board.generation))
    }
}

fn next_revision(connection: &Connection, board: i64) -> Fallible<Revision> {
    next(
        connection,
        board,
        "UPDATE boards SET last_revision = last_revision + 1 WHERE key = ?1 RETURNING last_revision",
    )
    .map(Revision::new)
}

fn next(connection: &Connection, board: i64, sql: &str) -> Fallible<u64> {
    let number: i64 = connection.prepare_cached(sql)?.query_row([board], |row| row.get(0))?;
    value::count(number)
}

/// Changes the status of a task as the transition table allows.
pub(super) fn update_status(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    step: Transition,
) -> Fallible<Task> {
    let mut found = find(connection, namespace, board, id, UPDATE)?;
    check_transition(&found.task, &step)?;
    found.task.status = step.to;
    // Only tasks in progress have a lease, and the table has no transition from that status to itself.
    found.task.lease = None;
    if step.result.is_some() {
        found.task.result = step.result;
    }
    found.store(connection)
}

/// Resets a task to planned if it has a retry left.
pub(super) fn increment_retry(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    token: Option<FencingToken>,
) -> Fallible<RetryOutcome> {
    let mut found = find(connection, namespace, board, id, RETRY)?;
    check_lease(RETRY, &found.task, token)?;
    if !found.task.status.allows_retry() {
        let error = Error::new(
            ErrorKind::Conflict,
            RETRY,
            "a task in this status cannot be retried; use `force_retry`",
        )
        .with_context("from", found.task.status.as_str());
        return Err(error.into());
    }
    if found.task.retries >= found.task.retries_max {
        return Ok(RetryOutcome::Exhausted(found.task));
    }
    found.task.retries += 1;
    found.task.status = TaskStatus::Planned;
    found.task.lease = None;
    found.store(connection).map(RetryOutcome::Retried)
}

/// Resets a task to planned from any status.
pub(super) fn force_retry(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
) -> Fallible<Task> {
    let mut found = find(connection, namespace, board, id, "tasks.force_retry")?;
    found.task.retries = 0;
    found.task.status = TaskStatus::Planned;
    found.task.lease = None;
    found.task.result = None;
    found.store(connection)
}

/// Ends the running tasks of a conversation.
pub(super) fn settle(
    connection: &Connection,
    namespace: &Namespace,
    conversation: &ConversationId,
) -> Fallible<u64> {
    let boards: Vec<i64> = connection
        .prepare_cached(
            "SELECT key FROM boards WHERE namespace = ?1 AND conversation = ?2 AND live = 1
             AND EXISTS (SELECT 1 FROM tasks WHERE board = boards.key AND status = 'in_progress')",
        )?
        .query_map(params![namespace.as_str(), conversation.as_str()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut settled = 0;
    for board in boards {
        let revision = next_revision(connection, board)?;
        let changed = connection
            .prepare_cached(
                "UPDATE tasks SET status = 'succeeded', revision = ?2, lease_worker = NULL,
                                  lease_token = NULL, lease_expires_ms = NULL
                 WHERE board = ?1 AND status = 'in_progress'",
            )?
            .execute([board, value::integer(revision.get())])?;
        settled += larder_kernel::check::size(changed);
    }
    Ok(settled)
}

/// The position of the first task that is planned or whose lease has expired.
pub(super) const FIRST_FREE: &str = "SELECT min(position) FROM (
                 SELECT * FROM (SELECT position FROM tasks WHERE board = ?1 AND status = 'planned'
                                ORDER BY position LIMIT 1)
                 UNION ALL
                 SELECT min(position) FROM tasks INDEXED BY tasks_leased
                 WHERE board = ?1 AND lease_expires_ms IS NOT NULL AND lease_expires_ms <= ?2)";

/// Returns the first task in board order that is planned or whose lease has expired. Costs one index lookup,
/// and one more for each expired lease.
fn first_free(connection: &Connection, board: i64, now_ms: i64) -> Fallible<Option<Task>> {
    let position: Option<i64> = connection
        .prepare_cached(FIRST_FREE)?
        .query_row([board, now_ms], |row| row.get(0))
        .optional()?
        .flatten();
    let Some(position) = position else { return Ok(None) };
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks WHERE board = ?1 AND position = ?2"
    ))?;
    let mut rows = statement.query([board, position])?;
    rows.next()?.map(task).transpose()
}

/// Assigns the first free task to a worker.
pub(super) fn claim(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    worker: &WorkerId,
    lease: Duration,
) -> Fallible<Option<Claim>> {
    let Some(board) = board_row(connection, namespace, board)? else { return Ok(None) };
    let now_ms = now_ms();
    let Some(mut task) = first_free(connection, board.key, now_ms)? else { return Ok(None) };
    let token = FencingToken::new(next(
        connection,
        board.key,
        "UPDATE boards SET last_token = last_token + 1 WHERE key = ?1 RETURNING last_token",
    )?)
    .in_generation(board.generation);
    let expires_at = value::timestamp(now_ms.saturating_add(value::millis(lease)))?;
    task.status = TaskStatus::InProgress;
    task.lease = Some(Lease::new(worker.clone(), token, expires_at));
    let task = Found { board, task }.store(connection)?;
    Ok(Some(Claim::new(task, token)))
}

/// Extends a lease from now.
pub(super) fn renew(
    connection: &Connection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    token: FencingToken,
    duration: Duration,
) -> Fallible<Lease> {
    let mut found = find(connection, namespace, board, id, RENEW)?;
    check_lease(RENEW, &found.task, Some(token))?;
    let expires_at = value::timestamp(now_ms().saturating_add(value::millis(duration)))?;
    let mut lease = found.task.lease.take().ok_or_else(|| corrupt(RENEW))?;
    lease.expires_at = expires_at;
    found.task.lease = Some(lease.clone());
    found.store(connection)?;
    Ok(lease)
}
