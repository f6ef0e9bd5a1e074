//! Servers that accept a connection and never reply, or fall silent later. Every call ends within the URL's
//! time limit, with an error that says what to do. The same stores work again when the server replies again.

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder::{Backend, Stores};
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStoreExt, BucketName, ChatMessage, Entity,
    EntityId, EntityType, Error, ErrorKind, HistoryProviderExt, Key, KeyValueStoreExt, Namespace, Result,
    Thread,
};

use super::relay::Relay;
use super::server::{Server, signal};
use super::{CANARY, host, keeps_the_secret, refused};

const MIB: usize = 1024 * 1024;

/// Asserts that an error about silence names where the address comes from, and how to raise the time limit.
fn is_about_silence(error: &Error, places: &[&str]) {
    // If a connection is lost and no other can be made, the server counts as unreachable.
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
    for place in places {
        assert!(error.message().contains(place), "{place}: {error}");
    }
    keeps_the_secret(error);
}

async fn store(url: &str) -> (Backend, Stores) {
    let place = Backend::open(url).await.unwrap();
    let namespace = Namespace::new(format!("weather-{}", std::process::id())).unwrap();
    let stores = place.stores(&namespace).await;
    (place, stores)
}

/// Returns the error of a call, and asserts that it was in time.
async fn late<T>(most: Duration, call: impl Future<Output = Result<T>>) -> Error {
    let begun = Instant::now();
    let error = call.await.map(drop).expect_err("it works");
    assert!(begun.elapsed() < most, "{:?}: {error}", begun.elapsed());
    keeps_the_secret(&error);
    error
}

/// Returns the URL with the relay's address and further parameters.
fn through(url: &str, relay: &Relay, parameters: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{}{mark}{parameters}", url.replace(host(url), &format!("127.0.0.1:{}", relay.port)))
}

/// With the default settings, within the documented time.
pub(crate) async fn openings_with_usual_settings_end_in_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let url = |scheme: &str, rest: &str| format!("{scheme}://user:{CANARY}@{rest}");
    let opened = [
        (
            url("s3", &format!("bucket?endpoint=http://{at}&region=x")),
            ["`endpoint=`", "`response_timeout_ms=`"],
        ),
        (url("postgres", &format!("{at}/x")), ["host, port", "`acquire_timeout_ms`"]),
        (url("age", &format!("{at}/x")), ["host, port", "`acquire_timeout_ms`"]),
        (url("redis", &format!("{at}/0")), ["host, port", "`connect_timeout_ms`"]),
        (url("redis+cluster", &format!("{at},{at}")), ["host, port", "`connect_timeout_ms`"]),
    ];
    futures_util::future::join_all(opened.map(async |(url, places)| {
        let begun = Instant::now();
        let error = refused(&url).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {error}", begun.elapsed());
        is_about_silence(&error, &places);
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }))
    .await;
}

pub(crate) async fn s3_that_falls_silent(variable: &'static str) {
    let url = std::env::var(variable).unwrap();
    let endpoint = url.split("endpoint=http://").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let relay = Relay::to(endpoint.clone()).await;
    let url = url.replace(&endpoint, &format!("127.0.0.1:{}", relay.port));
    let (_place, stores) = store(&format!("{url}&response_timeout_ms=5000&stall_timeout_ms=4000")).await;
    let blobs = stores.set().blobs().unwrap();
    let (key, large) = (BlobKey::new("small").unwrap(), BlobKey::new("large").unwrap());
    let bytes = Bytes::from(vec![7; 40 * MIB]);
    blobs.put_bytes(&key, "kept".into()).await.unwrap();
    blobs.put_bytes(&large, bytes.clone()).await.unwrap();

    relay.fall_silent();
    let most = Duration::from_secs(25);
    let errors = tokio::join!(
        late(most, blobs.head(&key)),
        late(most, blobs.get_bytes(&key)),
        late(most, blobs.put_bytes(&key, "other".into())),
        late(most, blobs.delete(&key)),
        late(most, blobs.copy(&key, &large)),
        late(most, async { blobs.list("", None).await?.try_collect::<Vec<_>>().await }),
        late(most, stores.erase()),
    );
    for error in <[Error; 7]>::from(errors) {
        is_about_silence(&error, &["_timeout_ms=`"]);
    }
    relay.speak();
    assert!(matches!(&*blobs.get_bytes(&key).await.unwrap(), b"kept" | b"other"));

    // In the middle of a read.
    let mut read = blobs.get(&large, BlobGetOptions::default()).await.unwrap().bytes;
    let first = read.next().await.unwrap().unwrap();
    relay.fall_silent_after_replies(MIB.try_into().unwrap());
    let rest = late(Duration::from_secs(12), read.try_collect::<Vec<_>>()).await;
    is_about_silence(&rest, &["`stall_timeout_ms=`"]);
    assert!(!first.is_empty());
    relay.speak();

    // In the middle of a multipart write. Data in the machine's buffers counts as in flight.
    relay.fall_silent_after_requests((12 * MIB).try_into().unwrap());
    let parts: Vec<_> = bytes.chunks(MIB).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    let body = BlobBody::stream(futures_util::stream::iter(parts));
    let error = late(Duration::from_secs(25), blobs.put(&large, body, BlobPutOptions::default())).await;
    is_about_silence(&error, &["_timeout_ms=`"]);
    relay.speak();
    assert!(blobs.get_bytes(&large).await.unwrap() == bytes);
    stores.erase().await.unwrap();
}

/// Two calls are always in flight, because a single call may use an unaffected connection.
async fn history_that_falls_silent(url: &str, relay: &Relay, most: Duration, places: &[&str]) {
    let (place, stores) = store(url).await;
    let history = stores.set().history().unwrap();
    let (values, bucket, key) =
        (stores.set().key_value().unwrap(), BucketName::new("b").unwrap(), Key::new("k").unwrap());
    let (thread, message) = (Thread::new("a", "s").unwrap(), || ChatMessage::user("Hello"));
    let two =
        || futures_util::future::join(history.append(&thread, message()), history.tail(&thread, None, 9));
    let (appended, read) = two().await;
    appended.unwrap();
    read.unwrap();

    relay.fall_silent();
    let silent = tokio::join!(
        late(most, history.append(&thread, message())),
        late(most, history.tail(&thread, None, 9)),
        late(most, values.set(&bucket, &key, "v".into())),
    );
    for error in <[Error; 3]>::from(silent) {
        is_about_silence(&error, places);
    }
    relay.speak();
    let (appended, read) = two().await;
    appended.unwrap();
    read.unwrap();

    // Simulates a router that forgot the connections. Only the calls that use them fail, and they end in
    // time.
    relay.fall_silent();
    relay.speak_to_new_connections();
    let (appended, read) = tokio::time::timeout(most, two()).await.unwrap();
    for error in [appended.err(), read.err()].into_iter().flatten() {
        is_about_silence(&error, places);
    }
    let begun = Instant::now();
    let (appended, read) = two().await;
    appended.unwrap();
    read.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    stores.erase().await.unwrap();
    place.close().await;
}

pub(crate) async fn postgres_that_falls_silent() {
    let url = std::env::var(super::POSTGRES).unwrap();
    let relay = Relay::to(host(&url).to_owned()).await;
    let url = through(&url, &relay, "acquire_timeout_ms=3000&statement_timeout_ms=3000&pool_size=4");
    // The client waits five seconds longer than the server would.
    let places = ["check ", "_timeout_ms`"];
    history_that_falls_silent(&url, &relay, Duration::from_secs(14), &places).await;
}

pub(crate) async fn redis_that_falls_silent() {
    let url = std::env::var(super::REDIS).unwrap();
    let relay = Relay::to(host(&url).to_owned()).await;
    let url = through(&url, &relay, "connect_timeout_ms=2000&response_timeout_ms=2000");
    let places = ["host, port", "`response_timeout_ms`"];
    history_that_falls_silent(&url, &relay, Duration::from_secs(10), &places).await;
}

/// The servers of a cluster announce their own addresses, so the test stops the servers instead of using a
/// relay.
pub(crate) async fn a_cluster_that_falls_silent() {
    let cluster = tokio::task::spawn_blocking(|| Server::start("redis-cluster", "LARDER_REDIS_CLUSTER_PORT"));
    let cluster = cluster.await.unwrap();
    let url = format!("{}?connect_timeout_ms=2000&response_timeout_ms=2000", cluster.url());
    let (_place, stores) = store(&url).await;
    let history = stores.set().history().unwrap();
    let threads: Vec<Thread> = (0..6).map(|n| Thread::new("a", format!("s{n}")).unwrap()).collect();
    for thread in &threads {
        history.append(thread, ChatMessage::user("Hello")).await.unwrap();
    }
    let processes = cluster.processes().await;
    assert_eq!(processes.len(), 3);
    processes.iter().for_each(|process| signal("STOP", *process));
    let calls = threads.iter().map(|thread| {
        let history = &history;
        async move {
            let most = Duration::from_secs(24);
            is_about_silence(&late(most, history.tail(thread, None, 9)).await, &["check "]);
            is_about_silence(&late(most, history.append(thread, ChatMessage::user("x"))).await, &["check "]);
        }
    });
    futures_util::future::join_all(calls).await;
    let error = refused(&url).await;
    is_about_silence(&error, &["host, port", "`connect_timeout_ms`"]);
    processes.iter().for_each(|process| signal("CONT", *process));
    let begun = Instant::now();
    while let Err(error) = history.tail(&threads[0], None, 9).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for thread in &threads {
        history.append(thread, ChatMessage::user("again")).await.unwrap();
    }
}

pub(crate) async fn age_that_falls_silent() {
    let url = std::env::var(super::AGE).unwrap();
    let relay = Relay::to(host(&url).to_owned()).await;
    let url = through(&url, &relay, "acquire_timeout_ms=3000&statement_timeout_ms=3000&pool_size=4");
    let (place, stores) = store(&url).await;
    let graph = stores.set().graph().unwrap();
    let entity = || Entity::new(EntityId::new("e").unwrap(), EntityType::new("t").unwrap());
    graph.upsert_entities(vec![entity()]).await.unwrap();

    relay.fall_silent();
    let (most, ids) = (Duration::from_secs(14), [EntityId::new("e").unwrap()]);
    let silent = tokio::join!(
        late(most, graph.upsert_entities(vec![entity()])),
        late(most, graph.get_entities(&ids)),
        late(most, graph.count()),
    );
    for error in <[Error; 3]>::from(silent) {
        is_about_silence(&error, &["check ", "_timeout_ms`"]);
    }
    relay.speak();
    assert_eq!(graph.count().await.unwrap().entities, 1);
    stores.erase().await.unwrap();
    place.close().await;
}
