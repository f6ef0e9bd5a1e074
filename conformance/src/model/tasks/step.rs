//! The life cycle of a task.

use std::time::Duration;

use larder_kernel::storage::task::{check_claim, check_task_text};
use larder_kernel::{
    BoardId, Claim, ConversationId, ErrorKind, FencingToken, Lease, PageRequest, RetryOutcome, Revision,
    Task, TaskId, TaskQuery, TaskStatus, TaskStore, Transition, WorkerId,
};

use super::Tasks;
use super::board::all_text;
use super::operation::{Step, Token, board as shown, task_text, token_name, token_text};
use crate::model::compare::{Checked, Expected, answered, holds, same};
use crate::model::recorder::{Recorder, id, json_text, optional, owned_text, with};
use crate::model::shared::is_due;

/// Returns `true` if the caller may change the task: it uses the lease's token, and none if the task has no
/// lease.
fn may(task: &Task, token: Option<FencingToken>) -> bool {
    task.lease.as_ref().map(|lease| lease.token) == token
}

fn conflict<T>() -> Expected<T> {
    Err(ErrorKind::Conflict.into())
}

impl Tasks {
    pub(super) async fn update(
        &mut self,
        store: &dyn TaskStore,
        (board, id, step): (&BoardId, &TaskId, &Step),
        recorder: &mut Recorder,
    ) -> Checked {
        let result = step.result.clone();
        let mut step = Transition::to(step.to)
            .with_expected(step.expected.map(|expected| self.revision(board, id, expected)))
            .with_token(step.token.map(|token| self.token(board, id, token)));
        step.result = result;
        let task = self.task(board, id);
        let (clause, expected) = match task {
            _ if check_task_text(&step).is_err() => ("STORE-010", Err(ErrorKind::InvalidInput.into())),
            None => ("TASK-028", Err(ErrorKind::NotFound.into())),
            Some(task) if step.expected.is_some_and(|at| at != task.revision) => ("TASK-022", conflict()),
            Some(task) if !may(task, step.token) => ("TASK-025", conflict()),
            Some(task) if !in_table(task.status, step.to) => ("TASK-021", conflict()),
            Some(_) => ("TASK-020", Ok(())),
        };
        recorder.call(clause, |recorder| {
            let expected = optional(step.expected, |at| format!("Revision::new({at})"));
            let token = optional(step.token, |token| token_text(recorder, board, token));
            let result = with("result", step.result.as_deref(), owned_text);
            let (to, board, task) = (step.to, shown(board), task_text(id));
            format!(
                "update_status({board}, {task}, Transition::to(TaskStatus::{to:?}).with_expected({expected})\
                 .with_token({token}){result})"
            )
        });
        let changed = task.cloned().map(|mut task| {
            task.status = step.to;
            task.result = step.result.clone().or(task.result);
            task.lease = task.lease.filter(|_| step.to == TaskStatus::InProgress);
            task
        });
        let got = store.update_status(board, id, step).await;
        let Some(got) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        self.changed(board, changed, &got, clause, recorder)
    }

    /// Records the store's current task, if it equals the model's apart from the revision, which must
    /// increase.
    fn changed(
        &mut self,
        board: &BoardId,
        expected: Option<Task>,
        got: &Task,
        clause: &'static str,
        recorder: &Recorder,
    ) -> Checked {
        let Some(mut expected) = expected else { return Ok(()) };
        self.check_revision(board, &expected.id, got.revision, recorder)?;
        expected.revision = got.revision;
        let assertion = || format!("has({}.unwrap(), {});", recorder.answer(), json_text(&expected));
        holds(clause, *got == expected, || format!("{expected:?}"), got, assertion)?;
        self.put(board, expected);
        Ok(())
    }

    pub(super) async fn retry(
        &mut self,
        store: &dyn TaskStore,
        (board, id, token): (&BoardId, &TaskId, Option<Token>),
        recorder: &mut Recorder,
    ) -> Checked {
        let token = token.map(|token| self.token(board, id, token));
        let task = self.task(board, id).cloned();
        let (clause, expected) = match &task {
            None => ("TASK-036", Err(ErrorKind::NotFound.into())),
            Some(task) if !may(task, token) => ("TASK-034", conflict()),
            Some(task) if !task.status.allows_retry() => ("TASK-032", conflict()),
            Some(task) if task.retries >= task.retries_max => ("TASK-031", Ok(())),
            Some(_) => ("TASK-030", Ok(())),
        };
        recorder.call(clause, |recorder| {
            let token = optional(token, |token| token_text(recorder, board, token));
            format!("increment_retry({}, {}, {token})", shown(board), task_text(id))
        });
        let got = store.increment_retry(board, id, token).await;
        let Some(got) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let Some(mut task) = task else { return Ok(()) };
        if clause == "TASK-031" {
            return same(recorder, clause, &Ok(got), &Ok(RetryOutcome::Exhausted(task)));
        }
        task.retries += 1;
        task.status = TaskStatus::Planned;
        task.lease = None;
        match got {
            RetryOutcome::Retried(got) => self.changed(board, Some(task), &got, clause, recorder),
            exhausted @ RetryOutcome::Exhausted(_) => {
                same(recorder, clause, &Ok(exhausted), &Ok(RetryOutcome::Retried(task)))
            }
        }
    }

    pub(super) async fn force(
        &mut self,
        store: &dyn TaskStore,
        (board, id): (&BoardId, &TaskId),
        recorder: &mut Recorder,
    ) -> Checked {
        let task = self.task(board, id).cloned();
        let clause = if task.is_some() { "TASK-035" } else { "TASK-036" };
        let expected = if task.is_some() { Ok(()) } else { Err(ErrorKind::NotFound.into()) };
        recorder.call(clause, |_| format!("force_retry({}, {})", shown(board), task_text(id)));
        let got = store.force_retry(board, id).await;
        let Some(got) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let task = task.map(|task| {
            task.with_status(TaskStatus::Planned).with_retries(0).with_lease(None).with_result(None)
        });
        self.changed(board, task, &got, clause, recorder)
    }

    pub(super) async fn settle(
        &mut self,
        store: &dyn TaskStore,
        conversation: &ConversationId,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "TASK-037";
        recorder.call(CLAUSE, |_| format!("settle_conversation({})", id(conversation)));
        let boards = self.boards.iter().filter(|(board, _)| board.conversation == *conversation);
        let running = |task: &&Task| task.status == TaskStatus::InProgress;
        let settled: Vec<(BoardId, Vec<Task>)> = boards
            .map(|(board, held)| (board.clone(), held.tasks.iter().filter(running).cloned().collect()))
            .collect();
        let count = settled.iter().map(|(_, tasks)| larder_kernel::check::size(tasks.len())).sum();
        same(recorder, CLAUSE, &store.settle_conversation(conversation).await, &Ok(count))?;
        for (board, tasks) in settled.into_iter().filter(|(_, tasks)| !tasks.is_empty()) {
            recorder.call(CLAUSE, |_| {
                format!("list_tasks({}, &TaskQuery::default(), {})", shown(&board), all_text())
            });
            let got = store.list_tasks(&board, &TaskQuery::default(), PageRequest::first(10_000)).await;
            let Some(got) = answered(recorder, CLAUSE, got, &Ok(()))? else { return Ok(()) };
            for task in tasks {
                let mut found = got.items.iter().filter(|got| got.id == task.id);
                let revision = found.next().map_or(Revision::ZERO, |got| got.revision);
                self.check_revision(&board, &task.id, revision, recorder)?;
                let mut task = task.with_status(TaskStatus::Succeeded).with_lease(None);
                task.revision = revision;
                self.put(&board, task);
            }
        }
        Ok(())
    }

    pub(super) async fn claim(
        &mut self,
        store: &dyn TaskStore,
        (board, worker, lease): (&BoardId, &WorkerId, Duration),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.boards.get(board);
        let planned = |task: &&Task| task.status == TaskStatus::Planned;
        let free = held.and_then(|held| held.tasks.iter().find(planned)).cloned();
        let clause = if free.is_some() { "TASK-040" } else { "TASK-045" };
        recorder.call(clause, |_| {
            let lease = format!("Duration::from_micros({})", lease.as_micros());
            format!("claim({}, {}, {lease})", shown(board), id(worker))
        });
        let got = store.claim(board, worker, lease).await;
        let allowed = check_claim("tasks.claim", lease).map_err(Into::into);
        let (Some(mut task), Ok(())) = (free, &allowed) else {
            return same(recorder, clause, &got, &allowed.map(|()| None));
        };
        let Some(got) = answered(recorder, clause, got, &allowed)? else { return Ok(()) };
        let Some(Claim { task: got, token, .. }) = got else {
            let (token, expires_at) = (FencingToken::default(), <_>::default());
            task.status = TaskStatus::InProgress;
            task.lease = Some(Lease::new(worker.clone(), token, expires_at));
            return same(recorder, clause, &Ok(None), &Ok(Some(Claim::new(task, FencingToken::default()))));
        };
        recorder.name(|| token_name(board, token), "{s}.as_ref().unwrap().as_ref().unwrap().token");
        let given = self.given.entry(board.clone()).or_default();
        let last = given.tokens.last().copied().unwrap_or_default();
        given.tokens.push(token);
        let grows = || format!("panic!(\"a token not above {last}: {token}\");");
        holds("TASK-042", token > last, || format!("a token above {last}"), &token, grows)?;
        let expires_at = got.lease.as_ref().map(|lease| lease.expires_at).unwrap_or_default();
        due(expires_at, lease, clause)?;
        task.status = TaskStatus::InProgress;
        task.lease = Some(Lease::new(worker.clone(), token, expires_at));
        self.changed(board, Some(task), &got, clause, recorder)
    }

    pub(super) async fn renew(
        &mut self,
        store: &dyn TaskStore,
        (board, id, token, lease): (&BoardId, &TaskId, Token, Duration),
        recorder: &mut Recorder,
    ) -> Checked {
        let token = self.token(board, id, token);
        let task = self.task(board, id).cloned();
        let (clause, expected) = match &task {
            _ if check_claim("tasks.renew_lease", lease).is_err() => {
                ("STORE-010", check_claim("tasks.renew_lease", lease).map_err(Into::into))
            }
            None => ("TASK-048", Err(ErrorKind::NotFound.into())),
            Some(task) if task.lease.is_none() || !may(task, Some(token)) => ("TASK-048", conflict()),
            Some(_) => ("TASK-047", Ok(())),
        };
        recorder.call(clause, |recorder| {
            let lease = format!("Duration::from_micros({})", lease.as_micros());
            let token = token_text(recorder, board, token);
            format!("renew_lease({}, {}, {token}, {lease})", shown(board), task_text(id))
        });
        let got = store.renew_lease(board, id, token, lease).await;
        let Some(got) = answered(recorder, clause, got, &expected)? else { return Ok(()) };
        let Some(mut task) = task else { return Ok(()) };
        due(got.expires_at, lease, clause)?;
        if let Some(held) = &mut task.lease {
            held.expires_at = got.expires_at;
            same(recorder, clause, &Ok(got), &Ok(held.clone()))?;
        }
        recorder.call(clause, |_| format!("get_task({}, {})", shown(board), task_text(id)));
        let got = answered(recorder, clause, store.get_task(board, id).await, &Ok(()))?.flatten();
        let Some(got) = got else { return same(recorder, clause, &Ok(None), &Ok(Some(task))) };
        self.changed(board, Some(task), &got, clause, recorder)
    }
}

/// Returns `true` if the contract's table allows the transition.
fn in_table(from: TaskStatus, to: TaskStatus) -> bool {
    use TaskStatus::{Abandoned, Blocked, Failed, InProgress, Planned, Succeeded};
    let allowed: &[TaskStatus] = match from {
        Planned => &[InProgress, Blocked, Abandoned],
        InProgress => &[Planned, Blocked, Succeeded, Failed, Abandoned],
        Blocked => &[Planned, InProgress, Failed, Abandoned],
        Failed => &[Abandoned],
        Succeeded | Abandoned => &[],
        _ => unreachable!(),
    };
    allowed.contains(&to)
}

fn due(at: larder_kernel::Timestamp, lease: Duration, clause: &'static str) -> Checked {
    let expected = || format!("a lease that ends in {} s", lease.as_secs_f64());
    let assertion = || "panic!(\"the lease ends at another time\");".to_owned();
    holds(clause, is_due(at, lease), expected, &at, assertion)
}
