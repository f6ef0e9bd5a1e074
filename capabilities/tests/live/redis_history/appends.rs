//! The fast path of an append: its notifications, and its view of other writes.

use std::time::Duration;

use futures_util::StreamExt;
use larder_capabilities::redis::{Redis, RedisConfig};
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Namespace, Seq, Store, Thread, Ttl};

use super::{SERVER, listed, part, plain_connection, store, thread, url};

/// Once, every append was published, which costs time, even without a listener.
pub(crate) async fn announced_where_followed() {
    let (store, namespace) = store(SERVER, "announced").await;
    let client = redis::Client::open(url(SERVER)).unwrap();
    let mut announcements = client.get_async_pubsub().await.unwrap();
    announcements.psubscribe(part(&namespace, "*", "wake")).await.unwrap();
    let mut announcements = announcements.into_on_message();
    let mut heard = async || {
        let mut heard = Vec::new();
        while let Ok(said) = tokio::time::timeout(Duration::from_millis(300), announcements.next()).await {
            heard.push(said.unwrap().get_channel_name().to_owned());
        }
        heard
    };
    let (alone, followed) = (thread("alone"), thread("followed"));
    let say = async |thread: &Thread| store.append(thread, ChatMessage::user("text")).await.unwrap();
    let mut events = store.subscribe(&followed, Seq::ZERO).await.unwrap();
    // The thread does not exist yet; its first append is published nevertheless.
    assert!(tokio::time::timeout(Duration::from_millis(500), events.next()).await.is_err());
    say(&followed).await;
    assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
    say(&alone).await;
    assert!(tokio::time::timeout(Duration::from_millis(500), events.next()).await.is_err());
    heard().await;
    for number in 2..5 {
        say(&alone).await;
        say(&followed).await;
        assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(number));
    }
    assert_eq!(heard().await, vec![part(&namespace, "followed", "wake"); 3]);
    // No call renews it, so it expires.
    let mut plain = plain_connection().await;
    let head = part(&namespace, "followed", "head");
    redis::cmd("HSET").arg(&head).arg("w").arg(1).exec_async(&mut plain).await.unwrap();
    say(&followed).await;
    assert!(heard().await.is_empty());
    store.erase().await.unwrap();
}

/// A read needs no write permission, and no memory that a write would need.
pub(crate) async fn followed_without_a_write() {
    let (store, namespace) = store(SERVER, "reader").await;
    let thread = thread("t");
    let say = async || store.append(&thread, ChatMessage::user("text")).await.unwrap().get();
    assert_eq!(say().await, 1);
    let mut plain = plain_connection().await;
    let user = format!("larder-test-{namespace}");
    let rights = ["on", ">secret", "~*", "&*", "+@all", "-hset"];
    redis::cmd("ACL").arg("SETUSER").arg(&user).arg(&rights).exec_async(&mut plain).await.unwrap();
    let server = url(SERVER);
    let (_, place) = server.rsplit_once('@').unwrap();
    let reader = RedisConfig::from_url(&format!("redis://{user}:secret@{place}")).unwrap();
    let reader = Redis::open(reader).await.unwrap().history(Namespace::new(&namespace).unwrap());
    let mut events = reader.subscribe(&thread, Seq::ZERO).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
    assert!(tokio::time::timeout(Duration::from_millis(300), events.next()).await.is_err());
    assert_eq!(say().await, 2);
    assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(2));
    redis::cmd("ACL").arg("DELUSER").arg(&user).exec_async(&mut plain).await.unwrap();
    store.erase().await.unwrap();
}

pub(crate) async fn what_others_did() {
    let (store, namespace) = store(SERVER, "others").await;
    let other = Redis::open(RedisConfig::from_url(&url(SERVER)).unwrap()).await.unwrap();
    let other = other.history(Namespace::new(&namespace).unwrap());
    let thread = thread("t");
    let say = async || store.append(&thread, ChatMessage::user("text")).await.unwrap().get();
    assert_eq!((say().await, say().await), (1, 2));
    let ttl = Ttl::sliding(Duration::from_secs(600));
    other.set_ttl(&thread, Some(ttl), None).await.unwrap();
    let mut plain = plain_connection().await;
    let messages = part(&namespace, "t", "messages");
    redis::cmd("PEXPIRE").arg(&messages).arg(90_000).exec_async(&mut plain).await.unwrap();
    let head = part(&namespace, "t", "head");
    redis::cmd("HSET").arg(&head).arg("e").arg(1).exec_async(&mut plain).await.unwrap();
    // The time has passed: the messages are cleared, which takes a number.
    assert_eq!((say().await, say().await), (4, 5));
    assert_eq!(store.thread_info(&thread).await.unwrap().messages, 2);
    other.set_ttl(&thread, Some(ttl), None).await.unwrap();
    redis::cmd("PEXPIRE").arg(&messages).arg(90_000).exec_async(&mut plain).await.unwrap();
    assert_eq!(say().await, 6);
    let left: i64 = redis::cmd("PTTL").arg(&messages).query_async(&mut plain).await.unwrap();
    assert!(left > 500_000, "{left} ms are left of a life that use renews");
    other.erase().await.unwrap();
    assert_eq!((say().await, say().await), (1, 2));
    assert_eq!(listed(&other).await, ["t"]);
    other.erase().await.unwrap();
}
