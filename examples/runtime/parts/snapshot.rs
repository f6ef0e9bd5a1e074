//! The stored data of the runtime, for comparing two runs.

use larder::{EntityQuery, HistoryProviderExt, PageRequest, RelationshipQuery, Result, TaskStatus};
use serde_json::{Value, json};

use super::runtime::Runtime;

const ITEMS_MAX: usize = 1_000;

impl Runtime {
    /// Returns messages, tasks, notes, graph and summary, without values that differ between runs: times,
    /// tokens and revisions.
    pub(crate) async fn snapshot(&self) -> Result<Value> {
        let thread = self.planner.context.thread(&self.session);
        let mut messages = Vec::new();
        for stored in self.stores.set().history()?.all_messages(&thread).await? {
            let mut message = json!({"seq": stored.seq, "message": *stored.message});
            if let Some(fields) = message["message"].as_object_mut() {
                fields.remove("created_at");
            }
            messages.push(message);
        }
        let mut tasks = Vec::new();
        for board in [&self.planner.board, &self.scout.board] {
            for task in board.all().await? {
                tasks.push(json!([task.id, task.title, task.status, task.result, task.retries]));
            }
        }
        let notes = self.stores.set().vectors()?.list(&self.notes, PageRequest::first(ITEMS_MAX)).await?;
        let notes: Vec<Value> = notes.items.iter().map(|note| json!([note.id, note.content])).collect();
        let graph = self.stores.set().graph()?;
        let entities = graph.find_entities(&EntityQuery::default(), PageRequest::first(ITEMS_MAX)).await?;
        let edges =
            graph.find_relationships(&RelationshipQuery::default(), PageRequest::first(ITEMS_MAX)).await?;
        let summary = self.summaries.get(&thread).await?.map(|kept| kept.summary);
        let summary = summary.map(|summary| json!([summary.up_to, summary.text]));
        Ok(json!({
            "messages": messages, "tasks": tasks, "notes": notes, "entities": entities.items,
            "relationships": edges.items, "summary": summary,
        }))
    }

    /// Returns the number of finished tasks.
    pub(crate) async fn done(&self) -> Result<usize> {
        let mut done = 0;
        for board in [&self.planner.board, &self.scout.board] {
            let tasks = board.all().await?;
            done += tasks.iter().filter(|task| task.status == TaskStatus::Succeeded).count();
        }
        Ok(done)
    }
}
