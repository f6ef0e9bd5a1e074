//! Task boards: the contract of [`TaskStore`].
//!
//! A board belongs to an agent in a conversation and holds tasks in the order they were added. Every step of a task is a
//! compare-and-set in the store, so that several workers can share a board. Definitions: RAVI-16 to RAVI-18; leases and
//! fencing tokens after Gray and Cheriton (1989) and Kleppmann (2016).
//!
//! A task moves by [`update_status`](TaskStore::update_status) along this table, and by no other step:
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
//! `increment_retry` takes a task that is in progress, blocked or failed back to planned; `force_retry` takes any task
//! there; `claim` takes a planned task to in progress; `settle_conversation` takes what is in progress to succeeded.

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

/// Stores boards of tasks and hands tasks to workers.
// The default bodies use none of their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait TaskStore: Store {
    /// Makes a board with its first tasks, which may be none.
    ///
    /// - **TASK-001** The board reads back with its label, its parent and its tasks in the order given, all planned.
    /// - **TASK-002** A board that is there is `AlreadyExists` and stays as it is.
    /// - **TASK-003** Boards are separate by conversation and by agent.
    /// - **TASK-004** A board may name the board of another agent in the same conversation as its parent, which need not
    ///   exist.
    /// - **TASK-005** Of concurrent creations of one board, one succeeds and the others are `AlreadyExists`.
    ///
    /// # Errors
    /// `InvalidInput` for more than 1,000 tasks, an id named twice, an empty title, a text over its limit, more than 1,000 retries, or
    /// refused metadata; `AlreadyExists`; `ResourceExhausted` at a cap.
    ///
    /// # Cancellation
    /// Board and tasks are made whole or not at all.
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
    /// `InvalidInput` for 0 tasks or as [`create_task_list`](Self::create_task_list); `NotFound`, `AlreadyExists`.
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
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// Nothing to undo.
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
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(1).
    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        Err(Error::not_implemented("tasks.get_task"))
    }

    /// Lists a board's tasks in board order, all or those in some statuses.
    ///
    /// - **TASK-013** Exactly the tasks in the statuses asked for are listed, in the order they were added.
    /// - **TASK-014** Paging with any limit visits each task that matches throughout exactly once.
    /// - **TASK-015** A board that is not there lists nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(limit) beyond skipping tasks in other statuses.
    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        Err(Error::not_implemented("tasks.list_tasks"))
    }

    /// Lists boards, of one conversation or of all, in the byte order of conversation and then agent.
    ///
    /// - **TASK-016** Each board is listed once, in order, and paging with any limit misses none.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(limit and the tasks of the boards listed).
    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        Err(Error::not_implemented("tasks.list_boards"))
    }

    /// Moves a task along the table of transitions.
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
    /// `InvalidInput` for a result over 1 MiB; `NotFound`, `Conflict`.
    ///
    /// # Cancellation
    /// The step is taken or not taken.
    ///
    /// # Complexity
    /// O(1).
    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        Err(Error::not_implemented("tasks.update_status"))
    }

    /// Takes a task back to planned for another try, if it has one left.
    ///
    /// - **TASK-030** A task with retries left has one more counted, is planned again and loses its lease.
    /// - **TASK-031** A task that has used its retries is answered as exhausted and stays as it is.
    /// - **TASK-032** A task that is planned, succeeded or abandoned is `Conflict`.
    /// - **TASK-033** Concurrent increments never count more retries than allowed.
    /// - **TASK-034** A task under a lease needs the lease's token, as for a step.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`.
    ///
    /// # Cancellation
    /// Counted or not counted.
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

    /// Takes a task in any status back to planned with no retries counted: a person's override.
    ///
    /// - **TASK-035** The task is planned with 0 retries and without lease or result, whatever it was before.
    /// - **TASK-036** A task or a board that is not there is `NotFound`.
    ///
    /// # Errors
    /// `NotFound`.
    ///
    /// # Cancellation
    /// Done or not done.
    ///
    /// # Complexity
    /// O(1).
    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        Err(Error::not_implemented("tasks.force_retry"))
    }

    /// Ends what a conversation left running: every task in progress on any of its boards becomes succeeded.
    ///
    /// - **TASK-037** Exactly the tasks in progress change, on all boards of the conversation, and the answer says how
    ///   many.
    /// - **TASK-038** Other conversations stay as they are, and settling twice changes nothing more.
    /// - **TASK-039** Settled tasks lose their lease, so their workers' tokens are stale.
    ///
    /// # Errors
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// All tasks are settled, or none.
    ///
    /// # Complexity
    /// O(tasks in progress).
    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        Err(Error::not_implemented("tasks.settle_conversation"))
    }

    /// Gives a worker the first task that is free, under a lease.
    ///
    /// Free is a planned task, or one in progress whose lease has passed on the store's clock.
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
    /// A claim that is dropped may hold a task until its lease passes.
    ///
    /// # Complexity
    /// Independent of how many tasks are planned or finished.
    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        Err(Error::not_implemented("tasks.claim"))
    }

    /// Prolongs a lease from now.
    ///
    /// - **TASK-047** The lease ends as far ahead as asked, the token stays, and the task's revision grows.
    /// - **TASK-048** A stale token, and a task without lease, is `Conflict`.
    ///
    /// # Errors
    /// `InvalidInput` as [`claim`](Self::claim); `NotFound`, `Conflict`.
    ///
    /// # Cancellation
    /// Prolonged or not prolonged.
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

    /// Removes a board with its tasks, and says whether it was there.
    ///
    /// - **TASK-050** The board and its tasks are gone, and other boards stay.
    /// - **TASK-051** A board made anew under the same id holds nothing of the old one, and its tokens and revisions go
    ///   on from there.
    ///
    /// # Errors
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// Removed or not removed.
    ///
    /// # Complexity
    /// O(tasks of the board).
    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        Err(Error::not_implemented("tasks.delete_board"))
    }
}
