//! The methods of [`TaskStore`].

use std::time::Duration;

use larder_kernel::{
    BoardId, ConversationId, FencingToken, Metadata, NewBoard, NewTask, PageRequest, Result, TaskId,
    TaskPosition, TaskQuery, TaskStatus, TaskStore, Transition, WorkerId,
};

use super::{World, calls};
use crate::case::{CaseResult, implemented};

const HOUR: Duration = Duration::from_secs(3_600);

fn board() -> Result<BoardId> {
    BoardId::new("talk", "agent")
}

fn their_board() -> Result<BoardId> {
    BoardId::new("talk", "their")
}

fn id(name: &str) -> Result<TaskId> {
    TaskId::new(name)
}

fn task(name: &str, text: &str) -> Result<NewTask> {
    let metadata = Metadata::new().with("of", text);
    Ok(NewTask::new(id(name)?, format!("{name} {text}")).with_metadata(metadata))
}

fn tasks(names: &[&str], text: &str) -> Result<Vec<NewTask>> {
    names.iter().map(|name| task(name, text)).collect()
}

/// Writes three boards, without the calls of methods that the store does not implement yet. On the first,
/// `t1` is leased, and `t2` and `t3` are planned; each of the others has a task in progress.
pub(super) async fn lay_out(store: &dyn TaskStore, world: World) -> CaseResult {
    let text = world.text();
    let own = if world.is_theirs() { &["t1", "t2", "t3", "their"][..] } else { &["t1", "t2", "t3"] };
    let first = NewBoard::new(tasks(own, text)?).with_label(text);
    store.create_task_list(&board()?, first).await?;
    implemented(store.claim(&board()?, &WorkerId::new("worker")?, HOUR).await)?;
    if world.is_theirs() {
        // Makes the tokens and revisions of this namespace larger, and leaves no task of this board free.
        for _ in 0..own.len() {
            implemented(store.claim(&board()?, &WorkerId::new("their")?, HOUR).await)?;
        }
        for (conversation, agent) in [("talk", "their"), ("their", "agent")] {
            let more = NewBoard::new(tasks(&["t1"], text)?);
            store.create_task_list(&BoardId::new(conversation, agent)?, more).await?;
        }
    }
    for (conversation, agent) in [("talk", "second"), ("other", "agent")] {
        let board = BoardId::new(conversation, agent)?;
        store.create_task_list(&board, NewBoard::new(tasks(&["t1"], text)?)).await?;
        implemented(store.update_status(&board, &id("t1")?, Transition::to(TaskStatus::InProgress)).await)?;
    }
    Ok(())
}

/// Returns the token of the lease on `t1`.
async fn token(store: &dyn TaskStore) -> Result<Option<FencingToken>> {
    let task = store.get_task(&board()?, &id("t1")?).await?;
    Ok(task.and_then(|task| task.lease).map(|lease| lease.token))
}

calls! { Tasks, tasks;
    "create_task_list" => |store| {
        store.create_task_list(&their_board()?, NewBoard::new(tasks(&["t1", "t2"], "new")?)).await
    }
    "add_tasks" => |store| { store.add_tasks(&board()?, tasks(&["their", "t9"], "new")?).await }
    "add_tasks/to_no_board" => |store| { store.add_tasks(&their_board()?, tasks(&["t9"], "new")?).await }
    "get_board" => |store| { store.get_board(&board()?).await }
    "get_board/that_is_not_there" => |store| { store.get_board(&their_board()?).await }
    "get_task" => |store| { store.get_task(&board()?, &id("t2")?).await }
    "get_task/that_is_not_there" => |store| { store.get_task(&board()?, &id("their")?).await }
    "list_tasks" => |store| {
        store.list_tasks(&board()?, &TaskQuery::default(), PageRequest::default()).await
    }
    "list_tasks/in_a_status" => |store| {
        let planned = TaskQuery::in_statuses([TaskStatus::Planned]);
        store.list_tasks(&board()?, &planned, PageRequest::default()).await
    }
    "list_tasks/after" => |store| {
        let after = PageRequest::after(TaskPosition::new(0), 10);
        store.list_tasks(&board()?, &TaskQuery::default(), after).await
    }
    "list_boards" => |store| { store.list_boards(None, PageRequest::default()).await }
    "list_boards/of_a_conversation" => |store| {
        store.list_boards(Some(&ConversationId::new("talk")?), PageRequest::default()).await
    }
    "list_boards/after" => |store| { store.list_boards(None, PageRequest::after(board()?, 10)).await }
    "update_status" => |store| {
        let step = Transition::to(TaskStatus::Succeeded).with_result("done");
        let step = match token(store).await? {
            Some(token) => step.with_token(token),
            None => step,
        };
        store.update_status(&board()?, &id("t1")?, step).await
    }
    "update_status/of_a_planned_task" => |store| {
        store.update_status(&board()?, &id("t2")?, Transition::to(TaskStatus::Blocked)).await
    }
    "increment_retry" => |store| {
        let token = token(store).await?;
        store.increment_retry(&board()?, &id("t1")?, token).await
    }
    "force_retry" => |store| { store.force_retry(&board()?, &id("t1")?).await }
    "settle_conversation" => |store| { store.settle_conversation(&ConversationId::new("talk")?).await }
    "claim" => |store| { store.claim(&board()?, &WorkerId::new("worker")?, HOUR).await }
    "claim/from_no_board" => |store| { store.claim(&their_board()?, &WorkerId::new("worker")?, HOUR).await }
    "renew_lease" => |store| {
        let token = token(store).await?.unwrap_or(FencingToken::new(0));
        store.renew_lease(&board()?, &id("t1")?, token, HOUR).await
    }
    "delete_board" => |store| { store.delete_board(&board()?).await }
    "delete_board/that_is_not_there" => |store| { store.delete_board(&their_board()?).await }
}
