//! A client of a task board.

use std::collections::BTreeMap;

use async_trait::async_trait;
use larder_kernel::{
    BoardId, Contract, ErrorKind, NewBoard, NewTask, PageRequest, Result, Revision, Task, TaskId, TaskQuery,
    TaskStatus, Transition,
};

use super::cell::Cell;
use super::{
    Answer, Defect, Ended, Held, Op, OracleClient, Random, filler, is_outage, other_contract, unexplained,
};
use crate::harness::StoreSet;

/// The number of attempts for a batch. After that the client gives it up.
const TRIES_MAX: u32 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The tasks may exist, all or none.
    Open,
    There,
    Absent,
}

#[derive(Debug)]
struct Batch {
    tasks: std::ops::Range<usize>,
    tries: u32,
    state: State,
}

#[derive(Debug)]
pub(crate) struct TaskClient {
    era: String,
    random: Random,
    /// The number of attempts to create the board, and its state.
    board: (u32, State),
    batches: Vec<Batch>,
    tasks: Vec<Cell>,
    again: Option<usize>,
    number: u64,
}

impl TaskClient {
    pub(crate) fn new(era: &str, random: Random) -> Self {
        Self {
            era: era.to_owned(),
            random,
            board: (0, State::Absent),
            batches: Vec::new(),
            tasks: Vec::new(),
            again: None,
            number: 0,
        }
    }

    fn board(&self) -> Result<BoardId> {
        BoardId::new(&self.era, "client")
    }

    fn add(&mut self, batch: usize) -> Op {
        self.batches[batch].tries += 1;
        Op::Add { batch, count: self.batches[batch].tasks.len() }
    }

    /// Returns a step that the transition table allows, on a task of known state.
    fn step(&mut self) -> Option<Op> {
        let known = |task: &Cell| !task.retired && task.base.version.is_some();
        let live: Vec<usize> = (0..self.tasks.len()).filter(|slot| known(&self.tasks[*slot])).collect();
        if live.is_empty() {
            return None;
        }
        let slot = live[self.random.index(live.len())];
        if !self.tasks[slot].looked || self.random.once_in(4) {
            return Some(Op::ReadTask { slot });
        }
        let from = TaskStatus::ALL[usize::from(self.tasks[slot].base.mark)];
        let allowed: Vec<TaskStatus> =
            TaskStatus::ALL.iter().copied().filter(|to| from.allows(*to)).collect();
        if allowed.is_empty() {
            return Some(Op::ReadTask { slot });
        }
        let to = allowed[self.random.index(allowed.len())];
        let at = self.tasks[slot].base.version?;
        self.number += 1;
        self.tasks[slot].begin(Held { number: Some(self.number), version: None, mark: mark(to) });
        Some(Op::Step { slot, number: self.number, to, at })
    }

    fn settle_board(&mut self, ended: Ended) -> Option<Defect> {
        match ended {
            Ended::Done(_) => self.board.1 = State::There,
            Ended::Refused(error) if error.kind() == ErrorKind::AlreadyExists => {
                let first = self.board.0 == 1 || self.board.1 == State::Absent;
                self.board.1 = State::There;
                if first {
                    let finding = "a new board is refused as an existing one: the call met its own effect, \
                                   or that of one reported as not applied";
                    return Some(Defect::new("STORE-013", finding));
                }
            }
            Ended::Refused(error) => {
                if self.board.0 == 1 {
                    self.board.1 = State::Absent;
                }
                return unexplained(Some(&error), &Op::MakeBoard);
            }
            Ended::Open(error) => {
                self.board.1 = State::Open;
                return unexplained(error.as_ref(), &Op::MakeBoard);
            }
        }
        None
    }

    fn settle_add(&mut self, batch: usize, ended: Ended) -> Option<Defect> {
        self.again = None;
        let of = &mut self.batches[batch];
        let op = Op::Add { batch, count: of.tasks.len() };
        match ended {
            Ended::Done(Answer::Numbers(revisions)) => {
                of.state = State::There;
                let known = revisions.len() == of.tasks.len();
                for (slot, revision) in of.tasks.clone().zip(revisions) {
                    self.tasks[slot].done(Held { version: Some(revision), ..Held::default() });
                }
                (!known)
                    .then(|| Defect::new("TASK-006", format!("{op:?} answered with another number of tasks")))
            }
            Ended::Done(_) => None,
            Ended::Refused(error) if error.kind() == ErrorKind::AlreadyExists => {
                let first = of.tries == 1;
                of.state = State::There;
                first.then(|| {
                    let finding = format!("{op:?} of new tasks is refused ({error}): it met its own effect");
                    Defect::new("STORE-013", finding)
                })
            }
            Ended::Refused(error) => {
                if of.tries == 1 {
                    of.state = State::Absent;
                } else if is_outage(&error) && of.tries < TRIES_MAX {
                    self.again = Some(batch);
                }
                unexplained(Some(&error), &op)
            }
            Ended::Open(error) => {
                if of.tries < TRIES_MAX && (of.tries > 1 || !self.random.once_in(3)) {
                    self.again = Some(batch);
                }
                unexplained(error.as_ref(), &op)
            }
        }
    }

    fn settle_step(&mut self, op: &Op, slot: usize, to: Held, ended: Ended) -> Option<Defect> {
        let task = &mut self.tasks[slot];
        match ended {
            Ended::Done(Answer::Numbers(revisions)) => {
                let before = task.base.version;
                let version = revisions.first().copied();
                task.done(Held { version, ..to });
                (version <= before).then(|| {
                    Defect::new("TASK-023", format!("{op:?} got revision {version:?} after {before:?}"))
                })
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                task.refused();
                if error.kind() != ErrorKind::Conflict {
                    return unexplained(Some(&error), op);
                }
                task.looked = false;
                task.is_certain().then(|| {
                    let finding = format!(
                        "{op:?} is refused ({error}), though nobody else writes: it met its own effect, or \
                         that of a step reported as not applied"
                    );
                    Defect::new("STORE-013", finding)
                })
            }
            Ended::Open(error) => {
                task.unknown();
                unexplained(error.as_ref(), op)
            }
        }
    }

    async fn list(&self, stores: &StoreSet) -> Result<Vec<Task>> {
        let tasks = stores.tasks()?;
        let mut all = Vec::new();
        let mut page = PageRequest::default();
        loop {
            let found = tasks.list_tasks(&self.board()?, &TaskQuery::default(), page).await?;
            all.extend(found.items);
            match found.next {
                Some(next) => page = PageRequest::default().with_after(next),
                None => return Ok(all),
            }
        }
    }
}

fn mark(status: TaskStatus) -> u8 {
    TaskStatus::ALL
        .iter()
        .position(|other| *other == status)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(0)
}

fn held(task: &Task) -> Held {
    let number = task.result.as_deref().and_then(|result| result.split(' ').next()?.parse().ok());
    Held { number, version: Some(task.revision.get()), mark: mark(task.status) }
}

fn task_id(slot: usize) -> Result<TaskId> {
    TaskId::new(format!("task {slot}"))
}

#[async_trait]
impl OracleClient for TaskClient {
    fn contract(&self) -> Contract {
        Contract::Tasks
    }

    fn next(&mut self) -> Op {
        if self.board.1 != State::There {
            self.board.0 += 1;
            if self.board.0 == 1 {
                self.board.1 = State::Open;
            }
            return Op::MakeBoard;
        }
        if let Some(batch) = self.again {
            return self.add(batch);
        }
        if !self.random.once_in(3)
            && let Some(op) = self.step()
        {
            return op;
        }
        let count = 1 + self.random.index(3);
        let first = self.tasks.len();
        self.tasks.extend((0..count).map(|_| Cell::new()));
        self.batches.push(Batch { tasks: first..first + count, tries: 0, state: State::Open });
        self.add(self.batches.len() - 1)
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let tasks = stores.tasks()?;
        let board = self.board()?;
        match *op {
            Op::MakeBoard => {
                tasks.create_task_list(&board, NewBoard::new(Vec::new())).await?;
                Ok(Answer::Numbers(Vec::new()))
            }
            Op::Add { batch, .. } => {
                let new = |slot| Ok(NewTask::new(task_id(slot)?, format!("{} {slot}", self.era)));
                let new = self.batches[batch].tasks.clone().map(new).collect::<Result<Vec<_>>>()?;
                let added = tasks.add_tasks(&board, new).await?;
                Ok(Answer::Numbers(added.iter().map(|task| task.revision.get()).collect()))
            }
            Op::Step { slot, number, to, at } => {
                let step = Transition::to(to)
                    .with_expected(Revision::new(at))
                    .with_result(format!("{number} {}", filler(number)));
                let task = tasks.update_status(&board, &task_id(slot)?, step).await?;
                Ok(Answer::Numbers(vec![task.revision.get()]))
            }
            Op::ReadTask { slot } => match tasks.get_task(&board, &task_id(slot)?).await? {
                Some(task) => Ok(Answer::Found(held(&task))),
                None => Ok(Answer::Torn),
            },
            _ => Err(other_contract()),
        }
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::MakeBoard, ended) => self.settle_board(ended),
            (Op::Add { batch, .. }, ended) => self.settle_add(*batch, ended),
            (Op::Step { slot, number, to, .. }, ended) => {
                let to = Held { number: Some(*number), version: None, mark: mark(*to) };
                self.settle_step(op, *slot, to, ended)
            }
            (Op::ReadTask { slot }, Ended::Done(Answer::Found(held))) => {
                self.tasks[*slot].read(&format!("task {slot}"), held, "STORE-002")
            }
            (_, Ended::Done(Answer::Torn)) => {
                Some(Defect::new("STORE-002", format!("{op:?}: an acknowledged task is missing")))
            }
            (_, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            _ => None,
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let listed = self.list(stores).await?;
        let mut defects = Vec::new();
        let mut met: BTreeMap<String, &Task> = BTreeMap::new();
        for task in &listed {
            if met.insert(task.id.to_string(), task).is_some() {
                defects.push(Defect::new("TASK-009", format!("{} is on the board twice", task.id)));
            }
        }
        let mut before = None;
        for (batch, of) in self.batches.iter().enumerate() {
            let there: Vec<(usize, &Task)> = of
                .tasks
                .clone()
                .filter_map(|slot| Some((slot, *met.get(task_id(slot).ok()?.as_str())?)))
                .collect();
            let finding = format!("{} of {} tasks of batch {batch} are there", there.len(), of.tasks.len());
            match of.state {
                State::There if there.len() < of.tasks.len() => {
                    defects.push(Defect::new(lost, format!("{finding}, and all were acknowledged")));
                }
                State::Absent if !there.is_empty() => {
                    defects.push(Defect::new(
                        "STORE-013",
                        format!("{finding}, and the batch was reported as not applied"),
                    ));
                }
                State::Open if !there.is_empty() && there.len() < of.tasks.len() => {
                    defects.push(Defect::new("TASK-006", finding));
                }
                _ => {}
            }
            for (slot, task) in there {
                if of.state == State::There {
                    if Some(task.position) <= before {
                        defects
                            .push(Defect::new("TASK-006", format!("task {slot} precedes one added earlier")));
                    }
                    before = before.max(Some(task.position));
                }
                let known = self.tasks[slot].base.version.is_some();
                defects.extend(
                    known
                        .then(|| self.tasks[slot].verify(&format!("task {slot}"), held(task), lost))
                        .flatten(),
                );
            }
        }
        Ok(defects)
    }
}
