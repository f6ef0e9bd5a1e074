//! The state of one board, and the order in which it hands out tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use larder_kernel::check::size;
use larder_kernel::storage::task::{check_lease, check_transition};
use larder_kernel::{
    AgentId, Board, BoardId, BoardStatusCounts, Claim, Error, ErrorKind, FencingToken, Generation, Lease,
    NewBoard, NewTask, Result, RetryOutcome, Revision, Task, TaskId, TaskPosition, TaskQuery, TaskStatus,
    Transition, WorkerId,
};

use crate::storage::backend::{MemoryBackend, deadline_ms, timestamp};

/// The quota shares of a board and a task, apart from their content.
const BOARD_SHARE_BYTES: u64 = 512;
const TASK_SHARE_BYTES: u64 = 512;

/// The counters of a board. They continue if the board is deleted and created again.
pub(super) struct Numbers {
    pub(super) generation: Generation,
    revision: u64,
    token: u64,
    position: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { generation: Generation::draw(), revision: 0, token: 0, position: 0 }
    }
}

pub(super) struct BoardState {
    label: Option<String>,
    parent: Option<AgentId>,
    tasks: BTreeMap<u64, Task>,
    positions: HashMap<TaskId, u64>,
    counts: BoardStatusCounts,
    /// The positions of the planned tasks.
    planned: BTreeSet<u64>,
    /// The positions of the tasks in progress.
    running: BTreeSet<u64>,
    /// The ends of the leases that have not been found expired, with positions.
    leases: BTreeSet<(i64, u64)>,
    /// The positions of the tasks whose lease has expired. They can be claimed, but keep their token until
    /// then.
    lapsed: BTreeSet<u64>,
    /// The board's share of the quota.
    held: u64,
}

impl BoardState {
    /// Returns the quota share of a new board.
    pub(super) fn share(new: &NewBoard) -> u64 {
        let tasks: u64 = new.tasks.iter().map(new_task_share).sum();
        BOARD_SHARE_BYTES + size(new.label.as_ref().map_or(0, String::len)) + tasks
    }

    /// Creates a board whose quota share is reserved.
    pub(super) fn new(numbers: &mut Numbers, new: NewBoard) -> Self {
        let held = Self::share(&new);
        let mut board = Self {
            label: new.label,
            parent: new.parent,
            tasks: BTreeMap::new(),
            positions: HashMap::new(),
            counts: BoardStatusCounts::default(),
            planned: BTreeSet::new(),
            running: BTreeSet::new(),
            leases: BTreeSet::new(),
            lapsed: BTreeSet::new(),
            held,
        };
        board.insert(numbers, new.tasks);
        board
    }

    /// Returns the board's share of the quota.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn shown(&self, id: BoardId) -> Board {
        Board::new(id, self.counts).with_label(self.label.clone()).with_parent(self.parent.clone())
    }

    pub(super) fn add(
        &mut self,
        backend: &MemoryBackend,
        numbers: &mut Numbers,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Task>> {
        const OPERATION: &str = "tasks.add_tasks";
        if tasks.iter().any(|task| self.positions.contains_key(&task.id)) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                OPERATION,
                "the board already has a task with one of these ids; use new ids",
            ));
        }
        let bytes = tasks.iter().map(new_task_share).sum();
        backend.try_reserve(OPERATION, bytes)?;
        self.held += bytes;
        let before = numbers.position;
        self.insert(numbers, tasks);
        Ok(self
            .tasks
            .range((Bound::Excluded(before), Bound::Unbounded))
            .map(|(_, task)| task.clone())
            .collect())
    }

    pub(super) fn get(&self, task: &TaskId) -> Option<&Task> {
        self.tasks.get(self.positions.get(task)?)
    }

    /// Returns up to `limit` tasks that match the query, after a position.
    pub(super) fn list(&self, query: &TaskQuery, after: Option<TaskPosition>, limit: usize) -> Vec<Task> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.get()));
        let tasks = self.tasks.range((start, Bound::Unbounded)).map(|(_, task)| task);
        tasks.filter(|task| query.wants(task.status)).take(limit).cloned().collect()
    }

    pub(super) fn step(
        &mut self,
        backend: &MemoryBackend,
        numbers: &mut Numbers,
        id: &TaskId,
        step: Transition,
    ) -> Result<Task> {
        const OPERATION: &str = "tasks.update_status";
        let task = self.get(id).ok_or_else(|| no_task(OPERATION))?;
        check_transition(task, &step)?;
        let position = task.position.get();
        if let Some(result) = &step.result {
            let old_bytes = size(task.result.as_ref().map_or(0, String::len));
            backend.exchange(OPERATION, old_bytes, size(result.len()))?;
            self.held = self.held + size(result.len()) - old_bytes;
        }
        self.alter(numbers, position, |task| {
            task.status = step.to;
            task.lease = None;
            if step.result.is_some() {
                task.result = step.result;
            }
        })
        .ok_or_else(|| no_task(OPERATION))
    }

    pub(super) fn retry(
        &mut self,
        numbers: &mut Numbers,
        id: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        const OPERATION: &str = "tasks.increment_retry";
        let task = self.get(id).ok_or_else(|| no_task(OPERATION))?;
        if !task.status.allows_retry() {
            return Err(Error::new(
                ErrorKind::Conflict,
                OPERATION,
                "a task in this status cannot be retried; use `force_retry`",
            )
            .with_context("status", task.status.as_str()));
        }
        check_lease(OPERATION, task, token)?;
        if task.retries >= task.retries_max {
            return Ok(RetryOutcome::Exhausted(task.clone()));
        }
        let position = task.position.get();
        let retried = self.alter(numbers, position, |task| {
            task.status = TaskStatus::Planned;
            task.lease = None;
            task.retries += 1;
        });
        retried.map(RetryOutcome::Retried).ok_or_else(|| no_task(OPERATION))
    }

    pub(super) fn force_retry(
        &mut self,
        backend: &MemoryBackend,
        numbers: &mut Numbers,
        id: &TaskId,
    ) -> Result<Task> {
        const OPERATION: &str = "tasks.force_retry";
        let task = self.get(id).ok_or_else(|| no_task(OPERATION))?;
        let result_bytes = size(task.result.as_ref().map_or(0, String::len));
        let position = task.position.get();
        backend.release(result_bytes);
        self.held -= result_bytes;
        self.alter(numbers, position, |task| {
            task.status = TaskStatus::Planned;
            task.lease = None;
            task.result = None;
            task.retries = 0;
        })
        .ok_or_else(|| no_task(OPERATION))
    }

    /// Ends every task in progress and returns their number.
    pub(super) fn settle(&mut self, numbers: &mut Numbers) -> u64 {
        let running: Vec<u64> = self.running.iter().copied().collect();
        for position in &running {
            self.alter(numbers, *position, |task| {
                task.status = TaskStatus::Succeeded;
                task.lease = None;
            });
        }
        size(running.len())
    }

    /// Hands out the first claimable task. Each expired lease is examined once, so the cost does not grow
    /// with the board.
    pub(super) fn claim(
        &mut self,
        numbers: &mut Numbers,
        worker: &WorkerId,
        lease: Duration,
        now_ms: i64,
    ) -> Option<Claim> {
        while let Some(&(expires_at_ms, position)) = self.leases.first() {
            if expires_at_ms > now_ms {
                break;
            }
            self.leases.pop_first();
            self.lapsed.insert(position);
        }
        let position = self.planned.first().into_iter().chain(self.lapsed.first()).min().copied()?;
        numbers.token += 1;
        let token = FencingToken::new(numbers.token).in_generation(numbers.generation);
        let expires_at = timestamp(deadline_ms(now_ms, lease));
        let task = self.alter(numbers, position, |task| {
            task.status = TaskStatus::InProgress;
            task.lease = Some(Lease::new(worker.clone(), token, expires_at));
        })?;
        Some(Claim::new(task, token))
    }

    pub(super) fn renew(
        &mut self,
        numbers: &mut Numbers,
        id: &TaskId,
        token: FencingToken,
        ends_at_ms: i64,
    ) -> Result<Lease> {
        const OPERATION: &str = "tasks.renew_lease";
        let task = self.get(id).ok_or_else(|| no_task(OPERATION))?;
        check_lease(OPERATION, task, Some(token))?;
        let position = task.position.get();
        let renewed = self.alter(numbers, position, |task| {
            if let Some(lease) = &mut task.lease {
                lease.expires_at = timestamp(ends_at_ms);
            }
        });
        renewed.and_then(|task| task.lease).ok_or_else(|| no_task(OPERATION))
    }

    fn insert(&mut self, numbers: &mut Numbers, tasks: Vec<NewTask>) {
        for new in tasks {
            numbers.position += 1;
            numbers.revision += 1;
            let task = new.into_task(TaskPosition::new(numbers.position), Revision::new(numbers.revision));
            let task = task.in_generation(numbers.generation);
            self.positions.insert(task.id.clone(), numbers.position);
            self.index(&task);
            self.tasks.insert(numbers.position, task);
        }
    }

    /// Changes a task, assigns the next revision and updates the ordered sets.
    fn alter(
        &mut self,
        numbers: &mut Numbers,
        position: u64,
        change: impl FnOnce(&mut Task),
    ) -> Option<Task> {
        let mut task = self.tasks.remove(&position)?;
        self.unindex(&task);
        change(&mut task);
        numbers.revision += 1;
        task.revision = Revision::new(numbers.revision).in_generation(numbers.generation);
        self.index(&task);
        self.tasks.insert(position, task.clone());
        Some(task)
    }

    fn index(&mut self, task: &Task) {
        *self.counts.of_mut(task.status) += 1;
        let position = task.position.get();
        match task.status {
            TaskStatus::Planned => {
                self.planned.insert(position);
            }
            TaskStatus::InProgress => {
                self.running.insert(position);
            }
            _ => {}
        }
        if let Some(lease) = &task.lease {
            self.leases.insert((lease_end_ms(lease), position));
        }
    }

    fn unindex(&mut self, task: &Task) {
        *self.counts.of_mut(task.status) -= 1;
        let position = task.position.get();
        self.planned.remove(&position);
        self.running.remove(&position);
        self.lapsed.remove(&position);
        if let Some(lease) = &task.lease {
            self.leases.remove(&(lease_end_ms(lease), position));
        }
    }
}

fn lease_end_ms(lease: &Lease) -> i64 {
    lease.expires_at.as_micros().div_euclid(1_000)
}

pub(super) fn no_board(operation: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, "the board does not exist; create it first")
}

fn no_task(operation: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, "the board has no task with this id; check the id")
}

fn new_task_share(task: &NewTask) -> u64 {
    let text = task.title.len() + task.description.as_ref().map_or(0, String::len);
    TASK_SHARE_BYTES + size(task.id.as_str().len() + text + task.metadata.size_bytes())
}
