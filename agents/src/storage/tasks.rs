//! In-memory task boards.

mod board;
mod global;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::task::{check_add_tasks, check_claim, check_task_text};
use larder_kernel::{
    AgentId, Board, BoardId, Capabilities, Claim, ConversationId, Durability, Error, ErrorKind, FencingToken,
    Lease, Namespace, NewBoard, NewTask, OptionSet, Page, PageRequest, RequestOption, Result, RetryOutcome,
    Store, Task, TaskId, TaskPosition, TaskQuery, TaskStore, Transition, WorkerId,
};

use super::backend::{MemoryBackend, deadline_ms, default_namespace, now_ms};
use super::sharded_map::{Record, ShardedMap};
use board::{BoardState, Numbers, no_board};
pub use global::GlobalTaskStore;

/// The quota share of a board's counters, which remain after its deletion.
const NUMBERS_SHARE_BYTES: u64 = 256;

/// The boards of a conversation. They share a lock, so that settling the conversation is one atomic step.
#[derive(Default)]
struct Conversation {
    boards: BTreeMap<AgentId, (Numbers, Option<BoardState>)>,
    /// The quota share of the boards' names and counters.
    held: u64,
}

type Conversations = ShardedMap<ConversationId, Conversation>;

/// In-memory Kanban-style task boards.
///
/// The cost of a claim does not depend on the number of waiting or finished tasks.
///
/// ```
/// use std::time::Duration;
///
/// use larder_agents::storage::InMemoryTaskStore;
/// use larder_kernel::{BoardId, NewBoard, NewTask, TaskId, TaskStatus, TaskStore, Transition, WorkerId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryTaskStore::new();
/// let board = BoardId::new("conversation-1", "planner")?;
/// let task = NewTask::new(TaskId::new("shop")?, "Buy sugar");
/// store.create_task_list(&board, NewBoard::new(vec![task])).await?;
///
/// let worker = WorkerId::new("worker-1")?;
/// if let Some(claim) = store.claim(&board, &worker, Duration::from_secs(60)).await? {
///     let step = Transition::to(TaskStatus::Succeeded).with_token(claim.token).with_result("2 kg");
///     store.update_status(&board, &claim.task.id, step).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryTaskStore {
    backend: MemoryBackend,
    namespace: Namespace,
    conversations: Arc<Conversations>,
}

impl InMemoryTaskStore {
    /// Creates a store in a new backend, in the namespace `default`.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of `namespace` on `backend`. All handles with the same backend and namespace share it.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        let conversations = backend.namespace_state::<Conversations>(&namespace);
        Self { backend: backend.clone(), namespace, conversations }
    }

    /// Runs `work` on the board, if it exists.
    fn on_board<R>(
        &self,
        board: &BoardId,
        work: impl FnOnce(&mut BoardState, &mut Numbers) -> R,
    ) -> Option<R> {
        let found = self.conversations.read(&board.conversation, |conversation| {
            let (numbers, state) = conversation.boards.get_mut(&board.agent)?;
            Some(work(state.as_mut()?, numbers))
        });
        found.flatten()
    }

    /// Works as `on_board`, but a missing board is an error.
    fn on_board_or_fail<R>(
        &self,
        operation: &'static str,
        board: &BoardId,
        work: impl FnOnce(&mut BoardState, &mut Numbers) -> Result<R>,
    ) -> Result<R> {
        self.on_board(board, work).unwrap_or_else(|| Err(no_board(operation)))
    }
}

impl Record for Conversation {
    fn is_unused(&self) -> bool {
        self.boards.is_empty()
    }

    fn held(&self) -> u64 {
        let boards = self.boards.values().filter_map(|(_, state)| state.as_ref());
        self.held + boards.map(BoardState::held).sum::<u64>()
    }
}

impl Conversation {
    /// Returns up to `limit` boards after an agent.
    fn list(&self, conversation: &ConversationId, after: Option<&AgentId>, limit: usize) -> Vec<Board> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let boards =
            self.boards.range::<AgentId, _>((start, Bound::Unbounded)).filter_map(|(agent, (_, state))| {
                let id = BoardId { conversation: conversation.clone(), agent: agent.clone() };
                state.as_ref().map(|state| state.shown(id))
            });
        boards.take(limit).collect()
    }
}

impl Default for InMemoryTaskStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryTaskStore").field("backend", &self.backend).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryTaskStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::BoardLabel,
            RequestOption::BoardParent,
            RequestOption::TaskDescription,
            RequestOption::TaskMetadata,
            RequestOption::TasksStatuses,
            RequestOption::TransitionExpected,
            RequestOption::TransitionToken,
            RequestOption::TransitionResult,
        ])
    }

    async fn erase(&self) -> Result<()> {
        self.conversations.erase(|conversation| self.backend.release(conversation.held()));
        Ok(())
    }
}

#[async_trait]
impl TaskStore for InMemoryTaskStore {
    async fn create_task_list(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        const OPERATION: &str = "tasks.create_task_list";
        new.check()?;
        let make = || Ok(Conversation::default());
        self.conversations.write(&self.backend, &board.conversation, make, |conversation| {
            let there = conversation.boards.get(&board.agent);
            if there.is_some_and(|(_, state)| state.is_some()) {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    OPERATION,
                    "the board already exists; add tasks to it or use another id",
                ));
            }
            let names = size(board.conversation.as_str().len() + board.agent.as_str().len());
            let held = if there.is_some() { 0 } else { NUMBERS_SHARE_BYTES + names };
            self.backend.try_reserve(OPERATION, held + BoardState::share(&new))?;
            conversation.held += held;
            let (numbers, state) = conversation.boards.entry(board.agent.clone()).or_default();
            let made = state.insert(BoardState::new(numbers, new));
            Ok(made.shown(board.clone()))
        })
    }

    async fn add_tasks(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        const OPERATION: &str = "tasks.add_tasks";
        check_add_tasks(&tasks)?;
        self.on_board_or_fail(OPERATION, board, |state, numbers| state.add(&self.backend, numbers, tasks))
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        Ok(self.on_board(board, |state, _| state.shown(board.clone())))
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        Ok(self.on_board(board, |state, _| state.get(task).cloned()).flatten())
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        page.check("tasks.list_tasks")?;
        let place = self.conversations.read(&board.conversation, |conversation| {
            conversation.boards.get(&board.agent).map(|(numbers, _)| numbers.generation)
        });
        if let Some(after) = page.after {
            let place = TaskPosition::default().in_generation(place.flatten());
            after.check_generation("tasks.list_tasks", "page.after", place)?;
        }
        let tasks = self.on_board(board, |state, _| state.list(query, page.after, page.limit + 1));
        Ok(Page::from_surplus(tasks.unwrap_or_default(), page.limit, |task| task.position))
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        page.check("tasks.list_boards")?;
        let first = page.after.as_ref().map(|after| &after.conversation).max(conversation).cloned();
        let mut found = Vec::new();
        self.conversations.scan(first.map_or(Bound::Unbounded, Bound::Included), |id, state| {
            if found.len() > page.limit || conversation.is_some_and(|wanted| *wanted != id) {
                return ControlFlow::Break(());
            }
            let after = page.after.as_ref().filter(|after| after.conversation == id);
            let missing = page.limit + 1 - found.len();
            found.extend(state.list(&id, after.map(|after| &after.agent), missing));
            ControlFlow::Continue(())
        });
        Ok(Page::from_surplus(found, page.limit, |board| board.id.clone()))
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, step: Transition) -> Result<Task> {
        check_task_text(&step)?;
        self.on_board_or_fail("tasks.update_status", board, |state, numbers| {
            state.step(&self.backend, numbers, task, step)
        })
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        self.on_board_or_fail("tasks.increment_retry", board, |state, numbers| {
            state.retry(numbers, task, token)
        })
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        self.on_board_or_fail("tasks.force_retry", board, |state, numbers| {
            state.force_retry(&self.backend, numbers, task)
        })
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        let settled = self.conversations.read(conversation, |state| {
            let boards = state.boards.values_mut();
            boards.filter_map(|(numbers, board)| board.as_mut().map(|board| board.settle(numbers))).sum()
        });
        Ok(settled.unwrap_or(0))
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        check_claim("tasks.claim", lease)?;
        Ok(self.on_board(board, |state, numbers| state.claim(numbers, worker, lease, now_ms())).flatten())
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        const OPERATION: &str = "tasks.renew_lease";
        check_claim(OPERATION, lease)?;
        self.on_board_or_fail(OPERATION, board, |state, numbers| {
            state.renew(numbers, task, token, deadline_ms(now_ms(), lease))
        })
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        let removed = self.conversations.read(&board.conversation, |conversation| {
            conversation.boards.get_mut(&board.agent).and_then(|(_, state)| state.take())
        });
        let removed = removed.flatten();
        if let Some(state) = &removed {
            self.backend.release(state.held());
        }
        Ok(removed.is_some())
    }
}
