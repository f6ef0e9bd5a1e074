//! A server that came back empty and was written past the positions of its readers before they return.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{
    AppendOptions, BoardId, BucketName, ChatMessage, Error, ErrorKind, HistoryProvider, Key, KeyValueStore,
    KeyValueStoreExt, NewBoard, NewTask, PageRequest, Replacement, Revision, Seq, TaskId, TaskQuery,
    TaskStatus, TaskStore, Thread, Transition, WorkerId,
};

const LEASE: Duration = Duration::from_secs(60);

/// The stores of one opening.
pub(crate) struct Stores {
    pub(crate) history: Arc<dyn HistoryProvider>,
    pub(crate) values: Arc<dyn KeyValueStore>,
    pub(crate) tasks: Arc<dyn TaskStore>,
}

/// The positions of a reader.
struct Saved {
    seq: Seq,
    revision: Revision,
    task: larder_kernel::Claim,
}

fn thread() -> Thread {
    Thread::new("agent", "session").unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn key() -> Key {
    Key::new("key").unwrap()
}

fn board() -> BoardId {
    BoardId::new("talk", "agent").unwrap()
}

fn conflict<T>(what: &str, result: Result<T, Error>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} succeeded"));
    assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error}");
}

/// Writes this often, and claims a task.
async fn write(stores: &Stores, times: usize) -> Saved {
    let messages = (0..times).map(|number| ChatMessage::user(format!("message {number}"))).collect();
    let appended = stores.history.append_many(&thread(), messages, AppendOptions::default()).await.unwrap();
    let mut revision = Revision::ZERO;
    for _ in 0..times {
        revision = stores.values.set(&bucket(), &key(), "value".into()).await.unwrap();
    }
    let task = |id: &str| NewTask::new(TaskId::new(id).unwrap(), "title");
    stores.tasks.create_task_list(&board(), NewBoard::new(vec![task("one"), task("two")])).await.unwrap();
    let claim = stores.tasks.claim(&board(), &WorkerId::new("worker").unwrap(), LEASE).await.unwrap();
    Saved { seq: appended.last, revision, task: claim.unwrap() }
}

/// Starts a subscription and a watch, and reads everything.
pub(crate) struct Running {
    events: larder_kernel::HistoryEvents,
    changes: larder_kernel::KeyValueEvents,
}

impl Running {
    async fn start(stores: &Stores) -> Self {
        let mut events = stores.history.subscribe(&thread(), Seq::ZERO).await.unwrap();
        for _ in 0..3 {
            events.next().await.unwrap().unwrap();
        }
        let mut changes = stores.values.watch(&bucket(), "", Revision::ZERO).await.unwrap();
        changes.next().await.unwrap().unwrap();
        Self { events, changes }
    }

    /// Checks that both ended with `Conflict`.
    pub(crate) async fn ended(mut self) {
        let limit = Duration::from_secs(10);
        conflict("the subscription", tokio::time::timeout(limit, self.events.next()).await.unwrap().unwrap());
        conflict("the watch", tokio::time::timeout(limit, self.changes.next()).await.unwrap().unwrap());
    }
}

/// Writes through the stores of `open`, empties the server, writes past every position through new stores,
/// and checks that each reader and each condition from before is refused. Returns the subscriptions that ran
/// during the change.
pub(crate) async fn readers_from_before_are_refused(
    open: impl AsyncFn() -> Stores,
    empty: impl AsyncFn(),
) -> Running {
    let before = open().await;
    let saved = write(&before, 3).await;
    let running = Running::start(&before).await;
    empty().await;
    let stores = open().await;
    let now = write(&stores, 9).await;
    assert!(now.seq > saved.seq && now.revision > saved.revision);
    let Stores { history, values, tasks } = &stores;
    conflict("a page", history.page_after(&thread(), saved.seq, 10).await);
    conflict("the tail", history.tail(&thread(), Some(saved.seq), 10).await);
    conflict("a subscription", history.subscribe(&thread(), saved.seq).await.map(drop));
    let summary = vec![ChatMessage::user("summary")];
    conflict("a replacement", history.replace(&thread(), Replacement::new(saved.seq, summary)).await);
    conflict("a watch", values.watch(&bucket(), "", saved.revision).await.map(drop));
    conflict("a put", values.put_at(&bucket(), &key(), "late".into(), saved.revision).await);
    conflict("a deletion", values.delete(&bucket(), &key(), Some(saved.revision)).await);
    let step = Transition::to(TaskStatus::Succeeded).with_token(saved.task.token);
    conflict("a step", tasks.update_status(&board(), &saved.task.task.id, step).await);
    conflict("a renewal", tasks.renew_lease(&board(), &saved.task.task.id, saved.task.token, LEASE).await);
    let page = PageRequest::after(saved.task.task.position, 10);
    conflict("a page of tasks", tasks.list_tasks(&board(), &TaskQuery::default(), page).await);
    // Readers of the new data continue.
    assert_eq!(history.page_after(&thread(), now.seq, 10).await.unwrap().messages.len(), 0);
    values.put_at(&bucket(), &key(), "next".into(), now.revision).await.unwrap();
    let step = Transition::to(TaskStatus::Succeeded).with_token(now.task.token);
    tasks.update_status(&board(), &now.task.task.id, step).await.unwrap();
    running
}
