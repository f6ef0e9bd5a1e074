//! Conversion of boards and tasks to and from rows.

use larder_kernel::{
    Board, BoardId, BoardStatusCounts, Error, ErrorKind, FencingToken, Lease, Namespace, Revision, Task,
    TaskId, TaskPosition, TaskStatus,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::postgres::decode;
use crate::postgres::encode::{integer, metadata_text};
use crate::postgres::failure::{Fallible, corrupt};

/// The columns that [`task`] reads. The first three parameters identify the board.
macro_rules! task_columns {
    () => {
        "id, position, revision, status, retries, retries_max, lease_worker, lease_token, lease_expires_ms,
         title, metadata, description, result,
         (SELECT b.generation FROM larder.boards b
          WHERE b.namespace = $1 AND b.conversation = $2 AND b.agent = $3)"
    };
}
pub(super) use task_columns;

/// The columns that [`board`] reads, of boards with the alias `b`.
macro_rules! board_columns {
    () => {
        "b.conversation, b.agent, b.parent, b.label, c.planned, c.in_progress, c.blocked, c.succeeded, \
         c.failed,
         c.abandoned
         FROM larder.boards b CROSS JOIN LATERAL (
             SELECT count(*) FILTER (WHERE status = 'planned') AS planned,
                    count(*) FILTER (WHERE status = 'in_progress') AS in_progress,
                    count(*) FILTER (WHERE status = 'blocked') AS blocked,
                    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
                    count(*) FILTER (WHERE status = 'failed') AS failed,
                    count(*) FILTER (WHERE status = 'abandoned') AS abandoned
             FROM larder.tasks t
             WHERE t.namespace = b.namespace AND t.conversation = b.conversation AND t.agent = b.agent) c"
    };
}
pub(super) use board_columns;

/// Returns the error for a missing board or task.
pub(super) fn not_found(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, message)
}

/// Locks the row of an existing board, so that only this transaction changes the board and its tasks. Returns
/// true if the board exists. The following reads see the result of the previous transaction.
pub(super) async fn lock_board(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
) -> Fallible<bool> {
    let row = sqlx::query(
        "SELECT 1 FROM larder.boards WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND live
         FOR NO KEY UPDATE",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .fetch_optional(connection)
    .await?;
    Ok(row.is_some())
}

/// Returns a task from the columns of [`task_columns`].
pub(super) fn task(row: &PgRow) -> Fallible<Task> {
    let expires_ms: Option<i64> = row.try_get(8)?;
    let lease = match expires_ms {
        None => None,
        Some(ms) => Some(Lease::new(
            decode::id(row, 6)?,
            FencingToken::new(decode::unsigned(row, 7)?),
            decode::timestamp(ms)?,
        )),
    };
    let status = TaskStatus::from_name(row.try_get(3)?).ok_or_else(|| corrupt("postgres.read"))?;
    Ok(Task::new(
        decode::id(row, 0)?,
        decode::text(row, 9)?,
        TaskPosition::new(decode::unsigned(row, 1)?),
        Revision::new(decode::unsigned(row, 2)?),
    )
    .with_status(status)
    .with_retries(decode::small(row, 4)?)
    .with_retries_max(decode::small(row, 5)?)
    .with_lease(lease)
    .with_metadata(decode::metadata(row, 10)?)
    .with_description(decode::optional_text(row, 11)?)
    .with_result(decode::optional_text(row, 12)?)
    .in_generation(decode::generation(row.try_get(13)?)))
}

/// Returns the task with this id on a board.
pub(super) async fn find_task(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    id: &TaskId,
) -> Fallible<Option<Task>> {
    let row = sqlx::query(concat!(
        "SELECT ",
        task_columns!(),
        // A range and an order that only the primary key can serve. Without statistics the planner takes any
        // index that begins with the board, and would read the whole board by position.
        " FROM larder.tasks WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND id >= $4 AND id <= \
         $4
          ORDER BY id"
    ))
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(id.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(task).transpose()
}

/// Adds tasks to a board whose row is locked. Returns the number of tasks whose ids are new.
pub(super) async fn insert_tasks(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    tasks: &[Task],
) -> Fallible<u64> {
    let small = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let metadata =
        tasks.iter().map(|task| metadata_text(&task.metadata)).collect::<Fallible<Vec<String>>>()?;
    let descriptions: Vec<Option<&[u8]>> =
        tasks.iter().map(|task| task.description.as_ref().map(String::as_bytes)).collect();
    let inserted = sqlx::query(
        "INSERT INTO larder.tasks (namespace, conversation, agent, status, revision, retries, id, position, \
         retries_max,
                            title, metadata, description)
         SELECT $1, $2, $3, 'planned', $4, 0, given.*
         FROM unnest($5::text[], $6::bigint[], $7::integer[], $8::bytea[], $9::text[], $10::bytea[]) AS given
         ON CONFLICT (namespace, conversation, agent, id) DO NOTHING",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(tasks.first().map_or(0, |task| integer(task.revision.get())))
    .bind(tasks.iter().map(|task| task.id.as_str()).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| integer(task.position.get())).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| small(task.retries_max)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.title.as_bytes()).collect::<Vec<_>>())
    .bind(metadata)
    .bind(descriptions)
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected())
}

/// Writes the mutable fields of a task (all but its id, its position and its initial fields) at the board's
/// next revision. Returns that revision. The caller holds the lock of the board's row.
pub(super) async fn update_task(
    connection: &mut PgConnection,
    namespace: &Namespace,
    board: &BoardId,
    task: &Task,
) -> Fallible<Revision> {
    let lease = task.lease.as_ref();
    // The board's greatest token is that of its last claim; writing back an older one does not change it.
    let row = sqlx::query(
        "WITH board AS (
             UPDATE larder.boards SET last_revision = last_revision + 1, last_token = greatest(last_token, $8)
             WHERE namespace = $1 AND conversation = $2 AND agent = $3 RETURNING last_revision)
         UPDATE larder.tasks SET revision = board.last_revision, status = $5, retries = $6, lease_worker = $7,
                          lease_token = $8, lease_expires_ms = $9, result = $10
         FROM board WHERE namespace = $1 AND conversation = $2 AND agent = $3 AND position = $4
         RETURNING revision",
    )
    .bind(namespace.as_str())
    .bind(board.conversation.as_str())
    .bind(board.agent.as_str())
    .bind(integer(task.position.get()))
    .bind(task.status.as_str())
    .bind(i32::try_from(task.retries).unwrap_or(i32::MAX))
    .bind(lease.map(|lease| lease.worker.as_str()))
    .bind(lease.map(|lease| integer(lease.token.get())))
    .bind(lease.map(|lease| lease.expires_at.as_micros().div_euclid(1_000)))
    .bind(task.result.as_ref().map(String::as_bytes))
    .fetch_one(connection)
    .await?;
    Ok(Revision::new(decode::unsigned(&row, 0)?))
}

/// Returns a board from the columns of [`board_columns`].
pub(super) fn board(row: &PgRow) -> Fallible<Board> {
    Ok(Board::new(
        BoardId { conversation: decode::id(row, 0)?, agent: decode::id(row, 1)? },
        BoardStatusCounts::default()
            .with_planned(decode::unsigned(row, 4)?)
            .with_in_progress(decode::unsigned(row, 5)?)
            .with_blocked(decode::unsigned(row, 6)?)
            .with_succeeded(decode::unsigned(row, 7)?)
            .with_failed(decode::unsigned(row, 8)?)
            .with_abandoned(decode::unsigned(row, 9)?),
    )
    .with_parent(decode::optional_id(row, 2)?)
    .with_label(decode::optional_text(row, 3)?))
}
