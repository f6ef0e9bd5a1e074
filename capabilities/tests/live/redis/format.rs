//! Programs and data of different format numbers.

use larder_capabilities::redis::RedisHistoryProvider;
use larder_kernel::{
    AppendOptions, BoardId, ChatMessage, FencingToken, HistoryProvider, HistoryProviderExt, MessageUpdate,
    NewBoard, NewTask, Result, RunId, Seq, TaskId, TaskStatus, TaskStore, Thread, Transition, Ttl, WorkerId,
};

use super::*;

const LEASE: Duration = Duration::from_secs(60);

/// Opens the servers as a release does whose new data has this format number. It also supports the next one.
async fn open_as(variable: &str, format: i64) -> Redis {
    Redis::open_as(RedisConfig::from_url(&url(variable)).unwrap(), format).await.unwrap()
}

async fn open_later(variable: &str) -> Redis {
    open_as(variable, 3).await
}

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

fn board() -> BoardId {
    BoardId::new("talk", "agent").unwrap()
}

async fn append(history: &RedisHistoryProvider) -> Result<()> {
    history.append(&thread("first"), ChatMessage::user("text")).await.map(drop)
}

/// Creates a thread, a bucket and a board. The thread's appends take the fast path from the second one on.
async fn fill(redis: &Redis, namespace: &Namespace) {
    let (history, values, tasks) = (
        redis.history(namespace.clone()),
        redis.key_value(namespace.clone()),
        redis.tasks(namespace.clone()),
    );
    for _ in 0..3 {
        append(&history).await.unwrap();
    }
    values.set(&bucket(), &key("k"), Bytes::from_static(b"value")).await.unwrap();
    let task = NewTask::new(TaskId::new("t").unwrap(), "title");
    tasks.create_task_list(&board(), NewBoard::new(vec![task])).await.unwrap();
    tasks.claim(&board(), &WorkerId::new("w").unwrap(), LEASE).await.unwrap();
}

/// Writes in each way to what `fill` created.
async fn write_in_each_way(redis: &Redis, namespace: &Namespace) -> Vec<Result<()>> {
    let (history, values, tasks) = (
        redis.history(namespace.clone()),
        redis.key_value(namespace.clone()),
        redis.tasks(namespace.clone()),
    );
    let (task, worker) = (TaskId::new("t").unwrap(), WorkerId::new("w").unwrap());
    let replacement = larder_kernel::Replacement::new(Seq::new(1), vec![ChatMessage::user("summary")])
        .with_seen(Seq::new(3));
    let more = |id: &str| vec![NewTask::new(TaskId::new(id).unwrap(), "title")];
    let other = BoardId::new("talk", "other").unwrap();
    let put = larder_kernel::KeyValueWrite::put(key("l"), "other", Default::default());
    vec![
        append(&history).await,
        history
            .append_many(&thread("first"), vec![ChatMessage::user("a"); 2], Default::default())
            .await
            .map(drop),
        history.replace(&thread("first"), replacement).await.map(drop),
        history.fork(&thread("first"), &thread("second"), None, None).await.map(drop),
        history.set_ttl(&thread("first"), Some(Ttl::fixed(LEASE)), None).await,
        history.clear_run(&thread("first"), &RunId::new("r").unwrap(), None).await.map(drop),
        history.clear(&thread("first"), None).await.map(drop),
        history.tail(&thread("first"), None, 10).await.map(drop),
        history.thread_info(&thread("first")).await.map(drop),
        history.erase().await,
        values.set(&bucket(), &key("k"), Bytes::from_static(b"other")).await.map(drop),
        values.set(&bucket(), &key("l"), Bytes::from_static(b"other")).await.map(drop),
        values.write(&bucket(), vec![put]).await.map(drop),
        values.delete_prefix(&bucket(), "l").await.map(drop),
        values.delete(&bucket(), &key("k"), None).await.map(drop),
        values.erase().await,
        tasks.add_tasks(&board(), more("u")).await.map(drop),
        tasks.create_task_list(&other, NewBoard::new(more("u"))).await.map(drop),
        tasks.claim(&board(), &worker, LEASE).await.map(drop),
        tasks.update_status(&board(), &task, Transition::to(TaskStatus::Blocked)).await.map(drop),
        tasks.force_retry(&board(), &task).await.map(drop),
        tasks.settle_conversation(&board().conversation).await.map(drop),
        tasks.delete_board(&board()).await.map(drop),
        tasks.erase().await,
    ]
}

fn assert_refused(written: Vec<Result<()>>, numbers: &str) {
    for (call, written) in written.into_iter().enumerate() {
        let error = written.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unsupported, Outcome::NotApplied),
            "{call} {error}"
        );
        assert!(error.message().contains(numbers), "{call} {error}");
        assert!(error.message().contains("`larder load` into another namespace"), "{call} {error}");
    }
}

/// Returns the content of all keys of the namespace. The epoch of an erasure is left out: it describes no
/// content, and an erasure that is refused keeps it.
async fn dump(namespace: &Namespace) -> Vec<(String, Vec<u8>)> {
    let mut plain = plain_connection().await;
    let pattern = format!("larder:*{}*", namespace.as_str());
    let mut keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut plain).await.unwrap();
    keys.retain(|key| !key.ends_with(":epoch"));
    keys.sort();
    let mut found = Vec::new();
    for key in keys {
        let content = redis::cmd("DUMP").arg(&key).query_async(&mut plain).await.unwrap();
        found.push((key, content));
    }
    found
}

pub(crate) async fn data_of_a_newer_program_is_not_changed() {
    let (older, newer, namespace) = (open(SERVER).await, open_later(SERVER).await, namespace("newer"));
    fill(&newer, &namespace).await;
    let before = dump(&namespace).await;
    assert!(before.len() > 10);
    let numbers = "has format 3; this release supports up to format 2";
    assert_refused(write_in_each_way(&older, &namespace).await, numbers);
    assert_eq!(dump(&namespace).await, before);
    append(&newer.history(namespace.clone())).await.unwrap();
    assert_eq!(newer.history(namespace).tail(&thread("first"), None, 10).await.unwrap().messages.len(), 4);
}

pub(crate) async fn data_of_a_newer_program_in_a_cluster_is_not_changed() {
    let (older, newer, namespace) = (open(CLUSTER).await, open_later(CLUSTER).await, namespace("newer"));
    fill(&newer, &namespace).await;
    let numbers = "has format 3; this release supports up to format 2";
    assert_refused(write_in_each_way(&older, &namespace).await, numbers);
    let history = newer.history(namespace.clone());
    assert_eq!(history.tail(&thread("first"), None, 10).await.unwrap().messages.len(), 3);
    assert_eq!(history.thread_info(&thread("second")).await.unwrap().messages, 0);
    let values = newer.key_value(namespace.clone());
    assert_eq!(values.get(&bucket(), &key("k")).await.unwrap().unwrap().value, "value");
    let found = newer.tasks(namespace).get_task(&board(), &TaskId::new("t").unwrap()).await.unwrap();
    assert_eq!(found.unwrap().status, TaskStatus::InProgress);
}

/// An earlier program would ignore a fence, and would lose an update.
pub(crate) async fn an_earlier_program_does_not_write_to_a_thread_with_a_fence_or_an_update() {
    let (earlier, newer) = (open_as(SERVER, 0).await, open(SERVER).await);
    for name in ["fenced", "updated"] {
        let namespace = namespace(name);
        fill(&newer, &namespace).await;
        append(&earlier.history(namespace.clone())).await.unwrap();
        let history = newer.history(namespace.clone());
        if name == "fenced" {
            let options = AppendOptions::default().with_fence(FencingToken::new(1));
            history.append_many(&thread("first"), vec![ChatMessage::user("text")], options).await.unwrap();
        } else {
            let update = MessageUpdate::appended(Seq::new(2), ChatMessage::user("new"));
            history.update(&thread("first"), update).await.unwrap();
        }
        let before = dump(&namespace).await;
        let mut written = write_in_each_way(&earlier, &namespace).await;
        // The buckets and boards are as before.
        written.truncate(10);
        assert_refused(written, "has format 2; this release supports up to format 1");
        let of_thread = |all: Vec<(String, Vec<u8>)>| -> Vec<_> {
            all.into_iter().filter(|(key, _)| key.contains("{thread:")).collect()
        };
        assert_eq!(of_thread(dump(&namespace).await), of_thread(before));
        assert!(!history.tail(&thread("first"), None, 10).await.unwrap().messages.is_empty());
    }
}

/// The program runs and has used the thread, the bucket and the board before a newer program upgrades them.
pub(crate) async fn a_running_program_does_not_write_after_an_upgrade() {
    let (redis, namespace) = (open(SERVER).await, namespace("upgraded"));
    fill(&redis, &namespace).await;
    let name = namespace.as_str();
    let headers = [
        (format!("larder:{{thread:{name}:agent:first}}:head"), "f"),
        (format!("larder:{{kv:{name}:bucket}}:meta"), "format"),
        (format!("larder:{{tasks:{name}:talk}}:meta"), ""),
        (format!("larder:{{tasks:{name}:talk}}:board:agent"), "format"),
    ];
    let mut plain = plain_connection().await;
    for (number, expected) in [
        ("3", "has format 3; this release supports up to format 2"),
        ("1000", "has format 1000; this release supports up to format 2"),
    ] {
        for (key, field) in &headers {
            let new: i64 =
                redis::cmd("HSET").arg(key).arg(field).arg(number).query_async(&mut plain).await.unwrap();
            assert_eq!(new, 0, "{key} had no format number");
        }
        let before = dump(&namespace).await;
        assert_refused(write_in_each_way(&redis, &namespace).await, expected);
        assert_eq!(dump(&namespace).await, before);
    }
    // Releases before the first format number wrote none.
    for (key, field) in &headers {
        let () = redis::cmd("HDEL").arg(key).arg(field).query_async(&mut plain).await.unwrap();
    }
    let written = write_in_each_way(&redis, &namespace).await;
    // An erasure and a plain read need no number.
    let checked = written.into_iter().filter(Result::is_err).collect::<Vec<_>>();
    assert!(checked.len() >= 18, "{}", checked.len());
    assert_refused(checked, "has no format number; the oldest supported format is 1");
}
