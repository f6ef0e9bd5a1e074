//! Removal of boards, and their creation under the same id.

use larder_kernel::{AgentId, ErrorKind, NewBoard, NewTask, TaskQuery, TaskStatus, Transition};

use super::support::{
    HOUR, board, boards, claim, id, listed, make, make_in_every_status, names, new_tasks, read, read_board,
    tasks, worker,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn a_deleted_board_no_longer_exists_and_others_remain(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let removed = make_in_every_status(&*a, "talk", "one").await?;
    a.add_tasks(&removed, new_tasks(&["leased"])?).await?;
    claim(&*a, &removed, "worker", HOUR).await?;
    let mut others = Vec::new();
    for (conversation, agent) in
        [("talk", "on"), ("talk", "one2"), ("talk", "One"), ("talk2", "one"), ("one", "talk")]
    {
        let board = make_in_every_status(&*a, conversation, agent).await?;
        let before = (read_board(&*a, &board).await?, tasks(&*a, &board).await?);
        others.push((board, before));
    }
    expect::equal("the reported existence", &b.delete_board(&removed).await?, &true)?;
    for store in [&a, &b] {
        expect::equal("the board", &store.get_board(&removed).await?, &None)?;
        expect::equal("the tasks", &tasks(&**store, &removed).await?, &Vec::new())?;
        expect::equal("a task", &store.get_task(&removed, &id("leased")?).await?, &None)?;
        expect::equal("a claim", &store.claim(&removed, &worker("worker")?, HOUR).await?, &None)?;
        expect::equal("number of boards", &boards(&**store, None, 10).await?.len(), &others.len())?;
    }
    let stepped = a.update_status(&removed, &id("planned")?, Transition::to(TaskStatus::Blocked)).await;
    expect::error("a step of a deleted task", stepped, ErrorKind::NotFound)?;
    expect::equal("existence before the deletion", &a.delete_board(&removed).await?, &false)?;
    expect::equal("the reported absence", &a.delete_board(&board("talk", "never")?).await?, &false)?;
    for (board, before) in others {
        let now = (read_board(&*b, &board).await?, tasks(&*b, &board).await?);
        expect::equal("another board and its tasks", &now, &before)?;
    }
    // A removed board has no running task.
    expect::equal("number of settled tasks", &b.settle_conversation(&removed.conversation).await?, &3)
}

pub(super) async fn a_board_created_again_is_empty(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    let old = vec![
        NewTask::new(id("shared")?, "old").with_description("old").with_retries_max(9),
        NewTask::new(id("old")?, "old"),
    ];
    let asked = NewBoard::new(old).with_label("old").with_parent(AgentId::new("chief")?);
    a.create_task_list(&board, asked).await?;
    let failed = Transition::to(TaskStatus::Blocked).with_result("old");
    a.update_status(&board, &id("shared")?, failed).await?;
    a.delete_board(&board).await?;

    let new = NewTask::new(id("shared")?, "new");
    let made = b.create_task_list(&board, NewBoard::new(vec![new.clone()])).await?;
    expect::equal("label and parent", &(&made.label, &made.parent), &(&None, &None))?;
    expect::equal("the board", &read_board(&*a, &board).await?, &made)?;
    let task = read(&*a, &board, "shared").await?;
    expect::equal("the task", &task, &new.into_task(task.position, task.revision))?;
    expect::equal("the tasks", &names(&tasks(&*a, &board).await?), &vec!["shared"])?;
    for &status in TaskStatus::ALL {
        let count = usize::from(status == TaskStatus::Planned);
        let found = listed(&*b, &board, &TaskQuery::in_statuses([status]), 10).await?;
        expect::equal(&format!("tasks in {status:?}"), &found.len(), &count)?;
    }
    b.add_tasks(&board, new_tasks(&["old"])?).await?;
    expect::equal("the tasks", &names(&tasks(&*a, &board).await?), &vec!["shared", "old"])
}

pub(super) async fn tokens_and_revisions_continue(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (mut token, mut revision) = (None, None);
    for round in 0..3 {
        let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
        let mut least = read(&*b, &board, "one").await?.revision;
        least = least.min(read(&*b, &board, "two").await?.revision);
        expect::that(Some(least) > revision, format!("revisions over {revision:?}"), least)?;
        for _ in 0..2 {
            let claimed = claim(&*b, &board, "worker", HOUR).await?;
            expect::that(Some(claimed.token) > token, format!("a token over {token:?}"), claimed.token)?;
            (token, revision) = (Some(claimed.token), revision.max(Some(claimed.task.revision)));
        }
        // A worker of the old board cannot move a task of the new one.
        if round > 0 {
            let late = Transition::to(TaskStatus::Succeeded).with_token(larder_kernel::FencingToken::new(1));
            let stepped = a.update_status(&board, &id("one")?, late).await;
            expect::error("a step with a token of the old board", stepped, ErrorKind::Conflict)?;
        }
        b.delete_board(&board).await?;
    }
    Ok(())
}
