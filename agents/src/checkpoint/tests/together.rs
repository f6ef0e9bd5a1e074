//! All calls at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::random::Random;
use larder_kernel::{Error, ErrorKind, KeyValueStore, Timestamp};

use super::moving::blob_count;
use super::support::{Spy, keys, listed, run, thread};
use crate::checkpoint::{
    ChannelUpdate, CheckpointId, CheckpointNamespace, Checkpointer, NewCheckpoint, PendingWrite, Prune,
};
use crate::storage::InMemoryBlobStore;

/// The number of turns that each writer tries.
const TURNS: u64 = 60;

/// Only another caller may be the reason of an error.
fn lost(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound), "{error}");
}

/// Continues the newest checkpoint, or branches from it. The state, all values and the pending writes of a
/// checkpoint contain the same byte.
async fn write(checkpoints: Checkpointer, namespace: CheckpointNamespace, seed: u64) {
    let mut random = Random::new(seed);
    for turn in 0..TURNS {
        let newest = match checkpoints.get(&namespace, None).await {
            Ok(newest) => newest,
            Err(error) => {
                lost(&error);
                continue;
            }
        };
        let parent = newest.as_ref().map(|newest| newest.info.id.clone());
        let byte = u8::try_from((seed * TURNS + turn) % 251).unwrap();
        let len = if random.one_in(8) { 1024 * 1024 + 1 } else { 10 };
        let mut new = NewCheckpoint::new(parent.clone(), vec![byte; len]).with_run(run(random.below(3)));
        new = new.with_value("value", vec![byte; len]);
        new = match newest.map_or(0, |newest| newest.info.deltas("list")) {
            0 => new.with_channel("list", ChannelUpdate::Remove).with_delta("list", vec![byte]),
            1..6 => new.with_delta("list", vec![byte]),
            _ => new.with_value("list", "").with_channel("list", ChannelUpdate::Remove),
        };
        let log = if parent.is_none() || random.one_in(5) {
            ChannelUpdate::Value(vec![byte].into())
        } else {
            ChannelUpdate::Pending
        };
        new = new.with_channel("log", log);
        let new = if random.one_in(4) { new.as_fork() } else { new };
        match checkpoints.put(&namespace, new).await {
            Ok(id) => {
                let write = PendingWrite::new("task", 0, "log", vec![byte; len]);
                checkpoints.put_writes(&namespace, &id, vec![write]).await.unwrap();
            }
            Err(error) => lost(&error),
        }
    }
}

/// Checks that a checkpoint belongs together.
async fn check(checkpoints: &Checkpointer, namespace: &CheckpointNamespace, id: Option<&CheckpointId>) {
    let found = match checkpoints.get(namespace, id).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return lost(&error),
    };
    let byte = found.state[0];
    assert!(found.channels["value"].value == Some(found.state.clone()));
    assert!(found.writes.iter().all(|write| write.value.iter().all(|found| *found == byte)));
    match checkpoints.history(namespace, &found.info.id, &["log"]).await {
        // A pending channel has a value in an ancestor, unless the checkpoint was removed in between.
        Ok(history) if found.info.channels["log"].pending && history["log"].seed.is_none() => {
            let again = checkpoints.get(namespace, Some(&found.info.id)).await.unwrap();
            assert_eq!(again, None);
        }
        Ok(_) => {}
        Err(error) => lost(&error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_calls_at_the_same_time_leave_complete_checkpoints_and_nothing_else() {
    for with_blobs in [false, true] {
        let (store, blobs) = (Arc::new(Spy::default()), Arc::new(InMemoryBlobStore::new()));
        let mut checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
        if with_blobs {
            checkpoints = checkpoints.with_blobs(Arc::clone(&blobs) as _);
        }
        let namespace = thread("thread").root();
        let done = Arc::new(AtomicBool::new(false));
        let others = (0..4).map(|kind| {
            let (checkpoints, namespace, done) = (checkpoints.clone(), namespace.clone(), done.clone());
            tokio::spawn(async move {
                let source = namespace.thread();
                while !done.load(Ordering::Relaxed) {
                    let result = match kind {
                        0 => checkpoints.prune(source, Prune::KeepNewest(3)).await,
                        1 => checkpoints.delete_runs(source, &[run(0)]).await,
                        2 => {
                            let copy = thread("copy");
                            let copied = checkpoints.copy(source, &copy).await;
                            if copied.is_ok() {
                                for id in listed(&checkpoints, &copy.root()).await {
                                    let found = checkpoints.get(&copy.root(), Some(&id)).await.unwrap();
                                    assert!(found.is_some());
                                    check(&checkpoints, &copy.root(), Some(&id)).await;
                                }
                            }
                            checkpoints.delete(&copy).await.unwrap();
                            copied
                        }
                        _ => {
                            check(&checkpoints, &namespace, None).await;
                            Ok(0)
                        }
                    };
                    result.map_or_else(|error| lost(&error), |_| ());
                    tokio::task::yield_now().await;
                }
            })
        });
        let others: Vec<_> = others.collect();
        let writers: Vec<_> =
            (0..3).map(|seed| tokio::spawn(write(checkpoints.clone(), namespace.clone(), seed))).collect();
        for writer in writers {
            writer.await.unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for other in others {
            other.await.unwrap();
        }
        for id in listed(&checkpoints, &namespace).await {
            assert!(checkpoints.get(&namespace, Some(&id)).await.unwrap().is_some());
            check(&checkpoints, &namespace, Some(&id)).await;
        }
        checkpoints.delete(namespace.thread()).await.unwrap();
        for name in ["thread", "copy"] {
            let soon = Timestamp::now().saturating_add(std::time::Duration::from_secs(60));
            checkpoints.collect_blobs(&thread(name), soon).await.unwrap();
            assert_eq!(keys(&store, &thread(name)).await, 0);
        }
        assert_eq!(blob_count(&blobs).await, 0);
    }
}
