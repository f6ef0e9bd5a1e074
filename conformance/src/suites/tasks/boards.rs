//! Creation and listings of boards.

use larder_kernel::{
    AgentId, BoardId, BoardStatusCounts, ConversationId, ErrorKind, Metadata, NewBoard, NewTask, PageRequest,
    TaskStatus,
};
use tokio::task::JoinSet;

use super::support::{
    board, boards, id, joined, make, names, new_tasks, read, read_board, step, tasks, turn,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

fn planned(count: u64) -> BoardStatusCounts {
    BoardStatusCounts::default().with_planned(count)
}

pub(super) async fn a_board_reads_back_with_its_tasks(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    // The given order differs from the order of the ids and of the titles.
    let metadata = Metadata::new().with("tenant", "acme").with("weight", 1.5).with("nested", vec![1, 2]);
    let new = vec![
        NewTask::new(id("zebra")?, "Z"),
        NewTask::new(id("a")?, " ").with_description("").with_retries_max(0),
        NewTask::new(id("m")?, "é \u{1f980}\n").with_description("at length").with_metadata(metadata),
        NewTask::new(id("B")?, "Z").with_retries_max(1_000),
    ];
    let asked = NewBoard::new(new.clone()).with_label("Label \u{e9}").with_parent(AgentId::new("chief")?);
    let made = a.create_task_list(&board, asked).await?;
    expect::equal("the id", &made.id, &board)?;
    expect::equal("the label", &made.label.as_deref(), &Some("Label \u{e9}"))?;
    expect::equal("the parent", &made.parent, &Some(AgentId::new("chief")?))?;
    expect::equal("the counts", &made.tasks, &planned(4))?;
    expect::equal("the board read", &read_board(&*b, &board).await?, &made)?;

    let found = tasks(&*b, &board).await?;
    let expected: Vec<_> = new
        .into_iter()
        .zip(&found)
        .map(|(new, found)| new.into_task(found.position, found.revision))
        .collect();
    expect::equal("the tasks", &found, &expected)?;
    expect::that(
        found.is_sorted_by(|left, right| left.position < right.position),
        "growing positions",
        found.iter().map(|task| task.position).collect::<Vec<_>>(),
    )
}

pub(super) async fn a_board_may_have_no_tasks(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for (agent, label) in [("plain", None), ("empty", Some(String::new()))] {
        let board = board("talk", agent)?;
        let mut asked = NewBoard::default();
        asked.label.clone_from(&label);
        let made = a.create_task_list(&board, asked).await?;
        let read = read_board(&*b, &board).await?;
        expect::equal("the board read", &read, &made)?;
        expect::equal(
            "label, parent and counts",
            &(read.label, read.parent, read.tasks),
            &(label, None, planned(0)),
        )?;
        expect::equal("the tasks", &tasks(&*b, &board).await?, &Vec::new())?;
    }
    Ok(())
}

pub(super) async fn a_board_of_a_thousand_tasks_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    let mut new = Vec::new();
    for number in 0..1_000 {
        // Descending, so that the given order differs from the order of the ids.
        new.push(NewTask::new(id(&format!("task-{:04}", 1_000 - number))?, "title"));
    }
    let ids: Vec<_> = new.iter().map(|task| task.id.clone()).collect();
    a.create_task_list(&board, NewBoard::new(new)).await?;
    expect::equal("the counts", &read_board(&*b, &board).await?.tasks, &planned(1_000))?;
    let found: Vec<_> = tasks(&*b, &board).await?.into_iter().map(|task| task.id).collect();
    expect::that(
        found == ids,
        "the thousand ids in the order given",
        (found.len(), found.first(), found.last()),
    )
}

pub(super) async fn an_existing_board_does_not_change(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "planner")?;
    a.create_task_list(&board, NewBoard::new(new_tasks(&["one", "two"])?).with_label("first")).await?;
    step(&*a, &board, "one", TaskStatus::InProgress).await?;
    let before = (read_board(&*a, &board).await?, tasks(&*a, &board).await?);
    let others = [
        NewBoard::default(),
        NewBoard::new(new_tasks(&["three"])?).with_label("second").with_parent(AgentId::new("chief")?),
        NewBoard::new(new_tasks(&["one", "two"])?).with_label("first"),
    ];
    for other in others {
        let again = b.create_task_list(&board, other).await;
        expect::error("creating an existing board", again, ErrorKind::AlreadyExists)?;
        let now = (read_board(&*b, &board).await?, tasks(&*b, &board).await?);
        expect::equal("the board and its tasks", &now, &before)?;
    }
    let empty = make(&*a, "talk", "empty", &[]).await?;
    let again = b.create_task_list(&empty, NewBoard::new(new_tasks(&["one"])?)).await;
    expect::error("making an empty board again", again, ErrorKind::AlreadyExists)?;
    expect::equal("the tasks", &tasks(&*b, &empty).await?, &Vec::new())
}

pub(super) async fn boards_are_separate(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let mut all = Vec::new();
    for (conversation, agent) in [("talk", "one"), ("talk", "two"), ("talk-2", "one"), ("one", "talk")] {
        let board = board(conversation, agent)?;
        let title = format!("of {conversation} and {agent}");
        let tasks = vec![NewTask::new(id("shared")?, title.clone()), NewTask::new(id("other")?, "other")];
        a.create_task_list(&board, NewBoard::new(tasks)).await?;
        all.push((board, title));
    }
    step(&*b, &all[0].0, "shared", TaskStatus::InProgress).await?;
    b.add_tasks(&all[1].0, new_tasks(&["more"])?).await?;
    for (position, (board, title)) in all.iter().enumerate() {
        let task = read(&*b, board, "shared").await?;
        let status = if position == 0 { TaskStatus::InProgress } else { TaskStatus::Planned };
        expect::equal("title and status", &(&task.title, task.status), &(title, status))?;
        let expected = if position == 1 { vec!["shared", "other", "more"] } else { vec!["shared", "other"] };
        expect::equal("the tasks", &names(&tasks(&*a, board).await?), &expected)?;
    }
    Ok(())
}

pub(super) async fn a_parent_need_not_exist(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    // A missing parent, a parent that is created later, and the board itself.
    for (agent, parent) in [("child", "never"), ("early", "late"), ("self", "self"), ("late", "child")] {
        let board = board("talk", agent)?;
        a.create_task_list(&board, NewBoard::default().with_parent(AgentId::new(parent)?)).await?;
        let read = read_board(&*b, &board).await?;
        expect::equal("the parent", &read.parent, &Some(AgentId::new(parent)?))?;
    }
    expect::equal("the parent as a board", &b.get_board(&board("talk", "never")?).await?, &None)?;
    // Removing a parent leaves its children.
    b.delete_board(&board("talk", "late")?).await?;
    let early = read_board(&*a, &board("talk", "early")?).await?;
    expect::equal("the parent", &early.parent, &Some(AgentId::new("late")?))?;
    expect::equal("number of boards", &boards(&*a, None, 10).await?.len(), &3)
}

pub(super) async fn one_of_concurrent_creations_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for round in 0..3 {
        let board = board("race", &format!("agent-{round}"))?;
        let mut workers: JoinSet<CaseResult<Option<usize>>> = JoinSet::new();
        for worker in 0..8 {
            let (store, board) = (turn(&a, &b, worker), board.clone());
            workers.spawn(async move {
                let (first, second) = (format!("{worker}-a"), format!("{worker}-b"));
                let new = NewBoard::new(new_tasks(&[&first, &second])?).with_label(format!("{worker}"));
                match store.create_task_list(&board, new).await {
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
        let (read, found) = (read_board(&*b, &board).await?, tasks(&*a, &board).await?);
        expect::equal("the label", &read.label, &Some(format!("{winner}")))?;
        let (first, second) = (format!("{winner}-a"), format!("{winner}-b"));
        expect::equal("the tasks", &names(&found), &vec![&*first, &*second])?;
    }
    Ok(())
}

/// Boards whose byte order differs from that of collations, of UTF-16 and of joined names.
const ORDERED: [(&str, &str); 9] = [
    ("A", "z"),
    ("a", "B"),
    ("a", "a"),
    ("a", "b"),
    ("a ", "a"),
    ("a-b", "a"),
    ("ab", "\u{e9}"),
    ("\u{ffff}", "a"),
    ("\u{1f980}", "a"),
];

pub(super) async fn boards_are_listed_once_in_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for (conversation, agent) in ORDERED.iter().rev() {
        make(&*a, conversation, agent, &["one", "two"]).await?;
    }
    step(&*a, &board("a", "b")?, "one", TaskStatus::Blocked).await?;
    let mut expected = Vec::new();
    for (conversation, agent) in ORDERED {
        expected.push(read_board(&*b, &board(conversation, agent)?).await?);
    }
    for limit in [1, 2, 3, 8, 9, 10, 10_000] {
        let what = format!("the boards in pages of {limit}");
        expect::equal(&what, &boards(&*b, None, limit).await?, &expected)?;
    }
    let exact = b.list_boards(None, PageRequest::first(9)).await?;
    expect::equal("what follows a page that holds all", &exact.next, &None)?;
    let nothing = b.list_boards(None, PageRequest::first(0)).await?;
    expect::that(nothing.items.is_empty(), "nothing for a limit of 0", &nothing.items)?;
    let after = b.list_boards(None, PageRequest::after(board("a", "aa")?, 2)).await?;
    expect::equal("the page after a missing board", &after.items.as_slice(), &&expected[3..5])
}

pub(super) async fn boards_of_one_conversation_are_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for (conversation, agent) in ORDERED {
        make(&*a, conversation, agent, &["one"]).await?;
    }
    let wanted = ConversationId::new("a")?;
    for limit in [1, 2, 3, 4] {
        let found = boards(&*b, Some(&wanted), limit).await?;
        let ids: Vec<BoardId> = found.into_iter().map(|board| board.id).collect();
        let expected = vec![board("a", "B")?, board("a", "a")?, board("a", "b")?];
        expect::equal(&format!("boards of the conversation in pages of {limit}"), &ids, &expected)?;
    }
    let exact = b.list_boards(Some(&wanted), PageRequest::first(3)).await?;
    expect::equal("what follows a page that holds all", &exact.next, &None)?;
    let table = [(board("A", "z")?, 3), (board("a", "a")?, 1), (board("ab", "a")?, 0)];
    for (after, count) in table {
        let page = b.list_boards(Some(&wanted), PageRequest::after(after, 10)).await?;
        expect::equal("number of boards after it", &page.items.len(), &count)?;
    }
    let nobody = ConversationId::new("nobody")?;
    expect::equal("boards of no conversation", &boards(&*b, Some(&nobody), 10).await?, &Vec::new())
}
