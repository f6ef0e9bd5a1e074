//! Changes of systems with several servers: slots that move in a Redis Cluster, nodes that die in a Garage
//! cluster, partitioned Postgres tables, and a replica that lags.
//!
//! Each test starts separate servers from the installation of the shared servers. Without the service's
//! variable the test is ignored; with `LARDER_SERVICES=required` it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod garage;
mod postgres;
mod redis;
mod server;

use std::time::Duration;

use larder_cli::durable::Found;
use larder_conformance::{Harness, OpenOptions, StoreSet};
use larder_kernel::Namespace;
use libtest_mimic::{Arguments, Failed, Trial};

pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = vec![
        // The slowest test begins first.
        trial(
            "the_suite_holds_on_partitions",
            "LARDER_POSTGRES_URL",
            postgres::the_suite_holds_on_partitions,
        ),
        trial(
            "slots_move_while_clients_write",
            "LARDER_REDIS_CLUSTER_URL",
            redis::slots_move_while_clients_write,
        ),
        trial(
            "a_node_of_garage_dies_and_work_goes_on",
            "LARDER_S3_GARAGE_URL",
            garage::work_continues_after_the_loss_of_a_node,
        ),
        trial("a_replica_shows_what_was", "LARDER_POSTGRES_URL", postgres::a_replica_shows_what_was),
    ];
    crate::groups::run("scale", arguments, trials)
}

fn trial<F: Future<Output = ()>>(
    name: &'static str,
    variable: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = std::env::var_os(variable).is_none() && !required;
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(Failed::from)?;
        runtime.block_on(test());
        // A call in progress must not keep the test from ending.
        runtime.shutdown_background();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

/// Opens one of the two handles on the backend.
async fn open(harness: &dyn Harness, handle: usize) -> StoreSet {
    let options = OpenOptions::default().with_handle(handle);
    harness.open(&Namespace::new("scale").unwrap(), &options).await.unwrap()
}

/// Asserts that no client found a contradiction to a contract.
fn assert_holds(found: &Found) {
    let first: Vec<&str> = found.script.lines().take(40).collect();
    assert!(found.defects.is_empty(), "{:#?}\n{}", found.defects, first.join("\n"));
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
