//! A board that all clients work on: they claim, step, retry and add its tasks.
//!
//! Leases last an hour, so none expires while a history is recorded. The cases cover expiry.

mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    BoardId, Capabilities, Contract, ErrorKind, FencingToken, NewBoard, NewTask, Result, RetryOutcome,
    Revision, Task, TaskId, TaskStatus, TaskStore, Transition, WorkerId,
};
use serde::{Deserialize, Serialize};

use self::state::{Hold, RETRIES_MAX, Standing, State};
use super::check::{Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in};
use crate::harness::StoreSet;

/// The number of initial tasks of the board.
const TASKS: u8 = 3;
/// The maximum number of tasks of the board.
const TASKS_MAX: u8 = 6;
const LEASE: Duration = Duration::from_secs(3_600);

/// A board.
pub(crate) struct OneBoard;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Claim,
    Step(Step),
    Get { id: u8 },
    Retry { id: u8, token: Option<u64> },
    Force { id: u8 },
    Renew { id: u8, token: u64 },
    Add { id: u8 },
    Settle,
}

/// A step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    id: u8,
    to: TaskStatus,
    expected: Option<u64>,
    token: Option<u64>,
}

/// A result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Task(View),
    Nothing,
    Exhausted(View),
    Renewed,
    Settled(u64),
}

/// A task as a result shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct View {
    id: u8,
    status: TaskStatus,
    revision: u64,
    retries: u32,
    token: Option<u64>,
}

/// The client's knowledge of the tasks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    revisions: BTreeMap<u8, u64>,
    /// The tokens of its claims, including stale ones.
    tokens: BTreeMap<u8, u64>,
}

impl Spec for OneBoard {
    type State = State;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &State, op: &Op, reply: &Reply<Answer>) -> Option<State> {
        state.after(op, reply)
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        let nothing = matches!(
            reply,
            Reply::Refused(_) | Reply::Answered(Answer::Nothing | Answer::Exhausted(_) | Answer::Settled(0))
        );
        !matches!(op, Op::Get { .. }) && !nothing
    }
}

fn board() -> Result<BoardId> {
    BoardId::new("conversation", "agent")
}

fn task_id(id: u8) -> Result<TaskId> {
    TaskId::new(format!("t{id}"))
}

fn new_task(id: u8) -> Result<NewTask> {
    Ok(NewTask::new(task_id(id)?, "something").with_retries_max(RETRIES_MAX))
}

fn view(task: &Task) -> View {
    View {
        id: u8::try_from(number_in(task.id.as_str(), "t")).unwrap_or(u8::MAX),
        status: task.status,
        revision: task.revision.get(),
        retries: task.retries,
        token: task.lease.as_ref().map(|lease| lease.token.get()),
    }
}

fn step(memory: &Memory, rng: &mut Rng, id: u8) -> Op {
    const TO: [TaskStatus; 8] = [
        TaskStatus::Succeeded,
        TaskStatus::Failed,
        TaskStatus::Blocked,
        TaskStatus::Planned,
        TaskStatus::Planned,
        TaskStatus::InProgress,
        TaskStatus::InProgress,
        TaskStatus::Abandoned,
    ];
    let token = memory.tokens.get(&id).copied().filter(|_| rng.percent(70));
    let expected = memory.revisions.get(&id).copied().filter(|_| rng.percent(40));
    Op::Step(Step { id, to: rng.of(&TO).unwrap_or(TaskStatus::Planned), expected, token })
}

async fn call_one(store: &dyn TaskStore, op: &Op) -> Result<Answer> {
    let board = board()?;
    match *op {
        Op::Step(Step { id, to, expected, token }) => {
            let mut transition = Transition::to(to);
            transition.expected = expected.map(Revision::new);
            transition.token = token.map(FencingToken::new);
            let task = store.update_status(&board, &task_id(id)?, transition).await?;
            Ok(Answer::Task(view(&task)))
        }
        Op::Retry { id, token } => {
            let token = token.map(FencingToken::new);
            Ok(match store.increment_retry(&board, &task_id(id)?, token).await? {
                RetryOutcome::Retried(task) => Answer::Task(view(&task)),
                RetryOutcome::Exhausted(task) => Answer::Exhausted(view(&task)),
            })
        }
        Op::Force { id } => Ok(Answer::Task(view(&store.force_retry(&board, &task_id(id)?).await?))),
        Op::Renew { id, token } => {
            store.renew_lease(&board, &task_id(id)?, FencingToken::new(token), LEASE).await?;
            Ok(Answer::Renewed)
        }
        Op::Get { id } => {
            let task = store.get_task(&board, &task_id(id)?).await?;
            Ok(task.map_or(Answer::Nothing, |task| Answer::Task(view(&task))))
        }
        Op::Add { id } => {
            let added = store.add_tasks(&board, vec![new_task(id)?]).await?;
            Ok(added.first().map_or(Answer::Nothing, |task| Answer::Task(view(task))))
        }
        Op::Settle => Ok(Answer::Settled(store.settle_conversation(&board.conversation).await?)),
        Op::Claim => {
            let claim = store.claim(&board, &WorkerId::new("worker")?, LEASE).await?;
            Ok(claim.map_or(Answer::Nothing, |claim| {
                Answer::Task(View { token: Some(claim.token.get()), ..view(&claim.task) })
            }))
        }
    }
}

impl Subject for OneBoard {
    const CONTRACT: Contract = Contract::Tasks;
    type Store = dyn TaskStore;
    type Memory = Memory;

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.tasks()
    }

    async fn prepare(store: &Self::Store) -> Result<()> {
        let tasks = (0..TASKS).map(new_task).collect::<Result<Vec<_>>>()?;
        match store.create_task_list(&board()?, NewBoard::new(tasks)).await {
            // The first client creates the board.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.map(|_| ()),
        }
    }

    fn initial() -> State {
        State::new()
    }

    fn choose(memory: &Memory, rng: &mut Rng, _: Turn, _: &Capabilities) -> Op {
        let held: Vec<u8> = memory.tokens.keys().copied().collect();
        let id = match rng.of(&held) {
            Some(id) if rng.percent(60) => id,
            _ => rng.below(TASKS),
        };
        let token = memory.tokens.get(&id).copied();
        match (rng.below(100), token) {
            (0..25, _) => Op::Claim,
            (25..58, _) => step(memory, rng, id),
            (58..65, _) => Op::Retry { id, token: token.filter(|_| rng.percent(50)) },
            (65..71, _) => Op::Force { id },
            (71..79, Some(token)) => Op::Renew { id, token },
            (79..85, _) => Op::Add { id: TASKS + rng.below(TASKS_MAX - TASKS) },
            (85..88, _) => Op::Settle,
            _ => Op::Get { id: rng.below(TASKS_MAX) },
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        call_one(store, op).await
    }

    fn learn(memory: &mut Memory, op: &Op, answer: &Answer) {
        let Answer::Task(view) = *answer else { return };
        memory.revisions.insert(view.id, view.revision);
        if let (Op::Claim, Some(token)) = (op, view.token) {
            memory.tokens.insert(view.id, token);
        }
    }

    fn clause(op: &Op, reply: &Reply<Answer>) -> &'static str {
        let answered = matches!(reply, Reply::Answered(_));
        match op {
            Op::Claim if *reply == Reply::Answered(Answer::Nothing) => "TASK-045",
            Op::Claim => "TASK-041",
            Op::Step(Step { token: Some(_), .. }) if answered => "TASK-025",
            Op::Step(Step { expected: Some(_), .. }) if answered => "TASK-022",
            Op::Step(_) if answered => "TASK-024",
            Op::Step(_) => "TASK-020",
            Op::Get { .. } => "STORE-002",
            Op::Retry { .. } if answered => "TASK-033",
            Op::Retry { .. } => "TASK-030",
            Op::Force { .. } => "TASK-035",
            Op::Renew { .. } if answered => "TASK-048",
            Op::Renew { .. } => "TASK-047",
            Op::Add { .. } => "TASK-009",
            Op::Settle => "TASK-037",
        }
    }

    fn show_op(op: &Op) -> String {
        let under = |token: Option<u64>| token.map_or(String::new(), |token| format!(" under token {token}"));
        match *op {
            Op::Claim => "claim".to_owned(),
            Op::Step(Step { id, to, expected, token }) => {
                let at = expected.map_or(String::new(), |at| format!(" at revision {at}"));
                format!("step t{id} to {}{at}{}", to.as_str(), under(token))
            }
            Op::Get { id } => format!("get t{id}"),
            Op::Retry { id, token } => format!("retry t{id}{}", under(token)),
            Op::Force { id } => format!("force retry t{id}"),
            Op::Renew { id, token } => format!("renew t{id}{}", under(Some(token))),
            Op::Add { id } => format!("add t{id}"),
            Op::Settle => "settle".to_owned(),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match *answer {
            Answer::Task(view) => show_view(view),
            Answer::Nothing => "nothing".to_owned(),
            Answer::Exhausted(view) => format!("exhausted: {}", show_view(view)),
            Answer::Renewed => "renewed".to_owned(),
            Answer::Settled(count) => format!("{count} settled"),
        }
    }

    fn show_state(state: &State) -> String {
        let tasks: Vec<String> = state.tasks.iter().map(show_standing).collect();
        format!("{}; last token {} or more", tasks.join(", "), state.token)
    }
}

fn show_view(view: View) -> String {
    let token = view.token.map_or(String::new(), |token| format!(", token {token}"));
    let (status, retries) = (view.status.as_str(), view.retries);
    format!("t{} {status} at revision {}, {retries} retries{token}", view.id, view.revision)
}

fn show_standing(task: &Standing) -> String {
    let about = if task.exact { "" } else { " or more" };
    let hold = match task.hold {
        Hold::Nobody => String::new(),
        Hold::Token(token) => format!(", token {token}"),
        Hold::Unknown => ", under a token that no client received".to_owned(),
    };
    let (id, status, revision, retries) = (task.id, task.status.as_str(), task.revision, task.retries);
    format!("t{id} {status} at revision {revision}{about}, {retries} retries{hold}")
}
