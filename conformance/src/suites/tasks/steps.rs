//! Steps of tasks without a lease.

use larder_kernel::{BoardId, ErrorKind, RetryOutcome, Revision, TaskStatus, TaskStore, Transition};
use tokio::task::JoinSet;

use super::support::{
    HOUR, board, bring, claim, id, joined, make, new_tasks, read, reads, step, tasks, turn,
};
use crate::case::{CaseResult, Failure};
use crate::context::{Context, Handles};
use crate::expect;

/// The contract's table, repeated here so that a change in the kernel is detected.
const fn in_table(from: TaskStatus) -> &'static [TaskStatus] {
    use TaskStatus::{Abandoned, Blocked, Failed, InProgress, Planned, Succeeded};
    match from {
        Planned => &[InProgress, Blocked, Abandoned],
        InProgress => &[Planned, Blocked, Succeeded, Failed, Abandoned],
        Blocked => &[Planned, InProgress, Failed, Abandoned],
        Failed => &[Abandoned],
        Succeeded | Abandoned => &[],
        _ => unreachable!(),
    }
}

/// Creates a board with a separate task for each pair of statuses; the task has the first status of the pair.
async fn pairs(
    store: &dyn TaskStore,
    wanted: impl Fn(TaskStatus, TaskStatus) -> bool,
) -> CaseResult<(BoardId, Vec<(String, TaskStatus, TaskStatus)>)> {
    let mut all = Vec::new();
    for &from in TaskStatus::ALL {
        for to in TaskStatus::ALL.iter().copied().filter(|to| wanted(from, *to)) {
            all.push((format!("{from:?} to {to:?}"), from, to));
        }
    }
    let board = make(store, "talk", "planner", &[]).await?;
    store.add_tasks(&board, new_tasks(&all.iter().map(|(name, ..)| &**name).collect::<Vec<_>>())?).await?;
    for (name, from, _) in &all {
        bring(store, &board, name, *from).await?;
    }
    Ok((board, all))
}

pub(super) async fn transitions_in_the_table_succeed(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, pairs) = pairs(&*a, |from, to| in_table(from).contains(&to)).await?;
    expect::equal("number of allowed transitions", &pairs.len(), &13)?;
    for (name, from, to) in pairs {
        let before = read(&*a, &board, &name).await?;
        expect::equal("the status before", &before.status, &from)?;
        let after = step(&*b, &board, &name, to).await?;
        let mut expected = before.clone();
        (expected.status, expected.revision) = (to, after.revision);
        expect::equal(&name, &after, &expected)?;
        expect::that(after.revision > before.revision, format!("over {}", before.revision), after.revision)?;
        reads(&*a, &board, &after).await?;
    }
    Ok(())
}

pub(super) async fn transitions_outside_the_table_conflict(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, pairs) = pairs(&*a, |from, to| !in_table(from).contains(&to)).await?;
    expect::equal("number of refused transitions", &pairs.len(), &23)?;
    let before = tasks(&*a, &board).await?;
    for (name, _, to) in pairs {
        let current = read(&*a, &board, &name).await?.revision;
        for step in [Transition::to(to), Transition::to(to).with_expected(current).with_result("lost")] {
            let stepped = b.update_status(&board, &id(&name)?, step).await;
            expect::error(&name, stepped, ErrorKind::Conflict)?;
        }
    }
    expect::equal("all tasks", &tasks(&*b, &board).await?, &before)
}

pub(super) async fn a_transition_at_another_revision_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task", "other"]).await?;
    let old = read(&*a, &board, "task").await?.revision;
    let now = step(&*a, &board, "task", TaskStatus::Blocked).await?;
    let other = step(&*a, &board, "other", TaskStatus::Blocked).await?.revision;
    let next = Revision::new(now.revision.get() + 1);
    let mut wrong = vec![old, next, Revision::ZERO, Revision::new(u64::MAX)];
    // Another task may have the same number by chance.
    wrong.extend(Some(other).filter(|other| *other != now.revision));
    for expected in wrong {
        let step = Transition::to(TaskStatus::InProgress).with_expected(expected).with_result("lost");
        let stepped = b.update_status(&board, &id("task")?, step).await;
        expect::error(&format!("a step from {expected}, at {}", now.revision), stepped, ErrorKind::Conflict)?;
        reads(&*a, &board, &now).await?;
    }
    Ok(())
}

pub(super) async fn a_transition_at_the_revision_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task", "other"]).await?;
    let mut revision = read(&*b, &board, "task").await?.revision;
    // A change of another task does not change the revision of this one.
    step(&*a, &board, "other", TaskStatus::Blocked).await?;
    for to in [TaskStatus::InProgress, TaskStatus::Blocked, TaskStatus::Failed] {
        let step = Transition::to(to).with_expected(revision);
        let task = b.update_status(&board, &id("task")?, step).await?;
        expect::equal("the status", &task.status, &to)?;
        reads(&*a, &board, &task).await?;
        revision = task.revision;
    }
    Ok(())
}

pub(super) async fn each_change_gives_a_greater_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task"]).await?;
    let task = id("task")?;
    let mut revisions = vec![read(&*a, &board, "task").await?.revision];
    revisions.push(step(&*b, &board, "task", TaskStatus::Blocked).await?.revision);
    match a.increment_retry(&board, &task, None).await? {
        RetryOutcome::Retried(task) => revisions.push(task.revision),
        exhausted @ RetryOutcome::Exhausted(_) => {
            return Err(expect::broken("a retry", format!("{exhausted:?}")));
        }
    }
    let claimed = claim(&*b, &board, "worker", HOUR).await?;
    revisions.push(claimed.task.revision);
    // The end of the lease is part of the task.
    a.renew_lease(&board, &task, claimed.token, HOUR * 2).await?;
    revisions.push(read(&*b, &board, "task").await?.revision);
    let done = Transition::to(TaskStatus::Succeeded).with_token(claimed.token);
    revisions.push(a.update_status(&board, &task, done).await?.revision);
    revisions.push(b.force_retry(&board, &task).await?.revision);
    revisions.push(step(&*a, &board, "task", TaskStatus::InProgress).await?.revision);
    a.settle_conversation(&board.conversation).await?;
    revisions.push(read(&*b, &board, "task").await?.revision);
    expect::that(revisions.is_sorted_by(|left, right| left < right), "growing revisions", &revisions)
}

pub(super) async fn one_of_concurrent_transitions_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "race", "planner", &["free", "guarded", "other"]).await?;
    let guarded = read(&*a, &board, "guarded").await?.revision;
    for (name, expected) in [("free", None), ("guarded", Some(guarded))] {
        let mut workers: JoinSet<CaseResult<Option<String>>> = JoinSet::new();
        for worker in 0..8 {
            let (store, board, task) = (turn(&a, &b, worker), board.clone(), id(name)?);
            workers.spawn(async move {
                let result = format!("worker {worker}");
                let mut step = Transition::to(TaskStatus::InProgress).with_result(result.clone());
                step.expected = expected;
                match store.update_status(&board, &task, step).await {
                    Ok(_) => Ok(Some(result)),
                    Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
                    Err(error) => Err(Failure::from(error)),
                }
            });
        }
        let mut winners = Vec::new();
        while let Some(result) = workers.join_next().await {
            winners.extend(joined(result)?);
        }
        expect::that(winners.len() == 1, "one winner", &winners)?;
        let task = read(&*b, &board, name).await?;
        expect::equal("status", &task.status, &TaskStatus::InProgress)?;
        expect::equal("the winner's result", &task.result, &winners.pop())?;
    }
    expect::equal("the other task", &read(&*b, &board, "other").await?.status, &TaskStatus::Planned)
}

pub(super) async fn a_result_is_stored_and_kept(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["task", "other"]).await?;
    let task = id("task")?;
    let steps = [
        (Transition::to(TaskStatus::InProgress), None),
        (Transition::to(TaskStatus::Blocked).with_result("half \u{1f980}"), Some("half \u{1f980}")),
        (Transition::to(TaskStatus::InProgress), Some("half \u{1f980}")),
        (Transition::to(TaskStatus::Planned).with_result(""), Some("")),
        (Transition::to(TaskStatus::InProgress), Some("")),
        (Transition::to(TaskStatus::Failed).with_result("why"), Some("why")),
        (Transition::to(TaskStatus::Abandoned), Some("why")),
    ];
    for (step, expected) in steps {
        let stepped = b.update_status(&board, &task, step).await?;
        expect::equal("the result", &stepped.result.as_deref(), &expected)?;
        reads(&*a, &board, &stepped).await?;
    }
    expect::equal("the result of another task", &read(&*b, &board, "other").await?.result, &None)
}

pub(super) async fn a_transition_of_a_missing_task_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let here = make(&*a, "talk", "planner", &["one"]).await?;
    let other = make(&*a, "talk", "other", &["two"]).await?;
    let nowhere = board("nowhere", "planner")?;
    for (board, name) in [(&here, "two"), (&other, "one"), (&nowhere, "one")] {
        let plain = Transition::to(TaskStatus::InProgress);
        // Neither a revision nor a token makes it a conflict.
        for step in [plain.clone(), plain.with_expected(Revision::new(1))] {
            let stepped = b.update_status(board, &id(name)?, step).await;
            expect::error("a transition of a missing task", stepped, ErrorKind::NotFound)?;
        }
        let retried = b.increment_retry(board, &id(name)?, None).await;
        expect::error("a retry of a missing task", retried, ErrorKind::NotFound)?;
    }
    expect::equal("the board", &a.get_board(&nowhere).await?, &None)
}
