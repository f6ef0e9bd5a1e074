//! Faulty task stores.

use std::sync::Arc;
use std::time::Duration;

use larder_agents::InMemoryTaskStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    Board, BoardId, Claim, ConversationId, ErrorKind, FencingToken, Lease, NewBoard, NewTask, Page,
    PageRequest, Result, RetryOutcome, Task, TaskId, TaskPosition, TaskQuery, TaskStatus, TaskStore,
    Transition, WorkerId,
};

use super::frame::{assert_caught, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Finds a free task, waits, and gives it to the caller, even if another worker has claimed it in
    /// between.
    TwoWinners,
    /// Accepts any token as the lease's.
    FencingIgnored,
    /// Compares the revision, waits, and changes the status.
    StepsLater,
    /// Reads the retries, waits, and increments them.
    RetriesLater,
    /// Counts the tasks to settle, waits, and settles them.
    SettlesLater,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let wrong = Wrong { inner: InMemoryTaskStore::open(place, namespace), defect };
        StoreSet { tasks: Some(Arc::new(wrong)), ..StoreSet::default() }
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryTaskStore,
    defect: Defect,
}

impl Wrong {
    async fn token(&self, board: &BoardId, task: &TaskId) -> Result<Option<FencingToken>> {
        let task = self.inner.get_task(board, task).await?;
        Ok(task.and_then(|task| task.lease).map(|lease| lease.token))
    }
}

wrong! {
    TaskStore for Wrong {
        async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
            if self.defect != Defect::TwoWinners {
                return self.inner.claim(board, worker, lease).await;
            }
            let planned = TaskQuery::in_statuses([TaskStatus::Planned]);
            let free = self.inner.list_tasks(board, &planned, PageRequest::first(1)).await?.items;
            pause().await;
            if let Some(free) = free.first() {
                let now = self.inner.get_task(board, &free.id).await?;
                if let Some(Lease { token, .. }) = now.as_ref().and_then(|task| task.lease.clone()) {
                    return Ok(now.map(|task| Claim { task, token }));
                }
            }
            self.inner.claim(board, worker, lease).await
        }

        async fn update_status(&self, board: &BoardId, task: &TaskId, mut step: Transition) -> Result<Task> {
            match self.defect {
                Defect::FencingIgnored if step.token.is_some() => {
                    step.token = self.token(board, task).await?;
                }
                Defect::StepsLater if step.expected.is_some() => {
                    let before = self.inner.get_task(board, task).await?.map(|task| task.revision);
                    if before == step.expected {
                        pause().await;
                        step.expected = None;
                    }
                }
                _ => {}
            }
            self.inner.update_status(board, task, step).await
        }

        async fn increment_retry(
            &self,
            board: &BoardId,
            task: &TaskId,
            token: Option<FencingToken>,
        ) -> Result<RetryOutcome> {
            let before = self.inner.get_task(board, task).await?;
            let outcome = self.inner.increment_retry(board, task, token).await;
            if self.defect != Defect::RetriesLater {
                return outcome;
            }
            pause().await;
            match (before, outcome) {
                (Some(before), Err(error))
                    if error.kind() == ErrorKind::Conflict && before.status.allows_retry() =>
                {
                    Ok(RetryOutcome::Retried(before))
                }
                (_, outcome) => outcome,
            }
        }

        async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
            if self.defect == Defect::SettlesLater {
                let board = BoardId::new(conversation.as_str(), "agent")?;
                let board = self.inner.get_board(&board).await?;
                pause().await;
                self.inner.settle_conversation(conversation).await?;
                return Ok(board.map_or(0, |board| board.tasks.in_progress));
            }
            self.inner.settle_conversation(conversation).await
        }
    }
    create_task_list(board: &BoardId, new: NewBoard) -> Board;
    add_tasks(board: &BoardId, tasks: Vec<NewTask>) -> Vec<Task>;
    get_board(board: &BoardId) -> Option<Board>;
    get_task(board: &BoardId, task: &TaskId) -> Option<Task>;
    list_tasks(board: &BoardId, query: &TaskQuery, page: PageRequest<TaskPosition>)
        -> Page<Task, TaskPosition>;
    list_boards(conversation: Option<&ConversationId>, page: PageRequest<BoardId>) -> Page<Board, BoardId>;
    force_retry(board: &BoardId, task: &TaskId) -> Task;
    renew_lease(board: &BoardId, task: &TaskId, token: FencingToken, lease: Duration) -> Lease;
    delete_board(board: &BoardId) -> bool;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn a_claim_with_two_winners_is_caught() {
    assert_caught(&["TASK-041"], &backend(Defect::TwoWinners));
}

#[test]
fn a_store_that_ignores_fencing_is_caught() {
    assert_caught(&["TASK-025"], &backend(Defect::FencingIgnored));
}

#[test]
fn a_transition_that_compares_first_and_writes_later_is_caught() {
    assert_caught(&["TASK-022", "TASK-025"], &backend(Defect::StepsLater));
}

#[test]
fn a_retry_granted_twice_is_caught() {
    assert_caught(&["TASK-033"], &backend(Defect::RetriesLater));
}

#[test]
fn a_settlement_that_counts_first_is_caught() {
    assert_caught(&["TASK-037", "TASK-020", "STORE-002"], &backend(Defect::SettlesLater));
}
