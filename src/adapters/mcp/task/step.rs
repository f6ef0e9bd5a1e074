//! Working on tasks: claims, leases and steps.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::storage::task::{check_claim, check_task_text};
use larder_kernel::{FencingToken, Result, RetryOutcome, Revision, TaskId, TaskStatus, Transition, WorkerId};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::view::{Status, TaskView, board};
use crate::adapters::mcp::argument::Id;
use crate::adapters::mcp::registry::Shared;

/// Returns the lease that a call requests.
fn lease(operation: &'static str, lease_ms: u64) -> Result<Duration> {
    let lease = Duration::from_millis(lease_ms);
    check_claim(operation, lease).map_err(|error| error.with_field("lease_ms"))?;
    Ok(lease)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimInput {
    conversation: Id,
    agent: Id,
    /// The id of the worker that claims.
    worker: Id,
    /// The length of the lease, in milliseconds.
    #[schemars(range(min = 1))]
    lease_ms: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct ClaimOutput {
    /// `true` if a task was available.
    claimed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
    /// The token, required for every step of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

pub(crate) async fn claim(shared: Arc<Shared>, input: ClaimInput) -> Result<ClaimOutput> {
    let (board, worker) = (board(&input.conversation, &input.agent)?, WorkerId::new(&input.worker)?);
    let lease = lease("mcp.task_claim", input.lease_ms)?;
    let claim = shared.stores.tasks()?.claim(&board, &worker, lease).await?;
    let token = claim.as_ref().map(|claim| claim.token.get());
    let task = claim.map(|claim| claim.task.into());
    Ok(ClaimOutput { claimed: task.is_some(), task, token })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewInput {
    conversation: Id,
    agent: Id,
    /// The id of the task.
    task: Id,
    /// The token of the claim.
    token: u64,
    /// The length of the lease from now, in milliseconds.
    #[schemars(range(min = 1))]
    lease_ms: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct RenewOutput {
    /// The expiry of the lease, in RFC 3339. After it, another worker can claim the task.
    expires_at: String,
}

pub(crate) async fn renew(shared: Arc<Shared>, input: RenewInput) -> Result<RenewOutput> {
    let (board, task) = (board(&input.conversation, &input.agent)?, TaskId::new(&input.task)?);
    let lease = lease("mcp.task_renew", input.lease_ms)?;
    let token = FencingToken::new(input.token);
    let lease = shared.stores.tasks()?.renew_lease(&board, &task, token, lease).await?;
    Ok(RenewOutput { expires_at: lease.expires_at.to_string() })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct EndInput {
    conversation: Id,
    agent: Id,
    /// The id of the task.
    task: Id,
    /// The token of the claim; required if the task is claimed.
    token: Option<u64>,
    /// The result, or the reason of the failure; at most 1 MiB.
    result: Option<String>,
    /// Change the status only if the task has this revision.
    if_revision: Option<u64>,
}

pub(crate) async fn complete(shared: Arc<Shared>, input: EndInput) -> Result<TaskView> {
    end(&shared, input, TaskStatus::Succeeded).await
}

pub(crate) async fn fail(shared: Arc<Shared>, input: EndInput) -> Result<TaskView> {
    end(&shared, input, TaskStatus::Failed).await
}

async fn end(shared: &Shared, input: EndInput, to: TaskStatus) -> Result<TaskView> {
    let (board, task) = (board(&input.conversation, &input.agent)?, TaskId::new(&input.task)?);
    let mut step = Transition::to(to)
        .with_expected(input.if_revision.map(Revision::new))
        .with_token(input.token.map(FencingToken::new));
    step.result = input.result;
    check_task_text(&step)?;
    Ok(shared.stores.tasks()?.update_status(&board, &task, step).await?.into())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateInput {
    conversation: Id,
    agent: Id,
    /// The id of the task.
    task: Id,
    /// The new status.
    status: Status,
    /// The token of the claim; required if the task is claimed.
    token: Option<u64>,
    /// The result, at most 1 MiB. Without it, the existing result stays.
    result: Option<String>,
    /// Change the status only if the task has this revision.
    if_revision: Option<u64>,
}

pub(crate) async fn update(shared: Arc<Shared>, input: UpdateInput) -> Result<TaskView> {
    let UpdateInput { conversation, agent, task, status, token, result, if_revision } = input;
    let step = EndInput { conversation, agent, task, token, result, if_revision };
    end(&shared, step, status.into()).await
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryInput {
    conversation: Id,
    agent: Id,
    /// The id of the task.
    task: Id,
    /// The token of the claim; required if the task is claimed.
    token: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct RetryOutput {
    /// `true` if a retry remained and the task is planned again.
    retried: bool,
    task: TaskView,
}

pub(crate) async fn retry(shared: Arc<Shared>, input: RetryInput) -> Result<RetryOutput> {
    let (board, task) = (board(&input.conversation, &input.agent)?, TaskId::new(&input.task)?);
    let token = input.token.map(FencingToken::new);
    Ok(match shared.stores.tasks()?.increment_retry(&board, &task, token).await? {
        RetryOutcome::Retried(task) => RetryOutput { retried: true, task: task.into() },
        RetryOutcome::Exhausted(task) => RetryOutput { retried: false, task: task.into() },
    })
}
