//! The transitions of a task. Each one locks the board, reads the task, decides and writes inside one
//! transaction.

use std::time::Duration;

use larder_kernel::storage::task::{check_lease, check_transition};
use larder_kernel::{
    BoardId, Claim, ConversationId, Error, ErrorKind, FencingToken, Lease, Namespace, RetryOutcome, Task,
    TaskId, TaskStatus, Timestamp, Transition, WorkerId,
};
use sqlx::{PgConnection, Row};

use super::rows::{find_task, lock_board, not_found, task, task_columns, update_task};
use super::{CLAIM, FORCE_RETRY, RENEW, RETRY, UPDATE};
use crate::postgres::engine::{Write, begin_write};
use crate::postgres::failure::{Fallible, corrupt};
use crate::postgres::{decode, encode};

/// Returns the end of a lease that begins at `now_ms`.
fn lease_end(now_ms: i64, lease: Duration) -> Fallible<Timestamp> {
    decode::timestamp(now_ms.saturating_add(encode::millis(lease)))
}

/// Locks a task with its board and reads it.
async fn find(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    operation: &'static str,
) -> Fallible<Task> {
    if !lock_board(connection, namespace, board).await? {
        return Err(not_found(operation, "the board does not exist; create it first").into());
    }
    let found = find_task(connection, namespace, board, id).await?;
    Ok(found.ok_or_else(|| not_found(operation, "the board has no task with this id; check the id"))?)
}

/// Writes the task at the board's next revision.
async fn store(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    mut task: Task,
) -> Fallible<Task> {
    let generation = task.revision.generation();
    task.revision = update_task(connection, namespace, board, &task).await?.in_generation(generation);
    Ok(task)
}

/// Changes the status of a task as the transition table allows.
pub(super) async fn update_status(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    step: &Transition,
) -> Fallible<Task> {
    let mut task = find(connection, namespace, board, id, UPDATE).await?;
    check_transition(&task, step)?;
    task.status = step.to;
    // Only tasks in progress have a lease, and the table has no transition from that status to itself.
    task.lease = None;
    if step.result.is_some() {
        task.result.clone_from(&step.result);
    }
    store(connection, namespace, board, task).await
}

/// Resets a task to planned if it has a retry left.
pub(super) async fn increment_retry(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    token: Option<FencingToken>,
) -> Fallible<RetryOutcome> {
    let mut task = find(connection, namespace, board, id, RETRY).await?;
    check_lease(RETRY, &task, token)?;
    if !task.status.allows_retry() {
        let error = Error::new(
            ErrorKind::Conflict,
            RETRY,
            "a task in this status cannot be retried; use `force_retry`",
        )
        .with_context("from", task.status.as_str());
        return Err(error.into());
    }
    if task.retries >= task.retries_max {
        return Ok(RetryOutcome::Exhausted(task));
    }
    task.retries += 1;
    task.status = TaskStatus::Planned;
    task.lease = None;
    store(connection, namespace, board, task).await.map(RetryOutcome::Retried)
}

/// Resets a task to planned from any status.
pub(super) async fn force_retry(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
) -> Fallible<Task> {
    let mut task = find(connection, namespace, board, id, FORCE_RETRY).await?;
    task.retries = 0;
    task.status = TaskStatus::Planned;
    task.lease = None;
    task.result = None;
    store(connection, namespace, board, task).await
}

/// Ends the running tasks of a conversation.
pub(super) async fn settle(
    connection: &mut PgConnection,
    namespace: &Namespace,
    conversation: &ConversationId,
) -> Fallible<u64> {
    sqlx::query(
        "SELECT 1 FROM larder.boards WHERE namespace = $1 AND conversation = $2 AND live
         ORDER BY agent FOR NO KEY UPDATE",
    )
    .bind(namespace.as_str())
    .bind(conversation.as_str())
    .execute(&mut *connection)
    .await?;
    let settled = sqlx::query(
        "WITH busy AS (
             SELECT DISTINCT agent FROM larder.tasks
             WHERE namespace = $1 AND conversation = $2 AND status = 'in_progress'),
         board AS (
             UPDATE larder.boards b SET last_revision = b.last_revision + 1 FROM busy
             WHERE b.namespace = $1 AND b.conversation = $2 AND b.agent = busy.agent
             RETURNING b.agent, b.last_revision)
         UPDATE larder.tasks t SET status = 'succeeded', revision = board.last_revision, lease_worker = NULL,
                            lease_token = NULL, lease_expires_ms = NULL
         FROM board
         WHERE t.namespace = $1 AND t.conversation = $2 AND t.agent = board.agent AND t.status = \
         'in_progress'",
    )
    .bind(namespace.as_str())
    .bind(conversation.as_str())
    .execute(connection)
    .await?;
    Ok(settled.rows_affected())
}

/// Assigns the next free task to each worker, in order. If too few are free, the last workers get none.
pub(super) async fn claim(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    workers: &[(&WorkerId, Duration)],
    write: Write,
) -> Fallible<Vec<Claim>> {
    let claim = concat!(
        "SELECT ",
        task_columns!(),
        " FROM larder.claim_tasks($1, $2, $3, $4, $5) WHERE ",
        begin_write!("6", "7")
    );
    let rows = sqlx::query(claim)
        .bind(namespace.as_str())
        .bind(board.conversation.as_str())
        .bind(board.agent.as_str())
        .bind(workers.iter().map(|(worker, _)| worker.as_str()).collect::<Vec<_>>())
        .bind(workers.iter().map(|(_, lease)| encode::millis(*lease)).collect::<Vec<_>>())
        .bind(write.format)
        .bind(write.commit)
        .fetch_all(connection)
        .await?;
    let claim = |row| {
        let task = task(row)?;
        let token = task.lease.as_ref().map(|lease| lease.token).ok_or_else(|| corrupt(CLAIM))?;
        Ok(Claim::new(task, token))
    };
    rows.iter().map(claim).collect()
}

/// Extends a lease from now.
pub(super) async fn renew(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
    token: FencingToken,
    duration: Duration,
) -> Fallible<Lease> {
    let mut task = find(connection, namespace, board, id, RENEW).await?;
    check_lease(RENEW, &task, Some(token))?;
    let now = sqlx::query("SELECT larder.now_ms()").fetch_one(&mut *connection).await?;
    let expires_at = lease_end(now.try_get(0)?, duration)?;
    let mut lease = task.lease.take().ok_or_else(|| corrupt(RENEW))?;
    lease.expires_at = expires_at;
    task.lease = Some(lease.clone());
    store(connection, namespace, board, task).await?;
    Ok(lease)
}
