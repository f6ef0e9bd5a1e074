//! Readiness and liveness of stores, with reasons.
#![allow(clippy::unwrap_used)]

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use larder::Stores;
use larder_agents::layers::Layers;
use larder_kernel::{
    BucketName, Capabilities, Error, ErrorKind, Key, KeyValueEntry, KeyValueStore, Namespace, OptionSet,
    PageRequest, Result, Store, StoreSet,
};

const LONG: Duration = Duration::from_secs(20);

/// A store whose backend never replies or refuses the credentials.
#[derive(Debug)]
struct Away {
    namespace: Namespace,
    silent: bool,
}

#[async_trait]
impl Store for Away {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn options(&self) -> OptionSet {
        OptionSet::NONE
    }

    async fn erase(&self) -> Result<()> {
        pending().await
    }
}

#[async_trait]
impl KeyValueStore for Away {
    async fn get(&self, _: &BucketName, _: &Key) -> Result<Option<KeyValueEntry>> {
        if self.silent {
            return pending().await;
        }
        Err(Error::new(ErrorKind::PermissionDenied, "key_value.get", "the user cannot read"))
    }
}

#[tokio::test]
async fn reachable_stores_are_ready_with_and_without_layers() {
    let stores = larder::open("memory:").await.unwrap();
    let layered = stores.clone().layered(&Layers::new().trace("memory").timeout(LONG));
    for stores in [stores, layered] {
        let health = stores.health(LONG).await;
        assert!(health.is_ready() && health.is_live() && stores.is_live(), "{health:?}");
        assert_eq!(health.contracts.len(), 6);
        assert!(
            health.contracts.iter().all(|contract| contract.backend == "memory" && contract.error.is_none())
        );
        assert_eq!((health.places.len(), health.places[0].contracts.len()), (1, 6));
        assert_eq!(health.places[0].pool, None);
    }
}

#[tokio::test]
async fn one_unreachable_store_is_reported_by_kind_and_in_time() {
    let stores = larder::open("memory:").await.unwrap();
    for (silent, kind) in [(true, "Timeout"), (false, "PermissionDenied")] {
        let away = Arc::new(Away { namespace: stores.namespace().clone(), silent });
        let stores = stores.clone().with(StoreSet::new().with_key_value(away));
        let begun = Instant::now();
        let health = stores.health(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(10));
        // A restart does not help a program whose database is unreachable.
        assert!(!health.is_ready() && health.is_live(), "{health:?}");
        let json = serde_json::to_value(&health).unwrap();
        let key_value = &json["contracts"][5];
        assert_eq!((&key_value["contract"], &key_value["backend"]), (&"key_value".into(), &"custom".into()));
        assert_eq!((&key_value["answers"], &key_value["error"]["kind"]), (&false.into(), &kind.into()));
        assert_eq!(json["contracts"][0]["answers"], true);
        assert_eq!(json["places"][0]["contracts"].as_array().unwrap().len(), 5);
    }
}

#[cfg(all(feature = "sqlite", feature = "fs", unix))]
#[tokio::test]
async fn each_backend_is_shown_with_its_contracts_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("larder.db").display());
    let files = format!("file:{}", folder.path().join("blobs").display());
    let stores = Stores::builder().url(&sqlite).blobs_url(&files).open().await.unwrap();
    let health = stores.health(LONG).await;
    assert!(health.is_ready(), "{health:?}");
    let places: Vec<_> = health.places.iter().map(|place| (place.backend, place.contracts.len())).collect();
    assert_eq!(places, [("sqlite", 5), ("file", 1)]);
    assert_eq!(
        stores.set().history().unwrap().list_threads(None, PageRequest::first(9)).await.unwrap().items,
        []
    );
    assert_eq!(
        stores.set().key_value().unwrap().list_buckets(PageRequest::first(9)).await.unwrap().items,
        []
    );
}
