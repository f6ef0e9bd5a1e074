//! Boards with many tasks, and many boards.

use std::collections::BTreeSet;
use std::sync::Mutex;

use larder_kernel::limits::BATCH_TASKS_MAX;
use larder_kernel::{
    BoardId, BoardStatusCounts, Contract, ConversationId, NewBoard, PageRequest, Task, TaskQuery, TaskStatus,
    TaskStore,
};

use super::support::{HOUR, board, boards, listed, make, new_tasks, read_board, step, tasks, worker};
use crate::case::{CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::many::{Row, count, each};

const CONTRACT: Contract = Contract::Tasks;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("create_task_list", case!(Tasks, "TASK-016", many_created_boards_are_listed_once)),
        ("add_tasks", case!(Tasks, "TASK-006", many_added_tasks_follow_in_order)),
        ("get_board", case!(Tasks, "TASK-011", many_tasks_are_counted)),
        ("list_tasks", case!(Tasks, "TASK-014", many_tasks_are_listed_once)),
        ("list_tasks", case!(Tasks, "TASK-013", the_last_of_many_tasks_is_found_by_its_status)),
        ("list_boards", case!(Tasks, "TASK-016", many_boards_of_a_conversation_are_listed_once)),
        ("settle_conversation", case!(Tasks, "TASK-037", many_tasks_are_settled)),
        ("claim", case!(Tasks, "TASK-041", many_tasks_are_claimed_once)),
        ("delete_board", case!(Tasks, "TASK-050", a_board_of_many_tasks_is_deleted)),
        ("erase", case!(Tasks, "STORE-006", erasing_many_tasks_leaves_none)),
    ]
}

fn name(number: usize) -> String {
    format!("t{number:06}")
}

/// Creates a board with many tasks, which are added in the largest batches.
async fn fill(store: &dyn TaskStore, board: &BoardId, many: usize) -> CaseResult {
    store.create_task_list(board, NewBoard::default()).await?;
    let names: Vec<String> = (0..many).map(name).collect();
    for batch in names.chunks(BATCH_TASKS_MAX) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        let added = store.add_tasks(board, new_tasks(&batch)?).await?;
        expect::equal("the number of added tasks", &added.len(), &batch.len())?;
    }
    Ok(())
}

/// A board with many tasks, the last of which is blocked, and many boards of one task in one conversation.
async fn large(context: &Context) -> CaseResult<(Handles<dyn TaskStore>, BoardId, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move {
        let store = &*context.tasks().await?.a;
        let long = board("long", "agent")?;
        fill(store, &long, many).await?;
        step(store, &long, &name(many - 1), TaskStatus::Blocked).await?;
        each(0..many, |number| async move { make(store, "many", &name(number), &["one"]).await.map(drop) })
            .await
    };
    Ok((context.large(CONTRACT, "many", load).await?.tasks().await?, board("long", "agent")?, many))
}

fn in_order(what: &str, found: &[Task], many: usize) -> CaseResult {
    expect::equal(&format!("{what}: the number of tasks"), &found.len(), &many)?;
    let ordered = found.iter().enumerate().all(|(number, task)| task.id.as_str() == name(number));
    expect::that(ordered, format!("{what}: every task in board order"), found.first())
}

/// Claims every task of the boards, by several workers at a time, and returns the claimed tasks.
async fn claim_all(store: &dyn TaskStore, boards: &[BoardId], many: usize) -> CaseResult<usize> {
    let (claimed, own) = (Mutex::new(BTreeSet::new()), worker("worker")?);
    let (claimed, own) = (&claimed, &own);
    each(0..many, |number| async move {
        let board = &boards[number % boards.len()];
        let claim = expect::some("a free task", store.claim(board, own, HOUR).await?)?;
        let new = claimed.lock().is_ok_and(|mut claimed| claimed.insert((board, claim.task.id.clone())));
        expect::that(new, "each task claimed once", claim.task.id)
    })
    .await?;
    for board in boards {
        expect::equal("a claim without a free task", &store.claim(board, own, HOUR).await?, &None)?;
    }
    Ok(claimed.lock().map_or(0, |claimed| claimed.len()))
}

async fn many_created_boards_are_listed_once(context: Context) -> CaseResult {
    let (stores, _, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let found = boards(&*stores.b, None, limit).await?;
        expect::equal("the number of boards", &found.len(), &(many + 1))?;
        let ordered = found.windows(2).all(|pair| pair[0].id < pair[1].id);
        expect::that(ordered, "each board once, in order", found.first())?;
    }
    Ok(())
}

async fn many_added_tasks_follow_in_order(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    in_order("the board", &tasks(&*stores.b, &long).await?, many)
}

async fn many_tasks_are_counted(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    let expected = BoardStatusCounts::default().with_planned(count(many - 1)).with_blocked(1);
    expect::equal("the counts", &read_board(&*stores.b, &long).await?.tasks, &expected)
}

async fn many_tasks_are_listed_once(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let found = listed(&*stores.b, &long, &TaskQuery::default(), limit).await?;
        in_order(&format!("pages of {limit}"), &found, many)?;
    }
    let page = stores.b.list_tasks(&long, &TaskQuery::default(), PageRequest::first(10_000)).await?;
    expect::equal("the tasks of the longest page", &page.items.len(), &many.min(10_000))
}

async fn the_last_of_many_tasks_is_found_by_its_status(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    let blocked = TaskQuery::in_statuses([TaskStatus::Blocked]);
    let found = listed(&*stores.b, &long, &blocked, 10).await?;
    expect::equal("the blocked tasks", &super::support::names(&found), &vec![name(many - 1).as_str()])?;
    let planned = TaskQuery::in_statuses([TaskStatus::Planned]);
    in_order("the planned tasks", &listed(&*stores.b, &long, &planned, 10_000).await?, many - 1)
}

async fn many_boards_of_a_conversation_are_listed_once(context: Context) -> CaseResult {
    let (stores, _, many) = large(&context).await?;
    let conversation = ConversationId::new("many")?;
    let found = boards(&*stores.b, Some(&conversation), 10_000).await?;
    expect::equal("the number of boards", &found.len(), &many)?;
    let ordered = found.iter().enumerate().all(|(number, board)| board.id.agent.as_str() == name(number));
    expect::that(ordered, "each board once, in order", found.first())
}

async fn many_tasks_are_settled(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.tasks().await?, context.many(CONTRACT));
    let all = (0..4).map(|agent| board("talk", &agent.to_string())).collect::<CaseResult<Vec<_>>>()?;
    for board in &all {
        fill(&*a, board, many / all.len()).await?;
    }
    let running = claim_all(&*a, &all, many / all.len() * all.len()).await?;
    let settled = a.settle_conversation(&ConversationId::new("talk")?).await?;
    expect::equal("the number of settled tasks", &settled, &count(running))?;
    for board in &all {
        let expected = BoardStatusCounts::default().with_succeeded(count(many / all.len()));
        expect::equal("the counts", &read_board(&*b, board).await?.tasks, &expected)?;
    }
    Ok(())
}

async fn many_tasks_are_claimed_once(context: Context) -> CaseResult {
    let (stores, many) = (context.tasks().await?, context.many(CONTRACT));
    let long = board("long", "agent")?;
    fill(&*stores.a, &long, many).await?;
    let claimed = claim_all(&*stores.b, std::slice::from_ref(&long), many).await?;
    expect::equal("the number of claimed tasks", &claimed, &many)
}

async fn a_board_of_many_tasks_is_deleted(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.tasks().await?, context.many(CONTRACT));
    let long = board("long", "agent")?;
    fill(&*a, &long, many).await?;
    expect::equal("the reported existence", &a.delete_board(&long).await?, &true)?;
    expect::equal("the tasks", &tasks(&*b, &long).await?, &Vec::new())?;
    a.create_task_list(&long, NewBoard::default()).await?;
    expect::equal("the tasks of the new board", &tasks(&*b, &long).await?, &Vec::new())
}

async fn erasing_many_tasks_leaves_none(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.tasks().await?, context.many(CONTRACT));
    let long = board("long", "agent")?;
    fill(&*a, &long, many).await?;
    a.erase().await?;
    expect::equal("the boards", &boards(&*b, None, 10).await?, &Vec::new())?;
    expect::equal("the tasks", &tasks(&*b, &long).await?, &Vec::new())
}
