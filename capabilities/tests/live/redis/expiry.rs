//! The keys that remain after a time to live has passed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    KeyValueEventKind, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueStoreExt, PageRequest,
    PrefixDeletion, Revision, Store,
};

use super::{SERVER, bucket, key, namespace, open, plain_connection};

/// The memory of a bucket's values is freed without a further call, once all of them have expired.
pub(crate) async fn values_that_all_expire_are_freed() {
    let namespace = namespace("expiry");
    let store = open(SERVER).await.key_value(namespace.clone());
    let mut plain = plain_connection().await;
    let values = format!("larder:{{kv:{}:bucket}}:values", namespace.as_str());
    let mut left_ms =
        async || -> i64 { redis::cmd("PTTL").arg(&values).query_async(&mut plain).await.unwrap() };
    let value = Bytes::from_static(b"value");
    let until = |seconds| KeyValuePutOptions::default().with_ttl(Duration::from_secs(seconds));
    store.put(&bucket(), &key("hour"), value.clone(), until(3_600)).await.unwrap();
    store.put(&bucket(), &key("minute"), value.clone(), until(60)).await.unwrap();
    assert!((3_600_000..=3_660_000).contains(&left_ms().await));
    store.set(&bucket(), &key("for good"), value.clone()).await.unwrap();
    assert_eq!(left_ms().await, -1);
    store.delete(&bucket(), &key("for good"), None).await.unwrap();
    assert!((3_600_000..=3_660_000).contains(&left_ms().await));
    store.delete(&bucket(), &key("hour"), None).await.unwrap();
    assert!((60_000..=120_000).contains(&left_ms().await));
    // One value never expires, so the bucket's key has no expiry.
    store.set(&bucket(), &key("minute"), value).await.unwrap();
    assert_eq!(left_ms().await, -1);
    store.erase().await.unwrap();
}

pub(crate) async fn a_bucket_whose_values_were_freed_is_an_empty_one() {
    let namespace = namespace("freed");
    let store = open(SERVER).await.key_value(namespace.clone());
    let brief = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
    let value = Bytes::from_static(b"value");
    let put = store.put(&bucket(), &key("gone"), value.clone(), brief).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    // The server does the same a minute later.
    let values = format!("larder:{{kv:{}:bucket}}:values", namespace.as_str());
    let () = redis::cmd("DEL").arg(values).query_async(&mut plain_connection().await).await.unwrap();
    assert!(store.get(&bucket(), &key("gone")).await.unwrap().is_none());
    assert!(store.list(&bucket(), "", PageRequest::default()).await.unwrap().items.is_empty());
    let events = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    let again = store.create(&bucket(), &key("other"), value).await.unwrap();
    let told: Vec<_> = events.take(2).map(Result::unwrap).collect().await;
    assert_eq!((told[0].revision, &told[0].kind), (put, &KeyValueEventKind::Deleted));
    assert_eq!((told[1].revision, told[1].key.as_str()), (again, "other"));
    store.erase().await.unwrap();
}

/// One step of the server skips a limited number of expired values. A page is the result of one step, unless
/// the step found nothing, so that it has the state of one instant.
pub(crate) async fn a_listing_passes_by_many_that_have_expired() {
    const EXPIRED: usize = 25_000;
    let namespace = namespace("many");
    let store = open(SERVER).await.key_value(namespace.clone());
    for name in ["a", "z", "zz"] {
        store.set(&bucket(), &key(name), Bytes::new()).await.unwrap();
    }
    let mut plain = plain_connection().await;
    for part in ["names", "revisions", "expiries"] {
        let mut add = redis::cmd("ZADD");
        add.arg(format!("larder:{{kv:{}:bucket}}:{part}", namespace.as_str()));
        for number in 0..EXPIRED {
            let score = if part == "names" { 0 } else { number + 1 };
            add.arg(score).arg(format!("k{number:06}"));
        }
        let () = add.query_async(&mut plain).await.unwrap();
    }
    let names = async |page| {
        let page = store.list(&bucket(), "", page).await.unwrap();
        let names: Vec<_> = page.items.iter().map(|item| item.key.as_str().to_owned()).collect();
        (names, page.next)
    };
    let (first, next) = names(PageRequest::first(2)).await;
    assert_eq!((first, next.as_ref()), (vec!["a".to_owned()], Some(&key("a"))));
    let (rest, next) = names(PageRequest::after(key("k000100"), 1_000)).await;
    assert_eq!((rest, next), (vec!["z".to_owned(), "zz".to_owned()], None));
    let entries = async |query: KeyValueQuery| {
        let (mut names, mut page) = (Vec::new(), PageRequest::first(10));
        loop {
            let found = store.list_entries(&bucket(), &query, page).await.unwrap();
            names.extend(found.items.iter().map(|item| item.key.as_str().to_owned()));
            match found.next {
                Some(next) => page = PageRequest::after(next, 10),
                None => return names,
            }
        }
    };
    assert_eq!(entries(KeyValueQuery::prefix("").with_values()).await, ["a", "z", "zz"]);
    assert_eq!(entries(KeyValueQuery::prefix("").descending()).await, ["zz", "z", "a"]);
    assert_eq!(store.delete_prefix(&bucket(), "k").await.unwrap(), PrefixDeletion::new(0, false));
    assert_eq!(store.delete_prefix(&bucket(), "").await.unwrap(), PrefixDeletion::new(1, true));
    assert_eq!(store.delete_prefix(&bucket(), "").await.unwrap(), PrefixDeletion::new(2, false));
    store.erase().await.unwrap();
}
