//! Ids that must stay distinct.

use larder_kernel::{AgentId, BoardId, NewBoard, NewTask, TaskStatus, TaskStore, Transition};

use super::support::{
    HOUR, board, boards, claim, id, make, names, new_tasks, read, read_board, step, tasks, worker,
};
use crate::case::{Case, CaseResult, Level, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::ids::{hostile, hostile_pairs};

/// Returns the cases of hostile ids.
pub(super) fn cases() -> Vec<Case> {
    [
        case!(Tasks, "STORE-003", hostile_task_ids_are_separate),
        case!(Tasks, "STORE-003", hostile_conversations_are_separate),
        case!(Tasks, "STORE-003", hostile_agents_are_separate),
        case!(Tasks, "STORE-003", conversation_and_agent_do_not_merge),
        case!(Tasks, "STORE-003", board_and_task_ids_do_not_merge),
        case!(Tasks, "STORE-003", hostile_workers_and_parents_read_back),
    ]
    .into_iter()
    .map(|case| case.at_level(Level::Hostile))
    .collect()
}

async fn hostile_task_ids_are_separate(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &[]).await?;
    let all = hostile();
    let mut new = Vec::new();
    for name in &all {
        new.push(NewTask::new(id(name)?, name.clone()));
    }
    a.add_tasks(&board, new).await?;
    let found = tasks(&*b, &board).await?;
    expect::equal("the tasks in board order", &names(&found), &all.iter().map(String::as_str).collect())?;
    // Every second task changes its status, and no other.
    for name in all.iter().step_by(2) {
        let result = Transition::to(TaskStatus::Blocked).with_result(name.clone());
        b.update_status(&board, &id(name)?, result).await?;
    }
    for (position, name) in all.iter().enumerate() {
        let task = read(&*a, &board, name).await?;
        let (status, result) = if position % 2 == 0 {
            (TaskStatus::Blocked, Some(name.clone()))
        } else {
            (TaskStatus::Planned, None)
        };
        expect::equal(
            "title, status, result",
            &(&task.title, task.status, &task.result),
            &(name, status, &result),
        )?;
    }
    Ok(())
}

/// Creates each board with its address as label, reads them back, and removes every second one.
async fn boards_do_not_meet(stores: &Handles<dyn TaskStore>, all: &[BoardId]) -> CaseResult {
    for board in all {
        let label = format!("{:?}", (board.conversation.as_str(), board.agent.as_str()));
        stores.a.create_task_list(board, NewBoard::new(new_tasks(&["one"])?).with_label(label)).await?;
    }
    for board in all {
        let label = format!("{:?}", (board.conversation.as_str(), board.agent.as_str()));
        expect::equal("the label", &read_board(&*stores.b, board).await?.label, &Some(label))?;
    }
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    for limit in [7, 10_000] {
        let found: Vec<BoardId> =
            boards(&*stores.b, None, limit).await?.into_iter().map(|board| board.id).collect();
        expect::equal("the boards in byte order", &found, &sorted)?;
    }
    for board in all.iter().step_by(2) {
        step(&*stores.b, board, "one", TaskStatus::Blocked).await?;
        expect::equal("the reported existence", &stores.b.delete_board(board).await?, &true)?;
    }
    for (position, board) in all.iter().enumerate() {
        let there = stores.a.get_board(board).await?;
        if position % 2 == 0 {
            expect::equal("a removed board", &there, &None)?;
        } else {
            expect::equal(
                "planned tasks of a board that stays",
                &there.map(|board| board.tasks.planned),
                &Some(1),
            )?;
        }
    }
    Ok(())
}

async fn hostile_conversations_are_separate(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let all: Vec<BoardId> = hostile().iter().map(|name| board(name, "planner")).collect::<CaseResult<_>>()?;
    boards_do_not_meet(&stores, &all).await?;
    // Listings and settling affect exactly this conversation, too.
    for board in all.iter().skip(1).step_by(2) {
        let found = boards(&*stores.b, Some(&board.conversation), 10).await?;
        expect::equal(
            "boards of the conversation",
            &found.iter().map(|found| &found.id).collect(),
            &vec![board],
        )?;
        step(&*stores.a, board, "one", TaskStatus::InProgress).await?;
    }
    for board in all.iter().skip(1).step_by(2) {
        let settled = stores.b.settle_conversation(&board.conversation).await?;
        expect::equal("number of settled tasks", &settled, &1)?;
    }
    Ok(())
}

async fn hostile_agents_are_separate(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let all: Vec<BoardId> = hostile().iter().map(|name| board("talk", name)).collect::<CaseResult<_>>()?;
    boards_do_not_meet(&stores, &all).await
}

async fn conversation_and_agent_do_not_merge(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let pairs = hostile_pairs();
    let all: Vec<BoardId> =
        pairs.iter().map(|(conversation, agent)| board(conversation, agent)).collect::<CaseResult<_>>()?;
    boards_do_not_meet(&stores, &all).await
}

async fn board_and_task_ids_do_not_merge(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let mut made = Vec::new();
    for (agent, name) in hostile_pairs() {
        let board = board("talk", &agent)?;
        if a.get_board(&board).await?.is_none() {
            a.create_task_list(&board, NewBoard::default()).await?;
        }
        let title = format!("{agent:?} {name:?}");
        a.add_tasks(&board, vec![NewTask::new(id(&name)?, title.clone())]).await?;
        made.push((board, name, title));
    }
    for (board, name, title) in &made {
        expect::equal("the title", &read(&*b, board, name).await?.title, title)?;
    }
    let mut counted = 0;
    for board in boards(&*b, None, 10_000).await? {
        counted += board.tasks.total();
    }
    expect::equal("tasks of all boards", &counted, &u64::try_from(made.len()).unwrap_or_default())
}

async fn hostile_workers_and_parents_read_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for (number, name) in hostile().iter().enumerate() {
        let board = board("talk", &format!("agent-{number}"))?;
        let new = NewBoard::new(new_tasks(&["one"])?).with_label(name.clone());
        a.create_task_list(&board, new.with_parent(AgentId::new(name)?)).await?;
        claim(&*a, &board, name, HOUR).await?;
        let read_back = read_board(&*b, &board).await?;
        let expected = (Some(name.clone()), Some(AgentId::new(name)?));
        expect::equal("label and parent", &(read_back.label, read_back.parent), &expected)?;
        let lease = read(&*b, &board, "one").await?.lease;
        expect::equal("the worker", &lease.map(|lease| lease.worker), &Some(worker(name)?))?;
    }
    Ok(())
}
