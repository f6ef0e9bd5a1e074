//! The operations on task boards: their random generation, and their Rust form.

use std::time::Duration;

use larder_kernel::{
    BoardId, ConversationId, FencingToken, NewBoard, NewTask, PageRequest, Revision, Task, TaskId, TaskQuery,
    TaskStatus, WorkerId,
};

use super::{Given, Tasks};
use crate::model::recorder::{Recorder, id, json, owned_id, owned_text, quoted, typed_id, with};
use crate::model::rng::{Rng, valid};
use crate::model::shared::{limit, metadata, request, ttl};

/// The token that an operation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Token {
    /// The token of the task's lease, or the board's last one.
    Current,
    /// The first token of the board.
    First,
    /// The last token of the board.
    Last,
    /// A future token.
    Ahead,
    /// The largest possible number.
    Far,
}

/// The revision that a step expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Expects {
    Current,
    /// The previous revision.
    Before,
    Zero,
    /// The largest possible number.
    Far,
}

#[derive(Debug, Clone)]
pub(in crate::model) struct Step {
    pub(super) to: TaskStatus,
    pub(super) expected: Option<Expects>,
    pub(super) token: Option<Token>,
    pub(super) result: Option<String>,
}

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Create {
        board: BoardId,
        new: NewBoard,
    },
    Add {
        board: BoardId,
        tasks: Vec<NewTask>,
    },
    Board {
        board: BoardId,
    },
    Task {
        board: BoardId,
        task: TaskId,
    },
    /// Starts after the task at this index. An index past the last task names a missing task.
    List {
        board: BoardId,
        query: TaskQuery,
        after: Option<usize>,
        limit: usize,
    },
    Boards {
        conversation: Option<ConversationId>,
        page: PageRequest<BoardId>,
    },
    Step {
        board: BoardId,
        task: TaskId,
        step: Step,
    },
    Retry {
        board: BoardId,
        task: TaskId,
        token: Option<Token>,
    },
    Force {
        board: BoardId,
        task: TaskId,
    },
    Settle {
        conversation: ConversationId,
    },
    Claim {
        board: BoardId,
        worker: WorkerId,
        lease: Duration,
    },
    Renew {
        board: BoardId,
        task: TaskId,
        token: Token,
        lease: Duration,
    },
    Delete {
        board: BoardId,
    },
    Erase,
}

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[7, 6, 2, 3, 4, 3, 14, 5, 2, 2, 8, 3, 1, 1]) {
        1 => Operation::Add { board: few(rng), tasks: tasks(rng, &[1, 2, 3, 0]) },
        2 => Operation::Board { board: few(rng) },
        3 => Operation::Task { board: few(rng), task: task(rng) },
        4 => Operation::List {
            board: few(rng),
            query: TaskQuery::in_statuses(statuses(rng)),
            after: rng.of(&[None, Some(0), Some(1), Some(2), Some(9)]),
            limit: limit(rng),
        },
        5 => Operation::Boards {
            conversation: (rng.below(2) == 1).then(|| conversation(rng)),
            page: request(rng, any),
        },
        6 => Operation::Step { board: few(rng), task: task(rng), step: step(rng) },
        7 => Operation::Retry { board: few(rng), task: task(rng), token: maybe_token(rng) },
        8 => Operation::Force { board: few(rng), task: task(rng) },
        9 => Operation::Settle { conversation: conversation(rng) },
        10 => Operation::Claim { board: few(rng), worker: valid(WorkerId::new(rng.id())), lease: ttl(rng) },
        11 => Operation::Renew { board: few(rng), task: task(rng), token: token(rng), lease: ttl(rng) },
        12 => Operation::Delete { board: few(rng) },
        13 if rng.one_in(4) => Operation::Erase,
        _ => {
            let (board, tasks) = (few(rng), tasks(rng, &[1, 2, 0, 3]));
            let label = rng.of(&[None, Some(""), Some("l\0é")]).map(str::to_owned);
            let parent = (rng.below(2) == 1).then(|| valid(larder_kernel::AgentId::new(rng.id())));
            let mut new = NewBoard::new(tasks).with_parent(parent);
            new.label = label;
            Operation::Create { board, new }
        }
    }
}

/// Draws from few boards, so that operations meet.
fn few(rng: &mut Rng<'_>) -> BoardId {
    let [a, b, c, d] = &rng.ids.0;
    let (conversation, agent) =
        rng.of(&[(a, a), (a, a), (a, a), (a, a), (a, a), (a, b), (b, a), (a, d), (b, c)]);
    valid(BoardId::new(conversation, agent))
}

fn any(rng: &mut Rng<'_>) -> BoardId {
    let (conversation, agent) = (rng.id(), rng.id());
    valid(BoardId::new(conversation, agent))
}

fn conversation(rng: &mut Rng<'_>) -> ConversationId {
    let index = rng.below(2);
    valid(ConversationId::new(&rng.ids.0[index]))
}

/// Draws the first task more often than others, so that one task has a long history.
fn task(rng: &mut Rng<'_>) -> TaskId {
    let index = rng.of(&[0_usize, 0, 0, 1, 2, 3]);
    valid(TaskId::new(&rng.ids.0[index]))
}

/// Draws tasks, starting from one of the script's ids; sometimes the same id twice, or other invalid input.
fn tasks(rng: &mut Rng<'_>, counts: &[usize]) -> Vec<NewTask> {
    let (count, first) = (rng.of(counts), rng.below(4));
    let (kind, retries) = (rng.below(16), rng.of(&[3, 0, 1, 2]));
    (0..count)
        .map(|number| {
            let name = if kind == 15 { first } else { (first + number) % 4 };
            let mut new = NewTask::new(valid(TaskId::new(&rng.ids.0[name])), "t").with_retries_max(retries);
            match kind {
                8 | 9 => new.description = Some("d\0é".to_owned()),
                10 | 11 => new.metadata = metadata(rng),
                12 => new.title = "\0 é'".to_owned(),
                13 => new.retries_max = 1_001,
                14 => new.title = String::new(),
                _ => {}
            }
            new
        })
        .collect()
}

fn statuses(rng: &mut Rng<'_>) -> Vec<TaskStatus> {
    let count = rng.below(3);
    (0..count).map(|_| rng.of(TaskStatus::ALL)).collect()
}

fn step(rng: &mut Rng<'_>) -> Step {
    let to = rng.of(&[
        TaskStatus::InProgress,
        TaskStatus::Blocked,
        TaskStatus::Failed,
        TaskStatus::Planned,
        TaskStatus::Succeeded,
        TaskStatus::Abandoned,
    ]);
    let expected = rng.of(&[
        None,
        None,
        None,
        Some(Expects::Current),
        Some(Expects::Current),
        Some(Expects::Before),
        Some(Expects::Zero),
        Some(Expects::Far),
    ]);
    let token = maybe_token(rng);
    let result = rng.of(&[None, None, Some("r"), Some(""), Some("é\0'")]).map(str::to_owned);
    Step { to, expected, token, result }
}

fn maybe_token(rng: &mut Rng<'_>) -> Option<Token> {
    (rng.below(2) == 1).then(|| token(rng))
}

fn token(rng: &mut Rng<'_>) -> Token {
    rng.of(&[
        Token::Current,
        Token::Current,
        Token::Current,
        Token::First,
        Token::Last,
        Token::Ahead,
        Token::Far,
    ])
}

impl Tasks {
    /// Returns the token that an operation uses.
    pub(super) fn token(&self, board: &BoardId, task: &TaskId, token: Token) -> FencingToken {
        let given = self.given.get(board);
        let last = given.and_then(|given| given.tokens.last().copied()).unwrap_or_default();
        let lease = self.task(board, task).and_then(|task: &Task| task.lease.as_ref());
        match token {
            Token::Current => lease.map_or(last, |lease| lease.token),
            Token::First => given.and_then(|given: &Given| given.tokens.first().copied()).unwrap_or_default(),
            Token::Last => last,
            Token::Ahead => FencingToken::new(last.get() + 1_000),
            Token::Far => FencingToken::new(u64::MAX),
        }
    }

    /// Returns the revision that a step expects.
    pub(super) fn revision(&self, board: &BoardId, task: &TaskId, expected: Expects) -> Revision {
        let known = self.given.get(board).and_then(|given| given.revisions.get(task));
        match expected {
            Expects::Current => known.map(|(last, _)| *last).unwrap_or_default(),
            Expects::Before => known.map(|(_, before)| *before).unwrap_or_default(),
            Expects::Zero => Revision::ZERO,
            Expects::Far => Revision::new(u64::MAX),
        }
    }
}

/// Returns a board as an argument.
pub(super) fn board(board: &BoardId) -> String {
    format!(
        "&BoardId {{ conversation: {}, agent: {} }}",
        owned_id(&board.conversation),
        owned_id(&board.agent)
    )
}

/// Returns a task to add as an expression.
fn new_task(task: &NewTask) -> String {
    format!(
        "NewTask::new({}, {}){}.with_retries_max({}).with_metadata({})",
        owned_id(&task.id),
        quoted(&task.title),
        with("description", task.description.as_deref(), owned_text),
        task.retries_max,
        json(&task.metadata)
    )
}

/// Returns tasks to add as an expression.
pub(super) fn new_tasks(tasks: &[NewTask]) -> String {
    format!("vec![{}]", tasks.iter().map(new_task).collect::<Vec<_>>().join(", "))
}

/// Returns a board to create as an expression.
pub(super) fn new_board(new: &NewBoard) -> String {
    format!(
        "NewBoard::new({}){}{}",
        new_tasks(&new.tasks),
        with("label", new.label.as_deref(), owned_text),
        with("parent", new.parent.as_ref(), |parent| typed_id("AgentId", parent))
    )
}

/// Returns the name of a board's token in a recorded script.
pub(super) fn token_name(board: &BoardId, token: FencingToken) -> String {
    format!("{board:?} token {token}")
}

/// Returns a token as an argument.
pub(super) fn token_text(recorder: &Recorder, board: &BoardId, token: FencingToken) -> String {
    recorder.named(&token_name(board, token), || format!("FencingToken::new({token})"))
}

/// Returns a task as an argument.
pub(super) fn task_text(task: &TaskId) -> String {
    id(task)
}
