//! Verification of a server: planted corruptions, each found by name.

use larder_capabilities::redis::RedisDriver;
use larder_capabilities::verify::FaultKind::{self, Counter, Foreign, Format, Index, Record, Reference};
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Thread};

use super::*;
use crate::filled::{Planted, assert_found, fill, found};

/// Commands with `T`, `B` and `C` for the keys of a thread, a bucket and a conversation.
const PLANTED: &[Planted<&str>] = &[
    ("HSET T:head n 7", Counter, "thread n a/s"),
    ("HSET T:head b 1", Counter, "thread n a/s"),
    ("HSET T:head s 1", Counter, "thread n a/s"),
    ("HSET T:head c 99", Counter, "thread n a/s"),
    ("HSET T:head f 77", Format, "thread n a/s"),
    ("HSET T:head x -1", Record, "thread n a/s"),
    ("HSET T:head x 007", Record, "thread n a/s"),
    ("DEL T:head", Reference, "thread n a/s"),
    ("HDEL T:head i", Index, "thread n a/s"),
    ("ZADD T:messages 9 odd", Record, "message 9 of the thread n a/s"),
    ("ZREMRANGEBYSCORE T:messages 2 2", Counter, "thread n a/s"),
    ("ZREMRANGEBYRANK T:runs 0 0", Index, "index of the runs of the thread n a/s"),
    ("ZADD T:events 2 odd", Record, "event 2 of the thread n a/s"),
    ("ZADD T:replacements 1 1", Index, "index of the replacements of the thread n a/s"),
    ("SET T:replacements x", Record, "key larder:{thread:n:a:s}:replacements"),
    ("PEXPIRE T:messages 60000", Index, "key larder:{thread:n:a:s}:messages"),
    ("SET T:poem x", Foreign, "key larder:{thread:n:a:s}:poem"),
    ("ZREM larder:{threads:n}:listed A", Index, "thread n a/s"),
    ("HDEL larder:{threads:n}:tokens A", Index, "a/s in the index of the threads of n"),
    ("HSET B:meta revision 1", Counter, "key k2 of the bucket n b"),
    ("HSET B:meta format 77", Format, "bucket n b"),
    ("HDEL B:values k1", Reference, "key k1 of the bucket n b"),
    ("ZREM B:names k1", Reference, "key k1 of the bucket n b"),
    ("ZREM B:revisions k1", Index, "key k1 of the bucket n b"),
    ("ZADD B:expiries 5 none", Index, "key none of the bucket n b"),
    ("ZADD B:deleted 3 k1", Record, "key k1 of the bucket n b"),
    ("ZADD B:revisions 2 k1", Record, "of the bucket n b"),
    ("PERSIST larder:{kv:n:all}:values", Index, "bucket n all"),
    ("ZREM larder:{index:kv:n}:names b", Index, "bucket n b"),
    ("HDEL larder:{index:tasks:n}:epochs conv", Index, "conv in the index tasks of n"),
    ("HSET C:board:a position 1", Counter, "board of a in the conversation n conv"),
    ("HSET C:board:a token 0", Counter, "board of a in the conversation n conv"),
    ("HSET C:state:a t2 odd", Record, "task t2 on the board of a in the conversation n conv"),
    ("HDEL C:tasks:a t2", Reference, "task t2 on the board of a in the conversation n conv"),
    ("HSET C:results:a none x", Reference, "task none on the board of a in the conversation n conv"),
    ("ZADD C:order:a 1 t3", Index, "task t3 on the board of a in the conversation n conv"),
    ("ZREM C:leases:a t1", Index, "task t1 on the board of a in the conversation n conv"),
    ("ZREM C:boards a", Reference, "key larder:{tasks:n:conv}:board:a"),
    ("SET larder:{poem:n}:x 1", Foreign, "key larder:{poem:n}"),
    ("SET larder:{kv:n:%6b}:meta 1", Foreign, "key larder:{kv:n:%6b}"),
];

/// A database of the server that no other test uses.
const DATABASE: u32 = 9;

/// Returns the URL of the database.
fn separate() -> String {
    let url = url(SERVER);
    let (scheme, rest) = url.split_once("://").unwrap();
    let (place, parameters) = rest.split_once('?').map_or((rest, None), |(place, more)| (place, Some(more)));
    let place = place.split('/').next().unwrap();
    let more = parameters.map(|more| format!("?{more}")).unwrap_or_default();
    format!("{scheme}://{place}/{DATABASE}{more}")
}

/// Returns every key with its serialized value and its expiry.
async fn everything(connection: &mut redis::aio::MultiplexedConnection) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(connection).await.unwrap();
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(connection).await.unwrap();
        let ends: i64 = redis::cmd("PEXPIRETIME").arg(&key).query_async(connection).await.unwrap();
        all.push((key, value, ends));
    }
    all
}

/// Returns the command of a corruption, for the keys of a namespace.
fn command(planted: &str, namespace: &str) -> redis::Cmd {
    let mut words = planted.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        let word = match word.split_once(':') {
            Some(("T", part)) => format!("larder:{{thread:{namespace}:a:s}}:{part}"),
            Some(("B", part)) => format!("larder:{{kv:{namespace}:b}}:{part}"),
            Some(("C", part)) => format!("larder:{{tasks:{namespace}:conv}}:{part}"),
            _ if word == "A" => "a\0s".to_owned(),
            _ => word.replace(":n}", &format!(":{namespace}}}")).replace(":n:", &format!(":{namespace}:")),
        };
        command.arg(word);
    }
    command
}

pub(crate) async fn each_planted_corruption_is_found_by_name_and_changes_nothing() {
    let url = separate();
    let mut connection = plain_redis(&url).await;
    let empty = redis::cmd("FLUSHDB");
    for (planted, kind, place) in [("PING", Foreign, "")].iter().chain(PLANTED) {
        empty.query_async::<()>(&mut connection).await.unwrap();
        fill(&RedisDriver, &url, "n").await;
        if *planted == "PING" {
            let verified = found(&RedisDriver, &url).await;
            assert_eq!(verified.faults, []);
            assert!(verified.records >= 20, "{}", verified.records);
            continue;
        }
        command(planted, "n").query_async::<redis::Value>(&mut connection).await.unwrap();
        let before = everything(&mut connection).await;
        assert_found(&found(&RedisDriver, &url).await, *kind, place, planted);
        assert!(everything(&mut connection).await == before, "{planted}");
    }
    empty.query_async::<()>(&mut connection).await.unwrap();
}

/// Other tests of the cluster plant data of other formats, so only this test's namespace counts.
pub(crate) async fn corruptions_in_a_cluster_are_found_by_name() {
    let (url, namespace) = (url(CLUSTER), namespace("verify"));
    fill(&RedisDriver, &url, namespace.as_str()).await;
    let of_mine = |place: &str| place.contains(namespace.as_str());
    let faults = found(&RedisDriver, &url).await.faults;
    assert_eq!(faults.iter().filter(|fault| of_mine(&fault.place)).count(), 0, "{faults:#?}");
    let nodes: Vec<String> = hosts(&url).split(',').map(str::to_owned).collect();
    let user = url.split_once("://").unwrap().1.rsplit_once('@').map(|(user, _)| user);
    let nodes = nodes.iter().map(|node| match user {
        Some(user) => format!("redis://{user}@{node}"),
        None => format!("redis://{node}"),
    });
    let cluster = redis::cluster::ClusterClient::new(nodes.collect::<Vec<_>>()).unwrap();
    let mut connection = cluster.get_async_connection().await.unwrap();
    let planted: [(&str, FaultKind); 3] =
        [("HSET T:head n 7", Counter), ("HDEL B:values k1", Reference), ("ZREM C:leases:a t1", Index)];
    for (planted, _) in planted {
        let command = command(planted, namespace.as_str());
        command.query_async::<redis::Value>(&mut connection).await.unwrap();
    }
    let verified = found(&RedisDriver, &url).await;
    for (planted, kind) in planted {
        assert_found(&verified, kind, namespace.as_str(), planted);
    }
    open(CLUSTER).await.history(namespace.clone()).erase().await.unwrap();
}

pub(crate) async fn a_verification_during_writes_finds_nothing() {
    let namespace = namespace("verify-writers");
    fill(&RedisDriver, &url(SERVER), namespace.as_str()).await;
    let redis = open(SERVER).await;
    let (history, thread) = (redis.history(namespace.clone()), Thread::new("a", "s").unwrap());
    let writing = tokio::spawn(async move {
        for number in 0..500 {
            history.append(&thread, ChatMessage::user("more")).await.unwrap();
            if number % 50 == 49 {
                history.clear(&thread, None).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    while !writing.is_finished() {
        let faults = found(&RedisDriver, &url(SERVER)).await.faults;
        let mine: Vec<_> = faults.iter().filter(|fault| fault.place.contains(namespace.as_str())).collect();
        assert!(mine.is_empty(), "{mine:#?}");
    }
    writing.await.unwrap();
}
