use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::Suite;
use crate::calls;
use crate::memory::Memory;

/// Records the methods that are called.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<BTreeSet<(Contract, &'static str)>>>);

impl Hook for Recorder {
    async fn around<T: Send>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((contract, method));
        call.await
    }
}

#[tokio::test]
async fn every_method_of_every_contract_is_hooked() {
    let recorder = Recorder::default();
    let harness = HookedHarness::new(Arc::new(Memory::default()), recorder.clone());
    for &contract in Contract::ALL {
        for call in calls::of(contract).into_iter().filter(|call| call.name != "cypher") {
            let namespace = Namespace::new(call.title()).unwrap();
            let stores = harness.open(&namespace, &OpenOptions::default()).await.unwrap();
            calls::lay_out(&stores, contract, calls::World::Mine).await.unwrap();
            recorder.0.lock().unwrap().clear();
            call.run(&stores).await.unwrap();
            let seen = recorder.0.lock().unwrap().contains(&(contract, call.method()));
            assert!(seen, "{contract} {} is not hooked", call.name);
        }
    }
}

/// A store of which only some methods are implemented.
#[derive(Debug, Clone)]
struct Implemented(&'static [&'static str]);

impl Hook for Implemented {
    async fn around<T: Send>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if method == "erase" || self.0.contains(&method) {
            return call.await;
        }
        Err(Error::not_implemented(Box::leak(format!("{contract}.{method}").into_boxed_str())))
    }
}

/// The methods that an author implements first, and the least number of cases that run with these alone.
const FIRST: [(Contract, &[&str], usize); 6] = [
    (Contract::History, &["append_many", "get_messages", "tail", "thread_info", "clear"], 120),
    (Contract::Vectors, &["put", "get", "search"], 95),
    (Contract::Graph, &["upsert_entities", "get_entities", "upsert_relationships", "get_relationships"], 65),
    (Contract::Blobs, &["put", "get"], 90),
    (Contract::Tasks, &["create_task_list", "get_task", "get_board", "update_status"], 65),
    (Contract::KeyValue, &["put", "get"], 70),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_case_runs_once_the_methods_of_its_clause_are_implemented() {
    for (contract, methods, least) in FIRST {
        let harness = HookedHarness::new(Arc::new(Memory::default()), Implemented(methods));
        let report = Suite::new(harness).filter(format!("{contract}.")).run().await;
        let summary = &report.summary;
        assert_eq!((summary.failed, summary.errors), (0, 0), "{contract}: {report}");
        assert!(summary.passed >= least, "{contract}: {} of {least} cases run: {report}", summary.passed);
    }
}
