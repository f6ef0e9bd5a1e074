//! Task boards on the live Redis server that `LARDER_REDIS_URL` names, and on the live cluster that
//! `LARDER_REDIS_CLUSTER_URL` names. Without them the tests are ignored; with `LARDER_SERVICES=required` they
//! fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashSet;
use std::task::{Context, Waker};
use std::time::Duration;

use larder_capabilities::redis::{Redis, RedisConfig, RedisTaskStore};
use larder_kernel::{
    BoardId, ErrorKind, FencingToken, Namespace, NewBoard, NewTask, Outcome, PageRequest, Result, Store,
    Task, TaskId, TaskQuery, TaskStatus, TaskStore, Transition, WorkerId,
};
use libtest_mimic::Arguments;

use crate::trial::{plain_redis, trial, url};

const SERVER: &str = "LARDER_REDIS_URL";
const CLUSTER: &str = "LARDER_REDIS_CLUSTER_URL";
const LEASE: Duration = Duration::from_secs(3600);

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        trial("a_key_that_holds_something_else_is_left_alone", SERVER, a_key_of_somebody_else),
        trial("a_board_that_has_used_up_its_numbers_refuses", SERVER, numbers_run_out),
    ];
    for (variable, place) in [(SERVER, "server"), (CLUSTER, "cluster")] {
        let name = |what: &str| format!("{what}_on_a_{place}");
        trials.push(trial(&name("workers_share_a_backlog"), variable, move || share(variable)));
        trials.push(trial(&name("large_pages_are_read_in_parts"), variable, move || large_pages(variable)));
        trials.push(trial(&name("many_boards_are_listed_and_erased"), variable, move || many(variable)));
        trials.push(trial(&name("a_dropped_creation_is_whole_or_absent"), variable, move || drops(variable)));
        trials.push(trial(&name("an_erasure_leaves_nothing_unlisted"), variable, move || erasures(variable)));
    }
    crate::groups::run("redis_tasks", arguments, trials)
}

/// Opens a store in a namespace that no other run uses.
async fn open(variable: &str, name: &str) -> RedisTaskStore {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let namespace = Namespace::new(format!("test-{name}-{now}")).unwrap();
    Redis::open(RedisConfig::from_url(&url(variable)).unwrap()).await.unwrap().tasks(namespace)
}

async fn plain() -> redis::aio::MultiplexedConnection {
    plain_redis(&url(SERVER)).await
}

fn board(agent: &str) -> BoardId {
    BoardId::new("talk", agent).unwrap()
}

fn worker() -> WorkerId {
    WorkerId::new("worker").unwrap()
}

fn new_tasks(numbers: std::ops::Range<usize>) -> Vec<NewTask> {
    numbers.map(|n| NewTask::new(TaskId::new(format!("task-{n}")).unwrap(), format!("title {n}"))).collect()
}

async fn tasks(store: &RedisTaskStore, board: &BoardId) -> Vec<Task> {
    store.list_tasks(board, &TaskQuery::default(), PageRequest::default()).await.unwrap().items
}

fn refused<T: std::fmt::Debug>(answer: Result<T>, kind: ErrorKind, what: &str) {
    let error = answer.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotApplied), "{what}: {error}");
}

/// Tries every write to a board; none may have an effect.
async fn refuse_all(store: &RedisTaskStore, board: &BoardId, kind: ErrorKind, what: &str) {
    let task = TaskId::new("task-0").unwrap();
    let step = Transition::to(TaskStatus::Blocked).with_token(FencingToken::new(1)).with_result("done");
    refused(store.add_tasks(board, new_tasks(50..52)).await, kind, what);
    refused(store.update_status(board, &task, step).await, kind, what);
    refused(store.increment_retry(board, &task, Some(FencingToken::new(1))).await, kind, what);
    refused(store.force_retry(board, &task).await, kind, what);
    refused(store.renew_lease(board, &task, FencingToken::new(1), LEASE).await, kind, what);
    refused(store.claim(board, &worker(), LEASE).await, kind, what);
    refused(store.settle_conversation(&board.conversation).await, kind, what);
}

async fn a_key_of_somebody_else() {
    let store = open(SERVER, "foreign").await;
    let mut plain = plain().await;
    let tag = format!("larder:{{tasks:{}:talk}}:", store.namespace().as_str());
    let victim = board("victim");
    for part in ["board", "tasks", "state", "results", "order", "leases", "lapsed"] {
        store.create_task_list(&victim, NewBoard::new(new_tasks(0..3))).await.unwrap();
        let name = format!("{tag}{part}:victim");
        let kept = format!("{tag}kept");
        let () = redis::cmd("RENAMENX").arg(&name).arg(&kept).query_async(&mut plain).await.unwrap_or(());
        let () = redis::cmd("SET").arg(&name).arg("other").query_async(&mut plain).await.unwrap();
        refuse_all(&store, &victim, ErrorKind::Corrupt, part).await;
        let () = redis::cmd("DEL").arg(&name).query_async(&mut plain).await.unwrap();
        let () = redis::cmd("RENAMENX").arg(&kept).arg(&name).query_async(&mut plain).await.unwrap_or(());
        let left = tasks(&store, &victim).await;
        assert!(left.iter().all(|task| task.status == TaskStatus::Planned && task.retries == 0), "{part}");
        assert_eq!(left.len(), 3, "{part}");
        store.delete_board(&victim).await.unwrap();
    }
    store.erase().await.unwrap();
}

async fn numbers_run_out() {
    let store = open(SERVER, "numbers").await;
    let full = board("full");
    store.create_task_list(&full, NewBoard::new(new_tasks(0..3))).await.unwrap();
    store.claim(&full, &worker(), LEASE).await.unwrap();
    let before = tasks(&store, &full).await;
    let key = format!("larder:{{tasks:{}:talk}}:board:full", store.namespace().as_str());
    let last = (1_u64 << 53) - 1;
    let mut plain = plain().await;
    let () = redis::cmd("HSET").arg(&key).arg("revision").arg(last).query_async(&mut plain).await.unwrap();
    refuse_all(&store, &full, ErrorKind::ResourceExhausted, "revision").await;
    assert_eq!(tasks(&store, &full).await, before);
    assert!(store.delete_board(&full).await.unwrap());
    refused(
        store.create_task_list(&full, NewBoard::default()).await,
        ErrorKind::ResourceExhausted,
        "a board created again",
    );
    store.erase().await.unwrap();
}

/// Leases expire during concurrent claims. No worker gets a task that another one holds.
async fn share(variable: &str) {
    const TASKS: usize = 1_000;
    let store = open(variable, "share").await;
    let shared = board("shared");
    store.create_task_list(&shared, NewBoard::new(new_tasks(0..TASKS))).await.unwrap();
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let (store, shared) = (store.clone(), shared.clone());
            tokio::spawn(async move {
                let worker = WorkerId::new(format!("worker-{number}")).unwrap();
                let mut done = Vec::new();
                while let Some(claim) = store.claim(&shared, &worker, LEASE).await.unwrap() {
                    let step = Transition::to(TaskStatus::Succeeded).with_token(claim.token);
                    store.update_status(&shared, &claim.task.id, step).await.unwrap();
                    done.push((claim.task.id, claim.token));
                }
                done
            })
        })
        .collect();
    let (mut ids, mut tokens) = (HashSet::new(), HashSet::new());
    for worker in workers {
        for (id, token) in worker.await.unwrap() {
            assert!(ids.insert(id) && tokens.insert(token));
        }
    }
    assert_eq!((ids.len(), tokens.len()), (TASKS, TASKS));
    let counts = store.get_board(&shared).await.unwrap().unwrap().tasks;
    assert_eq!((counts.succeeded, counts.total()), (1_000, 1_000));
    store.erase().await.unwrap();
}

async fn large_pages(variable: &str) {
    let store = open(variable, "pages").await;
    let long = board("long");
    store.create_task_list(&long, NewBoard::default()).await.unwrap();
    for from in [0, 900, 1_800] {
        store.add_tasks(&long, new_tasks(from..from + 900)).await.unwrap();
    }
    for n in (0..2_700).step_by(7) {
        let task = TaskId::new(format!("task-{n}")).unwrap();
        store.update_status(&long, &task, Transition::to(TaskStatus::Blocked)).await.unwrap();
    }
    for (limit, pages) in [(10_000, 1), (2_700, 1), (2_699, 2), (1_000, 3)] {
        let (mut found, mut read, mut page) = (Vec::new(), 0, PageRequest::first(limit));
        loop {
            let part = store.list_tasks(&long, &TaskQuery::default(), page).await.unwrap();
            found.extend(part.items.into_iter().map(|task| task.id.as_str().to_owned()));
            read += 1;
            let Some(next) = part.next else { break };
            page = PageRequest::after(next, limit);
        }
        let expected: Vec<String> = (0..2_700).map(|n| format!("task-{n}")).collect();
        assert!(found == expected && read == pages, "limit {limit}: {} in {read} pages", found.len());
    }
    let query = TaskQuery::in_statuses([TaskStatus::Blocked]);
    let blocked = store.list_tasks(&long, &query, PageRequest::default()).await.unwrap().items;
    assert_eq!(blocked.len(), 386);

    let heavy = board("heavy");
    let text = "x".repeat(400_000);
    let new = new_tasks(0..40).into_iter().map(|task| task.with_description(&text)).collect();
    store.create_task_list(&heavy, NewBoard::new(new)).await.unwrap();
    let found = tasks(&store, &heavy).await;
    assert!(found.len() == 40 && found.is_sorted_by_key(|task| task.position));
    store.erase().await.unwrap();
}

async fn many(variable: &str) {
    let store = open(variable, "many").await;
    let names: Vec<BoardId> = (0..1_100).map(|n| board(&format!("agent-{n:04}"))).collect();
    for name in &names {
        store.create_task_list(name, NewBoard::new(new_tasks(0..1))).await.unwrap();
    }
    for (conversation, page) in
        [(None, PageRequest::default()), (Some(&names[0].conversation), PageRequest::default())]
    {
        let found = store.list_boards(conversation, page).await.unwrap().items;
        assert!(found.iter().map(|board| &board.id).eq(&names));
    }
    store.erase().await.unwrap();
    assert!(store.list_boards(None, PageRequest::default()).await.unwrap().items.is_empty());
    nothing_left(variable, &store).await;
}

/// Asserts that only the marks of the erasure remain in the namespace. They expire.
async fn nothing_left(variable: &str, store: &RedisTaskStore) {
    if variable != SERVER {
        return;
    }
    let pattern = format!("larder:*{}*", store.namespace().as_str());
    let left: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut plain().await).await.unwrap();
    let left: Vec<_> =
        left.iter().filter(|key| !key.ends_with(":erased") && !key.ends_with(":epoch")).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn drops(variable: &str) {
    let store = open(variable, "drops").await;
    for round in 0..60 {
        let board = BoardId::new(format!("talk-{}", round % 20), format!("agent-{round}")).unwrap();
        let mut creation = Box::pin(store.create_task_list(&board, NewBoard::new(new_tasks(0..20))));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..round % 9 {
            if creation.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(creation);
        let found = tasks(&store, &board).await.len();
        assert!(found == 0 || found == 20, "{found} tasks");
    }
    store.create_task_list(&board("after"), NewBoard::default()).await.unwrap();
    store.erase().await.unwrap();
    nothing_left(variable, &store).await;
}

async fn erasures(variable: &str) {
    let store = open(variable, "erasures").await;
    let makers: Vec<_> = (0..4)
        .map(|maker| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..60 {
                    let board =
                        BoardId::new(format!("talk-{}", (maker + round) % 5), format!("agent-{maker}"));
                    let made = store.create_task_list(&board.unwrap(), NewBoard::new(new_tasks(0..2))).await;
                    assert!(made.is_ok() || made.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists));
                }
            })
        })
        .collect();
    for _ in 0..20 {
        store.erase().await.unwrap();
    }
    for maker in makers {
        maker.await.unwrap();
    }
    let listed: HashSet<BoardId> = store
        .list_boards(None, PageRequest::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|board| board.id)
        .collect();
    for (talk, agent) in (0..5).flat_map(|talk| (0..4).map(move |agent| (talk, agent))) {
        let board = BoardId::new(format!("talk-{talk}"), format!("agent-{agent}")).unwrap();
        assert_eq!(store.get_board(&board).await.unwrap().is_some(), listed.contains(&board));
    }
    store.erase().await.unwrap();
    nothing_left(variable, &store).await;
}
