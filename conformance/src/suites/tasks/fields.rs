//! Fields × values: every field of boards and tasks reads back exactly, by every method that returns them.

use larder_kernel::{BoardId, NewBoard, NewTask, Task, TaskQuery, TaskStatus, TaskStore, Transition};

use super::support::{HOUR, board, boards, id, listed, read_board, worker};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::values::{TEXTS, metadata, same};

/// Returns a task for each field and each value, in their order.
fn written() -> CaseResult<Vec<NewTask>> {
    let mut written = Vec::new();
    let next = |written: &[NewTask]| id(&format!("{:04}", written.len()));
    for text in TEXTS {
        written.push(NewTask::new(next(&written)?, *text));
        written.push(NewTask::new(next(&written)?, "title").with_description(*text));
    }
    for metadata in metadata() {
        written.push(NewTask::new(next(&written)?, "title").with_metadata(metadata));
    }
    Ok(written)
}

/// Checks that a task has the fields that its writer gave it.
fn as_written(what: &str, found: &[Task], written: &[NewTask]) -> CaseResult {
    let expected = found.iter().zip(written).map(|(found, new)| {
        let task = new.clone().into_task(found.position, found.revision);
        task.with_status(found.status).with_lease(found.lease.clone()).with_result(found.result.clone())
    });
    same(what, found, &expected.collect::<Vec<_>>())
}

async fn list(store: &dyn TaskStore, board: &BoardId) -> CaseResult<Vec<Task>> {
    listed(store, board, &TaskQuery::default(), 1_000).await
}

pub(super) async fn every_field_reads_back_by_every_method(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let (created, added, written) = (board("talk", "created")?, board("talk", "added")?, written()?);
    a.create_task_list(&created, NewBoard::new(written.clone())).await?;
    a.create_task_list(&added, NewBoard::default()).await?;
    as_written("add_tasks", &a.add_tasks(&added, written.clone()).await?, &written)?;
    for board in [&created, &added] {
        as_written("list_tasks", &list(&*b, board).await?, &written)?;
    }
    let worker = worker("worker")?;
    for new in &written {
        let found = expect::some("the task", b.get_task(&created, &new.id).await?)?;
        as_written("get_task", &[found], std::slice::from_ref(new))?;
        let claim = expect::some("a free task", b.claim(&created, &worker, HOUR).await?)?;
        as_written("claim", &[claim.task], std::slice::from_ref(new))?;
        let step = b.update_status(&added, &new.id, Transition::to(TaskStatus::Blocked)).await?;
        as_written("update_status", &[step], std::slice::from_ref(new))?;
    }
    for board in [&created, &added] {
        as_written("list_tasks after a change", &list(&*a, board).await?, &written)?;
    }
    Ok(())
}

pub(super) async fn every_result_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    let board = board("talk", "results")?;
    let tasks = (0..TEXTS.len()).map(|number| Ok(NewTask::new(id(&number.to_string())?, "title")));
    a.create_task_list(&board, NewBoard::new(tasks.collect::<CaseResult<_>>()?)).await?;
    for (number, text) in TEXTS.iter().enumerate() {
        let step = Transition::to(TaskStatus::Blocked).with_result(*text);
        let stepped = a.update_status(&board, &id(&number.to_string())?, step).await?;
        expect::equal("the result of the transition", &stepped.result.as_deref(), &Some(*text))?;
    }
    let found = list(&*b, &board).await?;
    let found: Vec<_> = found.iter().map(|task| task.result.as_deref().unwrap_or_default()).collect();
    same("the results", &found, TEXTS)
}

pub(super) async fn every_label_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    for (number, text) in TEXTS.iter().enumerate() {
        let board = board("talk", &format!("{number:04}"))?;
        a.create_task_list(&board, NewBoard::default().with_label(*text)).await?;
        expect::equal("the label", &read_board(&*b, &board).await?.label.as_deref(), &Some(*text))?;
    }
    let found = boards(&*b, None, 1_000).await?;
    let found: Vec<_> = found.iter().map(|board| board.label.as_deref().unwrap_or_default()).collect();
    same("the listed labels", &found, TEXTS)
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Board, BoardStatusCounts, Revision, TaskPosition};

    use super::*;
    use crate::suites::values::fields_of;

    #[test]
    fn every_field_has_values() {
        let full = written().unwrap().pop().unwrap().with_description("x");
        let full = full.into_task(TaskPosition::new(1), Revision::ZERO).with_result("x".to_owned());
        let mut fields: Vec<_> = fields_of(&full).into_iter().collect();
        // Other cases cover these.
        fields.retain(|field| !["id", "lease", "position", "revision", "status"].contains(&field.as_str()));
        assert_eq!(fields, ["description", "metadata", "result", "retries", "retries_max", "title"]);
        let full = Board::new(BoardId::new("c", "a").unwrap(), BoardStatusCounts::default());
        let fields: Vec<_> = fields_of(&full.with_label("x".to_owned())).into_iter().collect();
        assert!(fields.contains(&"label".to_owned()), "{fields:?}");
    }
}
