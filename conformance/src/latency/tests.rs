use std::collections::BTreeSet;

use larder_kernel::{Error, ErrorKind};

use super::*;

/// Returns the methods that a source declares or implements after `opening`, up to the end of that block.
fn methods(source: &str, opening: &str) -> BTreeSet<String> {
    let block = source.split_once(opening).unwrap_or_else(|| panic!("no {opening}")).1;
    let block = block.split_once("\n}\n").unwrap().0;
    let name = |line: &str| {
        let line = line.trim().strip_prefix("async ").unwrap_or(line.trim());
        Some(line.strip_prefix("fn ")?.split(['(', '<']).next()?.to_owned())
    };
    block.lines().filter_map(name).collect()
}

#[test]
fn every_method_of_every_contract_is_forwarded() {
    let ours = include_str!("stores.rs");
    let here = include_str!("../latency.rs");
    let mut count = 0;
    for (contract, name) in [
        (Contract::History, "HistoryProvider"),
        (Contract::Vectors, "VectorStore"),
        (Contract::Graph, "GraphStore"),
        (Contract::Blobs, "BlobStore"),
        (Contract::Tasks, "TaskStore"),
        (Contract::KeyValue, "KeyValueStore"),
    ] {
        let declared = methods(contract.source(), &format!("pub trait {name}: "));
        assert_eq!(methods(ours, &format!("impl {name} for ")), declared, "{name}");
        count += declared.len();
    }
    assert!(count >= 57, "only {count} methods were found");
    let cypher = methods(Contract::Graph.source(), "pub trait CypherCapable: ");
    assert_eq!(methods(ours, "impl CypherCapable for "), cypher);
    let shared = methods(Contract::shared_source(), "pub trait Store: ");
    assert_eq!((methods(ours, " Store for Timed"), shared.len()), (shared, 3));
    let harness = methods(include_str!("../harness.rs"), "pub trait Harness: ");
    assert_eq!(methods(here, "impl Harness for TimedHarness"), harness);
}

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
        watch.time(Contract::Tasks, "claim", async { Ok(()) }).await.unwrap();
    }
    let refusal = async { Err::<(), _>(Error::new(ErrorKind::Conflict, "tasks.claim", "taken")) };
    watch.time(Contract::Tasks, "claim", refusal).await.unwrap_err();
    let found = watch.latencies("memory");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].method, found[0].count, found[0].errors), ("claim", 3, 1));
    assert!(found[0].p50_ns <= found[0].p99_ns && found[0].p99_ns <= found[0].max_ns);
}
