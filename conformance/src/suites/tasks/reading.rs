//! Reads of boards and tasks.

use larder_kernel::limits::{TASK_TEXT_BYTES_MAX, TASK_TITLE_BYTES_MAX};
use larder_kernel::{
    BoardStatusCounts, Metadata, NewBoard, NewTask, PageRequest, TaskPosition, TaskQuery, TaskStatus,
    Transition,
};

use super::support::{
    HOUR, board, bring, claim, id, listed, make, make_in_every_status, names, new_tasks, read, read_board,
    reads, step, tasks,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn an_absent_board_is_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    make(&*a, "talk", "planner", &["one"]).await?;
    for (conversation, agent) in
        [("talk", "nobody"), ("other", "planner"), ("Talk", "planner"), ("planner", "talk")]
    {
        let absent = board(conversation, agent)?;
        expect::equal("the board", &b.get_board(&absent).await?, &None)?;
    }
    expect::equal("number of boards", &super::support::boards(&*b, None, 10).await?.len(), &1)
}

pub(super) async fn counts_are_those_of_the_tasks(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make_in_every_status(&*a, "talk", "planner").await?;
    a.add_tasks(&board, new_tasks(&["p", "q", "r", "s", "t", "u"])?).await?;
    for (name, status) in
        [("p", TaskStatus::Succeeded), ("q", TaskStatus::Succeeded), ("r", TaskStatus::Failed)]
    {
        bring(&*b, &board, name, status).await?;
    }
    step(&*a, &board, "s", TaskStatus::Blocked).await?;
    let expected = BoardStatusCounts::default()
        .with_planned(3)
        .with_in_progress(1)
        .with_blocked(2)
        .with_succeeded(3)
        .with_failed(2)
        .with_abandoned(1);
    let check = async |expected: BoardStatusCounts| {
        let mut counted = BoardStatusCounts::default();
        for task in tasks(&*b, &board).await? {
            *counted.of_mut(task.status) += 1;
        }
        expect::equal("the tasks counted", &counted, &expected)?;
        expect::equal("the board's counts", &read_board(&*b, &board).await?.tasks, &expected)?;
        let boards = super::support::boards(&*a, None, 10).await?;
        expect::equal("the listed counts", &boards.first().map(|board| board.tasks), &Some(expected))
    };
    check(expected).await?;
    // The other ways to change a status count as well.
    claim(&*a, &board, "worker", HOUR).await?;
    b.increment_retry(&board, &id("r")?, None).await?;
    b.force_retry(&board, &id("q")?).await?;
    check(expected.with_planned(4).with_in_progress(2).with_succeeded(2).with_failed(1)).await?;
    b.settle_conversation(&board.conversation).await?;
    check(expected.with_planned(4).with_in_progress(0).with_succeeded(4).with_failed(1)).await
}

pub(super) async fn a_task_reads_back_as_it_was_written(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    let metadata = Metadata::new()
        .with("text", "e\u{301} \u{e9} \u{1f980} '\" \\ %")
        .with("flag", true)
        .with("one", 1)
        .with("float", 0.1)
        .with("large", u64::MAX)
        .with("nothing", serde_json::Value::Null)
        .with("", serde_json::json!({"a": [1, {"b": []}], "A": {}}))
        .with("$.a.b", "dots");
    let new = vec![
        NewTask::new(id("full")?, " title\r\n").with_description("long\ttext").with_metadata(metadata),
        NewTask::new(id("bare")?, "-"),
        NewTask::new(id("empty")?, "null").with_description(""),
    ];
    a.create_task_list(&board, NewBoard::new(new.clone())).await?;
    for new in new {
        let found = expect::some("the task", b.get_task(&board, &new.id).await?)?;
        let expected = new.into_task(found.position, found.revision);
        expect::equal("the task", &found, &expected)?;
    }
    // Both handles read the result of each change from then on.
    let running = step(&*a, &board, "full", TaskStatus::InProgress).await?;
    reads(&*b, &board, &running).await?;
    let with_result = Transition::to(TaskStatus::Failed).with_result("");
    let failed = b.update_status(&board, &id("full")?, with_result).await?;
    expect::equal("an empty result", &failed.result.as_deref(), &Some(""))?;
    expect::equal("the metadata", &failed.metadata, &running.metadata)?;
    reads(&*a, &board, &failed).await?;
    let claimed = claim(&*b, &board, "worker \u{e9}", HOUR).await?.task;
    reads(&*a, &board, &claimed).await?;
    reads(&*b, &board, &claimed).await
}

pub(super) async fn texts_at_their_limits_read_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    let title = "\u{e9}".repeat(TASK_TITLE_BYTES_MAX / 2);
    let (description, result) = ("d".repeat(TASK_TEXT_BYTES_MAX), "r".repeat(TASK_TEXT_BYTES_MAX));
    let large = Metadata::new().with("k", "x".repeat(larder_kernel::limits::METADATA_BYTES_MAX - 1));
    let new = NewTask::new(id("large")?, title.clone()).with_description(description.clone());
    let asked = NewBoard::new(vec![new.with_metadata(large.clone())]).with_label(title.clone());
    a.create_task_list(&board, asked).await?;
    a.update_status(&board, &id("large")?, Transition::to(TaskStatus::Blocked).with_result(result.clone()))
        .await?;
    let task = read(&*b, &board, "large").await?;
    expect::that(task.title == title, "the whole title", task.title.len())?;
    expect::that(task.description == Some(description), "the whole description", "another")?;
    expect::that(task.result == Some(result), "the whole result", "another")?;
    expect::that(task.metadata == large, "the whole metadata", task.metadata.size_bytes())?;
    let label = read_board(&*b, &board).await?.label;
    expect::that(label == Some(title), "the whole label", label)
}

pub(super) async fn an_absent_task_is_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let here = make(&*a, "talk", "planner", &["one"]).await?;
    let other = make(&*a, "talk", "other", &["two"]).await?;
    let nowhere = board("nowhere", "planner")?;
    for (board, name) in [(&here, "two"), (&here, "on"), (&here, "ONE"), (&other, "one"), (&nowhere, "one")] {
        expect::equal("the task", &b.get_task(board, &id(name)?).await?, &None)?;
    }
    Ok(())
}

pub(super) async fn tasks_in_the_statuses_are_listed_in_board_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = make_in_every_status(&*a, "talk", "planner").await?;
    // A second task of each status, added in another order, so that a listing grouped by status is detected.
    let again: Vec<String> = TaskStatus::ALL.iter().rev().map(|status| format!("2 {status:?}")).collect();
    a.add_tasks(&board, new_tasks(&again.iter().map(String::as_str).collect::<Vec<_>>())?).await?;
    for (name, status) in again.iter().zip(TaskStatus::ALL.iter().rev()) {
        bring(&*a, &board, name, *status).await?;
    }
    let all = tasks(&*b, &board).await?;
    expect::equal("number of tasks", &all.len(), &12)?;
    let added_last: Vec<&str> = all[6..].iter().map(|task| task.id.as_str()).collect();
    expect::equal("the tasks added last", &added_last, &again.iter().map(String::as_str).collect())?;
    let grows = all.windows(2).all(|pair| pair[0].position < pair[1].position);
    expect::that(
        grows,
        "positions in the order of addition",
        all.iter().map(|task| task.position).collect::<Vec<_>>(),
    )?;
    // Every set of statuses, including the empty one, which requests all.
    for set in 0..64_u32 {
        let wanted = TaskStatus::ALL.iter().copied().enumerate().filter(|(bit, _)| set & (1 << bit) != 0);
        let query = TaskQuery::in_statuses(wanted.map(|(_, status)| status));
        let expected: Vec<_> =
            all.iter().filter(|task| set == 0 || query.statuses.contains(&task.status)).cloned().collect();
        let what = format!("tasks in {:?}", query.statuses);
        expect::equal(&what, &listed(&*b, &board, &query, 10_000).await?, &expected)?;
    }
    let twice = TaskQuery::in_statuses([TaskStatus::Failed, TaskStatus::Failed]);
    expect::equal("tasks in a status named twice", &listed(&*b, &board, &twice, 10).await?.len(), &2)
}

pub(super) async fn paging_returns_each_task_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let all: Vec<String> = (0..13).map(|number| format!("task-{:02}", (number * 5) % 13)).collect();
    let board = make(&*a, "talk", "planner", &all.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for name in all.iter().step_by(3) {
        step(&*a, &board, name, TaskStatus::Blocked).await?;
    }
    let queries = [
        (TaskQuery::default(), 13),
        (TaskQuery::in_statuses([TaskStatus::Blocked]), 5),
        (TaskQuery::in_statuses([TaskStatus::Planned]), 8),
        (TaskQuery::in_statuses([TaskStatus::Failed]), 0),
    ];
    for (query, count) in queries {
        let whole = listed(&*b, &board, &query, 10_000).await?;
        expect::equal("number of tasks", &whole.len(), &count)?;
        for limit in [1, 2, 3, count.max(2) - 1, count.max(1), count + 1] {
            let what = format!("{query:?} in pages of {limit}");
            expect::equal(&what, &listed(&*b, &board, &query, limit).await?, &whole)?;
        }
        let exact = b.list_tasks(&board, &query, PageRequest::first(count)).await?;
        expect::equal("what follows a page that holds all", &exact.next, &None)?;
        let nothing = b.list_tasks(&board, &query, PageRequest::first(0)).await?;
        expect::that(nothing.items.is_empty(), "nothing for a limit of 0", &nothing.items)?;
    }
    let past_the_end = PageRequest::after(TaskPosition::new(u64::MAX), 10);
    let page = b.list_tasks(&board, &TaskQuery::default(), past_the_end).await?;
    expect::equal("what follows the last position", &(page.items, page.next), &(Vec::new(), None))
}

pub(super) async fn paging_during_changes_returns_matching_tasks_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let all: Vec<String> = (0..12).map(|number| format!("task-{number:02}")).collect();
    let board = make(&*a, "talk", "planner", &all.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let query = TaskQuery::in_statuses([TaskStatus::Planned]);
    let (mut seen, mut page) = (Vec::new(), PageRequest::first(2));
    for round in 0..50 {
        let part = b.list_tasks(&board, &query, page).await?;
        let ended = part.items.last().map(|task| task.id.clone());
        seen.extend(part.items.into_iter().map(|task| String::from(task.id)));
        let Some(next) = part.next else { break };
        // The last task of the page leaves the listing, the board grows, and the next page misses no task.
        if let Some(ended) = ended.filter(|_| round < 5) {
            step(&*a, &board, ended.as_str(), TaskStatus::Blocked).await?;
            a.add_tasks(&board, new_tasks(&[&format!("late-{round}")])?).await?;
        }
        page = PageRequest::after(next, 2);
    }
    let early: Vec<_> = seen.iter().filter(|name| name.starts_with("task")).cloned().collect();
    expect::equal("the first tasks, each once", &early, &all)?;
    let found = listed(&*b, &board, &query, 100).await?;
    for name in names(&found) {
        let times = seen.iter().filter(|other| *other == name).count();
        expect::that(times <= 1, format!("{name} at most once"), times)?;
    }
    Ok(())
}

pub(super) async fn an_absent_board_lists_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    make(&*a, "talk", "planner", &["one"]).await?;
    let removed = make(&*a, "talk", "removed", &["one"]).await?;
    a.delete_board(&removed).await?;
    for absent in [board("talk", "nobody")?, board("other", "planner")?, removed] {
        for query in [TaskQuery::default(), TaskQuery::in_statuses([TaskStatus::Planned])] {
            let page = b.list_tasks(&absent, &query, PageRequest::first(10)).await?;
            expect::equal("the page", &(page.items, page.next), &(Vec::new(), None))?;
        }
    }
    Ok(())
}
