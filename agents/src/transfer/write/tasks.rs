//! Writes of boards, their tasks, and the steps of each task.

use std::sync::Arc;

use larder_kernel::{
    BoardId, Error, ErrorKind, NewBoard, NewTask, Result, RetryOutcome, Task, TaskStore, Transition,
};

use super::Change;
use super::steps::{Step, next};
use crate::transfer::record::{BoardRecord, Record, TaskRecord};

pub(super) async fn write(store: &Arc<dyn TaskStore>, batch: Vec<(Change, Record)>) -> Result<()> {
    let mut new = Vec::new();
    let mut goals = Vec::new();
    for (change, record) in batch {
        match record {
            Record::Board(board) => make(store, board).await?,
            Record::Task(goal) => {
                if change == Change::New {
                    new.push(planned(&goal));
                }
                goals.push(goal);
            }
            _ => {}
        }
    }
    let Some(board) = goals.first().map(|goal| goal.board.clone()) else { return Ok(()) };
    let mut added = if new.is_empty() { Vec::new() } else { store.add_tasks(&board, new).await? }.into_iter();
    let mut next_added = added.next();
    for goal in &goals {
        let task = match next_added.take_if(|task| task.id == goal.id) {
            Some(task) => {
                next_added = added.next();
                Some(task)
            }
            None => store.get_task(&board, &goal.id).await?,
        };
        let task =
            task.ok_or_else(|| taken("another client deleted a task during the copy; run it again"))?;
        advance(store, &board, task, goal).await?;
    }
    Ok(())
}

async fn make(store: &Arc<dyn TaskStore>, record: BoardRecord) -> Result<()> {
    let BoardRecord { board, label, parent } = record;
    let mut new = NewBoard::default().with_parent(parent);
    new.label = label;
    store.create_task_list(&board, new).await.map(drop)
}

fn planned(goal: &TaskRecord) -> NewTask {
    let mut task = NewTask::new(goal.id.clone(), goal.title.clone())
        .with_retries_max(goal.retries_max)
        .with_metadata(goal.metadata.clone());
    task.description.clone_from(&goal.description);
    task
}

/// Takes the steps from the current state of the task to the goal.
async fn advance(
    store: &Arc<dyn TaskStore>,
    board: &BoardId,
    mut task: Task,
    goal: &TaskRecord,
) -> Result<()> {
    loop {
        if task.lease.is_some() {
            return Err(taken("a worker claimed a task during the copy; run it again"));
        }
        let step = next((task.status, task.retries, task.result.as_deref()), goal);
        task = match step.map_err(taken)? {
            None => return Ok(()),
            Some(Step::Retry) => match store.increment_retry(board, &task.id, None).await? {
                RetryOutcome::Retried(task) => task,
                RetryOutcome::Exhausted(_) => {
                    return Err(taken("a task has more retries than its limit; correct the source"));
                }
            },
            Some(Step::To(status, with_result)) => {
                let mut step = Transition::to(status).with_expected(task.revision);
                step.result = goal.result.clone().filter(|_| with_result);
                store.update_status(board, &task.id, step).await?
            }
        };
    }
}

fn taken(message: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, "transfer.copy", message).with_context("contract", "tasks")
}
