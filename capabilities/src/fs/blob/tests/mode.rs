//! Folders that do not exist yet, and folders that are only read.

use super::*;
use crate::driver::OpenMode;

/// Regression test: opening a store created a folder that nobody had asked for.
#[tokio::test]
async fn the_first_write_creates_the_folder_and_a_read_creates_nothing() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("blobs");
    let (store, other) = (open(&root).await, open(&root).await);
    assert_eq!(store.get_bytes(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.head(&key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.copy(&key("a"), &key("b")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!store.delete(&key("a")).await.unwrap());
    store.erase().await.unwrap();
    assert!(keys(&store, "", None).await.is_empty());
    assert!(!root.exists());
    store.put_bytes(&key("a"), "text".into()).await.unwrap();
    assert_eq!(other.get_bytes(&key("a")).await.unwrap(), "text");
}

#[tokio::test]
async fn a_folder_that_is_only_read_is_not_changed() {
    let folder = TempDir::new().unwrap();
    let read_only = FsConfig::new(folder.path()).with_mode(OpenMode::ReadOnly);
    let open_reading = || FsBlobStore::open(read_only.clone(), Namespace::new("n").unwrap());
    let early = open_reading().await.unwrap();
    assert!(keys(&early, "", None).await.is_empty());
    assert!(!folder.path().join(".larder").exists());
    open(folder.path()).await.put_bytes(&key("a"), "text".into()).await.unwrap();
    let before = format::files(folder.path());
    for store in [early, open_reading().await.unwrap()] {
        assert_eq!(store.get_bytes(&key("a")).await.unwrap(), "text");
        assert_eq!(keys(&store, "", None).await, ["a"]);
        for refused in [
            store.put_bytes(&key("b"), "text".into()).await.map(drop),
            store.copy(&key("a"), &key("b")).await.map(drop),
            store.delete(&key("a")).await.map(drop),
            store.erase().await,
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(
                (refused.kind(), refused.outcome()),
                (ErrorKind::PermissionDenied, Outcome::NotApplied)
            );
        }
    }
    assert_eq!(format::files(folder.path()), before);
}
