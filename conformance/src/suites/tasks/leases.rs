//! The protection of a task by a lease, and its duration.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_kernel::limits::TTL_MS_MAX;
use larder_kernel::{ErrorKind, FencingToken, TaskStatus, Timestamp, Transition};

use super::claims::{ahead, further_by};
use super::support::{BRIEF, HOUR, board, claim, id, make, past, read, reads, step, worker};
use crate::case::CaseResult;
use crate::context::{Context, Handles, in_time};
use crate::expect;
use crate::suites::values::LIVES;

pub(super) async fn a_task_under_a_lease_moves_only_with_its_token(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two", "free"]).await?;
    let other_board = make(&*a, "talk", "other", &["one"]).await?;
    let one = claim(&*a, &board, "worker", HOUR).await?;
    let two = claim(&*a, &board, "worker", HOUR).await?;
    claim(&*a, &other_board, "worker", HOUR).await?;
    // No token, the token of another task of the same worker, and numbers around the valid one.
    let wrong = [
        None,
        Some(two.token),
        Some(FencingToken::new(0)),
        Some(FencingToken::new(one.token.get() + 1)),
        Some(FencingToken::new(one.token.get() - 1)),
        Some(FencingToken::new(u64::MAX)),
    ];
    for token in wrong {
        for to in [TaskStatus::Succeeded, TaskStatus::Planned, TaskStatus::Blocked] {
            let mut step = Transition::to(to).with_expected(one.task.revision).with_result("lost");
            step.token = token;
            let stepped = b.update_status(&board, &one.task.id, step).await;
            expect::error(&format!("a step with {token:?}"), stepped, ErrorKind::Conflict)?;
            reads(&*a, &board, &one.task).await?;
        }
    }
    // A token is not valid for a task without a lease.
    let free = read(&*a, &board, "free").await?;
    let step = Transition::to(TaskStatus::InProgress).with_token(one.token);
    let stepped = b.update_status(&board, &free.id, step).await;
    expect::error("a step with a token, of a task without lease", stepped, ErrorKind::Conflict)?;
    reads(&*a, &board, &free).await?;
    let right = Transition::to(TaskStatus::Succeeded).with_token(one.token).with_result("done");
    let done = b.update_status(&board, &one.task.id, right).await?;
    expect::equal(
        "status and result",
        &(done.status, done.result.as_deref()),
        &(TaskStatus::Succeeded, Some("done")),
    )?;
    reads(&*a, &board, &done).await
}

pub(super) async fn a_transition_out_of_in_progress_ends_the_lease(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["1", "2", "3", "4", "5"]).await?;
    let ways = [
        TaskStatus::Blocked,
        TaskStatus::Succeeded,
        TaskStatus::Failed,
        TaskStatus::Abandoned,
        TaskStatus::Planned,
    ];
    for to in ways {
        let claimed = claim(&*a, &board, "worker", HOUR).await?;
        let (task, token) = (&claimed.task.id, claimed.token);
        let out = b.update_status(&board, task, Transition::to(to).with_token(token)).await?;
        expect::equal("status and lease", &(out.status, &out.lease), &(to, &None))?;
        reads(&*a, &board, &out).await?;
        for next in [TaskStatus::InProgress, TaskStatus::Abandoned] {
            let stepped = b.update_status(&board, task, Transition::to(next).with_token(token)).await;
            expect::error("a step with the token from before", stepped, ErrorKind::Conflict)?;
        }
        let renewed = a.renew_lease(&board, task, token, HOUR).await;
        expect::error("a renewal with the token from before", renewed, ErrorKind::Conflict)?;
        reads(&*b, &board, &out).await?;
    }
    // A task that was restarted without a claim has no lease, and needs no token.
    for (name, to) in
        [("1", TaskStatus::InProgress), ("1", TaskStatus::Failed), ("5", TaskStatus::InProgress)]
    {
        expect::equal("the lease", &step(&*a, &board, name, to).await?.lease, &None)?;
    }
    Ok(())
}

pub(super) async fn an_expired_lease_still_accepts_its_token(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
    let claims = [claim(&*a, &board, "worker", BRIEF).await?, claim(&*a, &board, "worker", BRIEF).await?];
    past(Instant::now(), BRIEF).await;
    for claimed in &claims {
        // Expiry does not change the task.
        reads(&*b, &board, &claimed.task).await?;
        let wrong = FencingToken::new(claimed.token.get() + 100);
        for token in [None, Some(wrong)] {
            let mut step = Transition::to(TaskStatus::Succeeded);
            step.token = token;
            let stepped = b.update_status(&board, &claimed.task.id, step).await;
            expect::error(&format!("a step with {token:?}"), stepped, ErrorKind::Conflict)?;
            let retried = b.increment_retry(&board, &claimed.task.id, token).await;
            expect::error(&format!("a retry with {token:?}"), retried, ErrorKind::Conflict)?;
        }
        reads(&*b, &board, &claimed.task).await?;
    }
    let [one, two] = claims;
    let done = Transition::to(TaskStatus::Succeeded).with_token(one.token);
    let done = b.update_status(&board, &one.task.id, done).await?;
    expect::equal("the status", &done.status, &TaskStatus::Succeeded)?;
    b.increment_retry(&board, &two.task.id, Some(two.token)).await?;
    let again = read(&*a, &board, "two").await?;
    expect::equal("status and retries", &(again.status, again.retries), &(TaskStatus::Planned, 1))
}

pub(super) async fn claims_of_other_tasks_keep_an_expired_lease(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["early", "leased"]).await?;
    step(&*a, &board, "early", TaskStatus::Blocked).await?;
    let claimed = claim(&*a, &board, "worker", BRIEF).await?;
    past(Instant::now(), BRIEF).await;
    step(&*b, &board, "early", TaskStatus::Planned).await?;
    let other = claim(&*b, &board, "other worker", HOUR).await?;
    expect::equal("the claim of the other worker", &other.task.id, &id("early")?)?;
    reads(&*a, &board, &claimed.task).await?;
    let stepped = b.update_status(&board, &claimed.task.id, Transition::to(TaskStatus::Succeeded)).await;
    expect::error("a step without the token", stepped, ErrorKind::Conflict)?;
    let done = Transition::to(TaskStatus::Succeeded).with_token(claimed.token);
    let done = b.update_status(&board, &claimed.task.id, done).await?;
    reads(&*a, &board, &done).await
}

pub(super) async fn an_expired_lease_can_be_renewed(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["only"]).await?;
    let claimed = claim(&*a, &board, "worker", BRIEF).await?;
    past(Instant::now(), BRIEF).await;
    let now = Timestamp::now();
    let lease = b.renew_lease(&board, &claimed.task.id, claimed.token, HOUR).await?;
    expect::equal("worker and token", &(lease.worker, lease.token), &(worker("worker")?, claimed.token))?;
    ahead("the renewed lease", now, lease.expires_at, HOUR)?;
    let taken = a.claim(&board, &worker("other worker")?, HOUR).await?;
    expect::equal("a claim of the renewed task", &taken, &None)
}

pub(super) async fn leases_of_minutes_to_years_end_after_their_duration(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let names: Vec<String> = (0..LIVES.len()).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let board = make(&*a, "talk", "planner", &names).await?;
    for lease in LIVES {
        let now = Timestamp::now();
        let claimed = claim(&*a, &board, "worker", *lease).await?;
        let held = expect::some("the lease", claimed.task.lease.clone())?;
        ahead("a claimed lease", now, held.expires_at, *lease)?;
        reads(&*b, &board, &claimed.task).await?;
    }
    Ok(())
}

pub(super) async fn renewals_of_minutes_to_years_end_after_their_duration(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["only"]).await?;
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    for lease in LIVES {
        let now = Timestamp::now();
        let renewed = b.renew_lease(&board, &claimed.task.id, claimed.token, *lease).await?;
        ahead("a renewed lease", now, renewed.expires_at, *lease)?;
        let read = read(&*a, &board, "only").await?;
        expect::equal("the lease read", &read.lease, &Some(renewed))?;
    }
    Ok(())
}

pub(super) async fn a_renewed_lease_ends_after_the_requested_duration(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["only"]).await?;
    let (begun, now) = (Instant::now(), Timestamp::now());
    let claimed = claim(&*a, &board, "worker", HOUR).await?;
    let mut first = expect::some("the lease", claimed.task.lease.clone())?.expires_at;
    // The lease counts from now, and not from its previous end: two renewals by an hour are not two hours,
    // and a renewal can shorten a lease.
    let table = [(HOUR, Duration::ZERO), (HOUR * 2, HOUR), (HOUR * 2, Duration::ZERO)];
    for (lease, further) in table {
        let renewed = b.renew_lease(&board, &claimed.task.id, claimed.token, lease).await?;
        expect::equal("the token", &renewed.token, &claimed.token)?;
        expect::equal("the worker", &renewed.worker, &worker("worker")?)?;
        ahead("the renewed lease", now, renewed.expires_at, lease)?;
        further_by("the renewed lease", first, renewed.expires_at, further, begun.elapsed())?;
        let task = read(&*a, &board, "only").await?;
        expect::equal("the lease read", &task.lease, &Some(renewed.clone()))?;
        let same = (task.status, &task.title, task.retries);
        expect::equal("the rest of the task", &same, &(TaskStatus::InProgress, &claimed.task.title, 0))?;
        first = renewed.expires_at;
    }
    let longest = Duration::from_millis(TTL_MS_MAX);
    let renewed = b.renew_lease(&board, &claimed.task.id, claimed.token, longest).await?;
    ahead("the longest lease", now, renewed.expires_at, longest)?;
    b.renew_lease(&board, &claimed.task.id, claimed.token, Duration::from_millis(1)).await?;
    past(Instant::now(), Duration::from_millis(1)).await;
    let taken = claim(&*a, &board, "other worker", HOUR).await?;
    expect::that(taken.token > claimed.token, "a greater token", taken.token)
}

pub(super) async fn a_renewed_lease_blocks_other_claims(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (board, claimed) = in_time(BRIEF, |attempt| {
        let (a, b) = (Arc::clone(&a), Arc::clone(&b));
        async move {
            let board = make(&*a, "talk", &format!("planner-{attempt}"), &["only"]).await?;
            let claimed = claim(&*a, &board, "worker", BRIEF).await?;
            b.renew_lease(&board, &claimed.task.id, claimed.token, HOUR).await?;
            Ok((board, claimed))
        }
    })
    .await?;
    past(Instant::now(), BRIEF).await;
    for store in [&a, &b] {
        let taken = store.claim(&board, &worker("other worker")?, HOUR).await?;
        expect::equal("a claim of the renewed task", &taken, &None)?;
    }
    let done = Transition::to(TaskStatus::Succeeded).with_token(claimed.token);
    expect::equal(
        "the status",
        &b.update_status(&board, &claimed.task.id, done).await?.status,
        &TaskStatus::Succeeded,
    )
}

pub(super) async fn a_stale_token_renews_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["leased", "free", "begun"]).await?;
    let stale = claim(&*a, &board, "worker", BRIEF).await?;
    past(Instant::now(), BRIEF).await;
    let claimed = claim(&*b, &board, "other worker", HOUR).await?;
    step(&*a, &board, "begun", TaskStatus::InProgress).await?;
    let next = FencingToken::new(claimed.token.get() + 1);
    for name in ["leased", "free", "begun"] {
        let before = read(&*a, &board, name).await?;
        let mut tokens = vec![stale.token, next, FencingToken::new(0), FencingToken::new(u64::MAX)];
        // The token of one task is not valid for the others.
        tokens.extend(Some(claimed.token).filter(|_| name != "leased"));
        for token in tokens {
            let renewed = b.renew_lease(&board, &id(name)?, token, HOUR * 2).await;
            expect::error(&format!("a renewal with {token}"), renewed, ErrorKind::Conflict)?;
            reads(&*a, &board, &before).await?;
        }
    }
    Ok(())
}

pub(super) async fn renewing_a_missing_task_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let here = make(&*a, "talk", "planner", &["one"]).await?;
    let claimed = claim(&*a, &here, "worker", HOUR).await?;
    let nowhere = board("nowhere", "planner")?;
    for (board, name) in [(&here, "two"), (&nowhere, "one")] {
        let renewed = b.renew_lease(board, &id(name)?, claimed.token, HOUR).await;
        expect::error("renewing a missing lease", renewed, ErrorKind::NotFound)?;
    }
    Ok(())
}
