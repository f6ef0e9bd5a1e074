//! The sequential specification of a board.

use larder_kernel::TaskStatus;

use super::{Answer, Op, Step, TASKS, View};
use crate::concurrent::check::{Refusal, Reply};

/// The maximum number of retries: small, so that some tasks reach it.
pub(super) const RETRIES_MAX: u32 = 2;

/// The state of a board.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The tasks in board order.
    pub(super) tasks: Vec<Standing>,
    /// A lower bound of the last claim's token.
    pub(super) token: u64,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Standing {
    pub(super) id: u8,
    pub(super) status: TaskStatus,
    pub(super) retries: u32,
    pub(super) hold: Hold,
    /// The revision, or a lower bound if no result contained it.
    pub(super) revision: u64,
    pub(super) exact: bool,
}

/// The holder of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    Nobody,
    Token(u64),
    /// A claim without a result.
    Unknown,
}

impl Hold {
    fn may_be(self, token: Option<u64>) -> bool {
        match self {
            Self::Nobody => token.is_none(),
            Self::Token(held) => token == Some(held),
            Self::Unknown => token.is_some(),
        }
    }

    fn must_be(self, token: Option<u64>) -> bool {
        self != Self::Unknown && self.may_be(token)
    }
}

impl Standing {
    fn new(id: u8) -> Self {
        Self { id, status: TaskStatus::Planned, retries: 0, hold: Hold::Nobody, revision: 0, exact: false }
    }

    fn may_be_at(&self, revision: u64) -> bool {
        if self.exact { self.revision == revision } else { self.revision <= revision }
    }

    /// Returns the task with the facts of the view, if it can be the same task.
    fn seen_as(mut self, view: &View) -> Option<Self> {
        let same = self.id == view.id
            && self.status == view.status
            && self.retries == view.retries
            && self.hold.may_be(view.token)
            && self.may_be_at(view.revision);
        self.hold = view.token.map_or(Hold::Nobody, Hold::Token);
        (self.revision, self.exact) = (view.revision, true);
        same.then_some(self)
    }

    /// Returns the task after a change.
    fn changed(mut self) -> Self {
        (self.revision, self.exact) = (self.revision + 1, false);
        self
    }

    fn stepped(mut self, to: TaskStatus) -> Self {
        if self.status == TaskStatus::InProgress {
            self.hold = Hold::Nobody;
        }
        self.status = to;
        self.changed()
    }

    fn planned(mut self, retries: u32) -> Self {
        self.status = TaskStatus::Planned;
        self.hold = Hold::Nobody;
        self.retries = retries;
        self.changed()
    }
}

impl State {
    /// Returns a board with its first tasks, whose revisions are unknown.
    pub(super) fn new() -> Self {
        Self { tasks: (0..TASKS).map(Standing::new).collect(), token: 0 }
    }

    fn index(&self, id: u8) -> Option<usize> {
        self.tasks.iter().position(|task| task.id == id)
    }

    fn with(&self, index: usize, task: Standing) -> Self {
        let mut next = self.clone();
        next.tasks[index] = task;
        next
    }

    /// Returns the board after the call, or `None` if the board would not have returned this result.
    pub(super) fn after(&self, op: &Op, reply: &Reply<Answer>) -> Option<Self> {
        match *op {
            Op::Claim => self.claimed(reply),
            Op::Add { id } => self.added(id, reply),
            Op::Settle => self.settled(reply),
            Op::Get { id } => match reply {
                Reply::Answered(Answer::Nothing) => self.index(id).is_none().then(|| self.clone()),
                Reply::Answered(Answer::Task(view)) => {
                    let index = self.index(id)?;
                    Some(self.with(index, self.tasks[index].seen_as(view)?))
                }
                _ => None,
            },
            Op::Step(Step { id, .. }) | Op::Retry { id, .. } | Op::Force { id } | Op::Renew { id, .. } => {
                let Some(index) = self.index(id) else {
                    return (*reply == Reply::Refused(Refusal::NotFound)).then(|| self.clone());
                };
                let task = one(self.tasks[index], op, reply)?;
                Some(self.with(index, task))
            }
        }
    }

    fn claimed(&self, reply: &Reply<Answer>) -> Option<Self> {
        let free = self.tasks.iter().position(|task| task.status == TaskStatus::Planned);
        let (Some(index), false) = (free, *reply == Reply::Answered(Answer::Nothing)) else {
            let nothing = free.is_none() && *reply == Reply::Answered(Answer::Nothing);
            return nothing.then(|| self.clone());
        };
        let mut task = self.tasks[index];
        task.status = TaskStatus::InProgress;
        task.hold = Hold::Unknown;
        let mut task = task.changed();
        let mut token = self.token + 1;
        match reply {
            Reply::Answered(Answer::Task(view)) => {
                task = task.seen_as(view)?;
                let given = view.token?;
                if given < token {
                    return None;
                }
                token = given;
            }
            Reply::Unknown => {}
            _ => return None,
        }
        let mut next = self.with(index, task);
        next.token = token;
        Some(next)
    }

    fn added(&self, id: u8, reply: &Reply<Answer>) -> Option<Self> {
        if self.index(id).is_some() {
            return (*reply == Reply::Refused(Refusal::AlreadyExists)).then(|| self.clone());
        }
        let task = match reply {
            Reply::Answered(Answer::Task(view)) => Standing::new(id).seen_as(view)?,
            Reply::Unknown => Standing::new(id),
            _ => return None,
        };
        let mut next = self.clone();
        next.tasks.push(task);
        Some(next)
    }

    fn settled(&self, reply: &Reply<Answer>) -> Option<Self> {
        let mut next = self.clone();
        let mut count: u64 = 0;
        for task in next.tasks.iter_mut().filter(|task| task.status == TaskStatus::InProgress) {
            *task = task.stepped(TaskStatus::Succeeded);
            count += 1;
        }
        let right = match reply {
            Reply::Answered(Answer::Settled(settled)) => *settled == count,
            Reply::Unknown => true,
            _ => false,
        };
        right.then_some(next)
    }
}

/// Returns the task after a call that touches only this task.
fn one(task: Standing, op: &Op, reply: &Reply<Answer>) -> Option<Standing> {
    match *op {
        Op::Step(step) => stepped(task, step, reply),
        Op::Retry { token, .. } => retried(task, token, reply),
        Op::Force { .. } => match reply {
            // A task that already has this status may keep its revision.
            Reply::Answered(Answer::Task(view)) => {
                let (mut after, mut same) = (task.planned(0), task);
                (after.exact, same.exact) = (false, task.exact);
                after.seen_as(view).or_else(|| same.seen_as(view))
            }
            Reply::Unknown => Some(task.planned(0)),
            _ => None,
        },
        Op::Renew { token, .. } => match reply {
            Reply::Answered(Answer::Renewed) | Reply::Unknown => {
                task.hold.may_be(Some(token)).then(|| task.changed())
            }
            Reply::Refused(Refusal::Conflict) => (!task.hold.must_be(Some(token))).then_some(task),
            _ => None,
        },
        _ => None,
    }
}

fn stepped(task: Standing, step: Step, reply: &Reply<Answer>) -> Option<Standing> {
    let may = task.status.allows(step.to)
        && task.hold.may_be(step.token)
        && step.expected.is_none_or(|expected| task.may_be_at(expected));
    let must = may
        && task.hold.must_be(step.token)
        && step.expected.is_none_or(|expected| task.exact && task.revision == expected);
    match reply {
        Reply::Answered(Answer::Task(view)) => may.then(|| task.stepped(step.to).seen_as(view))?,
        Reply::Unknown => may.then(|| task.stepped(step.to)),
        Reply::Refused(Refusal::Conflict) => (!must).then_some(task),
        _ => None,
    }
}

fn retried(task: Standing, token: Option<u64>, reply: &Reply<Answer>) -> Option<Standing> {
    let may = task.status.allows_retry() && task.hold.may_be(token);
    let left = task.retries < RETRIES_MAX;
    match reply {
        Reply::Answered(Answer::Task(view)) => {
            (may && left).then(|| task.planned(task.retries + 1).seen_as(view))?
        }
        Reply::Answered(Answer::Exhausted(view)) => (may && !left).then(|| task.seen_as(view))?,
        Reply::Unknown => (may && left).then(|| task.planned(task.retries + 1)),
        Reply::Refused(Refusal::Conflict) => {
            (!task.status.allows_retry() || !task.hold.must_be(token)).then_some(task)
        }
        _ => None,
    }
}
