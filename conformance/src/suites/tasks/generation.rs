//! Generations of boards: revisions, tokens and positions from before an erasure.

use larder_kernel::{
    BoardId, Claim, ErrorKind, PageRequest, TaskPosition, TaskQuery, TaskStatus, Transition,
};

use super::support::{HOUR, claim, id, make, new_tasks, read, reads, step, tasks};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

type Stores = Handles<dyn larder_kernel::TaskStore>;

/// Creates a board and claims its task, twice with an erasure in between. Both claims have the same numbers.
async fn claimed_again(stores: &Stores) -> CaseResult<(BoardId, Claim, Claim)> {
    make(&*stores.a, "talk", "planner", &["one", "two"]).await?;
    let board = super::support::board("talk", "planner")?;
    let lost = claim(&*stores.a, &board, "worker", HOUR).await?;
    stores.a.erase().await?;
    make(&*stores.a, "talk", "planner", &["one", "two"]).await?;
    let now = claim(&*stores.b, &board, "worker", HOUR).await?;
    let numbers = |claim: &Claim| (claim.token, claim.task.revision, claim.task.position);
    expect::equal("the numbers of the claim", &numbers(&now), &numbers(&lost))?;
    Ok((board, lost, now))
}

/// TASK-052.
pub(super) async fn every_number_of_a_board_names_its_generation(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let Handles { a, b } = &stores;
    let board = make(&**a, "talk", "planner", &["one", "two", "three"]).await?;
    let first = claim(&**b, &board, "worker", HOUR).await?;
    let generation = first.token.generation();
    let mut found = b.add_tasks(&board, new_tasks(&["four"])?).await?;
    found.push(first.task.clone());
    found.push(step(&**a, &board, "two", TaskStatus::Blocked).await?);
    found.push(a.force_retry(&board, &id("two")?).await?);
    found.push(read(&**b, &board, "three").await?);
    found.extend(tasks(&**b, &board).await?);
    let lease = b.renew_lease(&board, &first.task.id, first.token, HOUR).await?;
    let page = a.list_tasks(&board, &TaskQuery::default(), PageRequest::first(1)).await?;
    let next = expect::some("the next position", page.next)?;
    a.delete_board(&board).await?;
    make(&**b, "talk", "planner", &["again"]).await?;
    found.extend(tasks(&**a, &board).await?);
    let mut generations = vec![lease.token.generation(), next.generation()];
    for task in &found {
        generations.extend([task.revision.generation(), task.position.generation()]);
        generations.extend(task.lease.as_ref().map(|lease| lease.token.generation()));
    }
    let one = generation.is_some() && generations.iter().all(|named| *named == generation);
    expect::that(one, "one generation in each number", &generations)?;
    a.erase().await?;
    make(&**b, "talk", "planner", &["one"]).await?;
    let again = read(&**a, &board, "one").await?.revision;
    expect::that(
        again.generation().is_some() && again.generation() != generation,
        "another generation after the erasure",
        again.to_text(),
    )
}

/// TASK-053.
pub(super) async fn a_page_after_a_position_of_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let (board, lost, now) = claimed_again(&stores).await?;
    let page = |position: TaskPosition| {
        let (stores, board) = (&stores, &board);
        async move {
            let page = PageRequest::after(position, 10);
            stores.b.list_tasks(board, &TaskQuery::default(), page).await
        }
    };
    expect::error("a page after a lost position", page(lost.task.position).await, ErrorKind::Conflict)?;
    let far = TaskPosition::new(100).in_generation(lost.token.generation());
    expect::error("a page after a far position", page(far).await, ErrorKind::Conflict)?;
    expect::equal("tasks after the first", &page(now.task.position).await?.items.len(), &1)?;
    expect::equal("tasks after its number", &page(TaskPosition::new(1)).await?.items.len(), &1)?;
    stores.a.delete_board(&board).await?;
    expect::equal("tasks of a deleted board", &page(now.task.position).await?.items.len(), &0)?;
    expect::error("a lost position, deleted", page(lost.task.position).await, ErrorKind::Conflict)?;
    stores.a.erase().await?;
    expect::error("a position after an erasure", page(now.task.position).await, ErrorKind::Conflict).map(drop)
}

/// TASK-054.
pub(super) async fn a_step_with_a_number_of_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.tasks().await?;
    let (board, lost, now) = claimed_again(&stores).await?;
    let (store, task) = (&stores.b, &now.task.id);
    let to = || Transition::to(TaskStatus::Succeeded);
    for (what, step) in [
        ("token", to().with_token(lost.token)),
        ("revision", to().with_token(now.token).with_expected(lost.task.revision)),
        ("token and revision", to().with_token(lost.token).with_expected(lost.task.revision)),
    ] {
        let stepped = store.update_status(&board, task, step).await;
        expect::error(&format!("a step with a lost {what}"), stepped, ErrorKind::Conflict)?;
        reads(&*stores.a, &board, &now.task).await?;
    }
    let retried = store.increment_retry(&board, task, Some(lost.token)).await;
    expect::error("a retry with a lost token", retried, ErrorKind::Conflict)?;
    let renewed = store.renew_lease(&board, task, lost.token, HOUR).await;
    expect::error("a renewal with a lost token", renewed, ErrorKind::Conflict)?;
    reads(&*stores.a, &board, &now.task).await?;
    let step = to().with_token(now.token).with_expected(now.task.revision);
    store.update_status(&board, task, step).await.map(drop).map_err(Into::into)
}
