//! Checks that every backend runs before its first I/O, and the rule for transitions.

use std::time::Duration;

use super::board::NewBoard;
use super::types::{NewTask, Task, Transition};
use crate::check;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{BATCH_TASKS_MAX, TASK_RETRIES_MAX, TASK_TEXT_BYTES_MAX, TASK_TITLE_BYTES_MAX};
use crate::position::FencingToken;

/// Checks the arguments of [`add_tasks`](super::TaskStore::add_tasks).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_add_tasks(tasks: &[NewTask]) -> Result<()> {
    const OPERATION: &str = "tasks.add_tasks";
    check::at_least(OPERATION, "tasks", tasks.len(), 1)?;
    check_new_tasks(OPERATION, tasks)
}

fn check_new_tasks(operation: &'static str, tasks: &[NewTask]) -> Result<()> {
    check::at_most(operation, "tasks", tasks.len(), BATCH_TASKS_MAX)?;
    check::distinct(operation, "tasks.id", tasks.iter().map(|task| &task.id))?;
    for task in tasks {
        check::batch(operation, "task.title", task.title.len(), TASK_TITLE_BYTES_MAX)?;
        if let Some(description) = &task.description {
            check::text(operation, "task.description", description, TASK_TEXT_BYTES_MAX)?;
        }
        if task.retries_max > TASK_RETRIES_MAX {
            let (actual, limit) = (u64::from(task.retries_max), u64::from(TASK_RETRIES_MAX));
            return Err(Error::over_limit(operation, "task.retries_max", actual, limit));
        }
        task.metadata.check(operation, "task.metadata")?;
    }
    Ok(())
}

impl NewBoard {
    /// Checks the arguments of [`create_task_list`](super::TaskStore::create_task_list).
    ///
    /// # Errors
    /// `InvalidInput` naming the field and the limit.
    pub fn check(&self) -> Result<()> {
        const OPERATION: &str = "tasks.create_task_list";
        if let Some(label) = &self.label {
            check::text(OPERATION, "label", label, TASK_TITLE_BYTES_MAX)?;
        }
        check_new_tasks(OPERATION, &self.tasks)
    }
}

/// Checks the text of a transition.
///
/// # Errors
/// `InvalidInput` naming `result` and the limit.
pub fn check_task_text(step: &Transition) -> Result<()> {
    step.result
        .as_ref()
        .map_or(Ok(()), |text| check::text("tasks.update_status", "result", text, TASK_TEXT_BYTES_MAX))
}

/// Checks the lease of a claim.
///
/// # Errors
/// `InvalidInput` naming `lease` and the limit in milliseconds.
pub fn check_claim(operation: &'static str, lease: Duration) -> Result<()> {
    check::ttl(operation, "lease", lease)
}

/// Refuses a token that differs from the token of the task's lease. A task with a lease needs a token, and a
/// task without a lease takes none.
///
/// # Errors
/// `Conflict`.
pub fn check_lease(operation: &'static str, task: &Task, token: Option<FencingToken>) -> Result<()> {
    let fits = match (&task.lease, token) {
        (Some(lease), Some(token)) => token.names(lease.token),
        (lease, token) => lease.is_none() && token.is_none(),
    };
    if fits {
        Ok(())
    } else {
        Err(Error::new(
            ErrorKind::Conflict,
            operation,
            "the token does not match the task's lease; claim the task again",
        ))
    }
}

/// Checks that a transition is allowed from the task's current state. It checks the revision, then the lease,
/// then the table of transitions.
///
/// # Errors
/// `Conflict`, with a message that names the failed check.
pub fn check_transition(task: &Task, step: &Transition) -> Result<()> {
    const OPERATION: &str = "tasks.update_status";
    if step.expected.is_some_and(|expected| !expected.names(task.revision)) {
        return Err(Error::new(
            ErrorKind::Conflict,
            OPERATION,
            "the task is at another revision; read the task and try again",
        ));
    }
    check_lease(OPERATION, task, step.token)?;
    if task.status.allows(step.to) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "this transition is not allowed; see the table of transitions of `TaskStore`",
    )
    .with_context("from", task.status.as_str())
    .with_context("to", step.to.as_str()))
}
