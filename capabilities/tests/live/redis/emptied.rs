//! A server that lost the keys of a namespace, and data of a version without generations.

use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Thread};

use super::*;
use crate::emptied::{Stores, readers_from_before_are_refused};

async fn lost_keys(variable: &str) {
    let namespace = namespace("emptied");
    let open = async || {
        let redis = open(variable).await;
        Stores {
            history: Arc::new(redis.history(namespace.clone())),
            values: Arc::new(redis.key_value(namespace.clone())),
            tasks: Arc::new(redis.tasks(namespace.clone())),
        }
    };
    let empty = async || {
        // The keys of the namespace, on every server that holds some.
        for address in servers(variable).await {
            let mut connection = plain_redis(&address).await;
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS")
                .arg(format!("larder:{{*:{}*", namespace.as_str()))
                .query_async(&mut connection)
                .await
                .unwrap();
            for key in keys {
                // A replica refuses, and its primary server removes the key.
                let _: redis::RedisResult<()> = redis::cmd("DEL").arg(key).query_async(&mut connection).await;
            }
        }
    };
    readers_from_before_are_refused(open, empty).await.ended().await;
}

/// Returns the URLs of every server.
async fn servers(variable: &str) -> Vec<String> {
    let url = url(variable);
    if variable == SERVER {
        return vec![url];
    }
    let (_, rest) = url.split_once("://").unwrap();
    let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
    let at = if user.is_empty() { "" } else { "@" };
    let first = hosts.split([',', '/', '?']).next().unwrap();
    let mut connection = plain_redis(&format!("redis://{user}{at}{first}")).await;
    let nodes: String = redis::cmd("CLUSTER").arg("NODES").query_async(&mut connection).await.unwrap();
    let address = |line: &str| line.split_whitespace().nth(1)?.split('@').next().map(str::to_owned);
    nodes.lines().filter_map(address).map(|address| format!("redis://{user}{at}{address}")).collect()
}

pub(crate) async fn readers_from_before_lost_keys() {
    lost_keys(SERVER).await;
}

pub(crate) async fn readers_from_before_lost_keys_of_a_cluster() {
    lost_keys(CLUSTER).await;
}

/// Data of an earlier version has no generation: its positions name none until the next write draws one.
pub(crate) async fn data_without_one() {
    let namespace = namespace("drawn");
    let redis = open(SERVER).await;
    let history = redis.history(namespace.clone());
    let thread = Thread::new("agent", "session").unwrap();
    for _ in 0..3 {
        history.append(&thread, ChatMessage::user("old")).await.unwrap();
    }
    let mut connection = plain_connection().await;
    let head = format!("larder:{{thread:{}:agent:session}}:head", namespace.as_str());
    let removed: i64 = redis::cmd("HDEL").arg(&head).arg("g").query_async(&mut connection).await.unwrap();
    assert_eq!(removed, 1);
    let old = history.tail(&thread, None, 1).await.unwrap().messages[0].seq;
    assert_eq!(old.generation(), None);
    let new = history.append(&thread, ChatMessage::user("new")).await.unwrap();
    assert!(new.generation().is_some());
    // A position from before the draw names no generation, so it still fits.
    assert_eq!(history.page_after(&thread, old, 10).await.unwrap().messages.len(), 1);
    assert_eq!(history.tail(&thread, None, 1).await.unwrap().messages[0].seq.generation(), new.generation());
}
