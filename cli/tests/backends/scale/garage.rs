//! A node that dies in a cluster with three replicas of each object.

use std::time::Duration;

use larder::Registry;
use larder_cli::durable::{Watched, during};
use larder_cli::url;

use super::server::Server;
use super::{assert_holds, open, pause};

/// The time limit of all attempts of a call.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// The time in which the other nodes notice that a node is gone.
const NOTICED_MS: u64 = 2_000;

pub(crate) async fn work_continues_after_the_loss_of_a_node() {
    let server = Server::start("garage-cluster", "scale", "LARDER_GARAGE_CLUSTER_PORT", 6);
    let address = server.url();
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::named(&Registry::default(), "s3-garage", &address, scratch.path()).await.unwrap();
    let stores = open(&*harness, 0).await;
    // A handle on another node returns the same, so it confirms the check.
    let (first, third) = (server.port(), server.port() + 2);
    let elsewhere = address.replace(&format!(":{first}&"), &format!(":{third}&"));
    let elsewhere = url::named(&Registry::default(), "s3-garage", &elsewhere, scratch.path()).await.unwrap();
    let other = open(&*elsewhere, 1).await;

    let ((), found) = during(&stores, &other, (6, 1, CALL_TIME_MAX), async |watched| {
        pause(1_000).await;
        server.tell(&["kill", "3"]);
        watched.remark("KILLED 3");
        goes_on(watched, "one of three").await;
        server.tell(&["up"]);
        watched.remark("UP 3");
        pause(1_000).await;
        // The writes during the outage are on the first node and on this one; every later read asks two
        // nodes.
        server.tell(&["kill", "2"]);
        watched.remark("KILLED 2");
        goes_on(watched, "another").await;
        server.tell(&["up"]);
    })
    .await
    .unwrap();
    assert_holds(&found);
    println!("{:?}", found.count);
}

/// Asserts that calls succeed once the other nodes have noticed the outage.
async fn goes_on(watched: &Watched, dead: &str) {
    pause(NOTICED_MS).await;
    let before = watched.count();
    pause(4_000).await;
    let after = watched.count();
    assert!(after.answered >= before.answered + 20, "without {dead}: {before:?} then {after:?}");
    assert_eq!((after.refused, after.open), (before.refused, before.open), "without {dead}");
}
