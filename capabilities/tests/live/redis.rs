//! The Redis backend against the live server that `LARDER_REDIS_URL` names, and the live cluster that
//! `LARDER_REDIS_CLUSTER_URL` names. Without them the tests are ignored; with `LARDER_SERVICES=required` they
//! fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod emptied;
mod expiry;
mod format;
mod prefix;
pub(crate) mod sentinel;
mod subscriptions;
mod verify;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use larder_capabilities::redis::{Redis, RedisConfig, RedisKeyValueStore};
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyValueStore, KeyValueStoreExt, Namespace, Outcome, PageRequest,
    Revision, Store,
};
use libtest_mimic::{Arguments, Trial};
use tokio::io::AsyncWriteExt;

use crate::trial::{plain_redis, trial, url};

const SERVER: &str = "LARDER_REDIS_URL";
const CLUSTER: &str = "LARDER_REDIS_CLUSTER_URL";

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        trial("a_wrong_password_is_a_typed_error_that_hides_it", SERVER, a_wrong_password),
        trial("a_server_without_tls_is_a_typed_error", SERVER, a_server_without_tls),
        trial("what_cannot_be_reached_is_a_typed_error", SERVER, what_cannot_be_reached),
        trial("one_server_is_not_a_cluster", SERVER, one_server_is_not_a_cluster),
        trial("a_dropped_future_leaves_the_store_usable", SERVER, a_dropped_future),
        trial("a_connection_that_the_server_closed_is_made_anew", SERVER, a_closed_connection),
        trial("an_answer_never_reaches_another_call", SERVER, a_response_of_another_call),
        trial("many_callers_take_few_connections", SERVER, many_callers),
        trial("a_server_without_another_connection_is_shared", SERVER, a_full_server),
        trial("stores_outlive_the_runtime_of_their_first_call", SERVER, another_runtime),
        trial("scripts_that_the_server_forgot_are_sent_again", SERVER, forgotten_scripts),
        trial("a_key_that_holds_something_else_is_left_alone", SERVER, a_key_of_somebody_else),
        trial("writers_during_an_erasure_leave_nothing_unlisted", SERVER, writers_during_an_erasure),
        trial("values_that_all_expire_are_freed", SERVER, expiry::values_that_all_expire_are_freed),
        trial(
            "a_bucket_whose_values_were_freed_is_an_empty_one",
            SERVER,
            expiry::a_bucket_whose_values_were_freed_is_an_empty_one,
        ),
        trial(
            "a_listing_passes_by_many_that_have_expired",
            SERVER,
            expiry::a_listing_passes_by_many_that_have_expired,
        ),
        trial(
            "data_of_a_newer_program_is_not_changed",
            SERVER,
            format::data_of_a_newer_program_is_not_changed,
        ),
        trial(
            "an_earlier_program_does_not_write_to_a_thread_with_a_fence_or_an_update",
            SERVER,
            format::an_earlier_program_does_not_write_to_a_thread_with_a_fence_or_an_update,
        ),
        trial(
            "data_of_a_newer_program_in_a_cluster_is_not_changed",
            CLUSTER,
            format::data_of_a_newer_program_in_a_cluster_is_not_changed,
        ),
        trial(
            "a_running_program_does_not_write_after_an_upgrade",
            SERVER,
            format::a_running_program_does_not_write_after_an_upgrade,
        ),
        trial("readers_from_before_lost_keys_are_refused", SERVER, emptied::readers_from_before_lost_keys),
        trial("data_without_a_generation_gets_one_with_the_next_write", SERVER, emptied::data_without_one),
        trial(
            "idle_subscriptions_cost_a_few_requests_a_second",
            SERVER,
            subscriptions::idle_subscriptions_cost_a_few_requests_a_second,
        ),
        trial(
            "each_planted_corruption_is_found_by_name_and_changes_nothing",
            SERVER,
            verify::each_planted_corruption_is_found_by_name_and_changes_nothing,
        ),
        trial(
            "a_verification_during_writes_finds_nothing",
            SERVER,
            verify::a_verification_during_writes_finds_nothing,
        ),
    ];
    trials.extend(prefix::trials());
    // The slowest test is one of these, so they begin first.
    trials.splice(..0, trials_of_the_cluster());
    crate::groups::run("redis", arguments, trials)
}

fn trials_of_the_cluster() -> Vec<Trial> {
    vec![
        trial(
            "corruptions_in_a_cluster_are_found_by_name",
            CLUSTER,
            verify::corruptions_in_a_cluster_are_found_by_name,
        ),
        trial(
            "readers_from_before_lost_keys_of_a_cluster_are_refused",
            CLUSTER,
            emptied::readers_from_before_lost_keys_of_a_cluster,
        ),
        trial("a_cluster_is_not_a_single_server", CLUSTER, a_cluster_is_not_a_single_server),
        trial("writers_during_an_erasure_in_a_cluster", CLUSTER, writers_during_an_erasure_in_a_cluster),
    ]
}

/// Returns the servers of a URL, without scheme, user and path.
fn hosts(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    let rest = rest.split(['/', '?']).next().unwrap();
    rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts).to_owned()
}

async fn refused(url: &str) -> Error {
    let error = Redis::open(RedisConfig::from_url(url).unwrap()).await.err().unwrap();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    error
}

async fn open(variable: &str) -> Redis {
    Redis::open(RedisConfig::from_url(&url(variable)).unwrap()).await.unwrap()
}

/// Returns a namespace that no other run uses.
fn namespace(name: &str) -> Namespace {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    Namespace::new(format!("test-{name}-{now}")).unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn plain_connection() -> redis::aio::MultiplexedConnection {
    plain_redis(&url(SERVER)).await
}

async fn a_wrong_password() {
    let url = format!("redis://canary-user:canary-password@{}", hosts(&url(SERVER)));
    let config = RedisConfig::from_url(&url).unwrap();
    let mut shown = format!("{config:?}");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    shown.push_str(&format!("{error} {error:?}"));
    let mut source = error.source();
    while let Some(cause) = source {
        shown.push_str(&format!("{cause} {cause:?}"));
        source = cause.source();
    }
    assert!(!shown.contains("canary"), "{shown}");
    let redis = open(SERVER).await;
    let store = redis.key_value(Namespace::new("canary-namespace").unwrap());
    let shown = format!("{redis:?} {store:?}");
    assert!(!shown.contains("canary"), "{shown}");
}

async fn a_server_without_tls() {
    let url = format!("rediss://:canary@{}?connect_timeout_ms=3000", hosts(&url(SERVER)));
    let error = refused(&url).await;
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
}

async fn what_cannot_be_reached() {
    for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1,127.0.0.1:2", "rediss://127.0.0.1:1"] {
        assert_eq!(refused(url).await.kind(), ErrorKind::Unavailable, "{url}");
    }
}

async fn one_server_is_not_a_cluster() {
    let error = refused(&url(SERVER).replacen("redis://", "redis+cluster://", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("`redis://`"), "{error}");
}

async fn a_cluster_is_not_a_single_server() {
    let all = url(CLUSTER);
    let (first, _) = all.split_once(',').unwrap();
    let error = refused(&first.replacen("redis+cluster://", "redis://", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("`redis+cluster://`"), "{error}");
}

async fn a_dropped_future() {
    let store = open(SERVER).await.key_value(namespace("dropped"));
    let big = Bytes::from(vec![7; 1 << 20]);
    for round in 0..50 {
        let (bucket, key) = (bucket(), key(&format!("key-{round}")));
        let mut put = Box::pin(store.set(&bucket, &key, big.clone()));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..round % 7 {
            if put.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(put);
        if let Some(entry) = store.get(&bucket, &key).await.unwrap() {
            assert_eq!(entry.value, big);
        }
    }
    store.set(&bucket(), &key("after"), Bytes::new()).await.unwrap();
    store.erase().await.unwrap();
}

/// A proxy to the server that can drop its connections.
struct Proxy {
    port: u16,
    cut: tokio::sync::watch::Sender<u32>,
    /// The number of connections so far.
    made: Arc<AtomicUsize>,
    /// If set, the proxy refuses new connections, as a server at its connection limit does.
    full: Arc<AtomicBool>,
}

impl Proxy {
    async fn to(server: String) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, cuts) = tokio::sync::watch::channel(0);
        let (made, full) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, refuse) = (Arc::clone(&made), Arc::clone(&full));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                if refuse.load(Ordering::Relaxed) {
                    let _ = near.write_all(b"-ERR max number of clients reached\r\n").await;
                    continue;
                }
                let (server, mut cuts) = (server.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(server).await.unwrap();
                    let copying = tokio::io::copy_bidirectional(&mut near, &mut far);
                    let cut = std::pin::pin!(cuts.changed());
                    let _ = futures_util::future::select(std::pin::pin!(copying), cut).await;
                });
            }
        });
        Self { port, cut, made, full }
    }

    /// Drops every open connection.
    fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn a_closed_connection() {
    let direct = url(SERVER);
    let proxy = Proxy::to(hosts(&direct)).await;
    let through = direct.replacen(&hosts(&direct), &format!("127.0.0.1:{}", proxy.port), 1);
    let redis = Redis::open(RedisConfig::from_url(&through).unwrap()).await.unwrap();
    let store = redis.key_value(namespace("closed"));
    store.set(&bucket(), &key("a"), Bytes::from_static(b"1")).await.unwrap();
    let mut events = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    for round in 0..5 {
        proxy.cut();
        tokio::time::sleep(Duration::from_millis(100)).await;
        store.set(&bucket(), &key("a"), Bytes::from(vec![round])).await.unwrap();
    }
    let mut last = 0;
    while last < 6 {
        let event = futures_util::StreamExt::next(&mut events);
        let event = tokio::time::timeout(Duration::from_secs(10), event).await.unwrap().unwrap().unwrap();
        last = event.revision.get();
    }
    store.erase().await.unwrap();
}

/// Opens the store through a proxy, so that the server lists these connections only.
async fn through_a_proxy(name: &str) -> (Proxy, Arc<RedisKeyValueStore>) {
    let direct = url(SERVER);
    let proxy = Proxy::to(hosts(&direct)).await;
    let through = direct.replacen(&hosts(&direct), &format!("127.0.0.1:{}", proxy.port), 1);
    let redis = Redis::open(RedisConfig::from_url(&through).unwrap()).await.unwrap();
    (proxy, Arc::new(redis.key_value(namespace(name))))
}

async fn a_response_of_another_call() {
    let store = open(SERVER).await.key_value(namespace("answers"));
    let value = |number: u32| Bytes::from(vec![u8::try_from(number).unwrap(); 200_000]);
    for number in 0..8 {
        store.set(&bucket(), &key(&format!("key-{number}")), value(number)).await.unwrap();
    }
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..200_u32 {
        let (dropped, read) = (key(&format!("key-{}", round % 8)), key(&format!("key-{}", (round + 1) % 8)));
        let bucket = bucket();
        let mut get = Box::pin(store.get(&bucket, &dropped));
        for _ in 0..=round % 5 {
            if get.as_mut().poll(&mut context).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(u64::from(round % 3) * 100)).await;
        }
        drop(get);
        assert_eq!(
            store.get(&bucket, &read).await.unwrap().unwrap().value,
            value((round + 1) % 8),
            "{round}"
        );
    }
    store.erase().await.unwrap();
}

async fn many_callers() {
    let (proxy, store) = through_a_proxy("callers").await;
    let callers = (0..64).map(|caller| {
        let (store, bucket) = (store.clone(), bucket());
        tokio::spawn(async move {
            let key = key(&format!("key-{caller}"));
            for round in 0..20 {
                let value = Bytes::from(format!("{caller} {round}"));
                store.set(&bucket, &key, value.clone()).await.unwrap();
                assert_eq!(store.get(&bucket, &key).await.unwrap().unwrap().value, value);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    // One shared connection, and four that serve one call each.
    let made = proxy.made.load(Ordering::Relaxed);
    assert!((2..=5).contains(&made), "{made}");
    store.erase().await.unwrap();
}

/// If the server accepts no more connections, calls share the existing one.
async fn a_full_server() {
    let (proxy, store) = through_a_proxy("full").await;
    proxy.full.store(true, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    for round in 0..20 {
        store.set(&bucket(), &key("a"), Bytes::from(vec![round])).await.unwrap();
    }
    // The store tries another connection at most once per second.
    let most = 2 + usize::try_from(begun.elapsed().as_secs()).unwrap();
    let made = proxy.made.load(Ordering::Relaxed);
    assert!((2..=most).contains(&made), "{made}");
    proxy.full.store(false, Ordering::Relaxed);
    store.erase().await.unwrap();
}

/// A runtime that has ended wakes no task, so the store does not wait for its connections.
async fn another_runtime() {
    let store = Arc::new(open(SERVER).await.key_value(namespace("runtimes")));
    store.set(&bucket(), &key("a"), Bytes::from_static(b"1")).await.unwrap();
    for round in 0..6 {
        let store = store.clone();
        let once = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(store.set(&bucket(), &key("a"), Bytes::from(vec![round]))).unwrap();
        };
        let begun = std::time::Instant::now();
        tokio::task::spawn_blocking(once).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
    assert_eq!(store.get(&bucket(), &key("a")).await.unwrap().unwrap().value, Bytes::from_static(&[5]));
    store.erase().await.unwrap();
}

async fn forgotten_scripts() {
    let store = open(SERVER).await.key_value(namespace("scripts"));
    let mut plain = plain_connection().await;
    for _ in 0..3 {
        store.set(&bucket(), &key("a"), Bytes::new()).await.unwrap();
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut plain).await.unwrap();
    }
    let entry = store.get(&bucket(), &key("a")).await.unwrap().unwrap();
    assert_eq!(entry.revision, Revision::new(3));
    store.erase().await.unwrap();
}

async fn a_key_of_somebody_else() {
    let namespace = namespace("foreign");
    let store = open(SERVER).await.key_value(namespace.clone());
    store.set(&bucket(), &key("a"), Bytes::from_static(b"1")).await.unwrap();
    let mut plain = plain_connection().await;
    for part in ["values", "names", "revisions", "expiries", "deleted", "expired"] {
        let name = format!("larder:{{kv:{}:foreign}}:{part}", namespace.as_str());
        let () = redis::cmd("SET").arg(&name).arg("other").query_async(&mut plain).await.unwrap();
        let foreign = BucketName::new("foreign").unwrap();
        let error = store.set(&foreign, &key("a"), Bytes::new()).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Corrupt, Outcome::NotApplied), "{part}");
        let meta = format!("larder:{{kv:{}:foreign}}:meta", namespace.as_str());
        let made: bool = redis::cmd("EXISTS").arg(meta).query_async(&mut plain).await.unwrap();
        assert!(!made, "{part}");
        let () = redis::cmd("DEL").arg(&name).query_async(&mut plain).await.unwrap();
    }
    store.erase().await.unwrap();
}

async fn writers_during_an_erasure() {
    writers_and_erasures(SERVER).await;
}

async fn writers_during_an_erasure_in_a_cluster() {
    writers_and_erasures(CLUSTER).await;
}

/// Runs concurrent writers and erasures. The last erasure removes everything that was ever written. The
/// server's keys prove it for one server, and the listing for both.
async fn writers_and_erasures(variable: &str) {
    let namespace = namespace("erasure");
    let redis = open(variable).await;
    let writers = (0..4).map(|writer| {
        let store = redis.key_value(namespace.clone());
        tokio::spawn(async move {
            for round in 0..100 {
                let bucket = BucketName::new(format!("bucket-{}", (round + writer) % 5)).unwrap();
                store.set(&bucket, &key("a"), Bytes::new()).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let store = redis.key_value(namespace.clone());
    for _ in 0..20 {
        store.erase().await.unwrap();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for number in 0..5 {
        let bucket = BucketName::new(format!("bucket-{number}")).unwrap();
        let there = store.get(&bucket, &key("a")).await.unwrap().is_some();
        let listed = store.list_buckets(PageRequest::default()).await.unwrap();
        assert_eq!(listed.items.iter().any(|info| info.bucket == bucket), there, "bucket {number}");
    }
    store.erase().await.unwrap();
    assert!(store.list_buckets(PageRequest::default()).await.unwrap().items.is_empty());
    if variable == SERVER {
        let pattern = format!("larder:*{}*", namespace.as_str());
        let mut plain = plain_connection().await;
        let left: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut plain).await.unwrap();
        let left: Vec<_> =
            left.iter().filter(|key| !key.ends_with(":erased") && !key.ends_with(":epoch")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
