//! Earlier versions on disk.

use larder_kernel::{BlobVersion, RenameMode};

use super::*;
use crate::fs::verify::verify;
use crate::verify::Faults;

fn with_versions(root: &Path) -> FsConfig {
    FsConfig::new(root).with_blob_versions()
}

async fn open_with(config: FsConfig) -> Result<FsBlobStore> {
    FsBlobStore::open(config, Namespace::new("n").unwrap()).await
}

async fn versions(store: &FsBlobStore, name: &str) -> Vec<BlobVersion> {
    store.list_versions(&key(name)).await.unwrap().try_collect().await.unwrap()
}

async fn text(store: &FsBlobStore, name: &str, version: &BlobVersion) -> Bytes {
    let read = store.get_version(&key(name), &version.id, BlobGetOptions::default()).await.unwrap();
    read.bytes.try_collect::<Vec<_>>().await.unwrap().concat().into()
}

fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("n=").join(folder)).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_folder_keeps_versions_exactly_if_it_was_created_for_them() {
    let root = TempDir::new().unwrap();
    let (new, old) = (root.path().join("new"), root.path().join("old"));
    let store = open_with(with_versions(&new)).await.unwrap();
    assert!(store.capabilities.has(Capability::BlobVersions));
    store.put_bytes(&key("a"), "1".into()).await.unwrap();
    assert_eq!(std::fs::read_to_string(new.join(".larder/format")).unwrap(), "2\n");
    // Later openings find the setting in the folder.
    let store = open_with(FsConfig::new(&new)).await.unwrap();
    assert!(store.capabilities.has(Capability::BlobVersions));
    store.put_bytes(&key("a"), "2".into()).await.unwrap();
    assert_eq!(versions(&store, "a").await.len(), 2);

    let store = open_with(FsConfig::new(&old)).await.unwrap();
    store.put_bytes(&key("a"), "1".into()).await.unwrap();
    let refused = open_with(with_versions(&old)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidInput, Some("blob_versions")));
    // A folder of the time before format numbers.
    std::fs::remove_file(old.join(".larder/format")).unwrap();
    assert_eq!(open_with(with_versions(&old)).await.unwrap_err().field(), Some("blob_versions"));
    let long = root.path().join("long");
    let namespace = Namespace::new("n".repeat(100)).unwrap();
    let in_long = FsBlobStore::open(FsConfig::new(&long), namespace).await.unwrap();
    in_long.put_bytes(&key("a"), "1".into()).await.unwrap();
    std::fs::remove_file(long.join(".larder/format")).unwrap();
    assert_eq!(open_with(with_versions(&long)).await.unwrap_err().field(), Some("blob_versions"));
    let error = store.list_versions(&key("a")).await.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
}

#[tokio::test]
async fn a_program_without_versions_does_not_open_a_folder_that_keeps_them() {
    let root = TempDir::new().unwrap();
    open_with(with_versions(root.path())).await.unwrap().put_bytes(&key("a"), "1".into()).await.unwrap();
    let namespace = Namespace::new("n").unwrap();
    let refused = FsBlobStore::open_at(FsConfig::new(root.path()), namespace, FORMAT - 1).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn versions_are_numbered_files_next_to_the_blob_and_leave_no_empty_folder() {
    let root = TempDir::new().unwrap();
    let store = open_with(with_versions(root.path())).await.unwrap();
    for number in 1..=3 {
        store.put_bytes(&key("dir/a"), Bytes::from(number.to_string())).await.unwrap();
    }
    let listed = versions(&store, "dir/a").await;
    let expected = [(1, &listed[2].id), (2, &listed[1].id)];
    assert_eq!(names(root.path(), "dir=/a!"), expected.map(|(number, id)| format!("{number:016x}.{id}")));
    assert_eq!(keys(&store, "", None).await, ["dir/a"]);
    store.delete(&key("dir/a")).await.unwrap();
    assert_eq!((keys(&store, "", None).await.len(), names(root.path(), "dir=/a!").len()), (0, 3));
    let reader =
        open_with(FsConfig::new(root.path()).with_mode(crate::driver::OpenMode::ReadOnly)).await.unwrap();
    for version in versions(&reader, "dir/a").await {
        let refused = reader.delete_version(&key("dir/a"), &version.id).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(store.delete_version(&key("dir/a"), &version.id).await.unwrap());
    }
    assert_eq!(names(root.path(), ""), [] as [String; 0]);
}

/// A crash after the second name was given and before the first was replaced or moved.
#[tokio::test]
async fn a_current_file_with_two_names_is_one_version() {
    let root = TempDir::new().unwrap();
    let store = open_with(with_versions(root.path())).await.unwrap();
    let etag = store.put_bytes(&key("a"), "1".into()).await.unwrap().etag;
    let crash = || {
        let folder = root.path().join("n=/a!");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::hard_link(root.path().join("n=/a"), folder.join(layout::version_file(1, etag.as_str())))
            .unwrap();
    };
    crash();
    let listed = versions(&store, "a").await;
    assert_eq!((listed.len(), listed[0].current), (1, true));
    let refused = store.delete_version(&key("a"), &listed[0].id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    store.put_bytes(&key("a"), "2".into()).await.unwrap();
    let listed = versions(&store, "a").await;
    assert_eq!(listed.len(), 2);
    assert_eq!(
        (text(&store, "a", &listed[0]).await, text(&store, "a", &listed[1]).await),
        ("2".into(), "1".into())
    );
    // The blob moves away with both names.
    store.erase().await.unwrap();
    let etag_again = store.put_bytes(&key("a"), "1".into()).await.unwrap().etag;
    std::fs::create_dir_all(root.path().join("n=/a!")).unwrap();
    let second = root.path().join("n=/a!").join(layout::version_file(1, etag_again.as_str()));
    std::fs::hard_link(root.path().join("n=/a"), second).unwrap();
    store.rename(&key("a"), &key("b"), RenameMode::Refuse).await.unwrap();
    assert_eq!((versions(&store, "a").await.len(), versions(&store, "b").await.len()), (0, 1));
}

#[tokio::test]
async fn a_damaged_version_is_found_and_does_not_hide_the_others() {
    let root = TempDir::new().unwrap();
    let store = open_with(with_versions(root.path())).await.unwrap();
    for number in 1..=3 {
        store.put_bytes(&key("a"), Bytes::from(number.to_string())).await.unwrap();
    }
    let faults = Faults::default();
    verify(&FsConfig::new(root.path()), &faults).await.unwrap();
    let found = faults.take();
    assert_eq!((found.records, found.faults.len()), (3, 0));
    let damaged = root.path().join("n=/a!").join(&names(root.path(), "a!")[0]);
    std::fs::write(&damaged, "damaged").unwrap();
    std::fs::write(root.path().join("n=/a!/notes"), "foreign").unwrap();
    let listed: Vec<_> = store.list_versions(&key("a")).await.unwrap().collect().await;
    let kinds: Vec<_> = listed.iter().map(|item| item.as_ref().map(|_| ()).map_err(Error::kind)).collect();
    assert_eq!(kinds, [Ok(()), Ok(()), Err(ErrorKind::Corrupt)]);
    let faults = Faults::default();
    verify(&FsConfig::new(root.path()), &faults).await.unwrap();
    assert_eq!(faults.take().faults.len(), 2);
    // A damaged blob may be any version that the folder does not have.
    let current = listed[0].as_ref().unwrap().id.clone();
    std::fs::write(root.path().join("n=/a"), "damaged").unwrap();
    let listed: Vec<_> = store.list_versions(&key("a")).await.unwrap().collect().await;
    let kinds: Vec<_> = listed.iter().map(|item| item.as_ref().map(|_| ()).map_err(Error::kind)).collect();
    assert_eq!(kinds, [Err(ErrorKind::Corrupt), Ok(()), Err(ErrorKind::Corrupt)]);
    let read = store.get_version(&key("a"), &current, BlobGetOptions::default()).await;
    assert_eq!(read.map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    let refused = store.delete_version(&key("a"), &current).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Corrupt, Outcome::NotApplied));
    // It can be replaced, and leaves no version.
    store.put_bytes(&key("a"), "4".into()).await.unwrap();
    assert_eq!(store.get_bytes(&key("a")).await.unwrap(), "4");
    assert_eq!(names(root.path(), "a!").len(), 3);
}
