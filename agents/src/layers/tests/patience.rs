//! Limits on time and on concurrent calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStoreExt, ErrorKind, KeyValueStoreExt, Outcome,
    Seq,
};

use super::super::{ConcurrencyLimitLayer, Layer, TimeoutLayer};
use super::Step::Late;
use super::{Scripted, blobs, history, key_value, place, thread, value};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_late_read_did_nothing_and_a_late_write_may_have() {
    let (bucket, key) = place();
    let scripted = Scripted::new([Late(2 * SECOND), Late(2 * SECOND)]);
    let store = key_value(&scripted, &TimeoutLayer::new(SECOND));
    let read = store.get(&bucket, &key).await.unwrap_err();
    assert_eq!(
        (read.kind(), read.outcome(), read.is_retryable()),
        (ErrorKind::Timeout, Outcome::NotApplied, true)
    );
    let write = store.set(&bucket, &key, value()).await.unwrap_err();
    assert_eq!(
        (write.kind(), write.outcome(), write.is_retryable()),
        (ErrorKind::Timeout, Outcome::Unknown, false)
    );
    assert_eq!(write.operation(), "key_value.put");
}

#[tokio::test(start_paused = true)]
async fn a_moving_body_is_awaited_and_a_stalled_body_is_not() {
    let key = BlobKey::new("k").unwrap();
    let store = blobs(&Scripted::default(), &TimeoutLayer::new(SECOND));
    let pieces = |pause: Duration| {
        BlobBody::stream(futures_util::stream::iter(0..5).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok(value())
        }))
    };
    let slow = store.put(&key, pieces(SECOND * 3 / 4), BlobPutOptions::default()).await.unwrap();
    assert_eq!(slow.size, 25);
    let stuck = store.put(&key, pieces(SECOND * 2), BlobPutOptions::default()).await.unwrap_err();
    assert_eq!(stuck.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_may_be_silent_for_hours() {
    let store = history(&Scripted::default(), &TimeoutLayer::new(SECOND));
    let mut events = store.subscribe(&thread(), Seq::ZERO).await.unwrap();
    assert!(tokio::time::timeout(3_600 * SECOND, events.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_wait_and_beyond_the_queue_are_refused() {
    let (bucket, key) = place();
    let scripted = Scripted::new([Late(SECOND), Late(SECOND)]);
    let store = key_value(&scripted, &ConcurrencyLimitLayer::new(1).with_queue_max(1));
    let (first, second, third) =
        tokio::join!(store.get(&bucket, &key), store.get(&bucket, &key), store.get(&bucket, &key));
    assert!(first.is_ok() && second.is_ok());
    let refused = third.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::ResourceExhausted, Outcome::NotApplied));
    assert_eq!(scripted.calls().len(), 2);
    // A call that is dropped while it waits releases its slot.
    let scripted = Scripted::new([Late(SECOND)]);
    let store = key_value(&scripted, &ConcurrencyLimitLayer::new(1).with_queue_max(1));
    let running = {
        let store = Arc::clone(&store);
        let (b, k) = place();
        tokio::spawn(async move { store.get(&b, &k).await })
    };
    tokio::task::yield_now().await;
    assert!(store.get(&bucket, &key).now_or_never().is_none());
    assert!(store.get(&bucket, &key).await.is_ok());
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_blob_being_read_counts_until_it_is_read_or_dropped() {
    let key = BlobKey::new("k").unwrap();
    let limit = ConcurrencyLimitLayer::new(1);
    let store = blobs(&Scripted::default(), &limit);
    store.put_bytes(&key, value()).await.unwrap();
    let read = store.get(&key, BlobGetOptions::default()).await.unwrap();
    let state = limit.key_value(Arc::new(crate::storage::InMemoryKeyValueStore::new()));
    let (bucket, name) = place();
    assert!(
        tokio::time::timeout(SECOND, state.get(&bucket, &name)).await.is_err(),
        "the bound is one for all"
    );
    drop(read);
    assert!(tokio::time::timeout(SECOND, state.get(&bucket, &name)).await.is_ok());
    let events = history(&Scripted::default(), &limit).subscribe(&thread(), Seq::ZERO).await.unwrap();
    assert!(tokio::time::timeout(SECOND, state.get(&bucket, &name)).await.is_ok());
    drop(events);
}
