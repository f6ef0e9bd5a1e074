//! Copies.

use std::sync::Arc;

use futures_util::TryStreamExt as _;
use larder_kernel::{BlobStore as _, ErrorKind, KeyValueStore};

use super::support::{Spy, bytes, interrupted, keys, line, listed, open, thread};
use crate::checkpoint::{Checkpointer, NewCheckpoint, PendingWrite, Prune};
use crate::storage::InMemoryBlobStore;

pub(super) async fn blob_count(blobs: &InMemoryBlobStore) -> usize {
    let all: Vec<_> = blobs.list("", None).await.unwrap().try_collect().await.unwrap();
    all.len()
}

#[tokio::test]
async fn a_copy_is_equal_and_separate() {
    let blobs = Arc::new(InMemoryBlobStore::new());
    let store = Arc::new(Spy::default());
    let checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
    let checkpoints = checkpoints.with_blobs(Arc::clone(&blobs) as _);
    let (source, target) = (thread("source"), thread("target"));
    let inner = source.namespace("child:1").unwrap();
    let mut ids = line(&checkpoints, &source.root(), 5).await;
    line(&checkpoints, &inner, 2).await;
    let large = bytes(1024 * 1024 + 1);
    let new = NewCheckpoint::new(ids.last().cloned(), "").with_value("large", large.clone());
    ids.push(checkpoints.put(&source.root(), new.with_value("small", "s")).await.unwrap());
    let writes = vec![PendingWrite::new("a", 0, "c", "x"), PendingWrite::new("b", 0, "c", large)];
    checkpoints.put_writes(&source.root(), &ids[4], writes).await.unwrap();
    assert_eq!(checkpoints.copy(&source, &target).await.unwrap(), 8);
    for name in ["", "child:1"] {
        let (source, target) = (source.namespace(name).unwrap(), target.namespace(name).unwrap());
        let ids = listed(&checkpoints, &source).await;
        assert_eq!(listed(&checkpoints, &target).await, ids);
        for id in &ids {
            let (one, other) = (checkpoints.get(&source, Some(id)), checkpoints.get(&target, Some(id)));
            assert!(one.await.unwrap().unwrap() == other.await.unwrap().unwrap());
        }
    }
    assert_eq!((keys(&store, &source).await, blob_count(&blobs).await), (keys(&store, &target).await, 4));
    let taken = checkpoints.copy(&source, &target).await.unwrap_err();
    assert_eq!((taken.kind(), taken.field()), (ErrorKind::Conflict, Some("target")));
    assert_eq!(checkpoints.copy(&source, &source).await.unwrap_err().field(), Some("target"));
    assert_eq!(checkpoints.copy(&thread("none"), &thread("other")).await.unwrap(), 0);
    assert_eq!(checkpoints.delete(&source).await.unwrap(), 8);
    assert_eq!((keys(&store, &source).await, blob_count(&blobs).await), (0, 2));
    // The target continues where the source ended.
    let taken = checkpoints.put(&target.root(), NewCheckpoint::new(ids[4].clone(), "")).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    let next = NewCheckpoint::new(ids[5].clone(), "next");
    let next = checkpoints.put(&target.root(), next).await.unwrap();
    assert!(next > ids[5]);
    assert!(checkpoints.get(&target.root(), None).await.unwrap().unwrap().channels.contains_key("large"));
}

#[tokio::test]
async fn an_interrupted_copy_or_deletion_stops_writers_until_the_thread_is_deleted() {
    let calls = {
        let (store, checkpoints, namespace) = open();
        line(&checkpoints, &namespace, 3).await;
        store.take();
        checkpoints.copy(namespace.thread(), &thread("copy")).await.unwrap();
        store.take().calls
    };
    for call in 1..=i64::try_from(calls).unwrap() {
        for lost in [false, true] {
            let (store, checkpoints, namespace) = open();
            line(&checkpoints, &namespace, 3).await;
            let copy = thread("copy");
            store.fail(call, lost);
            assert!(checkpoints.copy(namespace.thread(), &copy).await.is_err());
            let begun = keys(&store, &copy).await > 0;
            // A lost response to the last step means a complete copy.
            let complete = listed(&checkpoints, &copy.root()).await.len() == 3 && lost;
            let first = checkpoints.put(&copy.root(), NewCheckpoint::new(None, "")).await;
            assert_eq!(first.is_ok(), !begun, "call {call}, lost {lost}");
            if let Err(error) = first {
                let field = if complete && error.field() == Some("parent") { "parent" } else { "thread" };
                assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some(field)));
            }
            store.fail(3, lost);
            checkpoints.delete(&copy).await.unwrap_err();
            store.fail(0, lost);
            checkpoints.delete(&copy).await.unwrap();
            assert_eq!(keys(&store, &copy).await, 0);
            assert_eq!(checkpoints.copy(namespace.thread(), &copy).await.unwrap(), 3);
        }
    }
}

#[tokio::test]
async fn a_copy_of_a_thread_that_is_pruned_at_the_same_time_is_complete_or_a_conflict() {
    let total = {
        let (store, checkpoints, namespace) = open();
        line(&checkpoints, &namespace, 3).await;
        store.take();
        checkpoints.copy(namespace.thread(), &thread("copy")).await.unwrap();
        usize::try_from(store.take().calls).unwrap()
    };
    let mut conflicts = 0;
    for calls in 0..total {
        let (_, checkpoints, namespace) = open();
        let ids = line(&checkpoints, &namespace, 3).await;
        for id in &ids {
            let write = PendingWrite::new("task", 0, "channel", "x");
            checkpoints.put_writes(&namespace, id, vec![write]).await.unwrap();
        }
        let copy = thread("copy");
        let prune = async {
            checkpoints.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap();
        };
        let copied = interrupted(checkpoints.copy(namespace.thread(), &copy), calls, prune).await;
        match copied {
            Err(error) => {
                conflicts += 1;
                assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("source")));
            }
            Ok(_) => {
                for id in listed(&checkpoints, &copy.root()).await {
                    let found = checkpoints.get(&copy.root(), Some(&id)).await.unwrap().unwrap();
                    assert_eq!(found.writes.len(), 1, "after {calls} calls");
                }
            }
        }
    }
    assert!(conflicts > 0);
}

#[tokio::test]
async fn an_incomplete_copy_or_deletion_is_no_source_of_a_copy() {
    let mut refused = 0;
    for call in 1..=12 {
        let (store, checkpoints, namespace) = open();
        // The descriptions need two steps, so an interrupted copy can have some of them.
        line(&checkpoints, &namespace, 700).await;
        let (copy, other) = (thread("copy"), thread("other"));
        store.fail(call, false);
        let interrupted = checkpoints.copy(namespace.thread(), &copy).await.is_err();
        store.fail(0, false);
        match checkpoints.copy(&copy, &other).await {
            Ok(count) => assert!(if interrupted { count == 0 } else { count == 700 }, "call {call}: {count}"),
            Err(error) => {
                refused += 1;
                assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("source")));
                assert_eq!(keys(&store, &other).await, 0);
            }
        }
    }
    assert!(refused > 2);
}
