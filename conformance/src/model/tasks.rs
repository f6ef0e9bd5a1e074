//! The model of [`TaskStore`].

mod board;
mod operation;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    AgentId, BoardId, Capabilities, Contract, FencingToken, PageRequest, Revision, Task, TaskId, TaskQuery,
    TaskStore,
};

use self::operation::Operation;
use super::compare::{Checked, holds};
use super::recorder::Recorder;
use super::rng::Rng;
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of boards.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    boards: BTreeMap<BoardId, Held>,
    /// All numbers that each board assigned; they outlive the board.
    given: BTreeMap<BoardId, Given>,
}

/// An existing board.
#[derive(Debug, Default)]
struct Held {
    label: Option<String>,
    parent: Option<AgentId>,
    /// The tasks in board order, with the positions and revisions that the store chose.
    tasks: Vec<Task>,
}

#[derive(Debug, Default)]
struct Given {
    tokens: Vec<FencingToken>,
    /// The largest revision of each task, and the previous one.
    revisions: BTreeMap<TaskId, (Revision, Revision)>,
}

impl Held {
    fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == *id)
    }
}

impl Tasks {
    fn task(&self, board: &BoardId, id: &TaskId) -> Option<&Task> {
        self.boards.get(board)?.task(id)
    }

    /// Replaces the model's task by the store's current one.
    fn put(&mut self, board: &BoardId, task: Task) {
        let given = self.given.entry(board.clone()).or_default();
        let known = given.revisions.entry(task.id.clone()).or_default();
        if task.revision > known.0 {
            *known = (task.revision, known.0);
        }
        if let Some(held) = self.boards.get_mut(board)
            && let Some(old) = held.tasks.iter_mut().find(|held| held.id == task.id)
        {
            *old = task;
        }
    }

    /// Compares the new revision of a task with its earlier revisions.
    fn check_revision(&self, board: &BoardId, id: &TaskId, got: Revision, recorder: &Recorder) -> Checked {
        let known = self.given.get(board).and_then(|given| given.revisions.get(id));
        let last = known.map_or(Revision::ZERO, |(last, _)| *last);
        let assertion = || format!("panic!(\"a revision not above {last}: {{:?}}\", {});", recorder.answer());
        holds("TASK-023", got > last, || format!("a revision above {last}"), &got, assertion)
    }
}

#[async_trait]
impl Subject for Tasks {
    const CONTRACT: Contract = Contract::Tasks;
    const FIELD: &'static str = "tasks";
    type Store = dyn TaskStore;
    type Operation = Operation;

    fn new(_declared: &Capabilities) -> Self {
        Self::default()
    }

    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>> {
        stores.tasks()
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Create { board, new } => self.create(store, (board, new), recorder).await,
            Operation::Add { board, tasks } => self.add(store, (board, tasks), recorder).await,
            Operation::Board { board } => self.board(store, board, recorder).await,
            Operation::Task { board, task } => self.read(store, (board, task), recorder).await,
            Operation::List { board, query, after, limit } => {
                self.list(store, (board, query, *after, *limit), recorder).await
            }
            Operation::Boards { conversation, page } => {
                self.list_boards(store, (conversation.as_ref(), page), recorder).await
            }
            Operation::Step { board, task, step } => self.update(store, (board, task, step), recorder).await,
            Operation::Retry { board, task, token } => {
                self.retry(store, (board, task, *token), recorder).await
            }
            Operation::Force { board, task } => self.force(store, (board, task), recorder).await,
            Operation::Settle { conversation } => self.settle(store, conversation, recorder).await,
            Operation::Claim { board, worker, lease } => {
                self.claim(store, (board, worker, *lease), recorder).await
            }
            Operation::Renew { board, task, token, lease } => {
                self.renew(store, (board, task, *token, *lease), recorder).await
            }
            Operation::Delete { board } => self.delete(store, board, recorder).await,
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.list_boards(store, (None, &PageRequest::first(10_000)), recorder).await?;
        let boards: Vec<BoardId> = self.given.keys().chain(self.boards.keys()).cloned().collect();
        for board in boards {
            self.list(store, (&board, &TaskQuery::default(), None, 10_000), recorder).await?;
        }
        Ok(())
    }
}
