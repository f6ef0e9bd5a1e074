//! Task boards: the contract of [`TaskStore`].
//!
//! A board belongs to an agent in a conversation and contains tasks in the order in which they were added.
//! Every transition of a task is a compare-and-set in the store, so several workers can share a board. Leases
//! and fencing tokens follow Gray and Cheriton (1989) and Kleppmann (2016).
//!
//! [`update_status`](TaskStore::update_status) changes the status of a task along this table only:
//!
//! | from | to |
//! |---|---|
//! | planned | in progress, blocked, abandoned |
//! | in progress | planned, blocked, succeeded, failed, abandoned |
//! | blocked | planned, in progress, failed, abandoned |
//! | failed | abandoned |
//! | succeeded | |
//! | abandoned | |
//!
//! Four other methods change the status too. `increment_retry` returns a task that is in progress, blocked or
//! failed to planned. `force_retry` returns any task to planned. `claim` moves a planned task to in progress.
//! `settle_conversation` moves tasks in progress to succeeded.

mod board;
mod check;
mod types;

use std::time::Duration;

use async_trait::async_trait;

pub use board::{Board, BoardId, BoardStatusCounts, NewBoard};
pub use check::{check_add_tasks, check_claim, check_lease, check_task_text, check_transition};
pub use types::{Claim, Lease, NewTask, RetryOutcome, Task, TaskQuery, TaskStatus, Transition};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{ConversationId, TaskId, WorkerId};
use crate::page::{Page, PageRequest};
use crate::position::{FencingToken, TaskPosition};

/// A store of task boards that assigns tasks to workers.
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait TaskStore: Store {
    /// Creates a board with its initial tasks, if any.
    ///
    /// - **TASK-001** A board reads back with its label, its parent and its tasks in the order given, all
    ///   planned.
    /// - **TASK-002** Creating a board that exists fails with `AlreadyExists` and does not change that board.
    /// - **TASK-003** Boards of different conversations or different agents are separate.
    /// - **TASK-004** A board may name the board of another agent in the same conversation as its parent, and
    ///   the parent need not exist.
    /// - **TASK-005** Of concurrent creations of one board, exactly one succeeds, and the others fail with
    ///   `AlreadyExists`.
    ///
    /// # Errors
    /// `InvalidInput` for more than 1,000 tasks, a duplicate id, an empty title, a text over its limit, more
    /// than 1,000 retries, or refused metadata; `AlreadyExists`; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The board and its tasks are created completely or not at all.
    ///
    /// # Complexity
    /// O(tasks).
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        Err(Error::not_implemented("tasks.create_task_list"))
    }

    /// Adds tasks at the end of a board.
    ///
    /// - **TASK-006** Added tasks follow the existing tasks in the order given, are planned, and have the
    ///   retries that they request, or 3 by default.
    /// - **TASK-007** Adding a task id that the board already contains fails with `AlreadyExists`, and the
    ///   batch adds nothing.
    /// - **TASK-008** Adding tasks to a board that does not exist fails with `NotFound`.
    /// - **TASK-009** Concurrent additions lose no task and assign no position twice.
    /// - **TASK-052** Every position, revision and token of a board names one generation, which remains after
    ///   the deletion of the board and is another one after an erasure.
    ///
    /// # Errors
    /// `InvalidInput` for 0 tasks or for the reasons of [`create_task_list`](Self::create_task_list);
    /// `NotFound`; `AlreadyExists`.
    ///
    /// # Cancellation
    /// All tasks are added, or none.
    ///
    /// # Complexity
    /// O(tasks added).
    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        Err(Error::not_implemented("tasks.add_tasks"))
    }

    /// Reads a board without its tasks.
    ///
    /// - **TASK-010** `get_board` returns `None` for a board that does not exist.
    /// - **TASK-011** The counts by status cover exactly the tasks that can be read.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(tasks of the board), or better.
    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        Err(Error::not_implemented("tasks.get_board"))
    }

    /// Reads one task.
    ///
    /// - **TASK-012** A task reads back equal to its last write, and a task or a board that does not exist
    ///   reads as `None`.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1).
    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        Err(Error::not_implemented("tasks.get_task"))
    }

    /// Lists a board's tasks in board order, optionally only those in some statuses.
    ///
    /// - **TASK-013** Exactly the tasks in the requested statuses are listed, in the order in which they were
    ///   added.
    /// - **TASK-014** Paging with any limit returns every matching task that exists for the whole listing
    ///   exactly once.
    /// - **TASK-015** Listing the tasks of a board that does not exist returns an empty page.
    /// - **TASK-053** A page after a position of another generation than the board's fails with `Conflict`,
    ///   also if the board does not exist.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000; `Conflict` as described above.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus the cost of skipping tasks in other statuses.
    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        Err(Error::not_implemented("tasks.list_tasks"))
    }

    /// Lists the boards of one conversation or of all conversations, in the byte order of conversation and
    /// then agent.
    ///
    /// - **TASK-016** Each board is listed once, in order, and paging with any limit misses no board.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus O(tasks of the boards listed).
    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        Err(Error::not_implemented("tasks.list_boards"))
    }

    /// Changes the status of a task along the table of transitions.
    ///
    /// - **TASK-020** Each transition in the table succeeds and returns the task as it reads after the
    ///   transition.
    /// - **TASK-021** Each transition that is not in the table, including one to the same status, fails with
    ///   `Conflict` and changes nothing.
    /// - **TASK-022** With an expected revision, a transition of a task at another revision fails with
    ///   `Conflict` and does not change the task.
    /// - **TASK-023** Each change of a task gives the task a greater revision.
    /// - **TASK-024** Of concurrent equal transitions of one task, exactly one succeeds, and the others fail
    ///   with `Conflict`.
    /// - **TASK-025** A task under a lease changes status only with the lease's token, and a transition with
    ///   another token or none fails with `Conflict`.
    /// - **TASK-026** A transition out of in progress ends the lease.
    /// - **TASK-027** A result given with the transition is stored with the task, and a transition without a
    ///   result keeps the stored one.
    /// - **TASK-028** A transition of a task or on a board that does not exist fails with `NotFound`.
    /// - **TASK-054** A transition, a retry or a renewal with a revision or a token of another generation
    ///   than the board's fails with `Conflict` and does not change the task, even if the number is right.
    ///
    /// # Errors
    /// `InvalidInput` for a result over 1 MiB; `NotFound`; `Conflict`.
    ///
    /// # Cancellation
    /// The transition happens completely or not at all.
    ///
    /// # Complexity
    /// O(1).
    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        Err(Error::not_implemented("tasks.update_status"))
    }

    /// Returns a task to planned for another try, if it has a retry left.
    ///
    /// - **TASK-030** For a task with retries left, `increment_retry` counts one more retry, returns the task
    ///   to planned and ends its lease.
    /// - **TASK-031** For a task that has used all its retries, `increment_retry` returns `Exhausted` and
    ///   does not change the task.
    /// - **TASK-032** For a task that is planned, succeeded or abandoned, `increment_retry` fails with
    ///   `Conflict`.
    /// - **TASK-033** Concurrent increments never count more retries than the task allows.
    /// - **TASK-034** For a task under a lease, `increment_retry` needs the lease's token, as a transition
    ///   does.
    ///
    /// # Errors
    /// `NotFound`; `Conflict`.
    ///
    /// # Cancellation
    /// The retry is counted or the task is unchanged.
    ///
    /// # Complexity
    /// O(1).
    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        Err(Error::not_implemented("tasks.increment_retry"))
    }

    /// Returns a task in any status to planned and resets its retry count. This is a manual override.
    ///
    /// - **TASK-035** The task becomes planned with 0 retries and without lease or result, regardless of its
    ///   status before.
    /// - **TASK-036** Forcing a retry of a task or on a board that does not exist fails with `NotFound`.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// # Cancellation
    /// The task is reset or unchanged.
    ///
    /// # Complexity
    /// O(1).
    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        Err(Error::not_implemented("tasks.force_retry"))
    }

    /// Completes the running tasks of a conversation: every task in progress on any of its boards becomes
    /// succeeded.
    ///
    /// - **TASK-037** Exactly the tasks in progress on all boards of the conversation change, and
    ///   `settle_conversation` returns their number.
    /// - **TASK-038** Other conversations do not change, and settling a second time changes nothing.
    /// - **TASK-039** Settled tasks lose their leases, so the tokens of their workers are stale.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// All tasks are settled, or none.
    ///
    /// # Complexity
    /// O(tasks in progress).
    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        Err(Error::not_implemented("tasks.settle_conversation"))
    }

    /// Assigns the first free task to a worker, under a lease.
    ///
    /// A task is free if it is planned, or if it is in progress and its lease has expired by the store's
    /// clock.
    ///
    /// - **TASK-040** The first free task in board order becomes in progress and gets the worker, a token and
    ///   the end of the lease.
    /// - **TASK-041** Concurrent claims assign each task to one worker only.
    /// - **TASK-042** Each claim on a board has a greater token than all earlier claims on that board.
    /// - **TASK-043** A task whose lease has expired is claimed again, and the earlier token is stale from
    ///   that claim on.
    /// - **TASK-044** A task under a running lease is not claimed, and neither is a task in progress without
    ///   a lease.
    /// - **TASK-045** `claim` returns `None` if the board has no free task or does not exist.
    /// - **TASK-046** A task whose lease has expired still accepts the token of that lease until the task is
    ///   claimed again.
    ///
    /// # Errors
    /// `InvalidInput` for a lease of less than 1 ms or more than 100 years.
    ///
    /// # Cancellation
    /// If the future is dropped, a task may remain claimed until its lease expires.
    ///
    /// # Complexity
    /// Independent of the number of planned or finished tasks.
    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        Err(Error::not_implemented("tasks.claim"))
    }

    /// Extends a lease from now.
    ///
    /// - **TASK-047** The lease ends after the requested duration from now, the token does not change, and
    ///   the task's revision increases.
    /// - **TASK-048** Renewing with a stale token, or renewing a task without a lease, fails with `Conflict`.
    ///
    /// # Errors
    /// `InvalidInput` for the reasons of [`claim`](Self::claim); `NotFound`; `Conflict`.
    ///
    /// # Cancellation
    /// The lease is renewed or unchanged.
    ///
    /// # Complexity
    /// O(1).
    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        Err(Error::not_implemented("tasks.renew_lease"))
    }

    /// Removes a board with its tasks. Returns `true` if the board existed.
    ///
    /// - **TASK-050** The board and its tasks no longer exist, and other boards do not change.
    /// - **TASK-051** A board created again under the same id contains nothing of the old board, and its
    ///   tokens and revisions continue from those of the old board.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// The removal happens completely or not at all.
    ///
    /// # Complexity
    /// O(tasks of the board).
    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        Err(Error::not_implemented("tasks.delete_board"))
    }
}
