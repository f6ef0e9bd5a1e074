//! Invalid calls, which change nothing.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::limits::{JSON_DEPTH_MAX, METADATA_BYTES_MAX, TASK_TEXT_BYTES_MAX, TTL_MS_MAX};
use larder_kernel::{
    AgentId, BoardId, Contract, ConversationId, FencingToken, Metadata, NewBoard, NewTask, PageRequest,
    Result, TaskId, TaskQuery, TaskStatus, TaskStore, Transition, WorkerId,
};
use serde_json::{Value, json};

use super::dump::{dump, populate};
use crate::case::{Case, CaseResult, Level};
use crate::context::{Context, Handles};
use crate::expect;

/// The marker of the records that `populate` writes, so that invalid calls can name an existing one.
const MARKER: &str = "kept";

type Call = for<'a> fn(&'a dyn TaskStore) -> BoxFuture<'a, Result<()>>;

/// A call, the field that its error names, and the limit, if any.
type Row = (&'static str, &'static str, Option<u64>, Call);

/// Returns the cases, one for each invalid call.
pub(super) fn cases() -> Vec<Case> {
    [boards(), texts(), metadata(), leases(), pages(), ids()].into_iter().flatten().map(case).collect()
}

fn case((name, field, limit, call): Row) -> Case {
    Case::new(Contract::Tasks, "STORE-010", format!("refuses_{name}"), move |context| {
        refused(context, name, field, limit, call)
    })
    .at_level(Level::Hostile)
}

async fn refused(
    context: Context,
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: Call,
) -> CaseResult {
    let Handles { a, b } = context.tasks().await?;
    populate(&*a, MARKER).await?;
    let before = dump(&*b).await?;
    let refusal = expect::invalid(name, call(&*a).await, field)?;
    expect::equal("the limit named", &refusal.limit(), &limit)?;
    expect::equal("everything that can be read", &dump(&*b).await?, &before)
}

/// Returns an existing board.
fn kept() -> Result<BoardId> {
    BoardId::new("kept-talk", "kept-agent")
}

fn task(name: &str) -> Result<NewTask> {
    Ok(NewTask::new(TaskId::new(name)?, "title"))
}

/// Creates a new board.
async fn create(store: &dyn TaskStore, new: NewBoard) -> Result<()> {
    store.create_task_list(&BoardId::new("new", "new")?, new).await.map(|_| ())
}

/// Adds a valid task and then an invalid one to the existing board.
async fn add(store: &dyn TaskStore, bad: NewTask) -> Result<()> {
    store.add_tasks(&kept()?, vec![task("good")?, bad]).await.map(|_| ())
}

fn many(count: usize) -> Result<Vec<NewTask>> {
    (0..count).map(|number| task(&format!("many-{number}"))).collect()
}

fn boards() -> Vec<Row> {
    vec![
        ("a_board_of_too_many_tasks", "tasks", Some(1_000), |store| {
            async move { create(store, NewBoard::new(many(1_001)?)).await }.boxed()
        }),
        ("too_many_tasks_at_once", "tasks", Some(1_000), |store| {
            async move { store.add_tasks(&kept()?, many(1_001)?).await.map(|_| ()) }.boxed()
        }),
        ("a_board_that_names_a_task_twice", "tasks.id", None, |store| {
            async move { create(store, NewBoard::new(vec![task("a")?, task("b")?, task("a")?])).await }
                .boxed()
        }),
        ("a_batch_that_names_a_task_twice", "tasks.id", None, |store| {
            async move { store.add_tasks(&kept()?, vec![task("a")?, task("a")?]).await.map(|_| ()) }.boxed()
        }),
        ("no_tasks_to_add", "tasks", Some(1), |store| {
            async move { store.add_tasks(&kept()?, Vec::new()).await.map(|_| ()) }.boxed()
        }),
        ("no_tasks_to_add_to_an_absent_board", "tasks", Some(1), |store| {
            async move { store.add_tasks(&BoardId::new("no", "where")?, Vec::new()).await.map(|_| ()) }
                .boxed()
        }),
        // Invalid input takes precedence over the existing board.
        ("a_bad_board_that_is_there", "label", Some(4_096), |store| {
            async move {
                let new = NewBoard::default().with_label("l".repeat(4_097));
                store.create_task_list(&kept()?, new).await.map(|_| ())
            }
            .boxed()
        }),
        ("a_label_over_the_limit", "label", Some(4_096), |store| {
            create(store, NewBoard::default().with_label("\u{e9}".repeat(2_049))).boxed()
        }),
        ("a_new_board_with_one_bad_task", "task.retries_max", Some(1_000), |store| {
            async move {
                let tasks = vec![task("good")?, task("bad")?.with_retries_max(1_001)];
                create(store, NewBoard::new(tasks)).await
            }
            .boxed()
        }),
    ]
}

fn texts() -> Vec<Row> {
    const TEXT: Option<u64> = Some(1_048_576);
    vec![
        ("an_empty_title", "task.title", Some(1), |store| {
            async move { add(store, NewTask::new(TaskId::new("bad")?, "")).await }.boxed()
        }),
        ("a_title_over_the_limit", "task.title", Some(4_096), |store| {
            async move { add(store, NewTask::new(TaskId::new("bad")?, "t".repeat(4_097))).await }.boxed()
        }),
        ("a_title_over_the_limit_in_bytes", "task.title", Some(4_096), |store| {
            async move { add(store, NewTask::new(TaskId::new("bad")?, "\u{1f980}".repeat(1_025))).await }
                .boxed()
        }),
        ("a_description_over_the_limit", "task.description", TEXT, |store| {
            let description = "d".repeat(TASK_TEXT_BYTES_MAX + 1);
            async move { add(store, task("bad")?.with_description(description)).await }.boxed()
        }),
        ("too_many_retries", "task.retries_max", Some(1_000), |store| {
            async move { add(store, task("bad")?.with_retries_max(1_001)).await }.boxed()
        }),
        ("retries_without_end", "task.retries_max", Some(1_000), |store| {
            async move { add(store, task("bad")?.with_retries_max(u32::MAX)).await }.boxed()
        }),
        ("a_result_over_the_limit", "result", TEXT, |store| {
            finish(store, "kept-task-2", "r".repeat(TASK_TEXT_BYTES_MAX + 1)).boxed()
        }),
        ("a_result_over_the_limit_where_no_step_leads", "result", TEXT, |store| {
            finish(store, "kept-task-0", "r".repeat(TASK_TEXT_BYTES_MAX + 1)).boxed()
        }),
        ("a_result_over_the_limit_for_an_absent_task", "result", TEXT, |store| {
            finish(store, "absent", "\u{e9}".repeat(TASK_TEXT_BYTES_MAX / 2 + 1)).boxed()
        }),
    ]
}

async fn finish(store: &dyn TaskStore, name: &str, result: String) -> Result<()> {
    let step = Transition::to(TaskStatus::InProgress).with_result(result);
    store.update_status(&kept()?, &TaskId::new(name)?, step).await.map(|_| ())
}

async fn with_metadata(store: &dyn TaskStore, metadata: Metadata) -> Result<()> {
    add(store, task("bad")?.with_metadata(metadata)).await
}

fn metadata() -> Vec<Row> {
    vec![
        ("metadata_over_the_limit", "task.metadata", Some(65_536), |store| {
            with_metadata(store, Metadata::new().with("k", "x".repeat(METADATA_BYTES_MAX))).boxed()
        }),
        ("metadata_nested_too_deep", "task.metadata", Some(32), |store| {
            let deep = (0..JSON_DEPTH_MAX).fold(Value::from(1), |inner, _| json!([inner]));
            with_metadata(store, Metadata::new().with("k", deep)).boxed()
        }),
        ("metadata_with_nul_in_a_key", "task.metadata", None, |store| {
            with_metadata(store, Metadata::new().with("k\0", 1)).boxed()
        }),
        ("metadata_with_nul_in_a_text", "task.metadata", None, |store| {
            with_metadata(store, Metadata::new().with("k", json!([{"inner": "a\0b"}]))).boxed()
        }),
    ]
}

async fn claim_for(store: &dyn TaskStore, board: BoardId, lease: Duration) -> Result<()> {
    store.claim(&board, &WorkerId::new("worker")?, lease).await.map(|_| ())
}

async fn renew_for(store: &dyn TaskStore, name: &str, lease: Duration) -> Result<()> {
    store.renew_lease(&kept()?, &TaskId::new(name)?, FencingToken::new(2), lease).await.map(|_| ())
}

fn leases() -> Vec<Row> {
    const LONGEST: Duration = Duration::from_millis(TTL_MS_MAX);
    const MORE: Duration = Duration::from_millis(1);
    vec![
        ("a_claim_for_no_time", "lease", Some(1), |store| {
            async move { claim_for(store, kept()?, Duration::ZERO).await }.boxed()
        }),
        ("a_claim_for_less_than_a_millisecond", "lease", Some(1), |store| {
            async move { claim_for(store, kept()?, Duration::from_nanos(999_999)).await }.boxed()
        }),
        ("a_claim_for_over_a_hundred_years", "lease", Some(TTL_MS_MAX), |store| {
            async move { claim_for(store, kept()?, LONGEST + MORE).await }.boxed()
        }),
        ("a_claim_without_end", "lease", Some(TTL_MS_MAX), |store| {
            async move { claim_for(store, kept()?, Duration::MAX).await }.boxed()
        }),
        ("a_claim_for_no_time_of_an_absent_board", "lease", Some(1), |store| {
            async move { claim_for(store, BoardId::new("no", "where")?, Duration::ZERO).await }.boxed()
        }),
        ("a_renewal_for_no_time", "lease", Some(1), |store| {
            renew_for(store, "kept-task-1", Duration::ZERO).boxed()
        }),
        ("a_renewal_for_over_a_hundred_years", "lease", Some(TTL_MS_MAX), |store| {
            renew_for(store, "kept-task-1", LONGEST + MORE).boxed()
        }),
        ("a_renewal_without_end", "lease", Some(TTL_MS_MAX), |store| {
            renew_for(store, "kept-task-1", Duration::MAX).boxed()
        }),
        ("a_renewal_for_no_time_of_an_absent_task", "lease", Some(1), |store| {
            renew_for(store, "absent", Duration::ZERO).boxed()
        }),
    ]
}

async fn list_tasks(store: &dyn TaskStore, board: BoardId, limit: usize) -> Result<()> {
    store.list_tasks(&board, &TaskQuery::default(), PageRequest::first(limit)).await.map(|_| ())
}

fn pages() -> Vec<Row> {
    const LIMIT: Option<u64> = Some(10_000);
    vec![
        ("a_list_of_tasks_over_the_limit", "limit", LIMIT, |store| {
            async move { list_tasks(store, kept()?, 10_001).await }.boxed()
        }),
        ("a_list_of_tasks_without_limit", "limit", LIMIT, |store| {
            async move { list_tasks(store, kept()?, usize::MAX).await }.boxed()
        }),
        ("a_list_of_tasks_over_the_limit_of_an_absent_board", "limit", LIMIT, |store| {
            async move { list_tasks(store, BoardId::new("no", "where")?, 10_001).await }.boxed()
        }),
        ("a_list_of_boards_over_the_limit", "limit", LIMIT, |store| {
            async move { store.list_boards(None, PageRequest::first(10_001)).await.map(|_| ()) }.boxed()
        }),
        ("a_list_of_a_conversations_boards_over_the_limit", "limit", LIMIT, |store| {
            async move {
                let conversation = ConversationId::new("kept-talk")?;
                store.list_boards(Some(&conversation), PageRequest::first(usize::MAX)).await.map(|_| ())
            }
            .boxed()
        }),
    ]
}

/// Returns the invalid ids. Their constructors reject them, so no call can contain them.
fn ids() -> Vec<Row> {
    fn made<T>(id: Result<T>) -> BoxFuture<'static, Result<()>> {
        std::future::ready(id.map(|_| ())).boxed()
    }
    fn long() -> String {
        "x".repeat(513)
    }
    vec![
        ("an_empty_conversation", "conversation", Some(1), |_| made(BoardId::new("", "agent"))),
        ("a_conversation_over_the_limit", "conversation", Some(512), |_| made(BoardId::new(long(), "agent"))),
        ("a_conversation_with_nul", "conversation", None, |_| made(BoardId::new("a\0", "agent"))),
        ("an_empty_agent", "agent", Some(1), |_| made(BoardId::new("talk", ""))),
        ("an_agent_over_the_limit", "agent", Some(512), |_| made(AgentId::new(long()))),
        ("an_agent_with_nul", "agent", None, |_| made(AgentId::new("\0"))),
        ("an_empty_task_id", "task", Some(1), |_| made(TaskId::new(""))),
        ("a_task_id_over_the_limit", "task", Some(512), |_| made(TaskId::new("\u{e9}".repeat(257)))),
        ("a_task_id_with_nul", "task", None, |_| made(TaskId::new("a\0b"))),
        ("an_empty_worker", "worker", Some(1), |_| made(WorkerId::new(""))),
        ("a_worker_over_the_limit", "worker", Some(512), |_| made(WorkerId::new(long()))),
        ("a_worker_with_nul", "worker", None, |_| made(WorkerId::new("\0a"))),
    ]
}
