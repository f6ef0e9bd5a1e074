//! Interrupted turns.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{ErrorKind, KeyValueStore, Timestamp};

use super::moving::blob_count;
use super::support::{Spy, bytes, keys, listed, thread};
use crate::checkpoint::{CheckpointId, CheckpointNamespace, Checkpointer, NewCheckpoint, PendingWrite};
use crate::storage::InMemoryBlobStore;

struct World {
    store: Arc<Spy>,
    blobs: Arc<InMemoryBlobStore>,
    checkpoints: Checkpointer,
    namespace: CheckpointNamespace,
    first: CheckpointId,
    large: Bytes,
}

async fn world() -> World {
    let (store, blobs) = (Arc::new(Spy::default()), Arc::new(InMemoryBlobStore::new()));
    let checkpoints = Checkpointer::new(Arc::clone(&store) as Arc<dyn KeyValueStore>);
    let checkpoints = checkpoints.with_blobs(Arc::clone(&blobs) as _);
    let namespace = thread("thread").root();
    let large = bytes(1024 * 1024 + 1);
    let new = NewCheckpoint::new(None, large.clone());
    let first = checkpoints.put(&namespace, new).await.unwrap();
    World { store, blobs, checkpoints, namespace, first, large }
}

impl World {
    fn second(&self) -> NewCheckpoint {
        let id = CheckpointId::new("second").unwrap();
        let new = NewCheckpoint::new(self.first.clone(), self.large.clone()).with_id(id);
        new.with_value("large", self.large.clone()).with_value("small", "s")
    }

    /// Checks that the second checkpoint is complete or absent, and returns whether it exists.
    async fn check(&self) -> bool {
        let count = listed(&self.checkpoints, &self.namespace).await.len();
        let found = self.checkpoints.get(&self.namespace, None).await.unwrap().unwrap();
        assert!(found.state == self.large);
        if count == 1 {
            assert_eq!(found.info.id, self.first);
            assert_eq!(keys(&self.store, self.namespace.thread()).await, 2);
            return false;
        }
        assert_eq!((count, found.info.id.as_str(), found.channels.len()), (2, "second", 2));
        assert!(found.channels["large"].value.as_ref() == Some(&self.large));
        true
    }

    /// Checks that all blobs that nothing names can be deleted, and only these.
    async fn collect(&self, named: usize) {
        let (thread, now) = (self.namespace.thread(), Timestamp::now());
        let left = blob_count(&self.blobs).await;
        let past = Timestamp::from_micros(now.as_micros() - 3_600_000_000).unwrap();
        assert_eq!(self.checkpoints.collect_blobs(thread, past).await.unwrap(), 0);
        let soon = now.saturating_add(Duration::from_secs(60));
        let deleted = self.checkpoints.collect_blobs(thread, soon).await.unwrap();
        assert_eq!(usize::try_from(deleted).unwrap(), left - named);
        assert_eq!(blob_count(&self.blobs).await, named);
    }
}

#[tokio::test]
async fn a_turn_that_fails_at_any_call_is_complete_or_absent_and_can_be_repeated() {
    for lost in [false, true] {
        for call in 1..=2 {
            let world = world().await;
            world.store.fail(call, lost);
            let error = world.checkpoints.put(&world.namespace, world.second()).await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            assert_eq!(world.check().await, lost && call == 2);
            for _ in 0..2 {
                let id = world.checkpoints.put(&world.namespace, world.second()).await.unwrap();
                assert_eq!(id.as_str(), "second");
            }
            assert!(world.check().await);
            world.collect(3).await;
            assert!(world.check().await);
        }
    }
}

#[tokio::test]
async fn a_turn_that_is_dropped_at_any_poll_leaves_only_blobs_that_nothing_names() {
    let mut outcomes = [0; 2];
    for polls in 0..20 {
        let world = world().await;
        let mut put = Box::pin(world.checkpoints.put(&world.namespace, world.second()));
        let mut ready = false;
        for _ in 0..polls {
            ready = poll_fn(|context| Poll::Ready(put.as_mut().poll(context).is_ready())).await;
            if ready {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(put);
        let exists = world.check().await;
        assert!(exists || !ready);
        outcomes[usize::from(exists)] += 1;
        world.collect(if exists { 3 } else { 1 }).await;
        world.checkpoints.put(&world.namespace, world.second()).await.unwrap();
        assert!(world.check().await);
        if ready {
            break;
        }
    }
    assert!(outcomes[0] > 1 && outcomes[1] > 0, "{outcomes:?}");
}

#[tokio::test]
async fn a_writer_that_loses_deletes_its_blobs() {
    let world = world().await;
    world.checkpoints.put(&world.namespace, world.second()).await.unwrap();
    let late = NewCheckpoint::new(world.first.clone(), world.large.clone());
    let late = world.checkpoints.put(&world.namespace, late).await.unwrap_err();
    assert_eq!((late.kind(), blob_count(&world.blobs).await), (ErrorKind::Conflict, 3));
    let write = || vec![PendingWrite::new("task", 0, "channel", world.large.clone())];
    for _ in 0..2 {
        world.checkpoints.put_writes(&world.namespace, &world.first, write()).await.unwrap();
        assert_eq!(blob_count(&world.blobs).await, 4);
    }
    world.collect(4).await;
}

#[tokio::test]
async fn a_damaged_checkpoint_is_reported() {
    let world = world().await;
    world.checkpoints.put(&world.namespace, world.second()).await.unwrap();
    let without = Checkpointer::new(Arc::clone(&world.store) as Arc<dyn KeyValueStore>);
    let error = without.get(&world.namespace, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let names = world.checkpoints.blob_names("test", world.namespace.thread()).await.unwrap();
    world.checkpoints.delete_blobs("test", world.namespace.thread(), names).await.unwrap();
    let error = world.checkpoints.get(&world.namespace, None).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Corrupt, "checkpoint.get"));
}
