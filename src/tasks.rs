//! Task boards.

use std::time::Duration;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    BoardId, Claim, Error, ErrorKind, Lease, NewBoard, NewTask, PageRequest, Result, Task, TaskId, TaskQuery,
    TaskStatus, Transition, WorkerId,
};

use crate::handle::{handle, id};

handle!(
    /// Task boards: workers claim tasks under leases, and one of them gets each task.
    ///
    /// ```
    /// use larder::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let tasks = stores.tasks()?;
    /// let board = BoardId::new("session-1", "assistant")?;
    /// tasks.ensure_board(&board).await?;
    /// tasks.add(&board, "book", "Book the train").await?;
    /// while let Some(claim) = tasks.claim(&board, "worker-1", Duration::from_secs(30)).await? {
    ///     tasks.succeed(&board, &claim, "seat 61").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    Tasks,
    TaskStore,
    tasks
);

impl Tasks {
    /// Creates an empty board if it does not exist, and returns whether it created one. Any number of
    /// processes can make this call at startup.
    ///
    /// # Errors
    /// As [`create_task_list`](larder_kernel::TaskStore::create_task_list).
    pub async fn ensure_board(&self, board: &BoardId) -> Result<bool> {
        match self.create_task_list(board, NewBoard::default()).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds a task with three retries to a board. `add_tasks` adds many, with descriptions and metadata.
    ///
    /// # Errors
    /// As [`add_tasks`](larder_kernel::TaskStore::add_tasks); `AlreadyExists` if the board has a task of that
    /// id.
    pub async fn add(
        &self,
        board: &BoardId,
        task: impl TryInto<TaskId, Error: Into<Error>> + Send,
        title: impl Into<String> + Send,
    ) -> Result<Task> {
        let new = NewTask::new(id(task)?, title);
        let added = self.add_tasks(board, vec![new]).await?.pop();
        added.ok_or_else(|| Error::new(ErrorKind::Unexpected, "tasks.add", "the store returned no task"))
    }

    /// Claims the next task for a worker, for the length of a lease; `None` if no task can be claimed.
    ///
    /// # Errors
    /// As [`claim`](larder_kernel::TaskStore::claim).
    pub async fn claim(
        &self,
        board: &BoardId,
        worker: impl TryInto<WorkerId, Error: Into<Error>> + Send,
        lease: Duration,
    ) -> Result<Option<Claim>> {
        let worker = id(worker)?;
        self.provider().claim(board, &worker, lease).await
    }

    /// Extends the lease of a claim.
    ///
    /// # Errors
    /// As [`renew_lease`](larder_kernel::TaskStore::renew_lease); `Conflict` if another worker has claimed
    /// the task since.
    pub async fn extend(&self, board: &BoardId, claim: &Claim, lease: Duration) -> Result<Lease> {
        self.renew_lease(board, &claim.task.id, claim.token, lease).await
    }

    /// Ends a claimed task as succeeded, with its result.
    ///
    /// # Errors
    /// As [`update_status`](larder_kernel::TaskStore::update_status); `Conflict` if another worker has
    /// claimed the task since.
    pub async fn succeed(
        &self,
        board: &BoardId,
        claim: &Claim,
        result: impl Into<String> + Send,
    ) -> Result<Task> {
        let step = Transition::to(TaskStatus::Succeeded).with_token(claim.token).with_result(result);
        self.update_status(board, &claim.task.id, step).await
    }

    /// Ends a claimed task as failed, with the reason.
    ///
    /// # Errors
    /// As [`update_status`](larder_kernel::TaskStore::update_status); `Conflict` if another worker has
    /// claimed the task since.
    pub async fn fail(
        &self,
        board: &BoardId,
        claim: &Claim,
        reason: impl Into<String> + Send,
    ) -> Result<Task> {
        let step = Transition::to(TaskStatus::Failed).with_token(claim.token).with_result(reason);
        self.update_status(board, &claim.task.id, step).await
    }

    /// Lists all tasks of a board in their order.
    ///
    /// # Errors
    /// As [`list_tasks`](larder_kernel::TaskStore::list_tasks).
    pub async fn list(&self, board: &BoardId) -> Result<Vec<Task>> {
        let (mut tasks, mut page) = (Vec::new(), PageRequest::first(PAGE_ITEMS_MAX));
        loop {
            let found = self.list_tasks(board, &TaskQuery::default(), page).await?;
            tasks.extend(found.items);
            match found.next {
                Some(next) => page = PageRequest::after(next, PAGE_ITEMS_MAX),
                None => return Ok(tasks),
            }
        }
    }
}
