//! Health during an outage of the server that `LARDER_POSTGRES_URL` or `LARDER_REDIS_URL` names. Without the
//! variable, its test is ignored; with `LARDER_SERVICES=required` it fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use larder::Backend;
use larder_kernel::{ErrorKind, Namespace};
use libtest_mimic::{Arguments, Trial};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let trials =
        [("postgres", "LARDER_POSTGRES_URL"), ("redis", "LARDER_REDIS_URL")].map(|(name, variable)| {
            let ignored = std::env::var(variable).is_err() && !required;
            let run = move || {
                health_while_a_server_is_away(&std::env::var(variable).expect("the variable names a server"));
                Ok(())
            };
            let name = format!("{name}::is_not_ready_while_it_is_away_and_alive_all_the_same");
            Trial::test(name, run).with_ignored_flag(ignored)
        });
    crate::groups::run("away", arguments, trials.into())
}

/// Relays connections to the server until the sender stops it. All connections have ended when the task has
/// ended; after an abort, some would remain for a moment.
async fn relay(to: String) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, mut ended) = oneshot::channel();
    let relaying = tokio::spawn(async move {
        let mut ways = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut ended => break,
            };
            let (Ok((mut from, _)), to) = (accepted, to.clone()) else { break };
            ways.spawn(async move {
                let mut to = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
        drop(listener);
        ways.shutdown().await;
    });
    (address, end, relaying)
}

fn health_while_a_server_is_away(url: &str) {
    let after = url.find('@').expect("a URL with a user") + 1;
    let end = url[after..].find(['/', '?']).map_or(url.len(), |end| after + end);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (address, end_relay, relaying) = relay(url[after..end].to_owned()).await;
        let place = Backend::open(&format!("{}{address}{}", &url[..after], &url[end..])).await.unwrap();
        let stores = place.stores(&Namespace::new("larder-doctor-test").unwrap()).await;
        let health = stores.health(Duration::from_secs(30)).await;
        assert!(health.is_ready() && health.is_live(), "{health:?}");
        let pool = health.places[0].pool.expect("a pool");
        assert!(pool.open >= 1 && !pool.closed && pool.max.is_none_or(|max| max >= pool.open), "{pool:?}");

        end_relay.send(()).unwrap();
        relaying.await.unwrap();
        let begun = Instant::now();
        let away = stores.health(Duration::from_secs(3)).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert!(!away.is_ready() && away.is_live(), "{away:?}");
        for contract in &away.contracts {
            let error = contract.error.as_ref().unwrap();
            assert!(matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
        }
        let password = url[..after].rsplit(':').next().unwrap().trim_end_matches('@');
        assert!(!serde_json::to_string(&away).unwrap().contains(password));
        let closes = place.name() == "postgres";
        place.close().await;
        assert_eq!(stores.is_live(), !closes, "a closed pool stays closed; Redis reconnects");
    });
}
