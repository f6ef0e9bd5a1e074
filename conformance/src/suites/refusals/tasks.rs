//! Invalid calls of [`TaskStore`](larder_kernel::TaskStore).

use std::sync::LazyLock;

use larder_kernel::limits::{BATCH_TASKS_MAX, TASK_RETRIES_MAX, TASK_TEXT_BYTES_MAX, TASK_TITLE_BYTES_MAX};
use larder_kernel::{
    AgentId, BoardId, ConversationId, FencingToken, NewBoard, NewTask, PageRequest, Result, TaskId,
    TaskPosition, TaskQuery, TaskStatus, Transition, WorkerId,
};

use super::inputs::{
    PLACES, Rule, TWICE, among, at_least, at_most, durations, limits, metadata, refused_ids, up_to,
};
use super::{Refusal, Table, table};

pub(super) fn tables() -> Vec<Table> {
    let mut all: Vec<_> = Way::ALL.into_iter().map(|way| table(way.name(), additions(way))).collect();
    all.extend([
        table("label", labels()),
        table("result", results()),
        table("lease", leases()),
        table("page_that_is_too_long", pages()),
        table("id", ids()),
    ]);
    all
}

/// Returns an existing board.
fn kept() -> Result<BoardId> {
    BoardId::new("kept-talk", "kept-agent")
}

fn fresh() -> Result<BoardId> {
    BoardId::new("fresh", "fresh")
}

fn task(name: &str) -> Result<NewTask> {
    Ok(NewTask::new(TaskId::new(name)?, "title"))
}

/// The method that adds tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    NewBoard,
    BoardThatIsThere,
    Addition,
    AdditionToNoBoard,
}

impl Way {
    const ALL: [Self; 4] = [Self::NewBoard, Self::BoardThatIsThere, Self::Addition, Self::AdditionToNoBoard];

    fn name(self) -> &'static str {
        match self {
            Self::NewBoard => "task_of_a_new_board",
            Self::BoardThatIsThere => "task_of_a_board_that_is_there",
            Self::Addition => "task_added",
            Self::AdditionToNoBoard => "task_added_to_no_board",
        }
    }
}

fn write(
    way: Way,
    tasks: impl Fn() -> Result<Vec<NewTask>> + Send + Sync + 'static,
    what: String,
    field: &'static str,
    limit: Rule,
) -> Refusal {
    let call = match way {
        Way::NewBoard | Way::BoardThatIsThere => "tasks.create_task_list",
        Way::Addition | Way::AdditionToNoBoard => "tasks.add_tasks",
    };
    Refusal::new(call, what, field, limit, move |stores| {
        let tasks = tasks();
        Box::pin(async move {
            let tasks = tasks?;
            let store = stores.tasks()?;
            match way {
                Way::NewBoard => store.create_task_list(&fresh()?, NewBoard::new(tasks)).await.map(drop),
                Way::BoardThatIsThere => {
                    store.create_task_list(&kept()?, NewBoard::new(tasks)).await.map(drop)
                }
                Way::Addition => store.add_tasks(&kept()?, tasks).await.map(drop),
                Way::AdditionToNoBoard => store.add_tasks(&fresh()?, tasks).await.map(drop),
            }
        })
    })
}

/// The description, the field of the error, the rule, and the task.
type BadTask = (String, &'static str, Rule, NewTask);

/// Tasks with one invalid part each.
fn bad_tasks() -> &'static [BadTask] {
    static ALL: LazyLock<Vec<BadTask>> =
        LazyLock::new(|| task("bad").map_or_else(|_| Vec::new(), |plain| make_bad_tasks(&plain)));
    &ALL
}

fn make_bad_tasks(plain: &NewTask) -> Vec<BadTask> {
    let mut all = Vec::new();
    for (what, limit, metadata) in metadata() {
        let bad = plain.clone().with_metadata(metadata.clone());
        all.push((format!("metadata of {what}"), "task.metadata", *limit, bad));
    }
    let titles = [
        ("no title", at_least(1), String::new()),
        ("a title too long", at_most(TASK_TITLE_BYTES_MAX), "t".repeat(TASK_TITLE_BYTES_MAX + 1)),
        (
            "a title too long in bytes",
            at_most(TASK_TITLE_BYTES_MAX),
            "é".repeat(TASK_TITLE_BYTES_MAX / 2 + 1),
        ),
        ("a title far too long", at_most(TASK_TITLE_BYTES_MAX), "t".repeat(1 << 20)),
    ];
    for (what, limit, title) in titles {
        let mut bad = plain.clone();
        bad.title = title;
        all.push((what.to_owned(), "task.title", limit, bad));
    }
    let most = at_most(TASK_TEXT_BYTES_MAX);
    let text = |bytes: usize| plain.clone().with_description("d".repeat(bytes));
    all.push(("a description too long".to_owned(), "task.description", most, text(TASK_TEXT_BYTES_MAX + 1)));
    for retries in [TASK_RETRIES_MAX + 1, 1 << 16, u32::MAX] {
        let bad = plain.clone().with_retries_max(retries);
        all.push((format!("{retries} retries"), "task.retries_max", up_to(u64::from(TASK_RETRIES_MAX)), bad));
    }
    all
}

fn additions(way: Way) -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (place, at) in PLACES {
        for (what, field, limit, bad) in bad_tasks() {
            let tasks = move || Ok(among([task("good")?, task("better")?], bad.clone(), at));
            rows.push(write(way, tasks, format!("{what}, {place}"), field, *limit));
        }
        let twice = move || Ok(among([task("twice")?, task("good")?], task("twice")?, at));
        rows.push(write(way, twice, format!("an id twice, {place}"), "tasks.id", TWICE));
    }
    let many = || (0..=BATCH_TASKS_MAX).map(|number| task(&format!("many-{number}"))).collect();
    rows.push(write(way, many, "too many".to_owned(), "tasks", at_most(BATCH_TASKS_MAX)));
    if matches!(way, Way::Addition | Way::AdditionToNoBoard) {
        rows.push(write(way, || Ok(Vec::new()), "none".to_owned(), "tasks", at_least(1)));
    }
    rows
}

fn labels() -> Vec<Refusal> {
    let mut rows = Vec::new();
    let texts = [
        ("too long", "l", TASK_TITLE_BYTES_MAX + 1),
        ("too long in bytes", "🦀", TASK_TITLE_BYTES_MAX / 4 + 1),
        ("far too long", "l", 1 << 20),
    ];
    for (what, letter, count) in texts {
        for is_there in [false, true] {
            for tasks in [0, 2] {
                let what = format!("{what}, {tasks} tasks, board exists: {is_there}");
                rows.push(Refusal::new(
                    "tasks.create_task_list",
                    what,
                    "label",
                    at_most(TASK_TITLE_BYTES_MAX),
                    move |stores| {
                        Box::pin(async move {
                            let label = letter.repeat(count);
                            let board = if is_there { kept()? } else { fresh()? };
                            let tasks = (0..tasks)
                                .map(|number| task(&format!("t{number}")))
                                .collect::<Result<_>>()?;
                            let new =
                                NewBoard::new(tasks).with_label(label).with_parent(AgentId::new("chief")?);
                            stores.tasks()?.create_task_list(&board, new).await.map(drop)
                        })
                    },
                ));
            }
        }
    }
    rows
}

fn results() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, letter, count) in
        [("too long", "r", TASK_TEXT_BYTES_MAX + 1), ("too long in bytes", "é", TASK_TEXT_BYTES_MAX / 2 + 1)]
    {
        for &to in TaskStatus::ALL {
            for name in ["kept-task-0", "kept-task-1", "kept-task-2", "absent"] {
                let what = format!("{what}, of {name} to {}", to.as_str());
                rows.push(Refusal::new(
                    "tasks.update_status",
                    what,
                    "result",
                    at_most(TASK_TEXT_BYTES_MAX),
                    move |stores| {
                        let step = Transition::to(to).with_result(letter.repeat(count));
                        Box::pin(async move {
                            let store = stores.tasks()?;
                            store.update_status(&kept()?, &TaskId::new(name)?, step).await.map(drop)
                        })
                    },
                ));
            }
        }
    }
    rows
}

fn leases() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, limit, lease) in durations() {
        for (conversation, agent) in [("kept-talk", "kept-agent"), ("kept-talk", "nobody"), ("no", "where")] {
            let board = move || BoardId::new(conversation, agent);
            let at = format!("{what}, of {conversation} {agent}");
            rows.push(Refusal::new(
                "tasks.claim",
                format!("claimed for {at}"),
                "lease",
                limit,
                move |stores| {
                    Box::pin(async move {
                        let store = stores.tasks()?;
                        store.claim(&board()?, &WorkerId::new("worker")?, lease).await.map(drop)
                    })
                },
            ));
            for (name, token) in
                [("kept-task-1", 2), ("kept-task-1", 0), ("kept-task-2", u64::MAX), ("absent", 1)]
            {
                let what = format!("{name} renewed under {token} for {at}");
                rows.push(Refusal::new("tasks.renew_lease", what, "lease", limit, move |stores| {
                    Box::pin(async move {
                        let (store, token) = (stores.tasks()?, FencingToken::new(token));
                        store.renew_lease(&board()?, &TaskId::new(name)?, token, lease).await.map(drop)
                    })
                }));
            }
        }
    }
    rows
}

fn pages() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for status in TaskStatus::ALL.iter().copied().map(Some).chain([None]) {
            for after in [None, Some(TaskPosition::new(0))] {
                for is_there in [true, false] {
                    let board = move || if is_there { kept() } else { fresh() };
                    let what = format!("in {status:?} after {after:?} board exists: {is_there}, {what}");
                    rows.push(Refusal::new("tasks.list_tasks", what, "limit", most, move |stores| {
                        Box::pin(async move {
                            let query = TaskQuery::in_statuses(status);
                            let page = PageRequest::first(count).with_after(after);
                            stores.tasks()?.list_tasks(&board()?, &query, page).await.map(drop)
                        })
                    }));
                }
            }
        }
        for conversation in [None, Some("kept-talk"), Some("nowhere")] {
            for after in [None, Some("kept-agent")] {
                let what = format!("boards of {conversation:?} after {after:?}: {what}");
                rows.push(Refusal::new("tasks.list_boards", what, "limit", most, move |stores| {
                    Box::pin(async move {
                        let conversation = conversation.map(ConversationId::new).transpose()?;
                        let after = after.map(|agent| BoardId::new("kept-talk", agent)).transpose()?;
                        let page = PageRequest::first(count).with_after(after);
                        stores.tasks()?.list_boards(conversation.as_ref(), page).await.map(drop)
                    })
                }));
            }
        }
    }
    rows
}

fn ids() -> Vec<Refusal> {
    [
        refused_ids("conversation", ConversationId::new),
        refused_ids("agent", AgentId::new),
        refused_ids("task", TaskId::new),
        refused_ids("worker", WorkerId::new),
    ]
    .concat()
}
