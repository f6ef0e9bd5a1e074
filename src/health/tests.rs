//! The check that writes.

use larder_kernel::PageRequest;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_check_that_writes_passes_on_every_contract_and_leaves_no_content() {
    let stores = crate::open("memory:").await.unwrap();
    for _ in 0..2 {
        let health = stores.health_with_writes(TIMEOUT).await;
        assert!(health.is_ready() && health.contracts.len() == 6, "{health:?}");
    }
    let (history, key_value) = (stores.set().history().unwrap(), stores.set().key_value().unwrap());
    assert!(history.list_threads(None, PageRequest::default()).await.unwrap().items.is_empty());
    let buckets = key_value.list_buckets(PageRequest::default()).await.unwrap();
    assert!(buckets.items.iter().all(|bucket| bucket.keys == 0));
    assert_eq!(stores.set().graph().unwrap().count().await.unwrap().entities, 0);
    assert!(stores.blobs().unwrap().head(&BlobKey::new(NAME).unwrap()).await.is_err());
}

/// Regression test: a store on a full or read-only disk counted as ready.
#[tokio::test]
async fn a_store_that_cannot_write_fails_the_check_that_writes_and_passes_the_other() {
    let full = crate::open("memory:?bytes_max=1").await.unwrap();
    assert!(full.health(TIMEOUT).await.is_ready());
    let health = full.health_with_writes(TIMEOUT).await;
    let kinds: Vec<_> =
        health.contracts.iter().map(|contract| contract.error.as_ref().map(|it| it.kind)).collect();
    assert!(!health.is_ready());
    assert!(kinds.iter().all(|kind| *kind == Some(ErrorKind::ResourceExhausted)), "{kinds:?}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_read_only_database_fails_the_check_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    crate::open(&url).await.unwrap().close().await;
    let stores = crate::open(&format!("{url}?mode=ro")).await.unwrap();
    assert!(stores.health(TIMEOUT).await.is_ready());
    let health = stores.health_with_writes(TIMEOUT).await;
    assert!(!health.is_ready());
    for contract in health.contracts {
        assert_eq!(contract.error.unwrap().kind, ErrorKind::PermissionDenied, "{}", contract.contract);
    }
}
