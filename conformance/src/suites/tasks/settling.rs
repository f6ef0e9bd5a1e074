//! The end of a conversation's running tasks.

use larder_kernel::{ConversationId, ErrorKind, NewBoard, TaskStatus, Transition};

use super::support::{
    BRIEF, HOUR, bring, claim, id, make, make_in_every_status, new_tasks, past, read, reads, step, tasks,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn exactly_the_tasks_in_progress_are_settled(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    // Three boards, with 1, 4 and no tasks in progress: without a lease, under a valid one, and under an
    // expired one.
    let first = make_in_every_status(&*a, "talk", "one").await?;
    let second = make(&*a, "talk", "two", &["early", "free", "leased", "passed", "rest"]).await?;
    bring(&*a, &second, "early", TaskStatus::Blocked).await?;
    let with_result = Transition::to(TaskStatus::InProgress).with_result("half");
    a.update_status(&second, &id("free")?, with_result).await?;
    claim(&*a, &second, "worker", HOUR).await?;
    claim(&*a, &second, "worker", BRIEF).await?;
    past(std::time::Instant::now(), BRIEF).await;
    step(&*a, &second, "early", TaskStatus::Planned).await?;
    claim(&*a, &second, "worker", HOUR).await?;
    let third = make(&*a, "talk", "three", &["rest"]).await?;
    a.create_task_list(&larder_kernel::BoardId::new("talk", "four")?, NewBoard::default()).await?;

    let mut expected = Vec::new();
    for board in [&first, &second, &third] {
        expected.push(tasks(&*a, board).await?);
    }
    expect::equal("number of settled tasks", &b.settle_conversation(&first.conversation).await?, &5)?;
    for (board, before) in [&first, &second, &third].into_iter().zip(expected) {
        for mut task in before {
            if task.status == TaskStatus::InProgress {
                let now = read(&*a, board, task.id.as_str()).await?;
                expect::that(now.revision > task.revision, "a greater revision", now.revision)?;
                (task.status, task.lease, task.revision) = (TaskStatus::Succeeded, None, now.revision);
            }
            reads(&*a, board, &task).await?;
        }
    }
    expect::equal("the result", &read(&*b, &second, "free").await?.result.as_deref(), &Some("half"))
}

pub(super) async fn other_conversations_do_not_change_and_settling_is_idempotent(
    context: Context,
) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let settled = make_in_every_status(&*a, "talk", "one").await?;
    let mut others = Vec::new();
    for conversation in ["talk-2", "tal", "Talk", "one", "talk%", "%"] {
        let board = make_in_every_status(&*a, conversation, "one").await?;
        let before = tasks(&*a, &board).await?;
        others.push((board, before));
    }
    expect::equal("number of settled tasks", &b.settle_conversation(&settled.conversation).await?, &1)?;
    let once = tasks(&*a, &settled).await?;
    expect::equal(
        "number of further settled tasks",
        &a.settle_conversation(&settled.conversation).await?,
        &0,
    )?;
    expect::equal("the tasks settled twice", &tasks(&*b, &settled).await?, &once)?;
    for (board, before) in others {
        expect::equal("tasks of another conversation", &tasks(&*b, &board).await?, &before)?;
    }
    let nobody = ConversationId::new("nobody")?;
    expect::equal(
        "number of settled tasks of an unknown conversation",
        &b.settle_conversation(&nobody).await?,
        &0,
    )?;
    expect::equal("boards of nobody", &super::support::boards(&*a, Some(&nobody), 10).await?, &Vec::new())
}

pub(super) async fn settled_tasks_lose_their_lease(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
    let claims = [claim(&*a, &board, "worker", HOUR).await?, claim(&*b, &board, "other worker", HOUR).await?];
    b.settle_conversation(&board.conversation).await?;
    for claimed in claims {
        let task = read(&*a, &board, claimed.task.id.as_str()).await?;
        expect::equal("status and lease", &(task.status, &task.lease), &(TaskStatus::Succeeded, &None))?;
        let late = Transition::to(TaskStatus::Failed).with_token(claimed.token);
        let stepped = a.update_status(&board, &task.id, late).await;
        expect::error("a step with the worker's token", stepped, ErrorKind::Conflict)?;
        let renewed = a.renew_lease(&board, &task.id, claimed.token, HOUR).await;
        expect::error("a renewal with the worker's token", renewed, ErrorKind::Conflict)?;
        let retried = a.increment_retry(&board, &task.id, Some(claimed.token)).await;
        expect::error("a retry with the worker's token", retried, ErrorKind::Conflict)?;
        reads(&*b, &board, &task).await?;
    }
    a.add_tasks(&board, new_tasks(&["three"])?).await?;
    expect::equal("the next claimed task", &claim(&*a, &board, "worker", HOUR).await?.task.id, &id("three")?)
}
