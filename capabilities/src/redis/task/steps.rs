//! The transitions of a task: each one is one script, which decides and writes.

use std::time::Duration;

use larder_kernel::{
    BoardId, Claim, ConversationId, FencingToken, Generation, Lease, Result, RetryOutcome, Task, TaskId,
    TaskStatus, Transition, WorkerId,
};

use super::conversation::{Conversation, board_call};
use super::rows::{Answer, digit_of, digits};
use super::{CLAIM, FORCE_RETRY, RENEW, RETRY, RedisTaskStore, UPDATE, scripts};
use crate::redis::decode;
use crate::redis::failure::corrupt;
use crate::redis::script::{Call, Script, millis};

/// Returns a number as text, or an empty text. Scripts compare tokens and revisions as text, so any number is
/// valid.
fn optional(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn named(generation: Option<Generation>) -> String {
    generation.map(|generation| generation.to_string()).unwrap_or_default()
}

impl RedisTaskStore {
    async fn step(&self, operation: &'static str, script: &Script, call: &Call) -> Result<Answer> {
        Answer::new(self.engine.run(operation, script, call).await?)
    }

    /// Changes the status of a task as the transition table allows.
    pub(super) async fn update(&self, board: &BoardId, task: &TaskId, step: &Transition) -> Result<Task> {
        let call = board_call(&self.index, board)
            .arg(task.as_str())
            .number(digit_of(UPDATE, step.to)?)
            .arg(digits(|from| from.allows(step.to)))
            .arg(optional(step.expected.map(larder_kernel::Revision::get)))
            .arg(optional(step.token.map(FencingToken::get)))
            .number(u8::from(step.result.is_some()))
            .arg(step.result.as_deref().unwrap_or_default())
            .arg(named(step.expected.and_then(larder_kernel::Revision::generation)))
            .arg(named(step.token.and_then(FencingToken::generation)));
        let answer = self.step(UPDATE, &scripts::STEP, &call).await?;
        match answer.word.as_str() {
            "task" => answer.task(),
            _ => Err(answer.refusal(UPDATE).with_context("to", step.to.as_str())),
        }
    }

    /// Resets a task to planned if it has a retry left.
    pub(super) async fn retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        let call = board_call(&self.index, board)
            .arg(task.as_str())
            .arg(digits(TaskStatus::allows_retry))
            .arg(optional(token.map(FencingToken::get)))
            .arg(named(token.and_then(FencingToken::generation)));
        let answer = self.step(RETRY, &scripts::RETRY, &call).await?;
        match answer.word.as_str() {
            "task" => answer.task().map(RetryOutcome::Retried),
            "exhausted" => answer.task().map(RetryOutcome::Exhausted),
            _ => Err(answer.refusal(RETRY)),
        }
    }

    /// Resets a task to planned from any status.
    pub(super) async fn force(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        let call = board_call(&self.index, board).arg(task.as_str());
        let answer = self.step(FORCE_RETRY, &scripts::FORCE, &call).await?;
        match answer.word.as_str() {
            "task" => answer.task(),
            _ => Err(answer.refusal(FORCE_RETRY)),
        }
    }

    /// Ends the running tasks of a conversation.
    pub(super) async fn settle(&self, operation: &'static str, conversation: &ConversationId) -> Result<u64> {
        let conversation = Conversation::new(&self.index, conversation);
        let succeeded = digit_of(operation, TaskStatus::Succeeded)?;
        let call = conversation.call_to_all().bytes(conversation.prefix()).number(succeeded);
        let mut answer = self.step(operation, &scripts::SETTLE, &call).await?;
        match answer.word.as_str() {
            "settled" => decode::count(answer.next()),
            _ => Err(answer.refusal(operation)),
        }
    }

    /// Assigns the first free task to a worker.
    pub(super) async fn take(
        &self,
        board: &BoardId,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<Option<Claim>> {
        let call = board_call(&self.index, board).arg(worker.as_str()).number(millis(lease));
        let answer = self.step(CLAIM, &scripts::CLAIM, &call).await?;
        match answer.word.as_str() {
            "none" => Ok(None),
            "task" => {
                let task = answer.task()?;
                let token = task.lease.as_ref().map(|lease| lease.token).ok_or_else(|| corrupt(CLAIM))?;
                Ok(Some(Claim::new(task, token)))
            }
            _ => Err(answer.refusal(CLAIM)),
        }
    }

    /// Extends a lease from now.
    pub(super) async fn renew(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        let call = board_call(&self.index, board)
            .arg(task.as_str())
            .number(token.get())
            .number(millis(lease))
            .arg(named(token.generation()));
        let answer = self.step(RENEW, &scripts::RENEW, &call).await?;
        match answer.word.as_str() {
            "task" => answer.task()?.lease.ok_or_else(|| corrupt(RENEW)),
            _ => Err(answer.refusal(RENEW)),
        }
    }
}
