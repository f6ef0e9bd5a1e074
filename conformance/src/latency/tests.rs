use larder_kernel::{Error, ErrorKind};

use super::*;

#[test]
fn ranks_are_those_of_values_that_were_seen() {
    let values: Vec<u64> = (1..=200).collect();
    assert_eq!((rank(&values, 50), rank(&values, 99), rank(&values, 100)), (100, 198, 200));
    assert_eq!((rank(&[7], 50), rank(&[7], 99), rank(&[], 99)), (7, 7, 0));
}

#[tokio::test]
async fn responses_are_timed_and_refusals_are_counted_separately() {
    let watch = Stopwatch::default();
    for _ in 0..3 {
        watch.around(Contract::Tasks, "claim", async { Ok(()) }).await.unwrap();
    }
    let refusal = async { Err::<(), _>(Error::new(ErrorKind::Conflict, "tasks.claim", "taken")) };
    watch.around(Contract::Tasks, "claim", refusal).await.unwrap_err();
    let found = watch.latencies("memory");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].method, found[0].count, found[0].errors), ("claim", 3, 1));
    assert!(found[0].p50_ns <= found[0].p99_ns && found[0].p99_ns <= found[0].max_ns);
}
