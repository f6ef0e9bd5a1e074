//! Channels: values that are kept, deltas, and the history of pending writes.

use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{BlobStore, KeyValueStore};

use super::support::{Spy, bytes, open, thread};
use crate::checkpoint::{
    ChannelUpdate, CheckpointNamespace, Checkpointer, NewCheckpoint, PendingWrite, UnnamedChannels,
};
use crate::storage::InMemoryBlobStore;

/// Returns the values and deltas of the newest checkpoint as text.
async fn newest(checkpoints: &Checkpointer, namespace: &CheckpointNamespace) -> String {
    let found = checkpoints.get(namespace, None).await.unwrap().unwrap();
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let channel = |(name, channel): (&String, &crate::checkpoint::ChannelValue)| {
        let value = channel.value.as_ref().map_or_else(|| "-".to_owned(), text);
        let deltas: String = channel.deltas.iter().map(|delta| format!("+{}", text(delta))).collect();
        let pending = if channel.pending { "…" } else { "" };
        format!("{name}={value}{deltas}{pending}")
    };
    found.channels.iter().map(channel).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_channel_is_kept_changed_extended_or_removed() {
    let (_, checkpoints, namespace) = open();
    let new = NewCheckpoint::new(None, "").with_value("a", "1").with_value("b", "2").with_delta("c", "3");
    let first = checkpoints.put(&namespace, new).await.unwrap();
    assert_eq!(newest(&checkpoints, &namespace).await, "a=1 b=2 c=-+3");
    let two = ChannelUpdate::Deltas(vec!["5".into(), "6".into()]);
    let new = NewCheckpoint::new(first.clone(), "").with_value("a", "4").with_channel("c", two);
    let second = checkpoints.put(&namespace, new.with_delta("b", "7")).await.unwrap();
    assert_eq!(newest(&checkpoints, &namespace).await, "a=4 b=2+7 c=-+3+5+6");
    let new = NewCheckpoint::new(second.clone(), "").with_channel("b", ChannelUpdate::Remove);
    let third = checkpoints.put(&namespace, new.with_value("c", "8")).await.unwrap();
    assert_eq!(newest(&checkpoints, &namespace).await, "a=4 c=8");
    let new = NewCheckpoint::new(third, "").with_unnamed(UnnamedChannels::Remove);
    let new = new.with_channel("a", ChannelUpdate::Keep).with_channel("x", ChannelUpdate::Keep);
    checkpoints.put(&namespace, new.with_channel("d", ChannelUpdate::Pending)).await.unwrap();
    assert_eq!(newest(&checkpoints, &namespace).await, "a=4 d=-…");
    // A fork has the channels of its parent.
    checkpoints.put(&namespace, NewCheckpoint::new(first, "").as_fork()).await.unwrap();
    assert_eq!(newest(&checkpoints, &namespace).await, "a=1 b=2 c=-+3");
    let info = checkpoints.get(&namespace, Some(&second)).await.unwrap().unwrap().info;
    assert_eq!((info.deltas("c"), info.deltas("b"), info.channels["b"].size_bytes), (3, 1, 2));
}

#[tokio::test]
async fn large_values_are_blobs_or_several_entries() {
    for with_blobs in [false, true] {
        let blobs = Arc::new(InMemoryBlobStore::new());
        let store = Arc::new(Spy::default());
        let mut checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
        if with_blobs {
            checkpoints = checkpoints.with_blobs(Arc::clone(&blobs) as Arc<dyn BlobStore>);
        }
        let namespace = thread("large").root();
        let (large, small) = (bytes(1024 * 1024 + 1), bytes(1024 * 1024));
        let new = NewCheckpoint::new(None, large.clone());
        let new = new.with_value("large", large.clone()).with_value("small", small.clone());
        let id = checkpoints.put(&namespace, new.with_delta("deltas", large.clone())).await.unwrap();
        let write = PendingWrite::new("task", 0, "channel", large.clone());
        checkpoints.put_writes(&namespace, &id, vec![write.clone()]).await.unwrap();
        let written = store.take().written;
        assert_eq!(written < 2 * 1024 * 1024, with_blobs, "{written}");
        let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
        assert!(found.state == large && found.writes == [write]);
        assert!(found.channels["large"].value == Some(large.clone()));
        assert!(found.channels["small"].value == Some(small));
        assert!(found.channels["deltas"].deltas == [large]);
        if with_blobs {
            // Many values that fit alone are blobs as far as the turn needs it.
            let parts = (0..20).fold(NewCheckpoint::new(id, ""), |new, at| {
                new.with_value(at.to_string(), bytes(1_000_000 + at))
            });
            checkpoints.put(&namespace, parts).await.unwrap();
            let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
            assert!((0..20).all(|at| found.channels[&at.to_string()].value == Some(bytes(1_000_000 + at))));
        }
    }
}

/// Writes a line of checkpoints. `turn` returns what each has.
async fn chain(
    checkpoints: &Checkpointer,
    namespace: &CheckpointNamespace,
    count: usize,
    turn: impl Fn(usize, NewCheckpoint) -> (NewCheckpoint, &'static [&'static str]),
) -> Vec<crate::checkpoint::CheckpointId> {
    let mut ids: Vec<crate::checkpoint::CheckpointId> = Vec::new();
    for step in 0..count {
        let new = NewCheckpoint::new(ids.last().cloned(), "").with_unnamed(UnnamedChannels::Remove);
        let (new, channels) = turn(step, new);
        let id = checkpoints.put(namespace, new).await.unwrap();
        if !channels.is_empty() {
            let write = |(index, channel): (i32, &&str)| {
                PendingWrite::new(format!("task-{step}"), index, *channel, step.to_string())
            };
            let writes = (0..).zip(channels).map(write).collect();
            checkpoints.put_writes(namespace, &id, writes).await.unwrap();
        }
        ids.push(id);
    }
    ids
}

fn seed(history: &crate::checkpoint::ChannelHistory) -> Option<&[u8]> {
    history.seed.as_ref()?.value.as_deref()
}

fn steps(history: &crate::checkpoint::ChannelHistory) -> String {
    history.writes.iter().map(|write| std::str::from_utf8(&write.value).unwrap()).collect()
}

#[tokio::test]
async fn a_history_has_the_writes_from_the_nearest_value_to_the_parent() {
    let (_, checkpoints, namespace) = open();
    // As in LangGraph: the value of step 1 for a, of step 3 for b; writes at every step.
    let ids = chain(&checkpoints, &namespace, 5, |step, new| match step {
        1 => (new.with_value("a", "A"), &["a", "b"][..]),
        3 => (new.with_value("b", "B"), &["a", "b"]),
        _ => (new, &["a", "b"]),
    })
    .await;
    let found = checkpoints.history(&namespace, &ids[4], &["a", "b", "c"]).await.unwrap();
    assert_eq!((seed(&found["a"]), steps(&found["a"])), (Some(&b"A"[..]), "123".to_owned()));
    assert_eq!((seed(&found["b"]), steps(&found["b"])), (Some(&b"B"[..]), "3".to_owned()));
    assert_eq!((seed(&found["c"]), steps(&found["c"])), (None, String::new()));
    assert_eq!(found["a"].writes[0].task, "task-1");
    let found = checkpoints.history(&namespace, &ids[1], &["a"]).await.unwrap();
    assert_eq!((seed(&found["a"]), steps(&found["a"])), (None, "0".to_owned()));
    assert!(checkpoints.history(&namespace, &ids[4], &[]).await.unwrap().is_empty());
    // Only the ancestors of the checkpoint count.
    let fork = NewCheckpoint::new(ids[2].clone(), "").as_fork();
    let fork = checkpoints.put(&namespace, fork.with_unnamed(UnnamedChannels::Remove)).await.unwrap();
    let found = checkpoints.history(&namespace, &fork, &["a", "b"]).await.unwrap();
    assert_eq!((steps(&found["a"]), steps(&found["b"])), ("12".to_owned(), "012".to_owned()));
}

#[tokio::test]
async fn pruning_keeps_the_writes_that_a_pending_channel_needs() {
    let (store, checkpoints, namespace) = open();
    let ids = chain(&checkpoints, &namespace, 8, |step, new| {
        let new = new.with_value("other", "x");
        match step {
            3 => (new.with_value("a", "A"), &["a"][..]),
            _ => (new.with_channel("a", ChannelUpdate::Pending), &["a"]),
        }
    })
    .await;
    let before = checkpoints.history(&namespace, &ids[7], &["a"]).await.unwrap();
    assert_eq!((seed(&before["a"]), steps(&before["a"])), (Some(&b"A"[..]), "3456".to_owned()));
    let keep = crate::checkpoint::Prune::KeepNewest(1);
    assert_eq!(checkpoints.prune(namespace.thread(), keep).await.unwrap(), 7);
    assert_eq!(super::support::listed(&checkpoints, &namespace).await, [ids[7].clone()]);
    assert_eq!(checkpoints.get(&namespace, Some(&ids[5])).await.unwrap(), None);
    assert_eq!(checkpoints.history(&namespace, &ids[7], &["a"]).await.unwrap(), before);
    assert_eq!(checkpoints.prune(namespace.thread(), keep).await.unwrap(), 0);
    // The head, five descriptions with pending writes, the child entry, state and `other` of the newest, and
    // the value of `a`.
    assert_eq!(super::support::keys(&store, namespace.thread()).await, 1 + 5 * 2 + 3 + 1);
    // A hidden checkpoint is no parent.
    let error = checkpoints.put(&namespace, NewCheckpoint::new(ids[5].clone(), "").as_fork()).await;
    assert_eq!(error.unwrap_err().field(), Some("parent"));
    // With a new value, nothing needs them any longer.
    let new = NewCheckpoint::new(ids[7].clone(), "").with_value("a", "B");
    checkpoints.put(&namespace, new).await.unwrap();
    assert_eq!(checkpoints.prune(namespace.thread(), keep).await.unwrap(), 1);
    // The head, one description with its child entry, and its state and two values.
    assert_eq!(super::support::keys(&store, namespace.thread()).await, 6);
}
