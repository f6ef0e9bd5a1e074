//! Task boards with encrypted texts.

use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::limits::{TASK_TEXT_BYTES_MAX, TASK_TITLE_BYTES_MAX};
use larder_kernel::storage::task::{check_add_tasks, check_task_text};
use larder_kernel::{
    Board, BoardId, Capabilities, Claim, ConversationId, FencingToken, Lease, Metadata, Namespace, NewBoard,
    NewTask, Page, PageRequest, Result, RetryOutcome, Store, Task, TaskId, TaskPosition, TaskQuery,
    TaskStore, Transition, WorkerId,
};
use serde::{Deserialize, Serialize};

use super::ring::{Place, corrupt};
use super::{Sealed, shared};

shared!(
    TaskStore,
    [
        BoardLabel,
        BoardParent,
        TaskDescription,
        TaskMetadata,
        TasksStatuses,
        TransitionExpected,
        TransitionToken,
        TransitionResult
    ]
);

/// The title that the inner store receives.
const SEALED: &str = "sealed";

/// The texts of a task, encrypted into the description of the inner task.
#[derive(Serialize, Deserialize)]
struct Said {
    title: String,
    description: Option<String>,
    metadata: Metadata,
}

impl Sealed<dyn TaskStore> {
    fn place(&self, board: &BoardId, part: &str) -> Place {
        let place = Place::new("tasks", self.namespace().as_str()).at(part);
        place.at(board.conversation.as_str()).at(board.agent.as_str())
    }

    fn seal(&self, operation: &'static str, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<NewTask>> {
        let seal = |task: NewTask| {
            let place = self.place(board, "task").at(task.id.as_str());
            let said = Said { title: task.title, description: task.description, metadata: task.metadata };
            let sealed = self.ring.seal_text(operation, &place, &said, TASK_TEXT_BYTES_MAX)?;
            Ok(NewTask::new(task.id, SEALED).with_description(sealed).with_retries_max(task.retries_max))
        };
        tasks.into_iter().map(seal).collect()
    }

    fn open(&self, operation: &'static str, board: &BoardId, mut task: Task) -> Result<Task> {
        let place = self.place(board, "task").at(task.id.as_str());
        let sealed = task.description.as_deref().ok_or_else(|| corrupt(operation))?;
        let Said { title, description, metadata } = self.ring.open_text(operation, &place, sealed)?;
        let place = self.place(board, "result").at(task.id.as_str());
        task.result =
            task.result.map(|sealed| self.ring.open_text(operation, &place, &sealed)).transpose()?;
        (task.title, task.description, task.metadata) = (title, description, metadata);
        Ok(task)
    }

    fn open_board(&self, operation: &'static str, mut board: Board) -> Result<Board> {
        let place = self.place(&board.id, "label");
        let open = |sealed: String| self.ring.open_text(operation, &place, &sealed);
        board.label = board.label.map(open).transpose()?;
        Ok(board)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl TaskStore for Sealed<dyn TaskStore> {
    async fn create_task_list(&self, board: &BoardId, mut new: NewBoard) -> Result<Board> {
        const OPERATION: &str = "tasks.create_task_list";
        new.check()?;
        let place = self.place(board, "label");
        let seal = |label: String| self.ring.seal_text(OPERATION, &place, &label, TASK_TITLE_BYTES_MAX);
        new.label = new.label.map(seal).transpose()?;
        new.tasks = self.seal(OPERATION, board, new.tasks)?;
        let made = self.inner.create_task_list(board, new).await?;
        self.open_board(OPERATION, made)
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        const OPERATION: &str = "tasks.add_tasks";
        check_add_tasks(&tasks)?;
        let added = self.inner.add_tasks(board, self.seal(OPERATION, board, tasks)?).await?;
        added.into_iter().map(|task| self.open(OPERATION, board, task)).collect()
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        let found = self.inner.get_board(board).await?;
        found.map(|found| self.open_board("tasks.get_board", found)).transpose()
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        let found = self.inner.get_task(board, task).await?;
        found.map(|found| self.open("tasks.get_task", board, found)).transpose()
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        let Page { items, next, .. } = self.inner.list_tasks(board, query, page).await?;
        let open = |task| self.open("tasks.list_tasks", board, task);
        Ok(Page::new(items.into_iter().map(open).collect::<Result<_>>()?, next))
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        let Page { items, next, .. } = self.inner.list_boards(conversation, page).await?;
        let open = |board| self.open_board("tasks.list_boards", board);
        Ok(Page::new(items.into_iter().map(open).collect::<Result<_>>()?, next))
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, mut step: Transition) -> Result<Task> {
        const OPERATION: &str = "tasks.update_status";
        check_task_text(&step)?;
        let place = self.place(board, "result").at(task.as_str());
        let seal = |result: String| self.ring.seal_text(OPERATION, &place, &result, TASK_TEXT_BYTES_MAX);
        step.result = step.result.map(seal).transpose()?;
        let moved = self.inner.update_status(board, task, step).await?;
        self.open(OPERATION, board, moved)
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        const OPERATION: &str = "tasks.increment_retry";
        Ok(match self.inner.increment_retry(board, task, token).await? {
            RetryOutcome::Retried(task) => RetryOutcome::Retried(self.open(OPERATION, board, task)?),
            RetryOutcome::Exhausted(task) => RetryOutcome::Exhausted(self.open(OPERATION, board, task)?),
        })
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        let planned = self.inner.force_retry(board, task).await?;
        self.open("tasks.force_retry", board, planned)
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        self.inner.settle_conversation(conversation).await
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        let Some(Claim { task, token, .. }) = self.inner.claim(board, worker, lease).await? else {
            return Ok(None);
        };
        Ok(Some(Claim::new(self.open("tasks.claim", board, task)?, token)))
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        self.inner.renew_lease(board, task, token, lease).await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        self.inner.delete_board(board).await
    }
}
