//! Task boards in SQLite: every step reads, decides and writes inside one transaction.

mod boards;
mod rows;
mod transitions;

use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::storage::task::{check_add_tasks, check_claim, check_task_text};
use larder_kernel::{
    Board, BoardId, Claim, ConversationId, FencingToken, Lease, Namespace, NewBoard, NewTask, Page,
    PageRequest, Result, RetryOutcome, Task, TaskId, TaskPosition, TaskQuery, TaskStore, Transition,
    WorkerId,
};

use super::engine::Engine;
use super::{Sqlite, capabilities};

const CREATE: &str = "tasks.create_task_list";
const ADD_TASKS: &str = "tasks.add_tasks";
const UPDATE: &str = "tasks.update_status";
const RETRY: &str = "tasks.increment_retry";
const CLAIM: &str = "tasks.claim";
const RENEW: &str = "tasks.renew_lease";

impl Sqlite {
    /// Returns the task store of `namespace`.
    #[must_use]
    pub fn tasks(&self, namespace: Namespace) -> SqliteTaskStore {
        SqliteTaskStore { engine: self.engine.clone(), namespace }
    }
}

/// A [`TaskStore`] in an SQLite file, created by [`Sqlite::tasks`].
#[derive(Clone)]
pub struct SqliteTaskStore {
    engine: Engine,
    namespace: Namespace,
}

store! {
    SqliteTaskStore as store,
    shows: { engine: &store.engine },
    capabilities: capabilities(&store.engine),
    options: [
        BoardLabel, BoardParent, TaskDescription, TaskMetadata,
        TasksStatuses, TransitionExpected, TransitionToken, TransitionResult
    ],
    erase: {
        let namespace = store.namespace.clone();
        store.engine.write("tasks.erase", move |connection| boards::erase(connection, &namespace)).await
    },
}

#[async_trait]
impl TaskStore for SqliteTaskStore {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        new.check()?;
        let (namespace, board) = (self.namespace.clone(), board.clone());
        self.engine.write(CREATE, move |connection| boards::create(connection, &namespace, &board, new)).await
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        check_add_tasks(&tasks)?;
        let (namespace, board) = (self.namespace.clone(), board.clone());
        self.engine
            .write(ADD_TASKS, move |connection| boards::add(connection, &namespace, &board, tasks))
            .await
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        let (namespace, board) = (self.namespace.clone(), board.clone());
        self.engine
            .read("tasks.get_board", move |connection| boards::get(connection, &namespace, &board))
            .await
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        let (namespace, board, task) = (self.namespace.clone(), board.clone(), task.clone());
        self.engine
            .read("tasks.get_task", move |connection| boards::get_task(connection, &namespace, &board, &task))
            .await
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        const OPERATION: &str = "tasks.list_tasks";
        page.check(OPERATION)?;
        let (namespace, board, query) = (self.namespace.clone(), board.clone(), query.clone());
        self.engine
            .read(OPERATION, move |connection| {
                boards::list_tasks(connection, &namespace, &board, &query, &page)
            })
            .await
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        const OPERATION: &str = "tasks.list_boards";
        page.check(OPERATION)?;
        let (namespace, conversation) = (self.namespace.clone(), conversation.cloned());
        self.engine
            .read(OPERATION, move |connection| {
                boards::list_boards(connection, &namespace, conversation.as_ref(), &page)
            })
            .await
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        check_task_text(&step)?;
        let (namespace, board, task) = (self.namespace.clone(), board.clone(), task.clone());
        self.engine
            .write(UPDATE, move |connection| {
                transitions::update_status(connection, &namespace, &board, &task, step)
            })
            .await
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        let (namespace, board, task) = (self.namespace.clone(), board.clone(), task.clone());
        self.engine
            .write(RETRY, move |connection| {
                transitions::increment_retry(connection, &namespace, &board, &task, token)
            })
            .await
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        let (namespace, board, task) = (self.namespace.clone(), board.clone(), task.clone());
        self.engine
            .write("tasks.force_retry", move |connection| {
                transitions::force_retry(connection, &namespace, &board, &task)
            })
            .await
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        let (namespace, conversation) = (self.namespace.clone(), conversation.clone());
        self.engine
            .write("tasks.settle_conversation", move |connection| {
                transitions::settle(connection, &namespace, &conversation)
            })
            .await
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        check_claim(CLAIM, lease)?;
        let (namespace, board, worker) = (self.namespace.clone(), board.clone(), worker.clone());
        self.engine
            .write(CLAIM, move |connection| {
                transitions::claim(connection, &namespace, &board, &worker, lease)
            })
            .await
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        check_claim(RENEW, lease)?;
        let (namespace, board, task) = (self.namespace.clone(), board.clone(), task.clone());
        self.engine
            .write(RENEW, move |connection| {
                transitions::renew(connection, &namespace, &board, &task, token, lease)
            })
            .await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        let (namespace, board) = (self.namespace.clone(), board.clone());
        self.engine
            .write("tasks.delete_board", move |connection| boards::delete(connection, &namespace, &board))
            .await
    }
}

#[cfg(test)]
mod tests;
