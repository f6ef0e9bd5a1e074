//! Reads between whose calls others change the thread.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use larder_kernel::ErrorKind;

use super::support::{bytes, interrupted, open, run};
use crate::checkpoint::{
    ChannelUpdate, CheckpointId, CheckpointNamespace, Checkpointer, NewCheckpoint, PendingWrite, Prune,
};

fn id(text: &str) -> CheckpointId {
    CheckpointId::new(text).unwrap()
}

/// Writes two checkpoints and pending writes, all with the same ids and with the given text.
async fn put_two(checkpoints: &Checkpointer, namespace: &CheckpointNamespace, text: &'static str) {
    let new = NewCheckpoint::new(None, text).with_id(id("a")).with_run(run(text));
    checkpoints.put(namespace, new.with_value("log", text)).await.unwrap();
    let write = PendingWrite::new("task", 0, "log", text);
    checkpoints.put_writes(namespace, &id("a"), vec![write]).await.unwrap();
    let new = NewCheckpoint::new(id("a"), "").with_id(id("b"));
    checkpoints.put(namespace, new.with_channel("log", ChannelUpdate::Pending)).await.unwrap();
}

/// Deletes a thread and writes it again with another text.
async fn replace(checkpoints: &Checkpointer, namespace: &CheckpointNamespace, text: &'static str) {
    checkpoints.delete(namespace.thread()).await.unwrap();
    put_two(checkpoints, namespace, text).await;
}

#[tokio::test]
async fn a_read_never_mixes_a_checkpoint_with_one_that_replaced_it() {
    for (calls, new) in [(1, "new"), (1, "newer"), (2, "new"), (2, "newer")] {
        let (_, checkpoints, namespace) = open();
        put_two(&checkpoints, &namespace, "old").await;
        let target = id("a");
        let read = checkpoints.get(&namespace, Some(&target));
        let found = interrupted(read, calls, replace(&checkpoints, &namespace, new)).await.unwrap().unwrap();
        let text = found.info.run.unwrap();
        let values = [&found.state, found.channels["log"].value.as_ref().unwrap(), &found.writes[0].value];
        assert!(
            values.iter().all(|value| **value == text.as_str()),
            "{text}: {values:?} after {calls} calls"
        );
    }
}

#[tokio::test]
async fn a_history_never_mixes_checkpoints_with_ones_that_replaced_them() {
    for (calls, new) in [(1, "new"), (2, "new"), (3, "new"), (3, "newer")] {
        let (_, checkpoints, namespace) = open();
        put_two(&checkpoints, &namespace, "old").await;
        let target = id("b");
        let read = checkpoints.history(&namespace, &target, &["log"]);
        let found = interrupted(read, calls, replace(&checkpoints, &namespace, new)).await.unwrap();
        let seed = found["log"].seed.as_ref().unwrap().value.as_ref().unwrap();
        assert_eq!(seed, &found["log"].writes[0].value, "after {calls} calls");
    }
}

#[tokio::test]
async fn a_read_during_many_prunings_returns_a_complete_checkpoint() {
    let (_, checkpoints, namespace) = open();
    let turn = async |parent: Option<CheckpointId>| {
        let new = NewCheckpoint::new(parent, "state").with_value("channel", "value");
        let id = checkpoints.put(&namespace, new).await.unwrap();
        checkpoints.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap();
        id
    };
    let mut newest = turn(None).await;
    let mut read = pin!(checkpoints.get(&namespace, None));
    let mut polls = 0;
    let found = loop {
        match poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await {
            Poll::Ready(found) => break found.unwrap().unwrap(),
            // Each of the first attempts loses the checkpoint that it found.
            Poll::Pending if polls < 20 => newest = turn(Some(newest)).await,
            Poll::Pending => {}
        }
        polls += 1;
    };
    assert_eq!((found.info.id, found.state), (newest, "state".into()));
}

#[tokio::test]
async fn a_replaced_write_reads_as_one_of_its_values() {
    let (_, checkpoints, namespace) = open();
    let id = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    // The listing of the pending writes has two pages.
    for task in 0..12 {
        let write = PendingWrite::new(format!("{task:02}"), -1, "channel", vec![1; 1_500_000]);
        checkpoints.put_writes(&namespace, &id, vec![write]).await.unwrap();
    }
    for (calls, len) in [(1, 1_500_000), (2, 1_500_000), (3, 1_500_000), (2, 1_400_000), (2, 1_500_000)] {
        let value = u8::try_from(calls).unwrap() + 1;
        // A write of another task appears, too.
        let other = PendingWrite::new("12", i32::try_from(calls).unwrap(), "channel", vec![1; 1_500_000]);
        let replace = async {
            let write = PendingWrite::new("11", -1, "channel", vec![value; len]);
            checkpoints.put_writes(&namespace, &id, vec![write, other]).await.unwrap();
        };
        let found = interrupted(checkpoints.get(&namespace, None), calls, replace).await.unwrap().unwrap();
        let written = &found.writes[11].value;
        assert!(written.iter().all(|byte| *byte == written[0]), "after {calls} calls");
    }
}

#[tokio::test]
async fn a_refused_turn_calls_no_store() {
    let (store, checkpoints, namespace) = open();
    let large = NewCheckpoint::new(id("a"), bytes(14 * 1024 * 1024)).with_value("c", "1");
    let error = checkpoints.put(&namespace, large).await.unwrap_err();
    assert_eq!((error.field(), error.limit()), (Some("values"), Some(14 * 1024 * 1024)));
    let error = checkpoints.history(&namespace, &id("a"), &[""]).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("channel")));
    assert_eq!(store.take().calls, 0);
}
