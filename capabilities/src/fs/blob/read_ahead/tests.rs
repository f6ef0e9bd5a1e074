use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::ErrorKind;

use super::*;

const OPERATION: &str = "test";

fn pieces(count: u64) -> impl Iterator<Item = Range<u64>> + Clone + Send + 'static {
    (0..count).map(|piece| piece..piece + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_delivered_in_order_whatever_each_takes() {
    for workers in 1..4 {
        let read = |piece: Range<u64>| {
            std::thread::sleep(Duration::from_micros(piece.start * 7919 % 300));
            Ok(piece.start)
        };
        let found: Vec<u64> =
            read_ahead(OPERATION, &pieces(101), workers, read).map(Result::unwrap).collect().await;
        assert_eq!(found, (0..101).collect::<Vec<_>>());
        assert_eq!(read_ahead(OPERATION, &pieces(0), workers, read).count().await, 0);
    }
}

#[tokio::test]
async fn an_unread_stream_reads_nothing_and_holds_no_thread() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&begun);
    let read = move |piece: Range<u64>| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(piece.start)
    };
    let mut stream = Box::pin(read_ahead(OPERATION, &pieces(1_000), 2, read));
    for expected in 0..40 {
        assert_eq!(stream.next().await.unwrap().unwrap(), expected);
        // Both workers have the maximum of waiting pieces, and their readers have ended.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let begun = begun.load(Ordering::SeqCst);
        assert!(begun <= usize::try_from(expected).unwrap() + 1 + 2 * READY_MAX, "{begun} at {expected}");
    }
    drop(stream);
    // A runtime waits for occupied threads; here none is.
    let before = begun.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(begun.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_worker_ends_with_its_error_and_a_panic_is_one() {
    let read = |piece: Range<u64>| match piece.start {
        4 => Err(aborted("four")),
        start => Ok(start),
    };
    let found: Vec<_> = read_ahead(OPERATION, &pieces(9), 1, read).collect().await;
    assert_eq!(found.len(), 5);
    assert_eq!(found[4].as_ref().unwrap_err().operation(), "four");
    let read = |piece: Range<u64>| {
        assert!(piece.start < 2, "a defect");
        Ok(piece.start)
    };
    let found: Vec<_> = read_ahead(OPERATION, &pieces(9), 1, read).collect().await;
    assert_eq!(found.len(), 3);
    let error = found[2].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unexpected, OPERATION));
}

#[test]
fn a_runtime_that_shuts_down_ends_its_reads() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let handle = runtime.handle().clone();
    let mut stream = Box::pin(read_ahead(OPERATION, &pieces(1_000), 2, |piece| Ok(piece.start)));
    assert_eq!(handle.block_on(stream.next()).unwrap().unwrap(), 0);
    drop(runtime);
    let rest = handle.block_on(stream.collect::<Vec<_>>());
    assert!(rest.len() <= 2 + 2 * READY_MAX);
    assert!(rest.iter().any(|piece| piece.as_ref().is_err_and(|error| error.operation() == OPERATION)));
}

#[test]
fn a_runtime_that_ends_during_reads_does_not_hang() {
    for _ in 0..100 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        for _ in 0..2 {
            let stream = read_ahead(OPERATION, &pieces(100_000), 2, |piece| Ok(piece.start));
            drop(runtime.spawn(stream.for_each(|_| std::future::ready(()))));
        }
        std::thread::sleep(Duration::from_micros(500));
        drop(runtime);
    }
}
