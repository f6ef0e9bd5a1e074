//! One rule, many places: tokens and missing tasks mean the same in every method that takes them.

use larder_kernel::{BoardId, ErrorKind, FencingToken, NewBoard, TaskStatus, TaskStore, Transition};

use super::support::{HOUR, board, claim, id, make, new_tasks, read, reads, step, worker};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-025", a_transition_follows_the_table_of_tokens),
        case!(Tasks, "TASK-034", a_retry_follows_the_table_of_tokens),
        case!(Tasks, "TASK-048", a_renewal_follows_the_table_of_tokens),
        case!(Tasks, "TASK-022", a_transition_follows_the_table_of_revisions),
        case!(Tasks, "TASK-028", every_change_of_a_missing_task_is_not_found),
    ]
}

/// The board, its claimed task, and tokens that are not the task's.
async fn wrong_tokens(
    store: &dyn TaskStore,
) -> CaseResult<(BoardId, FencingToken, Vec<(&'static str, FencingToken)>)> {
    let long = make(store, "talk", "planner", &["one", "two", "three"]).await?;
    let other = make(store, "talk", "other", &["one", "two", "three", "four", "five", "six"]).await?;
    // An earlier claim of the same task, which the task's retry has ended.
    let ended = claim(store, &long, "worker", HOUR).await?;
    store.force_retry(&long, &ended.task.id).await?;
    let current = claim(store, &long, "worker", HOUR).await?;
    let newer = claim(store, &long, "worker", HOUR).await?;
    let mut elsewhere = claim(store, &other, "worker", HOUR).await?;
    while elsewhere.token.get() <= newer.token.get() {
        let Some(claimed) = store.claim(&other, &worker("worker")?, HOUR).await? else { break };
        elsewhere = claimed;
    }
    let tokens = vec![
        ("an ended claim", ended.token),
        ("a later claim of another task", newer.token),
        ("a claim on another board", elsewhere.token),
        ("no claim", FencingToken::new(u64::MAX)),
        ("number 0", FencingToken::new(0)),
    ];
    let wrong = tokens.into_iter().filter(|(_, token)| *token != current.token).collect();
    Ok((long, current.token, wrong))
}

async fn a_transition_follows_the_table_of_tokens(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, current, wrong) = wrong_tokens(&*a).await?;
    let before = read(&*b, &board, "one").await?;
    for (what, token) in wrong {
        for to in [TaskStatus::Succeeded, TaskStatus::Planned] {
            let stepped = a.update_status(&board, &before.id, Transition::to(to).with_token(token)).await;
            expect::error(&format!("a transition with the token of {what}"), stepped, ErrorKind::Conflict)?;
            reads(&*b, &board, &before).await?;
        }
    }
    let right = Transition::to(TaskStatus::Succeeded).with_token(current);
    a.update_status(&board, &before.id, right).await?;
    Ok(())
}

async fn a_retry_follows_the_table_of_tokens(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, current, wrong) = wrong_tokens(&*a).await?;
    let before = read(&*b, &board, "one").await?;
    let none = ("nobody", None);
    for (what, token) in wrong.into_iter().map(|(what, token)| (what, Some(token))).chain([none]) {
        let retried = a.increment_retry(&board, &before.id, token).await;
        expect::error(&format!("a retry with the token of {what}"), retried, ErrorKind::Conflict)?;
        reads(&*b, &board, &before).await?;
    }
    a.increment_retry(&board, &before.id, Some(current)).await?;
    Ok(())
}

async fn a_renewal_follows_the_table_of_tokens(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, current, wrong) = wrong_tokens(&*a).await?;
    let before = read(&*b, &board, "one").await?;
    for (what, token) in wrong {
        let renewed = a.renew_lease(&board, &before.id, token, 2 * HOUR).await;
        expect::error(&format!("a renewal with the token of {what}"), renewed, ErrorKind::Conflict)?;
        reads(&*b, &board, &before).await?;
    }
    a.renew_lease(&board, &before.id, current, 2 * HOUR).await?;
    Ok(())
}

async fn a_transition_follows_the_table_of_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
    let first = read(&*a, &board, "one").await?;
    let older = step(&*a, &board, "one", TaskStatus::InProgress).await?;
    let current = step(&*a, &board, "one", TaskStatus::Blocked).await?;
    let mut newer = step(&*a, &board, "two", TaskStatus::InProgress).await?;
    for to in [TaskStatus::Blocked, TaskStatus::Planned, TaskStatus::InProgress, TaskStatus::Blocked] {
        newer = step(&*a, &board, "two", to).await?;
    }
    let table = [("the first", first.revision), ("an older", older.revision), ("a newer", newer.revision)];
    for (what, revision) in table.into_iter().filter(|(_, revision)| *revision != current.revision) {
        let planned = Transition::to(TaskStatus::Planned).with_expected(revision).with_result("lost");
        let stepped = a.update_status(&board, &current.id, planned).await;
        expect::error(&format!("a transition at {what} revision"), stepped, ErrorKind::Conflict)?;
        reads(&*b, &board, &current).await?;
    }
    Ok(())
}

async fn every_change_of_a_missing_task_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let here = make(&*a, "talk", "planner", &["one"]).await?;
    let deleted = make(&*a, "talk", "deleted", &["one"]).await?;
    a.delete_board(&deleted).await?;
    let empty = board("talk", "empty")?;
    a.create_task_list(&empty, NewBoard::default()).await?;
    let nowhere = board("nowhere", "planner")?;
    let token = FencingToken::new(1);
    for (board, task) in [(&here, "On\u{e9}"), (&deleted, "one"), (&empty, "one"), (&nowhere, "one")] {
        let task = id(task)?;
        let results = [
            (
                "update_status",
                a.update_status(board, &task, Transition::to(TaskStatus::Blocked)).await.map(drop),
            ),
            ("increment_retry", a.increment_retry(board, &task, None).await.map(drop)),
            ("force_retry", a.force_retry(board, &task).await.map(drop)),
            ("renew_lease", a.renew_lease(board, &task, token, HOUR).await.map(drop)),
        ];
        for (method, result) in results {
            expect::error(&format!("{method} of a missing task"), result, ErrorKind::NotFound)?;
        }
        expect::equal("the task", &b.get_task(board, &task).await?, &None)?;
    }
    for board in [&deleted, &nowhere] {
        let added = a.add_tasks(board, new_tasks(&["new"])?).await;
        expect::error("add_tasks on a missing board", added, ErrorKind::NotFound)?;
        expect::equal("the board", &b.get_board(board).await?, &None)?;
    }
    Ok(())
}
