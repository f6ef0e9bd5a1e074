//! Task boards in Redis: every step is one script, so its decision and its write are atomic.
//!
//! The boards of a conversation share a slot, because settling a conversation is one step. So a conversation
//! is limited to the memory of one server of a cluster. Leases expire by the server's clock. A claim reads
//! the heads of two sorted sets, one of planned tasks and one of tasks by lease expiry, for any number of
//! tasks.
//!
//! Scripts count in floating point. So a board assigns up to 2^53 - 1 revisions and tokens and 2^50 - 1
//! positions, and then fails with `ResourceExhausted`. One call adds at most 256 MiB of tasks.

mod boards;
mod conversation;
mod rows;
mod scripts;
mod steps;
pub(super) mod verify;

use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::storage::task::{check_add_tasks, check_claim, check_task_text};
use larder_kernel::{
    Board, BoardId, Claim, ConversationId, FencingToken, Lease, Namespace, NewBoard, NewTask, Page,
    PageRequest, Result, RetryOutcome, Task, TaskId, TaskPosition, TaskQuery, TaskStore, Transition,
    WorkerId,
};

use super::Redis;
use super::engine::Engine;
use super::index::Index;

const CREATE: &str = "tasks.create_task_list";
const ADD_TASKS: &str = "tasks.add_tasks";
const UPDATE: &str = "tasks.update_status";
const RETRY: &str = "tasks.increment_retry";
const FORCE_RETRY: &str = "tasks.force_retry";
const CLAIM: &str = "tasks.claim";
const RENEW: &str = "tasks.renew_lease";

impl Redis {
    /// Returns the task store of `namespace`.
    #[must_use]
    pub fn tasks(&self, namespace: Namespace) -> RedisTaskStore {
        let index = Index::new(self.engine.prefix(), "tasks", &namespace);
        RedisTaskStore { engine: self.engine.clone(), index, namespace }
    }
}

/// A [`TaskStore`] on a Redis server or cluster, created by [`Redis::tasks`].
#[derive(Clone)]
pub struct RedisTaskStore {
    engine: Engine,
    index: Index,
    namespace: Namespace,
}

store! {
    RedisTaskStore as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [
        BoardLabel, BoardParent, TaskDescription, TaskMetadata,
        TasksStatuses, TransitionExpected, TransitionToken, TransitionResult
    ],
    erase: store.empty("tasks.erase").await,
}

#[async_trait]
impl TaskStore for RedisTaskStore {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        new.check()?;
        self.create(board, new).await
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        check_add_tasks(&tasks)?;
        self.add(board, tasks).await
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        self.read_board("tasks.get_board", board).await
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        self.read_task("tasks.get_task", board, task).await
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        const OPERATION: &str = "tasks.list_tasks";
        page.check(OPERATION)?;
        self.page_of_tasks(OPERATION, board, query, &page).await
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        const OPERATION: &str = "tasks.list_boards";
        page.check(OPERATION)?;
        self.page_of_boards(OPERATION, conversation, &page).await
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        check_task_text(&step)?;
        self.update(board, task, &step).await
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        self.retry(board, task, token).await
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        self.force(board, task).await
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        self.settle("tasks.settle_conversation", conversation).await
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        check_claim(CLAIM, lease)?;
        self.take(board, worker, lease).await
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        check_claim(RENEW, lease)?;
        self.renew(board, task, token, lease).await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        self.delete("tasks.delete_board", board).await
    }
}
