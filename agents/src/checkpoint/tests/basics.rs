//! Writing, reading and listing.

use bytes::Bytes;
use larder_kernel::{ErrorKind, Metadata, PageRequest, Timestamp};

use super::support::{bytes, keys, line, listed, open, run, thread};
use crate::checkpoint::{
    ChannelUpdate, CheckpointFilter, CheckpointId, CheckpointThread, DELTAS_MAX, NewCheckpoint, Prune,
    UnnamedChannels,
};

#[tokio::test]
async fn a_checkpoint_reads_back_with_its_parent_run_and_metadata() {
    let (_, checkpoints, namespace) = open();
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap(), None);
    let first = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let state = bytes(3 * 1024 * 1024 + 7);
    let metadata = Metadata::new().with("source", "loop").with("step", -1);
    let new = NewCheckpoint::new(first.clone(), state.clone()).with_metadata(metadata.clone());
    let second = checkpoints.put(&namespace, new.with_run(run("run"))).await.unwrap();
    let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
    assert_eq!((&found.info.id, found.info.parent, found.state), (&second, Some(first.clone()), state));
    assert_eq!((found.info.run, found.info.metadata), (Some(run("run")), metadata));
    let found = checkpoints.get(&namespace, Some(&first)).await.unwrap().unwrap();
    assert_eq!((found.state, found.info.parent, found.writes), (Bytes::new(), None, vec![]));
    let never = CheckpointId::new("never").unwrap();
    assert_eq!(checkpoints.get(&namespace, Some(&never)).await.unwrap(), None);
}

#[tokio::test]
async fn checkpoints_are_listed_newest_first_by_run_and_by_metadata() {
    let (_, checkpoints, namespace) = open();
    let mut ids = line(&checkpoints, &namespace, 12).await;
    let inner = namespace.thread().namespace("0:/").unwrap();
    line(&checkpoints, &inner, 1).await;
    ids.reverse();
    assert_eq!(listed(&checkpoints, &namespace).await, ids);
    let all = CheckpointFilter::default();
    let page = PageRequest::after(ids[3].clone(), 2);
    let page = checkpoints.list(&namespace, &all, page).await.unwrap();
    assert_eq!(page.items.iter().map(|info| &info.id).collect::<Vec<_>>(), [&ids[4], &ids[5]]);
    assert_eq!(page.next.as_ref(), Some(&ids[5]));
    let of_run = CheckpointFilter::default().with_run(run("run-1"));
    let page = checkpoints.list(&namespace, &of_run, PageRequest::first(100)).await.unwrap();
    assert_eq!(page.items.iter().map(|info| &info.id).collect::<Vec<_>>(), [&ids[8], &ids[9]]);
    let metadata = Metadata::new().with("source", "input").with("step", 2);
    let fork = NewCheckpoint::new(ids[11].clone(), "").as_fork();
    let fork = fork.with_metadata(metadata.clone().with("more", true));
    let fork = checkpoints.put(&namespace, fork).await.unwrap();
    let filter = CheckpointFilter::default().with_metadata(metadata);
    let page = checkpoints.list(&namespace, &filter, PageRequest::first(1)).await.unwrap();
    assert_eq!((page.items[0].id.clone(), page.next), (fork.clone(), None));
    // A branch from an old checkpoint is the newest one.
    assert_eq!(checkpoints.get(&namespace, None).await.unwrap().unwrap().info.id, fork);
    let other = CheckpointFilter::default().with_metadata(Metadata::new().with("step", "2"));
    assert!(checkpoints.list(&namespace, &other, PageRequest::first(9)).await.unwrap().items.is_empty());
    let none = checkpoints.list(&namespace, &all, PageRequest::first(0)).await.unwrap();
    assert!(none.items.is_empty() && none.next.is_none());
}

#[tokio::test]
async fn a_listing_examines_a_bounded_number_and_continues() {
    let (store, checkpoints, namespace) = open();
    let ids = line(&checkpoints, &namespace, 1_150).await;
    let first = CheckpointFilter::default().with_run(run("run-0"));
    store.take();
    let page = checkpoints.list(&namespace, &first, PageRequest::first(2)).await.unwrap();
    assert_eq!((page.items.len(), store.take().calls), (0, 10));
    let next = page.next.unwrap();
    assert_eq!(next, ids[150]);
    let page = checkpoints.list(&namespace, &first, PageRequest::after(next, 2)).await.unwrap();
    assert_eq!((page.items.len(), page.items[1].id.clone()), (2, ids[0].clone()));
}

#[tokio::test]
async fn threads_and_namespaces_are_listed() {
    let (_, checkpoints, namespace) = open();
    for name in ["b", "", "a/1", "b:2"] {
        line(&checkpoints, &namespace.thread().namespace(name).unwrap(), 1).await;
    }
    line(&checkpoints, &thread("other").root(), 1).await;
    let found = checkpoints.namespaces(namespace.thread()).await.unwrap();
    assert_eq!(found.iter().map(|found| found.as_str()).collect::<Vec<_>>(), ["", "a/1", "b", "b:2"]);
    let page = checkpoints.threads(PageRequest::first(1)).await.unwrap();
    assert_eq!(page.items, [thread("other")]);
    let page = checkpoints.threads(PageRequest::first(9).with_after(page.next)).await.unwrap();
    assert_eq!((page.items, page.next), (vec![namespace.thread().clone()], None));
}

#[tokio::test]
async fn a_repeated_put_with_its_id_changes_nothing() {
    let (store, checkpoints, namespace) = open();
    let id = |text: &str| CheckpointId::new(text).unwrap();
    let new = NewCheckpoint::new(None, "x").with_id(id("a")).with_value("channel", "1");
    for _ in 0..2 {
        assert_eq!(checkpoints.put(&namespace, new.clone()).await.unwrap(), id("a"));
    }
    let next = NewCheckpoint::new(id("a"), "y").with_id(id("b"));
    checkpoints.put(&namespace, next).await.unwrap();
    let before = keys(&store, namespace.thread()).await;
    assert_eq!(checkpoints.put(&namespace, new.clone()).await.unwrap(), id("a"));
    for other in [new.clone().with_value("channel", "2"), new.clone().with_run(run("r")), new.as_fork()] {
        let error = checkpoints.put(&namespace, other).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("id")));
    }
    assert_eq!(keys(&store, namespace.thread()).await, before);
}

#[tokio::test]
async fn bad_input_is_refused_by_field_and_changes_nothing() {
    let (store, checkpoints, namespace) = open();
    assert_eq!(CheckpointThread::new("").unwrap_err().field(), Some("thread"));
    assert_eq!(CheckpointThread::new("t".repeat(401)).unwrap_err().limit(), Some(400));
    assert_eq!(CheckpointThread::new("a\0").unwrap_err().field(), Some("thread"));
    let error = namespace.thread().namespace("n".repeat(257)).unwrap_err();
    assert_eq!((error.field(), error.limit()), (Some("namespace"), Some(256)));
    for wrong in ["", "a b", "é", &"i".repeat(65)] {
        assert_eq!(CheckpointId::new(wrong).unwrap_err().field(), Some("id"));
    }
    let parent = checkpoints.put(&namespace, NewCheckpoint::new(None, "")).await.unwrap();
    let before = keys(&store, namespace.thread()).await;
    let new = || NewCheckpoint::new(parent.clone(), "");
    let many = (0..1_001).fold(new(), |new, at| new.with_channel(at.to_string(), ChannelUpdate::Pending));
    let deltas = ChannelUpdate::Deltas(vec![Bytes::new(); DELTAS_MAX + 1]);
    let long = Metadata::new().with("key", "x".repeat(65_536));
    let names = (0..900).fold(new(), |new, at| {
        let name = format!("{at}{}", "n".repeat(250));
        new.with_channel(name, ChannelUpdate::Deltas(vec![Bytes::new()]))
    });
    for (wrong, field) in [
        (new().with_id(CheckpointId::new("!").unwrap()), "id"),
        (new().with_metadata(long), "metadata"),
        (new().with_value("", ""), "channel"),
        (new().with_value("c".repeat(257), ""), "channel"),
        (new().with_value("\0", ""), "channel"),
        (new().with_channel("c", ChannelUpdate::Deltas(vec![Bytes::new(); 901])), "channels"),
        (many, "channels"),
        (new().with_channel("c", deltas), "deltas"),
        (new().with_value("c", vec![0; 14 * 1024 * 1024 + 1]), "values"),
        (NewCheckpoint::new(CheckpointId::new("none").unwrap(), ""), "parent"),
    ] {
        let error = checkpoints.put(&namespace, wrong).await.unwrap_err();
        let kind = if field == "parent" { ErrorKind::NotFound } else { ErrorKind::InvalidInput };
        assert_eq!((error.kind(), error.field()), (kind, Some(field)));
    }
    assert_eq!(keys(&store, namespace.thread()).await, before);
    // The largest turns are stored.
    let names = checkpoints.put(&namespace, names).await.unwrap();
    let large = NewCheckpoint::new(names, "").with_unnamed(UnnamedChannels::Remove);
    let large = large.with_value("c", vec![0; 14 * 1024 * 1024]);
    checkpoints.put(&namespace, large).await.unwrap();
    let found = checkpoints.get(&namespace, None).await.unwrap().unwrap();
    assert_eq!(found.channels.len(), 1);
    assert_eq!(found.channels["c"].value.as_ref().unwrap().len(), 14 * 1024 * 1024);
}

#[tokio::test]
async fn every_call_can_be_spawned() {
    fn spawned(_: impl Future + Send) {}
    let (_, checkpoints, namespace) = open();
    let (thread, id) = (namespace.thread(), CheckpointId::new("id").unwrap());
    spawned(checkpoints.put(&namespace, NewCheckpoint::default()));
    spawned(checkpoints.put_writes(&namespace, &id, Vec::new()));
    spawned(checkpoints.get(&namespace, None));
    spawned(checkpoints.list(&namespace, &CheckpointFilter::default(), PageRequest::first(1)));
    spawned(checkpoints.history(&namespace, &id, &["channel"]));
    spawned(checkpoints.namespaces(thread));
    spawned(checkpoints.threads(PageRequest::first(1)));
    spawned(checkpoints.prune(thread, Prune::KeepNewest(1)));
    spawned(checkpoints.delete_runs(thread, &[]));
    spawned(checkpoints.copy(thread, thread));
    spawned(checkpoints.delete(thread));
    spawned(checkpoints.collect_blobs(thread, Timestamp::now()));
}
