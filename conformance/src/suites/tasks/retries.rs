//! Retries of tasks.

use larder_kernel::{
    BoardId, ErrorKind, FencingToken, NewTask, RetryOutcome, Task, TaskStatus, TaskStore, Transition,
};
use tokio::task::JoinSet;

use super::support::{
    HOUR, board, bring, claim, id, joined, make, make_in_every_status, read, reads, step, turn,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

async fn retry(
    store: &dyn TaskStore,
    board: &BoardId,
    name: &str,
    token: Option<FencingToken>,
) -> CaseResult<Task> {
    match store.increment_retry(board, &id(name)?, token).await? {
        RetryOutcome::Retried(task) => Ok(task),
        RetryOutcome::Exhausted(task) => Err(expect::broken("a retry", format!("Exhausted({task:?})"))),
    }
}

pub(super) async fn a_retry_is_counted_and_plans_the_task_again(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task", "other"]).await?;
    let half = Transition::to(TaskStatus::Blocked).with_result("half");
    a.update_status(&board, &id("task")?, half).await?;
    step(&*a, &board, "task", TaskStatus::Planned).await?;
    let statuses = [TaskStatus::Failed, TaskStatus::InProgress, TaskStatus::Blocked];
    for (count, status) in (1..).zip(statuses) {
        let before = bring(&*a, &board, "task", status).await?;
        let task = retry(&*b, &board, "task", None).await?;
        let mut expected = before.clone();
        (expected.status, expected.retries, expected.revision) = (TaskStatus::Planned, count, task.revision);
        expect::equal("the task", &task, &expected)?;
        expect::that(task.revision > before.revision, "a greater revision", task.revision)?;
        reads(&*a, &board, &task).await?;
    }
    expect::equal("retries of another task", &read(&*a, &board, "other").await?.retries, &0)
}

pub(super) async fn a_retry_ends_the_lease(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task"]).await?;
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    let task = retry(&*b, &board, "task", Some(claimed.token)).await?;
    expect::equal("status and lease", &(task.status, &task.lease), &(TaskStatus::Planned, &None))?;
    let late = Transition::to(TaskStatus::Succeeded).with_token(claimed.token);
    let stepped = a.update_status(&board, &id("task")?, late).await;
    expect::error("a step with the earlier token the retry", stepped, ErrorKind::Conflict)?;
    let again = claim(&*b, &board, "other worker", HOUR).await?;
    expect::equal("the retries", &again.task.retries, &1)
}

pub(super) async fn a_task_without_retries_left_is_exhausted(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &[]).await?;
    for allowed in [0, 1, 3] {
        let name = format!("allowed-{allowed}");
        a.add_tasks(&board, vec![NewTask::new(id(&name)?, "title").with_retries_max(allowed)]).await?;
        for _ in 0..allowed {
            bring(&*a, &board, &name, TaskStatus::Failed).await?;
            retry(&*b, &board, &name, None).await?;
        }
        for status in [TaskStatus::Blocked, TaskStatus::InProgress, TaskStatus::Failed] {
            let before = step(&*a, &board, &name, status).await?;
            for store in [&a, &b] {
                let outcome = store.increment_retry(&board, &id(&name)?, None).await?;
                expect::equal("the outcome", &outcome, &RetryOutcome::Exhausted(before.clone()))?;
                reads(&**store, &board, &before).await?;
            }
        }
    }
    // The task keeps a lease, too.
    a.add_tasks(&board, vec![NewTask::new(id("leased")?, "title").with_retries_max(0)]).await?;
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    let outcome = b.increment_retry(&board, &id("leased")?, Some(claimed.token)).await?;
    expect::equal("the outcome", &outcome, &RetryOutcome::Exhausted(claimed.task.clone()))?;
    reads(&*a, &board, &claimed.task).await
}

pub(super) async fn only_begun_and_failed_tasks_are_retried(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make_in_every_status(&*a, "talk", "planner").await?;
    for status in [TaskStatus::Planned, TaskStatus::Succeeded, TaskStatus::Abandoned] {
        let before = read(&*a, &board, status.as_str()).await?;
        let retried = b.increment_retry(&board, &before.id, None).await;
        expect::error(&format!("a retry of a task that is {status:?}"), retried, ErrorKind::Conflict)?;
        reads(&*a, &board, &before).await?;
    }
    for status in [TaskStatus::InProgress, TaskStatus::Blocked, TaskStatus::Failed] {
        retry(&*b, &board, status.as_str(), None).await?;
    }
    Ok(())
}

pub(super) async fn concurrent_increments_stay_within_the_limit(context: Context) -> CaseResult {
    const ALLOWED: u32 = 5;
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "race", "planner", &[]).await?;
    a.add_tasks(&board, vec![NewTask::new(id("task")?, "title").with_retries_max(ALLOWED)]).await?;
    step(&*a, &board, "task", TaskStatus::InProgress).await?;
    let mut workers: JoinSet<CaseResult<u32>> = JoinSet::new();
    for worker in 0..8 {
        let (store, board, task) = (turn(&a, &b, worker), board.clone(), id("task")?);
        workers.spawn(async move {
            let mut counted = 0;
            for _ in 0..6 {
                match store.increment_retry(&board, &task, None).await {
                    Ok(RetryOutcome::Retried(_)) => counted += 1,
                    Ok(RetryOutcome::Exhausted(_)) => {}
                    // Another worker was first: the task is planned.
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.into()),
                }
                match store.update_status(&board, &task, Transition::to(TaskStatus::Blocked)).await {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(counted)
        });
    }
    let mut counted = 0;
    while let Some(result) = workers.join_next().await {
        counted += joined(result)?;
    }
    let task = read(&*b, &board, "task").await?;
    expect::equal("retries returned and retries stored", &(counted, task.retries), &(ALLOWED, ALLOWED))
}

pub(super) async fn a_retry_under_a_lease_needs_the_token(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task", "free"]).await?;
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    let wrong = FencingToken::new(claimed.token.get() + 1);
    for token in [None, Some(wrong), Some(FencingToken::new(0)), Some(FencingToken::new(u64::MAX))] {
        let retried = b.increment_retry(&board, &id("task")?, token).await;
        expect::error(&format!("a retry with {token:?}"), retried, ErrorKind::Conflict)?;
        reads(&*a, &board, &claimed.task).await?;
    }
    let blocked = step(&*a, &board, "free", TaskStatus::Blocked).await?;
    let retried = b.increment_retry(&board, &id("free")?, Some(claimed.token)).await;
    expect::error("a retry with a token, of a task without lease", retried, ErrorKind::Conflict)?;
    reads(&*a, &board, &blocked).await?;
    expect::equal("retries", &retry(&*b, &board, "task", Some(claimed.token)).await?.retries, &1)
}

pub(super) async fn a_forced_retry_resets_any_task(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &[]).await?;
    for &status in TaskStatus::ALL {
        let name = status.as_str();
        a.add_tasks(&board, vec![NewTask::new(id(name)?, "title").with_retries_max(1)]).await?;
        let half = Transition::to(TaskStatus::Blocked).with_result("half");
        a.update_status(&board, &id(name)?, half).await?;
        retry(&*a, &board, name, None).await?;
        let before = bring(&*a, &board, name, status).await?;
        expect::equal("retries and result", &(before.retries, before.result.as_deref()), &(1, Some("half")))?;
        let task = b.force_retry(&board, &id(name)?).await?;
        let mut expected = before.clone();
        (expected.status, expected.retries, expected.result) = (TaskStatus::Planned, 0, None);
        expected.revision = task.revision;
        expect::equal("the task", &task, &expected)?;
        expect::that(task.revision > before.revision, "a greater revision", task.revision)?;
        reads(&*a, &board, &task).await?;
        // The task leaves the next round, and has its retry again.
        step(&*a, &board, name, TaskStatus::Blocked).await?;
        retry(&*a, &board, name, None).await?;
    }
    // No caller needs a token for it, and the worker's token is stale from then on.
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    let freed = b.force_retry(&board, &claimed.task.id).await?;
    expect::equal("status and lease", &(freed.status, &freed.lease), &(TaskStatus::Planned, &None))?;
    reads(&*a, &board, &freed).await?;
    let late = Transition::to(TaskStatus::InProgress).with_token(claimed.token);
    let stepped = a.update_status(&board, &claimed.task.id, late).await;
    expect::error("a step with the earlier token", stepped, ErrorKind::Conflict)?;
    Ok(())
}

pub(super) async fn forcing_a_missing_task_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let here = make(&*a, "talk", "planner", &["one"]).await?;
    let nowhere = board("nowhere", "planner")?;
    for (board, name) in [(&here, "two"), (&nowhere, "one")] {
        let forced = b.force_retry(board, &id(name)?).await;
        expect::error("forcing a missing task", forced, ErrorKind::NotFound)?;
    }
    expect::equal("the task", &a.get_task(&here, &id("two")?).await?, &None)?;
    expect::equal("the board", &a.get_board(&nowhere).await?, &None)
}
