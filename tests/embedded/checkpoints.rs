//! Checkpoints over the stores in memory and in SQLite, through two handles.

use larder::checkpoint::{CheckpointThread, Checkpointer, NewCheckpoint, PendingWrite, Prune};
use larder::{ErrorKind, PageRequest, Stores};

fn open(stores: &Stores) -> Checkpointer {
    let set = stores.set();
    Checkpointer::new(set.key_value().unwrap()).with_blobs(set.blobs().unwrap())
}

/// Writers race over each parent. Exactly one succeeds, and the others leave nothing.
async fn race(left: &Checkpointer, right: &Checkpointer) {
    let namespace = CheckpointThread::new("thread").unwrap().root();
    let large = vec![7; 1024 * 1024 + 1];
    let mut parent = None;
    for round in 0..20 {
        let put = |checkpoints: &Checkpointer, text: &'static str| {
            let (checkpoints, namespace) = (checkpoints.clone(), namespace.clone());
            let new = NewCheckpoint::new(parent.clone(), text).with_delta("messages", text);
            let new = if round == 3 { new.with_value("large", large.clone()) } else { new };
            tokio::spawn(async move { checkpoints.put(&namespace, new).await })
        };
        let puts = [put(left, "left"), put(right, "right"), put(left, "third")];
        let mut won = Vec::new();
        for put in puts {
            match put.await.unwrap() {
                Ok(id) => won.push(id),
                Err(error) => {
                    assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("parent")));
                }
            }
        }
        assert_eq!(won.len(), 1);
        parent = won.pop();
        let found = right.get(&namespace, None).await.unwrap().unwrap();
        assert_eq!((Some(&found.info.id), found.info.deltas("messages")), (parent.as_ref(), round + 1));
        assert_eq!(found.channels["messages"].deltas.last(), Some(&found.state));
    }
    let id = parent.unwrap();
    let write = PendingWrite::new("task", 0, "messages", large.clone());
    left.put_writes(&namespace, &id, vec![write.clone()]).await.unwrap();
    assert_eq!(right.prune(namespace.thread(), Prune::KeepNewest(1)).await.unwrap(), 19);
    let copy = CheckpointThread::new("copy").unwrap();
    assert_eq!(left.copy(namespace.thread(), &copy).await.unwrap(), 1);
    assert_eq!(left.delete(namespace.thread()).await.unwrap(), 1);
    assert_eq!(right.threads(PageRequest::first(9)).await.unwrap().items, std::slice::from_ref(&copy));
    let found = right.get(&copy.root(), Some(&id)).await.unwrap().unwrap();
    assert!(found.writes == [write] && found.channels["large"].value.as_deref() == Some(&large[..]));
    assert_eq!(found.info.deltas("messages"), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_over_one_parent_one_gets_conflict_in_memory() {
    let stores = larder::open("memory:").await.unwrap();
    race(&open(&stores), &open(&stores)).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_over_one_parent_one_gets_conflict_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    let (left, right) = (larder::open(&url).await.unwrap(), larder::open(&url).await.unwrap());
    race(&open(&left), &open(&right)).await;
    left.close().await;
    right.close().await;
}
