//! Pending writes.

use larder_kernel::ErrorKind;

use super::support::{keys, open};
use crate::checkpoint::{ChannelUpdate, CheckpointId, NewCheckpoint, PendingWrite};

#[tokio::test]
async fn writes_are_read_by_task_and_index_and_do_not_pass_to_the_next_checkpoint() {
    let (_, checkpoints, namespace) = open();
    let first = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let write = |task: &str, index, channel: &str, value: &'static str| {
        PendingWrite::new(task, index, channel, value)
    };
    let b = write("b/1", 0, "x", "1").with_path("a:b:c");
    let a = [write("a 2", 1, "y", "3"), write("a 2", 0, "x", "2"), write("a 2", -1, "__error__", "e")];
    checkpoints.put_writes(&namespace, &first, vec![b.clone()]).await.unwrap();
    checkpoints.put_writes(&namespace, &first, a.to_vec()).await.unwrap();
    let inner = namespace.thread().namespace("inner").unwrap();
    checkpoints.put_writes(&inner, &first, vec![write("other", 0, "x", "9")]).await.unwrap();
    let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
    assert_eq!(found.writes, [a[2].clone(), a[1].clone(), a[0].clone(), b]);
    checkpoints.put(&namespace, NewCheckpoint::new(first, "")).await.unwrap();
    assert!(checkpoints.get(&namespace, None).await.unwrap().unwrap().writes.is_empty());
}

#[tokio::test]
async fn writes_are_ordered_by_the_path_of_their_task_before_its_name() {
    let (_, checkpoints, namespace) = open();
    let first =
        checkpoints.put(&namespace, NewCheckpoint::new(None, "").with_value("log", "")).await.unwrap();
    let write = |task: &str, index, path: &str| PendingWrite::new(task, index, "log", "").with_path(path);
    let ordered = [write("c", 0, ""), write("b", 0, "p1"), write("b", 1, "p1"), write("a", 0, "p2")];
    checkpoints.put_writes(&namespace, &first, ordered.iter().rev().cloned().collect()).await.unwrap();
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap().writes, ordered);
    let next = NewCheckpoint::new(first, "").with_channel("log", ChannelUpdate::Pending);
    let next = checkpoints.put(&namespace, next).await.unwrap();
    assert_eq!(checkpoints.history(&namespace, &next, &["log"]).await.unwrap()["log"].writes, ordered);
}

#[tokio::test]
async fn a_task_that_runs_again_changes_only_writes_with_negative_indexes() {
    let (_, checkpoints, namespace) = open();
    let id = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let writes = |first: &'static str, error: &'static str| {
        vec![PendingWrite::new("t", 0, "c", first), PendingWrite::new("t", -1, "e", error)]
    };
    checkpoints.put_writes(&namespace, &id, writes("1", "a")).await.unwrap();
    let mut again = writes("2", "b");
    again.push(PendingWrite::new("t", 1, "c", "3"));
    checkpoints.put_writes(&namespace, &id, again).await.unwrap();
    let found = checkpoints.get(&namespace, None).await.unwrap().unwrap().writes;
    let found: Vec<_> = found.iter().map(|write| (write.index, &*write.value)).collect();
    assert_eq!(found, [(-1, &b"b"[..]), (0, b"1"), (1, b"3")]);
}

#[tokio::test]
async fn writes_may_precede_their_checkpoint() {
    let (_, checkpoints, namespace) = open();
    let id = CheckpointId::new("early").unwrap();
    let write = PendingWrite::new("task", 0, "channel", "value");
    checkpoints.put_writes(&namespace, &id, vec![write.clone()]).await.unwrap();
    checkpoints.put(&namespace, NewCheckpoint::new(None, "").with_id(id)).await.unwrap();
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap().writes, [write]);
}

#[tokio::test]
async fn a_replaced_write_may_be_shorter() {
    let (_, checkpoints, namespace) = open();
    let id = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    for len in [3_000_000, 2_000_000, 5, 0] {
        let write = PendingWrite::new("task", -1, "channel", super::support::bytes(len));
        checkpoints.put_writes(&namespace, &id, vec![write.clone()]).await.unwrap();
        assert!(checkpoints.get(&namespace, None).await.unwrap().unwrap().writes == [write]);
    }
}

#[tokio::test]
async fn refused_writes_change_nothing() {
    let (store, checkpoints, namespace) = open();
    let id = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let before = keys(&store, namespace.thread()).await;
    let write = || PendingWrite::new("task", 0, "channel", "value");
    let many = (0..451).map(|index| PendingWrite::new("task", index, "channel", "")).collect();
    for (wrong, field) in [
        (vec![], "writes"),
        (many, "writes"),
        (vec![write(), write()], "writes"),
        (vec![PendingWrite::new("", 0, "channel", "")], "task"),
        (vec![PendingWrite::new("t".repeat(129), 0, "channel", "")], "task"),
        (vec![PendingWrite::new("a\0", 0, "channel", "")], "task"),
        (vec![PendingWrite::new("task", 0, "", "")], "channel"),
        (vec![write().with_path("p".repeat(513))], "path"),
        (vec![PendingWrite::new("task", 0, "channel", vec![0; 14 * 1024 * 1024 + 1])], "values"),
    ] {
        let error = checkpoints.put_writes(&namespace, &id, wrong).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some(field)));
    }
    assert_eq!(keys(&store, namespace.thread()).await, before);
    // The largest call is stored, next to keys of the greatest length.
    let inner = namespace.thread().namespace("n".repeat(256)).unwrap();
    let id = CheckpointId::new("i".repeat(64)).unwrap();
    let write = |index| {
        PendingWrite::new("t".repeat(128), index, "c".repeat(256), vec![0; 32_622]).with_path("p".repeat(512))
    };
    checkpoints.put_writes(&inner, &id, (0..450).map(write).collect()).await.unwrap();
}
