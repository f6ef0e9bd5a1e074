//! Task boards in Postgres. Every step locks its board, then reads, decides and writes inside one
//! transaction. A claim is one statement.
//!
//! Leases expire by the database's clock, which is the same for all machines.

mod boards;
mod claim_batcher;
mod rows;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::storage::task::{check_add_tasks, check_claim, check_task_text};
use larder_kernel::{
    Board, BoardId, Claim, ConversationId, FencingToken, Lease, Namespace, NewBoard, NewTask, Page,
    PageRequest, Result, RetryOutcome, Task, TaskId, TaskPosition, TaskQuery, TaskStore, Transition,
    WorkerId,
};

pub(crate) use self::claim_batcher::ClaimBatcher;
use super::Postgres;
use super::engine::Engine;

const CREATE: &str = "tasks.create_task_list";
const ADD_TASKS: &str = "tasks.add_tasks";
const UPDATE: &str = "tasks.update_status";
const RETRY: &str = "tasks.increment_retry";
const FORCE_RETRY: &str = "tasks.force_retry";
const CLAIM: &str = "tasks.claim";
const RENEW: &str = "tasks.renew_lease";

impl Postgres {
    /// Returns the task store of `namespace`.
    #[must_use]
    pub fn tasks(&self, namespace: Namespace) -> PostgresTaskStore {
        PostgresTaskStore { engine: self.engine.clone(), claims: Arc::clone(&self.claims), namespace }
    }
}

/// A [`TaskStore`] in a Postgres database, created by [`Postgres::tasks`].
#[derive(Clone)]
pub struct PostgresTaskStore {
    engine: Engine,
    claims: Arc<ClaimBatcher>,
    namespace: Namespace,
}

store! {
    PostgresTaskStore as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [
        BoardLabel, BoardParent, TaskDescription, TaskMetadata,
        TasksStatuses, TransitionExpected, TransitionToken, TransitionResult
    ],
    erase: store.engine
        .transaction("tasks.erase", &store.namespace, |connection, namespace| {
            Box::pin(boards::erase(connection, namespace))
        })
        .await,
}

#[async_trait]
impl TaskStore for PostgresTaskStore {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        new.check()?;
        self.engine
            .transaction(CREATE, &(&self.namespace, board, &new), |connection, &(namespace, board, new)| {
                Box::pin(boards::create(connection, namespace, board, new))
            })
            .await
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        check_add_tasks(&tasks)?;
        self.engine
            .transaction(
                ADD_TASKS,
                &(&self.namespace, board, &tasks),
                |connection, &(namespace, board, tasks)| {
                    Box::pin(boards::add(connection, namespace, board, tasks))
                },
            )
            .await
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        self.engine
            .read("tasks.get_board", &(&self.namespace, board), |connection, &(namespace, board)| {
                Box::pin(boards::get(connection, namespace, board))
            })
            .await
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        self.engine
            .read(
                "tasks.get_task",
                &(&self.namespace, board, task),
                |connection, &(namespace, board, task)| {
                    Box::pin(rows::find_task(connection, namespace, board, task))
                },
            )
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
        self.engine
            .read(
                OPERATION,
                &(&self.namespace, board, query, &page),
                |connection, &(namespace, board, query, page)| {
                    Box::pin(boards::list_tasks(connection, namespace, board, query, page))
                },
            )
            .await
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        const OPERATION: &str = "tasks.list_boards";
        page.check(OPERATION)?;
        self.engine
            .read(
                OPERATION,
                &(&self.namespace, conversation, &page),
                |connection, &(namespace, conversation, page)| {
                    Box::pin(boards::list_boards(connection, namespace, conversation, page))
                },
            )
            .await
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        check_task_text(&step)?;
        self.engine
            .transaction(
                UPDATE,
                &(&self.namespace, board, task, &step),
                |connection, &(namespace, board, task, step)| {
                    Box::pin(steps::update_status(connection, namespace, board, task, step))
                },
            )
            .await
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        self.engine
            .transaction(
                RETRY,
                &(&self.namespace, board, task, token),
                |connection, &(namespace, board, task, token)| {
                    Box::pin(steps::increment_retry(connection, namespace, board, task, token))
                },
            )
            .await
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        self.engine
            .transaction(
                FORCE_RETRY,
                &(&self.namespace, board, task),
                |connection, &(namespace, board, task)| {
                    Box::pin(steps::force_retry(connection, namespace, board, task))
                },
            )
            .await
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        self.engine
            .transaction(
                "tasks.settle_conversation",
                &(&self.namespace, conversation),
                |connection, &(namespace, conversation)| {
                    Box::pin(steps::settle(connection, namespace, conversation))
                },
            )
            .await
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        check_claim(CLAIM, lease)?;
        claim_batcher::claim(&self.claims, &self.namespace, board, worker, lease).await
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        check_claim(RENEW, lease)?;
        self.engine
            .transaction(
                RENEW,
                &(&self.namespace, board, task, token, lease),
                |connection, &(namespace, board, task, token, lease)| {
                    Box::pin(steps::renew(connection, namespace, board, task, token, lease))
                },
            )
            .await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        self.engine
            .transaction(
                "tasks.delete_board",
                &(&self.namespace, board),
                |connection, &(namespace, board)| Box::pin(boards::delete(connection, namespace, board)),
            )
            .await
    }
}
