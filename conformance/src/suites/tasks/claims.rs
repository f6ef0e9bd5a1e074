//! Claims of tasks by workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_kernel::{
    BoardId, Claim, ErrorKind, FencingToken, Task, TaskStatus, TaskStore, Timestamp, Transition,
};
use tokio::task::JoinSet;

use super::support::{
    BRIEF, HOUR, board, claim, id, joined, make, make_in_every_status, past, read, read_board, reads, step,
    tasks, turn, worker,
};
use crate::case::{CaseResult, Failure};
use crate::context::{Context, Handles, in_time};
use crate::expect;

/// Returns the required state of a claimed task: the previous task, under the lease of the claim.
fn claimed_from(before: &Task, claimed: &Claim) -> Task {
    let mut expected = before.clone();
    expected.status = TaskStatus::InProgress;
    expected.revision = claimed.task.revision;
    expected.lease.clone_from(&claimed.task.lease);
    expected
}

pub(super) async fn the_first_free_task_is_claimed(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    // The order on the board differs from the order of the ids and of the last changes.
    let board = make(&*a, "talk", "planner", &["blocked", "z", "running", "y", "a"]).await?;
    step(&*a, &board, "blocked", TaskStatus::Blocked).await?;
    step(&*a, &board, "z", TaskStatus::Blocked).await?;
    step(&*a, &board, "running", TaskStatus::InProgress).await?;
    step(&*a, &board, "z", TaskStatus::Planned).await?;
    for (name, by) in [("z", "worker 1"), ("y", "worker 2"), ("a", "worker 1")] {
        let before = read(&*a, &board, name).await?;
        let claimed = claim(&*b, &board, by, HOUR).await?;
        expect::equal("the task", &claimed.task, &claimed_from(&before, &claimed))?;
        expect::that(claimed.task.revision > before.revision, "a greater revision", claimed.task.revision)?;
        let lease = expect::some("the lease", claimed.task.lease.clone())?;
        expect::equal("worker and token", &(lease.worker, lease.token), &(worker(by)?, claimed.token))?;
        reads(&*a, &board, &claimed.task).await?;
    }
    expect::equal("number of running tasks", &read_board(&*a, &board).await?.tasks.in_progress, &4)
}

pub(super) async fn a_claim_returns_the_end_of_the_lease(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
    let (begun, now) = (Instant::now(), Timestamp::now());
    let one = claim(&*a, &board, "worker", HOUR).await?;
    let two = claim(&*b, &board, "worker", HOUR * 2).await?;
    let elapsed = begun.elapsed();
    let ends = |claimed: &Claim| claimed.task.lease.as_ref().map(|lease| lease.expires_at);
    let (one, two) = (expect::some("the end", ends(&one))?, expect::some("the end", ends(&two))?);
    ahead("a lease of an hour", now, one, HOUR)?;
    further_by("a lease of two hours after one of an hour", one, two, HOUR, elapsed)
}

/// Checks that the instant is `lease` after `now`, by clocks that may differ by minutes.
pub(super) fn ahead(what: &str, now: Timestamp, end: Timestamp, lease: Duration) -> CaseResult {
    const CLOCKS_APART: Duration = Duration::from_secs(600);
    let apart = Duration::from_micros(end.as_micros().abs_diff(now.saturating_add(lease).as_micros()));
    expect::that(apart < CLOCKS_APART, format!("{what} to end {lease:?} from now"), (now, end))
}

/// Checks that the second instant, returned within `elapsed` of the first, is later by `by`, apart from
/// rounding.
pub(super) fn further_by(
    what: &str,
    first: Timestamp,
    second: Timestamp,
    by: Duration,
    elapsed: Duration,
) -> CaseResult {
    const ROUNDING: Duration = Duration::from_millis(2);
    let (least, most) = (by.saturating_sub(ROUNDING), by + elapsed + ROUNDING);
    let holds = first.saturating_add(least) <= second && second <= first.saturating_add(most);
    expect::that(holds, format!("{what} to end {least:?} to {most:?} later"), (first, second))
}

/// Creates a board `talk`/`agent` of these tasks. The first is claimed under a lease that has expired when
/// this function returns.
async fn with_expired_lease(
    stores: &Handles<dyn TaskStore>,
    agent: &str,
    names: &[&str],
) -> CaseResult<(BoardId, Claim)> {
    let board = make(&*stores.a, "talk", agent, names).await?;
    let claimed = claim(&*stores.a, &board, "worker", BRIEF).await?;
    past(Instant::now(), BRIEF).await;
    Ok((board, claimed))
}

pub(super) async fn a_task_with_an_expired_lease_precedes_later_planned_tasks(
    context: Context,
) -> CaseResult {
    let stores = context.tasks().await?;
    let (board, _) = with_expired_lease(&stores, "planner", &["first", "second", "third"]).await?;
    for name in ["first", "second", "third"] {
        let claimed = claim(&*stores.b, &board, "other worker", HOUR).await?;
        expect::equal("the claimed task", &claimed.task.id, &id(name)?)?;
    }
    // A planned task before it on the board comes first.
    let board = make(&*stores.a, "talk", "other", &["first", "second"]).await?;
    step(&*stores.a, &board, "first", TaskStatus::Blocked).await?;
    claim(&*stores.a, &board, "worker", BRIEF).await?;
    past(Instant::now(), BRIEF).await;
    step(&*stores.a, &board, "first", TaskStatus::Planned).await?;
    for name in ["first", "second"] {
        let claimed = claim(&*stores.b, &board, "other worker", HOUR).await?;
        expect::equal("the claimed task", &claimed.task.id, &id(name)?)?;
    }
    Ok(())
}

pub(super) async fn concurrent_claims_share_the_tasks(context: Context) -> CaseResult {
    const TASKS: usize = 20;
    let Handles { a, b } = context.tasks().await?;
    let all: Vec<String> = (0..TASKS).map(|number| format!("task-{number:02}")).collect();
    let board = make(&*a, "race", "planner", &all.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut workers: JoinSet<CaseResult<Vec<(Claim, String)>>> = JoinSet::new();
    for number in 0..8 {
        let (store, board) = (turn(&a, &b, number), board.clone());
        workers.spawn(async move {
            let (name, mut mine) = (format!("worker {number}"), Vec::new());
            while let Some(claimed) = store.claim(&board, &worker(&name)?, HOUR).await? {
                mine.push((claimed, name.clone()));
            }
            Ok(mine)
        });
    }
    let mut holders = BTreeMap::new();
    while let Some(result) = workers.join_next().await {
        for (claimed, name) in joined(result)? {
            let other = holders.insert(claimed.task.id.clone(), (name, claimed.token));
            expect::that(other.is_none(), "one worker a task", (&claimed.task.id, other))?;
        }
    }
    expect::equal("number of claimed tasks", &holders.len(), &TASKS)?;
    for task in tasks(&*b, &board).await? {
        let lease = task.lease.map(|lease| (String::from(lease.worker), lease.token));
        expect::equal("worker and token", &lease.as_ref(), &holders.get(&task.id))?;
    }
    let tokens: std::collections::BTreeSet<FencingToken> =
        holders.values().map(|(_, token)| *token).collect();
    expect::equal("number of different tokens", &tokens.len(), &TASKS)
}

pub(super) async fn a_task_with_an_expired_lease_goes_to_one_worker(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let (board, before) = with_expired_lease(&stores, "planner", &["only"]).await?;
    let mut workers: JoinSet<CaseResult<Option<Claim>>> = JoinSet::new();
    for number in 0..8 {
        let (store, board) = (turn(&stores.a, &stores.b, number), board.clone());
        workers.spawn(
            async move { Ok(store.claim(&board, &worker(&format!("worker {number}"))?, HOUR).await?) },
        );
    }
    let mut claims = Vec::new();
    while let Some(result) = workers.join_next().await {
        claims.extend(joined(result)?);
    }
    let [claimed] = &claims[..] else {
        return Err(expect::broken("one claim", format!("{claims:?}")));
    };
    expect::that(claimed.token > before.token, format!("a token over {}", before.token), claimed.token)?;
    reads(&*stores.b, &board, &claimed.task).await
}

pub(super) async fn each_claim_has_a_greater_token(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two", "three"]).await?;
    let mut tokens = Vec::new();
    for round in 0..6 {
        // Each way out of in progress frees a task, so later rounds claim the same tasks again.
        let claimed = claim(&*turn(&a, &b, round), &board, "worker", HOUR).await?;
        tokens.push(claimed.token);
        let task = &claimed.task.id;
        match round {
            1 => drop(a.increment_retry(&board, task, Some(claimed.token)).await?),
            2 => drop(a.force_retry(&board, task).await?),
            3 | 4 => {}
            _ => {
                let back = Transition::to(TaskStatus::Planned).with_token(claimed.token);
                b.update_status(&board, task, back).await?;
            }
        }
    }
    expect::that(tokens.is_sorted_by(|left, right| left < right), "growing tokens", &tokens)?;
    expect::that(tokens.iter().all(|token| token.get() > 0), "tokens over 0", &tokens)
}

pub(super) async fn a_task_with_an_expired_lease_is_claimed_again(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let (board, before) = with_expired_lease(&stores, "planner", &["only"]).await?;
    let claimed = claim(&*stores.b, &board, "other worker", HOUR).await?;
    expect::equal("the task", &claimed.task, &claimed_from(&before.task, &claimed))?;
    let lease = expect::some("the lease", claimed.task.lease.clone())?;
    expect::equal(
        "worker and token",
        &(lease.worker, lease.token),
        &(worker("other worker")?, claimed.token),
    )?;
    expect::that(claimed.token > before.token, format!("a token over {}", before.token), claimed.token)?;
    let (task, stale) = (&claimed.task.id, before.token);
    for to in [TaskStatus::Succeeded, TaskStatus::Planned] {
        let late = Transition::to(to).with_token(stale).with_result("late");
        let stepped = stores.a.update_status(&board, task, late).await;
        expect::error("a step with the earlier token", stepped, ErrorKind::Conflict)?;
    }
    let retried = stores.a.increment_retry(&board, task, Some(stale)).await;
    expect::error("a retry with the earlier token", retried, ErrorKind::Conflict)?;
    let renewed = stores.a.renew_lease(&board, task, stale, HOUR).await;
    expect::error("a renewal with the earlier token", renewed, ErrorKind::Conflict)?;
    reads(&*stores.a, &board, &claimed.task).await?;
    let done = Transition::to(TaskStatus::Succeeded).with_token(claimed.token);
    let done = stores.b.update_status(&board, task, done).await?;
    reads(&*stores.a, &board, &done).await
}

pub(super) async fn running_tasks_are_not_claimed(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["free", "leased"]).await?;
    let running = step(&*a, &board, "free", TaskStatus::InProgress).await?;
    let leased = claim(&*a, &board, "worker", HOUR).await?;
    for (store, name) in [(&a, "worker"), (&b, "worker"), (&b, "other worker")] {
        let claimed = store.claim(&board, &worker(name)?, HOUR).await?;
        expect::equal("a claim", &claimed, &None)?;
    }
    reads(&*b, &board, &running).await?;
    reads(&*b, &board, &leased.task).await?;
    // A brief lease holds until it expires, to the millisecond that the claim returned.
    in_time(BRIEF, |attempt| {
        let (a, b) = (Arc::clone(&a), Arc::clone(&b));
        async move {
            let board = make(&*a, "talk", &format!("brief-{attempt}"), &["only"]).await?;
            claim(&*a, &board, "worker", BRIEF).await?;
            tokio::time::sleep(BRIEF / 3).await;
            let claimed = b.claim(&board, &worker("other worker")?, HOUR).await?;
            expect::equal("a claim", &claimed, &None)
        }
    })
    .await
}

pub(super) async fn a_board_without_a_free_task_returns_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let finished = make_in_every_status(&*a, "talk", "finished").await?;
    step(&*a, &finished, "planned", TaskStatus::Abandoned).await?;
    let empty = make(&*a, "talk", "empty", &[]).await?;
    // Another board has a free task, which these workers must not get.
    let full = make(&*a, "talk", "full", &["free"]).await?;
    let before = tasks(&*a, &finished).await?;
    for board in [&finished, &empty, &board("talk", "nobody")?, &board("nowhere", "full")?] {
        let claimed = b.claim(board, &worker("worker")?, HOUR).await?;
        expect::equal("a claim", &claimed, &None)?;
    }
    expect::equal("the tasks", &tasks(&*b, &finished).await?, &before)?;
    expect::equal("the absent board", &a.get_board(&board("talk", "nobody")?).await?, &None)?;
    let task = b.claim(&full, &worker("worker")?, HOUR).await.map_err(Failure::from)?;
    expect::that(task.is_some(), "the free task of the other board", task)
}
