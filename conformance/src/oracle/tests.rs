//! Clients find every defect, and report no other.

use std::sync::Arc;
use std::time::Duration;

use larder_agents::storage::MemoryBackend;
use larder_kernel::Namespace;

use super::*;
use crate::memory;

fn memory() -> StoreSet {
    memory::stores(&MemoryBackend::new(), &Namespace::new("n").unwrap())
}

fn is_deletion(op: &Op) -> bool {
    match op {
        Op::Edges(op) => is_deletion(op),
        Op::Delete { .. } | Op::DeleteBlob { .. } | Op::Remove { .. } | Op::RemoveBatch { .. } => true,
        _ => false,
    }
}

/// Runs the given number of steps of a client.
async fn steps(client: &mut dyn OracleClient, stores: &StoreSet, count: u32) -> Vec<Defect> {
    let calls = Calls::new(Duration::from_secs(10), Arc::default());
    let mut defects = Vec::new();
    for _ in 0..count {
        step(client, stores, &calls, &mut defects).await;
    }
    defects
}

/// A writer that is killed may have written without a result.
#[tokio::test]
async fn a_write_without_a_result_is_no_defect() {
    let stores = memory();
    for seed in 0..3 {
        for mut client in clients(&stores, &format!("killed-{seed}"), seed) {
            for _ in 0..200 {
                let op = client.next();
                let answer = client.perform(&op, &stores).await.unwrap();
                if op.writes() {
                    let defects = client.verify(&stores, "STORE-005").await.unwrap();
                    assert_eq!(defects, [], "{} {op:?}", client.contract());
                }
                assert_eq!(client.settle(&op, Ended::Done(answer)), None);
            }
        }
    }
}

#[tokio::test]
async fn a_working_store_has_no_findings() {
    let stores = memory();
    for seed in 0..3 {
        for mut client in clients(&stores, &format!("era-{seed}"), seed) {
            let mut defects = steps(client.as_mut(), &stores, 120).await;
            defects.extend(client.verify(&stores, "STORE-002").await.unwrap());
            assert_eq!(defects, [], "{}", client.contract());
        }
    }
}

/// Returns the operation with only the first of its cells, if it has several.
fn torn(op: &Op) -> Option<Op> {
    match op {
        Op::Edges(op) => torn(op).map(|op| Op::Edges(Box::new(op))),
        Op::WriteCells { places, number, .. } if places.len() > 1 => {
            Some(Op::WriteCells { places: places[..1].to_vec(), number: *number, fresh: false })
        }
        Op::PutAll { slots, number, ats } if slots.len() > 1 => {
            Some(Op::PutAll { slots: slots[..1].to_vec(), number: *number, ats: ats[..1].to_vec() })
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_partially_written_batch_is_found() {
    for (contract, clauses) in [
        (Contract::Vectors, ["VEC-004", "VEC-046"]),
        (Contract::Graph, ["GRAPH-004", "GRAPH-006"]),
        (Contract::KeyValue, ["KV-059", ""]),
    ] {
        let stores = memory();
        let mut client = client(contract, &stores, "era", 4);
        let part = loop {
            let op = client.next();
            if let Some(part) = torn(&op) {
                assert_eq!(client.settle(&op, Ended::Open(None)), None);
                break part;
            }
            let ended = client.perform(&op, &stores).await.into();
            assert_eq!(client.settle(&op, ended), None);
        };
        client.perform(&part, &stores).await.unwrap();
        let defects = client.verify(&stores, "STORE-002").await.unwrap();
        assert!(defects.iter().any(|defect| clauses.contains(&defect.clause)), "{contract}: {defects:?}");
    }
}

#[tokio::test]
async fn a_lost_acknowledged_write_is_found() {
    let (stores, empty) = (memory(), memory());
    for mut client in clients(&stores, "era", 7) {
        steps(client.as_mut(), &stores, 20).await;
        let defects = client.verify(&empty, "STORE-005").await.unwrap();
        assert!(
            defects.iter().any(|defect| defect.clause == "STORE-005"),
            "{}: {defects:?}",
            client.contract()
        );
    }
}

#[tokio::test]
async fn a_visible_write_reported_as_not_applied_is_found() {
    let stores = memory();
    for mut client in clients(&stores, "era", 3) {
        steps(client.as_mut(), &stores, 20).await;
        let op = loop {
            let op = client.next();
            if op.writes() && !is_deletion(&op) {
                break op;
            }
            let ended = client.perform(&op, &stores).await.into();
            assert_eq!(client.settle(&op, ended), None);
        };
        client.perform(&op, &stores).await.unwrap();
        let lie = Error::new(ErrorKind::Unavailable, "", "").with_outcome(Outcome::NotApplied);
        assert_eq!(client.settle(&op, Ended::Refused(lie)), None);
        let defects = client.verify(&stores, "STORE-002").await.unwrap();
        assert!(
            defects.iter().any(|defect| defect.clause == "STORE-013"),
            "{}: {defects:?}",
            client.contract()
        );
    }
}

#[tokio::test]
async fn an_uncertain_write_may_exist_or_not() {
    for happened in [false, true] {
        let stores = memory();
        for mut client in clients(&stores, "era", 5) {
            steps(client.as_mut(), &stores, 10).await;
            for _ in 0..40 {
                let op = client.next();
                if happened || !op.writes() {
                    // A repetition may fail, because the first attempt happened.
                    let ended = client.perform(&op, &stores).await;
                    if !op.writes() || ended.is_err() {
                        assert_eq!(client.settle(&op, ended.into()), None, "{op:?}");
                        continue;
                    }
                }
                assert_eq!(client.settle(&op, Ended::Open(None)), None);
            }
            let mut defects = steps(client.as_mut(), &stores, 30).await;
            defects.extend(client.verify(&stores, "STORE-002").await.unwrap());
            assert_eq!(defects, [], "{}", client.contract());
        }
    }
}
