//! The operations on task boards: how they are drawn, and how they are written in Rust.

use std::time::Duration;

use larder_kernel::{
    BoardId, ConversationId, FencingToken, NewBoard, NewTask, PageRequest, Revision, Task, TaskId, TaskQuery,
    TaskStatus, WorkerId,
};

use super::{Given, Tasks};
use crate::model::dice::{Dice, valid};
use crate::model::shared::{limit, metadata, request, ttl};
use crate::model::tape::{Tape, id, json, optional, owned_id, owned_text, quoted};

/// Which token an operation shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Token {
    /// That of the task's lease, or the board's last.
    Current,
    /// The first that the board gave.
    First,
    /// The last that the board gave.
    Last,
    /// One to come.
    Ahead,
    /// The greatest number there is.
    Far,
}

/// Which revision a step expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Expects {
    Current,
    /// The one before it.
    Before,
    Zero,
    /// The greatest number there is.
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
    /// After the task at this index; one past all where there is none.
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

pub(super) fn draw(dice: &mut Dice<'_>) -> Operation {
    match dice.weighted(&[7, 6, 2, 3, 4, 3, 14, 5, 2, 2, 8, 3, 1, 1]) {
        1 => Operation::Add { board: few(dice), tasks: tasks(dice, &[1, 2, 3, 0]) },
        2 => Operation::Board { board: few(dice) },
        3 => Operation::Task { board: few(dice), task: task(dice) },
        4 => Operation::List {
            board: few(dice),
            query: TaskQuery { statuses: statuses(dice) },
            after: dice.of(&[None, Some(0), Some(1), Some(2), Some(9)]),
            limit: limit(dice),
        },
        5 => Operation::Boards {
            conversation: (dice.below(2) == 1).then(|| conversation(dice)),
            page: request(dice, any),
        },
        6 => Operation::Step { board: few(dice), task: task(dice), step: step(dice) },
        7 => Operation::Retry { board: few(dice), task: task(dice), token: maybe_token(dice) },
        8 => Operation::Force { board: few(dice), task: task(dice) },
        9 => Operation::Settle { conversation: conversation(dice) },
        10 => {
            Operation::Claim { board: few(dice), worker: valid(WorkerId::new(dice.id())), lease: ttl(dice) }
        }
        11 => Operation::Renew { board: few(dice), task: task(dice), token: token(dice), lease: ttl(dice) },
        12 => Operation::Delete { board: few(dice) },
        13 if dice.one_in(4) => Operation::Erase,
        _ => {
            let (board, tasks) = (few(dice), tasks(dice, &[1, 2, 0, 3]));
            let label = dice.of(&[None, Some(""), Some("l\0é")]).map(str::to_owned);
            let parent = (dice.below(2) == 1).then(|| valid(larder_kernel::AgentId::new(dice.id())));
            Operation::Create { board, new: NewBoard { label, parent, tasks } }
        }
    }
}

/// Few boards, so that operations meet.
fn few(dice: &mut Dice<'_>) -> BoardId {
    let [a, b, c, d] = &dice.ids.0;
    let (conversation, agent) =
        dice.of(&[(a, a), (a, a), (a, a), (a, a), (a, a), (a, b), (b, a), (a, d), (b, c)]);
    valid(BoardId::new(conversation, agent))
}

fn any(dice: &mut Dice<'_>) -> BoardId {
    let (conversation, agent) = (dice.id(), dice.id());
    valid(BoardId::new(conversation, agent))
}

fn conversation(dice: &mut Dice<'_>) -> ConversationId {
    let index = dice.below(2);
    valid(ConversationId::new(&dice.ids.0[index]))
}

/// The first task more often than others, so that much happens to one.
fn task(dice: &mut Dice<'_>) -> TaskId {
    let index = dice.of(&[0_usize, 0, 0, 1, 2, 3]);
    valid(TaskId::new(&dice.ids.0[index]))
}

/// Tasks from one of the script's ids on; the same id twice, and other bad input, now and then.
fn tasks(dice: &mut Dice<'_>, counts: &[usize]) -> Vec<NewTask> {
    let (count, first) = (dice.of(counts), dice.below(4));
    let (kind, retries) = (dice.below(16), dice.of(&[3, 0, 1, 2]));
    (0..count)
        .map(|number| {
            let name = if kind == 15 { first } else { (first + number) % 4 };
            let mut new = NewTask::new(valid(TaskId::new(&dice.ids.0[name])), "t").with_retries_max(retries);
            match kind {
                8 | 9 => new.description = Some("d\0é".to_owned()),
                10 | 11 => new.metadata = metadata(dice),
                12 => new.title = "\0 é'".to_owned(),
                13 => new.retries_max = 1_001,
                14 => new.title = String::new(),
                _ => {}
            }
            new
        })
        .collect()
}

fn statuses(dice: &mut Dice<'_>) -> Vec<TaskStatus> {
    let count = dice.below(3);
    (0..count).map(|_| dice.of(&TaskStatus::ALL)).collect()
}

fn step(dice: &mut Dice<'_>) -> Step {
    let to = dice.of(&[
        TaskStatus::InProgress,
        TaskStatus::Blocked,
        TaskStatus::Failed,
        TaskStatus::Planned,
        TaskStatus::Succeeded,
        TaskStatus::Abandoned,
    ]);
    let expected = dice.of(&[
        None,
        None,
        None,
        Some(Expects::Current),
        Some(Expects::Current),
        Some(Expects::Before),
        Some(Expects::Zero),
        Some(Expects::Far),
    ]);
    let token = maybe_token(dice);
    let result = dice.of(&[None, None, Some("r"), Some(""), Some("é\0'")]).map(str::to_owned);
    Step { to, expected, token, result }
}

fn maybe_token(dice: &mut Dice<'_>) -> Option<Token> {
    (dice.below(2) == 1).then(|| token(dice))
}

fn token(dice: &mut Dice<'_>) -> Token {
    dice.of(&[
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
    /// The token that an operation shows.
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

    /// The revision that a step expects.
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

/// A board as an argument.
pub(super) fn board(board: &BoardId) -> String {
    format!(
        "&BoardId {{ conversation: {}, agent: {} }}",
        owned_id(&board.conversation),
        owned_id(&board.agent)
    )
}

/// A task to add, as a value.
fn new_task(task: &NewTask) -> String {
    format!(
        "NewTask {{ id: {}, title: {}.to_owned(), description: {}, retries_max: {}, metadata: {} }}",
        owned_id(&task.id),
        quoted(&task.title),
        optional(task.description.as_deref(), owned_text),
        task.retries_max,
        json(&task.metadata)
    )
}

/// Tasks to add, as a value.
pub(super) fn new_tasks(tasks: &[NewTask]) -> String {
    format!("vec![{}]", tasks.iter().map(new_task).collect::<Vec<_>>().join(", "))
}

/// A board to make, as a value.
pub(super) fn new_board(new: &NewBoard) -> String {
    format!(
        "NewBoard {{ label: {}, parent: {}, tasks: {} }}",
        optional(new.label.as_deref(), owned_text),
        optional(new.parent.as_ref(), owned_id),
        new_tasks(&new.tasks)
    )
}

/// What a token of a board is known by on a tape.
pub(super) fn token_name(board: &BoardId, token: FencingToken) -> String {
    format!("{board:?} token {token}")
}

/// A token as an argument.
pub(super) fn token_text(tape: &Tape, board: &BoardId, token: FencingToken) -> String {
    tape.named(&token_name(board, token), || format!("FencingToken::new({token})"))
}

/// A task as an argument.
pub(super) fn task_text(task: &TaskId) -> String {
    id(task)
}
