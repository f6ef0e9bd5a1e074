//! A dump of all readable data, and sample data.

use std::time::Duration;

use larder_kernel::{AgentId, Metadata, NewBoard, NewTask, TaskQuery, TaskStatus, TaskStore, Transition};
use serde_json::Value;

use super::support::{board, boards, claim, id, listed};
use crate::case::{CaseResult, Failure};

/// Reads all boards with their tasks.
pub(crate) async fn dump(store: &dyn TaskStore) -> CaseResult<Value> {
    let mut whole = Vec::new();
    for board in boards(store, None, 100).await? {
        let tasks = listed(store, &board.id, &TaskQuery::default(), 100).await?;
        let row = serde_json::to_value((&board, &tasks));
        let mut row = row.map_err(|error| Failure::Engine(format!("cannot write a dump: {error}")))?;
        row.sort_all_objects();
        whole.push(row);
    }
    Ok(Value::Array(whole))
}

/// Creates two boards of a conversation with tasks that are planned, claimed and failed; a third board is
/// removed again.
pub(crate) async fn populate(store: &dyn TaskStore, marker: &str) -> CaseResult {
    const LEASE: Duration = Duration::from_secs(3600);
    for agent in ["agent", "agent-2", "removed"] {
        let board = board(&format!("{marker}-talk"), &format!("{marker}-{agent}"))?;
        let mut tasks = Vec::new();
        for number in 0..3 {
            let task = NewTask::new(id(&format!("{marker}-task-{number}"))?, format!("title {marker}"));
            let metadata = Metadata::new().with(format!("key {marker}"), format!("value {marker}"));
            tasks.push(task.with_description(format!("about {marker}")).with_metadata(metadata));
        }
        let new = NewBoard::new(tasks).with_label(format!("label {marker}"));
        store.create_task_list(&board, new.with_parent(AgentId::new(format!("{marker}-chief"))?)).await?;
        let worker = format!("{marker}-worker");
        let first = claim(store, &board, &worker, LEASE).await?;
        let failed = Transition::to(TaskStatus::Failed).with_token(first.token);
        store.update_status(&board, &first.task.id, failed.with_result(format!("why {marker}"))).await?;
        claim(store, &board, &worker, LEASE).await?;
        if agent == "removed" {
            store.delete_board(&board).await?;
        }
    }
    Ok(())
}
