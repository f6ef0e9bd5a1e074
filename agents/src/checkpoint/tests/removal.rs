//! Pruning, deletion by run, and deletion of threads.

use std::sync::Arc;

use larder_kernel::{ErrorKind, KeyValueStore, Timestamp};

use super::support::{Spy, bytes, keys, line, listed, open, run, thread};
use crate::checkpoint::{Checkpointer, NewCheckpoint, PendingWrite, Prune};
use crate::storage::InMemoryBlobStore;

#[tokio::test]
async fn pruning_keeps_the_newest_in_each_namespace_with_what_they_have() {
    let (store, checkpoints, namespace) = open();
    let inner = namespace.thread().namespace("inner").unwrap();
    let new = NewCheckpoint::new(None, "0").with_value("kept", "k").with_value("changed", "1");
    let first = checkpoints.put(&namespace, new.with_delta("list", "a")).await.unwrap();
    let mut ids = vec![first.clone()];
    for at in 1..6 {
        let new = NewCheckpoint::new(ids.last().cloned(), "").with_value("changed", at.to_string());
        ids.push(checkpoints.put(&namespace, new.with_delta("list", "b")).await.unwrap());
    }
    line(&checkpoints, &inner, 3).await;
    let write = || vec![PendingWrite::new("task", 0, "channel", "x")];
    checkpoints.put_writes(&namespace, &ids[0], write()).await.unwrap();
    checkpoints.put_writes(&namespace, &ids[5], write()).await.unwrap();
    let before = checkpoints.get(&namespace, None).await.unwrap().unwrap();
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepNewest(2)).await.unwrap(), 4 + 1);
    assert_eq!(listed(&checkpoints, &namespace).await, [ids[5].clone(), ids[4].clone()]);
    assert_eq!(listed(&checkpoints, &inner).await.len(), 2);
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap(), before);
    // In the root: head; twice description, child entry, state and changed value; the kept one, six deltas
    // and one pending write. In the other: head; twice description, child entry and state.
    assert_eq!(keys(&store, namespace.thread()).await, 1 + 8 + 1 + 6 + 1 + 1 + 6);
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepNewest(0)).await.unwrap(), 2);
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepNewest(0)).await.unwrap(), 0);
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap(), before);
    let next = NewCheckpoint::new(ids[5].clone(), "next");
    checkpoints.put(&namespace, next).await.unwrap();
    // A checkpoint without a parent begins nothing in a namespace that has others.
    let error = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(checkpoints.prune(&thread("none"), Prune::KeepNewest(1)).await.unwrap(), 0);
}

#[tokio::test]
async fn pruning_by_age_keeps_what_is_newer_and_the_newest() {
    let (_, checkpoints, namespace) = open();
    let ids = line(&checkpoints, &namespace, 4).await;
    let since = checkpoints.get(&namespace, Some(&ids[2])).await.unwrap().unwrap().info.created_at;
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepSince(since)).await.unwrap(), 2);
    assert_eq!(listed(&checkpoints, &namespace).await, [ids[3].clone(), ids[2].clone()]);
    let since = Timestamp::now().saturating_add(std::time::Duration::from_secs(60));
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepSince(since)).await.unwrap(), 1);
    assert_eq!(listed(&checkpoints, &namespace).await, [ids[3].clone()]);
}

#[tokio::test]
async fn a_deleted_run_makes_its_parent_continuable() {
    let (store, checkpoints, namespace) = open();
    let ids = line(&checkpoints, &namespace, 4).await;
    checkpoints.put_writes(&namespace, &ids[3], vec![PendingWrite::new("t", 0, "c", "")]).await.unwrap();
    let thread = namespace.thread();
    assert_eq!(checkpoints.delete_runs(thread, &[]).await.unwrap(), 0);
    assert_eq!(checkpoints.delete_runs(thread, &[run("run-1"), run("none")]).await.unwrap(), 2);
    assert_eq!(listed(&checkpoints, &namespace).await, [ids[1].clone(), ids[0].clone()]);
    let next = NewCheckpoint::new(ids[1].clone(), "other");
    checkpoints.put(&namespace, next).await.unwrap();
    let next = NewCheckpoint::new(ids[0].clone(), "other");
    assert_eq!(checkpoints.put(&namespace, next).await.unwrap_err().kind(), ErrorKind::Conflict);
    // The rest of the chain remains usable without its beginning.
    assert_eq!(checkpoints.delete_runs(thread, &[run("run-0")]).await.unwrap(), 2);
    let left = checkpoints.get(&namespace, None).await.unwrap().unwrap();
    assert_eq!((left.info.parent, &*left.state), (Some(ids[1].clone()), &b"other"[..]));
    // Without any checkpoint, nothing remains.
    let all = NewCheckpoint::new(left.info.id.clone(), "").with_run(run("last"));
    checkpoints.put(&namespace, all).await.unwrap();
    checkpoints.prune(thread, Prune::KeepNewest(1)).await.unwrap();
    assert_eq!(checkpoints.delete_runs(thread, &[run("last")]).await.unwrap(), 1);
    assert_eq!(keys(&store, thread).await, 0);
    line(&checkpoints, &namespace, 1).await;
}

#[tokio::test]
async fn a_removal_of_any_size_takes_bounded_steps() {
    let (store, checkpoints, namespace) = open();
    let ids = line(&checkpoints, &namespace, 700).await;
    for task in 0..3 {
        let write = |index| PendingWrite::new(format!("task-{task}"), index, "channel", "");
        checkpoints.put_writes(&namespace, &ids[0], (0..450).map(write).collect()).await.unwrap();
    }
    assert_eq!(checkpoints.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap(), 699);
    // The head, and the description, child entry and state.
    assert_eq!(keys(&store, namespace.thread()).await, 4);
}

#[tokio::test]
async fn a_deleted_thread_leaves_nothing_and_others_as_they_are() {
    let blobs = Arc::new(InMemoryBlobStore::new());
    let store = Arc::new(Spy::default());
    let checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
    let checkpoints = checkpoints.with_blobs(Arc::clone(&blobs) as _);
    let (one, other) = (thread("one"), thread("one/2"));
    let large = bytes(2 * 1024 * 1024);
    for thread in [&one, &other] {
        for name in ["", "inner"] {
            let namespace = thread.namespace(name).unwrap();
            let new = NewCheckpoint::new(None, large.clone());
            let id = checkpoints.put(&namespace, new).await.unwrap();
            let write = PendingWrite::new("task", 0, "channel", large.clone());
            checkpoints.put_writes(&namespace, &id, vec![write]).await.unwrap();
            let next = NewCheckpoint::new(id, "").with_value("large", large.clone());
            checkpoints.put(&namespace, next).await.unwrap();
        }
    }
    // A task wrote for a checkpoint that never followed.
    let early = "early".parse().unwrap();
    let write = PendingWrite::new("task", 0, "channel", large.clone());
    checkpoints.put_writes(&one.namespace("third").unwrap(), &early, vec![write]).await.unwrap();
    assert_eq!(super::moving::blob_count(&blobs).await, 13);
    assert_eq!(checkpoints.delete(&one).await.unwrap(), 4);
    assert_eq!((keys(&store, &one).await, super::moving::blob_count(&blobs).await), (0, 6));
    assert_eq!(checkpoints.delete(&one).await.unwrap(), 0);
    assert_eq!(listed(&checkpoints, &other.root()).await.len(), 2);
    // Pruning deletes the blobs that remaining checkpoints do not have.
    assert_eq!(checkpoints.prune(&other, Prune::KeepNewest(1)).await.unwrap(), 2);
    assert_eq!(super::moving::blob_count(&blobs).await, 2);
    let found = checkpoints.get(&other.root(), None).await.unwrap().unwrap();
    assert!(found.channels["large"].value == Some(large));
}
