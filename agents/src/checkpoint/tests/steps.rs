//! Removals that take several steps.

use super::support::{interrupted, keys, listed, open, run, thread};
use crate::checkpoint::{
    ChannelUpdate, CheckpointId, CheckpointNamespace, Checkpointer, NewCheckpoint, PendingWrite, Prune,
    UnnamedChannels,
};

/// Writes a checkpoint with more keys than one step deletes, and another one.
async fn many_keys(checkpoints: &Checkpointer, namespace: &CheckpointNamespace) -> Vec<CheckpointId> {
    let deltas = |count| ChannelUpdate::Deltas(vec!["x".into(); count]);
    let mut new = NewCheckpoint::new(None, "").with_run(run("run"));
    for channel in ["a", "b", "c"] {
        new = new.with_channel(channel, deltas(256));
    }
    let first = checkpoints.put(namespace, new).await.unwrap();
    for task in 0..3 {
        let write = |index| PendingWrite::new(format!("task-{task}"), index, "channel", "");
        checkpoints.put_writes(namespace, &first, (0..450).map(write).collect()).await.unwrap();
    }
    let next = NewCheckpoint::new(first.clone(), "").with_unnamed(UnnamedChannels::Remove);
    vec![first, checkpoints.put(namespace, next).await.unwrap()]
}

#[tokio::test]
async fn a_removal_that_other_writers_interrupt_between_its_steps_leaves_nothing() {
    let total = {
        let (store, checkpoints, namespace) = open();
        many_keys(&checkpoints, &namespace).await;
        store.take();
        checkpoints.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap();
        usize::try_from(store.take().calls).unwrap()
    };
    for calls in 0..total {
        let (store, checkpoints, namespace) = open();
        let ids = many_keys(&checkpoints, &namespace).await;
        let put = async {
            checkpoints.put(&namespace, NewCheckpoint::new(ids[1].clone(), "")).await.unwrap();
        };
        let prune = checkpoints.prune(namespace.thread(), Prune::KeepNewest(1));
        let removed = interrupted(prune, calls, put).await.unwrap();
        checkpoints.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap();
        assert!((1..=2).contains(&removed), "{removed}");
        // The head, and the description, child entry and state of the newest one.
        assert_eq!(keys(&store, namespace.thread()).await, 4, "after {calls} calls");
    }
}

#[tokio::test]
async fn a_removal_that_fails_between_its_steps_is_completed_by_the_next_one() {
    for lost in [false, true] {
        for call in 1..=9 {
            let (store, checkpoints, namespace) = open();
            let ids = many_keys(&checkpoints, &namespace).await;
            store.fail(call, lost);
            let failed = checkpoints.delete_runs(namespace.thread(), &[run("run")]).await.is_err();
            store.fail(0, lost);
            // The remaining checkpoint is always the newest one, and the removed one is complete or gone.
            let newest = checkpoints.get(&namespace, None).await.unwrap().unwrap();
            assert_eq!(newest.info.id, ids[1]);
            if let Some(first) = checkpoints.get(&namespace, Some(&ids[0])).await.unwrap() {
                assert!(failed && first.channels.len() == 3 && first.writes.len() == 1_350);
            }
            let copy = thread("copy");
            let count = checkpoints.copy(namespace.thread(), &copy).await.unwrap();
            assert_eq!(usize::try_from(count).unwrap(), listed(&checkpoints, &namespace).await.len());
            for thread in [namespace.thread(), &copy] {
                checkpoints.delete_runs(thread, &[run("run")]).await.unwrap();
                assert_eq!(keys(&store, thread).await, 4, "call {call}, lost {lost}");
            }
        }
    }
}

#[tokio::test]
async fn a_removal_that_fails_leaves_no_checkpoint_without_what_its_history_needs() {
    for call in 1..=9 {
        let (store, checkpoints, namespace) = open();
        let mut ids: Vec<CheckpointId> = Vec::new();
        // The keys of the first and those of the others do not fit into one step.
        for number in 0..900 {
            let new = NewCheckpoint::new(ids.last().cloned(), "").with_run(run("run"));
            let new = match number {
                0 => new.with_value("log", "seed"),
                _ => new.with_channel("log", ChannelUpdate::Pending),
            };
            ids.push(checkpoints.put(&namespace, new).await.unwrap());
        }
        let last = NewCheckpoint::new(ids.last().cloned(), "").with_value("log", "");
        checkpoints.put(&namespace, last).await.unwrap();
        store.fail(call, false);
        let failed = checkpoints.delete_runs(namespace.thread(), &[run("run")]).await;
        if failed.is_ok() {
            assert!(call > 5, "{call}");
            break;
        }
        for id in ids.iter().skip(1) {
            if checkpoints.get(&namespace, Some(id)).await.unwrap().is_some() {
                let found = checkpoints.history(&namespace, id, &["log"]).await.unwrap();
                assert!(found["log"].seed.is_some(), "call {call}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_interrupted_removal_of_the_newest_shows_the_one_before() {
    let (store, checkpoints, namespace) = open();
    let first = checkpoints.put(&namespace, NewCheckpoint::new(None, "first")).await.unwrap();
    let next = NewCheckpoint::new(first.clone(), "").with_run(run("run"));
    let next = checkpoints.put(&namespace, next).await.unwrap();
    for task in 0..3 {
        let write = |index| PendingWrite::new(format!("task-{task}"), index, "channel", "");
        checkpoints.put_writes(&namespace, &next, (0..450).map(write).collect()).await.unwrap();
    }
    let mut shown = Vec::new();
    for call in 1..=8 {
        store.fail(call, false);
        let removed = checkpoints.delete_runs(namespace.thread(), &[run("run")]).await;
        store.fail(0, false);
        let newest = checkpoints.get(&namespace, None).await.unwrap().unwrap();
        shown.push(newest.info.id == first);
        if removed.is_ok() {
            break;
        }
    }
    assert!(!shown[0] && *shown.last().unwrap());
    assert_eq!(listed(&checkpoints, &namespace).await, [first]);
    assert_eq!(keys(&store, namespace.thread()).await, 3);
}
