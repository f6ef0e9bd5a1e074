//! Concurrent writers.

use std::sync::Arc;

use larder_kernel::ErrorKind;

use super::support::{keys, line, listed, open};
use crate::checkpoint::{NewCheckpoint, Prune};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_over_one_parent_one_gets_conflict_and_stores_nothing() {
    let (store, checkpoints, namespace) = open();
    let mut parent = None;
    for round in 0..50 {
        let put = |text: &'static str| {
            let (checkpoints, namespace) = (checkpoints.clone(), namespace.clone());
            let new = NewCheckpoint::new(parent.clone(), text).with_value("channel", text);
            tokio::spawn(async move { checkpoints.put(&namespace, new).await })
        };
        let (left, right) = (put("left"), put("right"));
        let (left, right) = (left.await.unwrap(), right.await.unwrap());
        let (won, lost) = if left.is_ok() { (left, right) } else { (right, left) };
        let (won, lost) = (won.unwrap(), lost.unwrap_err());
        assert_eq!((lost.kind(), lost.field()), (ErrorKind::Conflict, Some("parent")));
        assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap().info.id, won);
        // The head, and for each checkpoint its description, state and channel, and its entry as a child.
        assert_eq!(keys(&store, namespace.thread()).await, 1 + (round + 1) * 4 - 1);
        parent = Some(won);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_branches_are_all_stored() {
    let (_, checkpoints, namespace) = open();
    let parent = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let put = |_| {
        let (checkpoints, namespace) = (checkpoints.clone(), namespace.clone());
        let new = NewCheckpoint::new(parent.clone(), "").as_fork();
        tokio::spawn(async move { checkpoints.put(&namespace, new).await })
    };
    let forks: Vec<_> = (0..8).map(put).collect();
    for fork in forks {
        fork.await.unwrap().unwrap();
    }
    assert_eq!(listed(&checkpoints, &namespace).await.len(), 9);
}

#[tokio::test]
async fn an_old_checkpoint_without_a_child_can_be_continued() {
    let (_, checkpoints, namespace) = open();
    let ids = line(&checkpoints, &namespace, 3).await;
    let fork = NewCheckpoint::new(ids[0].clone(), "").as_fork();
    let fork = checkpoints.put(&namespace, fork).await.unwrap();
    // Both branches go on, one after the other.
    let left = checkpoints.put(&namespace, NewCheckpoint::new(ids[2].clone(), "")).await.unwrap();
    let right = checkpoints.put(&namespace, NewCheckpoint::new(fork, "")).await.unwrap();
    assert!(left < right);
    for taken in [None, Some(ids[2].clone()), Some(ids[0].clone())] {
        let error = checkpoints.put(&namespace, NewCheckpoint::new(taken, "")).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("parent")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pruning_during_writes_damages_nothing() {
    let (_, checkpoints, namespace) = open();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let pruner = {
        let (checkpoints, thread, done) = (checkpoints.clone(), namespace.thread().clone(), done.clone());
        tokio::spawn(async move {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                match checkpoints.prune(&thread, Prune::KeepNewest(1)).await {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                    Ok(_) => tokio::task::yield_now().await,
                }
            }
        })
    };
    let mut parent = None;
    for turn in 0..200 {
        let new = NewCheckpoint::new(parent, turn.to_string());
        let new = if turn % 20 == 0 { new.with_value("c", "") } else { new.with_delta("c", "x") };
        parent = Some(checkpoints.put(&namespace, new.with_delta("d", vec![0; turn % 3])).await.unwrap());
        let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
        assert_eq!((found.info.id, found.info.parent.is_some()), (parent.clone().unwrap(), turn > 0));
        assert_eq!(found.channels["c"].deltas.len(), turn % 20);
        assert_eq!(found.channels["d"].deltas.len(), turn + 1);
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    pruner.await.unwrap();
}
