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

mod check;
mod types;

use std::time::Duration;

use async_trait::async_trait;

pub use check::{check_add_tasks, check_claim, check_lease, check_task_text, check_transition};
pub use types::{
    Board, BoardId, BoardStatusCounts, Claim, Lease, NewBoard, NewTask, RetryOutcome, Task, TaskPosition,
    TaskQuery, TaskStatus, Transition,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{ConversationId, FencingToken, TaskId, WorkerId};
use crate::page::{Page, PageRequest};

/// A store of task boards that assigns tasks to workers.
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait TaskStore: Store {
    /// Creates a board with its initial tasks, if any.
    ///
    /// - **TASK-001** The board reads back with its label, its parent and its tasks in the order given, all planned.
    /// - **TASK-002** A board that is there is `AlreadyExists` and stays as it is.
    /// - **TASK-003** Boards are separate by conversation and by agent.
    /// - **TASK-004** A board may name the board of another agent in the same conversation as its parent, which need not
    ///   exist.
    /// - **TASK-005** Of concurrent creations of one board, one succeeds and the others are `AlreadyExists`.
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
    /// - **TASK-006** The tasks follow those that are there, in the order given, planned, with the retries they ask for,
    ///   3 unless said.
    /// - **TASK-007** A task id that is on the board is `AlreadyExists`, and the batch adds nothing.
    /// - **TASK-008** A board that is not there is `NotFound`.
    /// - **TASK-009** Concurrent additions lose no task and give no position twice.
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
    /// - **TASK-010** A board that is not there is `None`.
    /// - **TASK-011** The counts by status are those of the tasks that can be read.
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
    /// - **TASK-012** A task reads back equal to what was written last; a task or a board that is not there is `None`.
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
    /// - **TASK-013** Exactly the tasks in the statuses asked for are listed, in the order they were added.
    /// - **TASK-014** Paging with any limit visits each task that matches throughout exactly once.
    /// - **TASK-015** A board that is not there lists nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
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
    /// - **TASK-016** Each board is listed once, in order, and paging with any limit misses none.
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
    /// - **TASK-020** Each step in the table succeeds, and the answer is the task as it now reads.
    /// - **TASK-021** Each step not in the table, to the same status included, is `Conflict` and changes nothing.
    /// - **TASK-022** With an expected revision, a task at another one is `Conflict` and stays as it is.
    /// - **TASK-023** Each change of a task gives it a greater revision.
    /// - **TASK-024** Of concurrent equal steps of one task, one succeeds and the others are `Conflict`.
    /// - **TASK-025** A task under a lease moves only with the lease's token; another token, or none, is `Conflict`.
    /// - **TASK-026** A step out of in progress ends the lease.
    /// - **TASK-027** A result given with the step is stored with the task; a step without leaves the one that is there.
    /// - **TASK-028** A task or a board that is not there is `NotFound`.
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
    /// - **TASK-030** A task with retries left has one more counted, is planned again and loses its lease.
    /// - **TASK-031** A task that has used its retries is answered as exhausted and stays as it is.
    /// - **TASK-032** A task that is planned, succeeded or abandoned is `Conflict`.
    /// - **TASK-033** Concurrent increments never count more retries than allowed.
    /// - **TASK-034** A task under a lease needs the lease's token, as for a step.
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
    /// - **TASK-035** The task is planned with 0 retries and without lease or result, whatever it was before.
    /// - **TASK-036** A task or a board that is not there is `NotFound`.
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
    /// - **TASK-037** Exactly the tasks in progress change, on all boards of the conversation, and the answer says how
    ///   many.
    /// - **TASK-038** Other conversations stay as they are, and settling twice changes nothing more.
    /// - **TASK-039** Settled tasks lose their lease, so their workers' tokens are stale.
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
    /// - **TASK-040** The first free task in board order becomes in progress, with the worker, a token and the lease's end.
    /// - **TASK-041** Of concurrent claims, each task goes to one worker.
    /// - **TASK-042** Each claim of a board has a greater token than those before.
    /// - **TASK-043** A task whose lease has passed is claimed again, and the earlier token is stale from then on.
    /// - **TASK-044** A task under a running lease, and one in progress without a lease, is not claimed.
    /// - **TASK-045** A board with nothing free, or that is not there, gives `None`.
    /// - **TASK-046** Until it is claimed again, a task whose lease has passed still obeys its token.
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
    /// - **TASK-047** The lease ends as far ahead as asked, the token stays, and the task's revision grows.
    /// - **TASK-048** A stale token, and a task without lease, is `Conflict`.
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
    /// - **TASK-050** The board and its tasks are gone, and other boards stay.
    /// - **TASK-051** A board made anew under the same id holds nothing of the old one, and its tokens and revisions go
    ///   on from there.
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
