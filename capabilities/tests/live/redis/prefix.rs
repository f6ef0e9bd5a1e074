//! Several key prefixes in one database, and users whose ACL allows only one of them.
#![allow(clippy::large_futures)]

use futures_util::StreamExt;
use larder_capabilities::diagnose::{CheckStatus, Findings};
use larder_capabilities::driver::{BackendUrl, Driver};
use larder_capabilities::redis::RedisDriver;
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Seq, Thread};

use super::*;
use crate::filled::{fill, found};

pub(super) fn trials() -> [Trial; 2] {
    [
        trial(
            "two_prefixes_in_one_database_never_see_each_other",
            SERVER,
            two_prefixes_in_one_database_never_see_each_other,
        ),
        trial("a_user_of_one_prefix_uses_every_store", SERVER, a_user_of_one_prefix_uses_every_store),
    ]
}

/// Returns a prefix that no other run uses.
fn prefix(name: &str) -> String {
    format!("{}:", namespace(name).as_str())
}

/// Returns the URL of the server with a key prefix.
fn with_prefix(url: &str, prefix: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}key_prefix={prefix}")
}

async fn opened(url: &str) -> Redis {
    Redis::open(RedisConfig::from_url(url).unwrap()).await.unwrap()
}

/// Returns every key with the prefix and its serialized value.
async fn everything(prefix: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut plain = plain_connection().await;
    let mut keys: Vec<Vec<u8>> =
        redis::cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut plain).await.unwrap();
    keys.sort();
    let mut all = Vec::new();
    for key in keys {
        let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query_async(&mut plain).await.unwrap();
        all.push((key, value));
    }
    all
}

async fn remove(prefix: &str) {
    let mut plain = plain_connection().await;
    for (key, _) in everything(prefix).await {
        let () = redis::cmd("DEL").arg(key).query_async(&mut plain).await.unwrap();
    }
}

async fn two_prefixes_in_one_database_never_see_each_other() {
    let (server, one, two) = (url(SERVER), prefix("one"), prefix("two"));
    let (url_of_one, url_of_two) = (with_prefix(&server, &one), with_prefix(&server, &two));
    for url in [&url_of_one, &url_of_two] {
        fill(&RedisDriver, url, "n").await;
    }
    let records = found(&RedisDriver, &url_of_two).await.records;
    let (before, name) = (everything(&two).await, Namespace::new("n").unwrap());
    assert!(before.len() > 10, "{} keys", before.len());

    // A fault of one is not found in the other.
    let mut plain = plain_connection().await;
    let head = format!("{one}{{thread:n:a:s}}:head");
    let () = redis::cmd("HSET").arg(head).arg("n").arg(7).query_async(&mut plain).await.unwrap();
    assert_ne!(found(&RedisDriver, &url_of_one).await.faults, []);
    let verified = found(&RedisDriver, &url_of_two).await;
    assert_eq!((verified.faults, verified.records), (Vec::new(), records));

    // New generations are drawn for one only.
    let location = |url: &str| RedisDriver.read(&BackendUrl::parse(url).unwrap()).unwrap();
    assert!(location(&url_of_one).renew_generations().await.unwrap() > 2);
    assert!(everything(&two).await == before);

    // An erasure under one prefix leaves the data of the other.
    let redis = opened(&url_of_one).await;
    redis.history(name.clone()).erase().await.unwrap();
    redis.key_value(name.clone()).erase().await.unwrap();
    redis.tasks(name.clone()).erase().await.unwrap();
    let thread = Thread::new("a", "s").unwrap();
    assert_eq!(redis.history(name.clone()).tail(&thread, None, 9).await.unwrap().messages, []);
    assert!(everything(&two).await == before);
    let other = opened(&url_of_two).await;
    assert_ne!(other.history(name).tail(&thread, None, 9).await.unwrap().messages, []);
    remove(&one).await;
    remove(&two).await;
}

async fn a_user_of_one_prefix_uses_every_store() {
    let (server, own) = (url(SERVER), prefix("acl"));
    let user = format!("larder-prefix-{}", std::process::id());
    let mut plain = plain_connection().await;
    let mut rules = redis::cmd("ACL");
    rules.arg("SETUSER").arg(&user).arg("reset").arg("on").arg(">canary").arg(format!("~{own}*"));
    rules.arg("resetchannels").arg(format!("&{own}*")).arg(&["+@all", "-@admin", "+info", "+config|get"]);
    let () = rules.query_async(&mut plain).await.unwrap();
    let plain_url = format!("redis://{user}:canary@{}/0", hosts(&server));
    let own_url = with_prefix(&plain_url, &own);

    fill(&RedisDriver, &own_url, "n").await;
    let verified = found(&RedisDriver, &own_url).await;
    assert_eq!(verified.faults, []);
    assert!(verified.records >= 20, "{}", verified.records);

    // The subscription is on a channel of the prefix, and a change wakes it.
    let (redis, name, thread) =
        (opened(&own_url).await, Namespace::new("m").unwrap(), Thread::new("a", "s").unwrap());
    let history = redis.history(name.clone());
    let first = history.append(&thread, ChatMessage::user("one")).await.unwrap();
    let mut events = history.subscribe(&thread, first).await.unwrap();
    let next = tokio::spawn(async move { events.next().await });
    let channel = format!("{own}{{thread:m:a:s}}:wake");
    let mut listeners = 0_i64;
    for _ in 0..100 {
        let mut ask = redis::cmd("PUBSUB");
        ask.arg("NUMSUB").arg(&channel);
        (_, listeners) = ask.query_async::<(String, i64)>(&mut plain).await.unwrap();
        if listeners > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(listeners, 1);
    history.append(&thread, ChatMessage::user("two")).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(10), next).await.unwrap().unwrap();
    assert!(event.unwrap().is_ok());

    // A program with the usual prefix may do nothing, and the error says what to grant.
    let usual = opened(&plain_url).await.history(name.clone());
    let error = usual.append(&thread, ChatMessage::user("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.message().contains("`key_prefix`"), "{error}");

    // The diagnosis asks for the rights of the prefix.
    for (url, expected) in [(&own_url, CheckStatus::Ok), (&plain_url, CheckStatus::Fail)] {
        let findings = Findings::default();
        RedisDriver.read(&BackendUrl::parse(url).unwrap()).unwrap().diagnose(&findings).await;
        let checks = findings.take();
        let rights = checks.iter().find(|check| check.name == "rights").unwrap();
        assert_eq!(rights.status, expected, "{rights:?}");
    }

    // Erasing needs no other right.
    for name in [name, Namespace::new("n").unwrap()] {
        redis.history(name.clone()).erase().await.unwrap();
        redis.key_value(name.clone()).erase().await.unwrap();
        redis.tasks(name.clone()).erase().await.unwrap();
        assert!(redis.history(name).page_after(&thread, Seq::ZERO, 9).await.unwrap().messages.is_empty());
    }
    let () = redis::cmd("ACL").arg("DELUSER").arg(&user).query_async(&mut plain).await.unwrap();
    remove(&own).await;
}
