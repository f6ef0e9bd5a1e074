//! Additions of tasks to a board.

use std::collections::BTreeSet;

use larder_kernel::{ErrorKind, Metadata, NewTask, TaskStatus};
use tokio::task::JoinSet;

use super::support::{board, id, joined, make, names, new_tasks, read, read_board, reads, step, tasks, turn};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn added_tasks_follow_in_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["m", "k"]).await?;
    step(&*a, &board, "k", TaskStatus::Abandoned).await?;
    let metadata = Metadata::new().with("key", true);
    let new = vec![
        NewTask::new(id("z")?, "Z").with_metadata(metadata),
        NewTask::new(id("a")?, "A").with_description("at length").with_retries_max(7),
    ];
    let added = b.add_tasks(&board, new.clone()).await?;
    let expected: Vec<_> = new
        .into_iter()
        .zip(&added)
        .map(|(new, added)| new.into_task(added.position, added.revision))
        .collect();
    expect::equal("the answer", &added, &expected)?;
    for task in &added {
        reads(&*a, &board, task).await?;
    }
    a.add_tasks(&board, new_tasks(&["b"])?).await?;
    let found = tasks(&*b, &board).await?;
    expect::equal("the tasks in order", &names(&found), &vec!["m", "k", "z", "a", "b"])?;
    expect::that(
        found.is_sorted_by(|left, right| left.position < right.position),
        "growing positions",
        found.iter().map(|task| task.position).collect::<Vec<_>>(),
    )?;
    let counts = read_board(&*b, &board).await?.tasks;
    expect::equal("planned and abandoned", &(counts.planned, counts.abandoned), &(4, 1))
}

pub(super) async fn retries_are_three_by_default(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["first"]).await?;
    let mut new = new_tasks(&["plain"])?;
    for allowed in [0, 1, 1_000] {
        new.push(NewTask::new(id(&format!("allowed-{allowed}"))?, "title").with_retries_max(allowed));
    }
    a.add_tasks(&board, new).await?;
    let expected = [("first", 3), ("plain", 3), ("allowed-0", 0), ("allowed-1", 1), ("allowed-1000", 1_000)];
    for (name, allowed) in expected {
        let task = read(&*b, &board, name).await?;
        expect::equal("retries and retries allowed", &(task.retries, task.retries_max), &(0, allowed))?;
    }
    Ok(())
}

pub(super) async fn a_batch_with_an_existing_id_adds_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "talk", "planner", &["one", "two"]).await?;
    step(&*a, &board, "one", TaskStatus::InProgress).await?;
    step(&*a, &board, "two", TaskStatus::Abandoned).await?;
    let before = (read_board(&*a, &board).await?, tasks(&*a, &board).await?);
    // The existing id comes first, in the middle and last.
    for batch in [vec!["one"], vec!["two", "x"], vec!["x", "one", "y"], vec!["x", "y", "two"]] {
        let added = b.add_tasks(&board, new_tasks(&batch)?).await;
        expect::error("a batch with an existing id", added, ErrorKind::AlreadyExists)?;
        let now = (read_board(&*b, &board).await?, tasks(&*b, &board).await?);
        expect::equal("the board and its tasks", &now, &before)?;
        expect::equal("a task of the batch", &b.get_task(&board, &id("x")?).await?, &None)?;
    }
    b.add_tasks(&board, new_tasks(&["x"])?).await?;
    expect::equal("the tasks", &names(&tasks(&*a, &board).await?), &vec!["one", "two", "x"])
}

pub(super) async fn adding_to_an_absent_board_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    make(&*a, "talk", "planner", &["one"]).await?;
    let removed = make(&*a, "talk", "removed", &["one"]).await?;
    a.delete_board(&removed).await?;
    for absent in [board("talk", "nobody")?, board("other", "planner")?, removed] {
        let added = b.add_tasks(&absent, new_tasks(&["two"])?).await;
        expect::error("adding to a missing board", added, ErrorKind::NotFound)?;
        expect::equal("the board", &a.get_board(&absent).await?, &None)?;
        expect::equal("its tasks", &tasks(&*a, &absent).await?, &Vec::new())?;
    }
    Ok(())
}

pub(super) async fn concurrent_additions_lose_no_task(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "race", "planner", &["first"]).await?;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..8 {
        let (store, board) = (turn(&a, &b, worker), board.clone());
        workers.spawn(async move {
            for round in 0..3 {
                let batch = [format!("{worker}-{round}-z"), format!("{worker}-{round}-a")];
                store.add_tasks(&board, new_tasks(&batch.each_ref().map(String::as_str))?).await?;
            }
            Ok(())
        });
    }
    while let Some(result) = workers.join_next().await {
        joined(result)?;
    }
    let found = tasks(&*b, &board).await?;
    expect::equal("number of tasks", &found.len(), &49)?;
    expect::equal("number of counted tasks", &read_board(&*a, &board).await?.tasks.planned, &49)?;
    let positions: BTreeSet<_> = found.iter().map(|task| task.position).collect();
    expect::equal("number of different positions", &positions.len(), &49)?;
    let order = names(&found);
    for worker in 0..8 {
        let mut last = 0;
        for round in 0..3 {
            // Each batch comes after its worker's previous one, in the order given.
            for end in ["z", "a"] {
                let name = format!("{worker}-{round}-{end}");
                let place = order.iter().position(|other| *other == name);
                let place = expect::some(&name, place)?;
                expect::that(place > last, format!("{name} after place {last}"), place)?;
                last = place;
            }
        }
    }
    Ok(())
}

pub(super) async fn of_concurrent_additions_of_one_task_one_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make(&*a, "race", "planner", &[]).await?;
    let mut workers: JoinSet<CaseResult<Option<usize>>> = JoinSet::new();
    for worker in 0..8 {
        let (store, board) = (turn(&a, &b, worker), board.clone());
        workers.spawn(async move {
            let own = format!("own-{worker}");
            match store.add_tasks(&board, new_tasks(&[&own, "shared"])?).await {
                Ok(_) => Ok(Some(worker)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                Err(error) => Err(error.into()),
            }
        });
    }
    let mut winners = Vec::new();
    while let Some(result) = workers.join_next().await {
        winners.extend(joined(result)?);
    }
    let [winner] = winners[..] else {
        return Err(expect::broken("one winner", format!("{winners:?}")));
    };
    let own = format!("own-{winner}");
    expect::equal("the tasks", &names(&tasks(&*b, &board).await?), &vec![&*own, "shared"])
}
