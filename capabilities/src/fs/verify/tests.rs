//! Planted damage in a folder of blobs.

use std::os::unix::fs::symlink;

use larder_kernel::{BlobStoreExt, Namespace};
use tempfile::TempDir;

use super::*;
use crate::fs::FsBlobStore;
use crate::verify::Verified;

async fn found(root: &Path) -> Verified {
    let faults = Faults::default();
    verify(&FsConfig::new(root), &faults).await.unwrap();
    faults.take()
}

async fn filled(root: &Path) {
    for namespace in ["default", "a/b"] {
        let store = FsBlobStore::open(FsConfig::new(root), Namespace::new(namespace).unwrap()).await.unwrap();
        for key in ["a", "b", "dir/c", "Long/".repeat(40).trim_end_matches('/'), &"x".repeat(200)] {
            store.put_bytes(&BlobKey::new(key).unwrap(), vec![7; 3_000].into()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn each_planted_damage_is_found_by_its_path_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    filled(root).await;
    let whole = found(root).await;
    assert_eq!((whole.records, whole.faults), (10, vec![]));

    let here = |name: &str| root.join("default=").join(name);
    let mut bytes = std::fs::read(here("a")).unwrap();
    bytes[100] ^= 1;
    std::fs::write(here("a"), &bytes).unwrap();
    let bytes = std::fs::read(here("b")).unwrap();
    std::fs::write(here("b"), &bytes[..bytes.len() - 9]).unwrap();
    std::fs::write(here("notes.txt"), "not a blob").unwrap();
    std::fs::write(here("dir=").join("UPPER"), "foreign").unwrap();
    symlink("/etc/passwd", here("link")).unwrap();
    std::fs::write(root.join("stray"), "foreign").unwrap();
    std::fs::create_dir(here("folder")).unwrap();
    std::fs::write(root.join(".larder/format"), "x").unwrap();

    let (verified, again) = (found(root).await, found(root).await);
    assert_eq!(verified, again);
    for (kind, place) in [
        (FaultKind::Checksum, "default=/a (key a)"),
        (FaultKind::Record, "default=/b (key b)"),
        (FaultKind::Record, "default=/notes.txt (key notes.txt)"),
        (FaultKind::Foreign, "default=/dir=/UPPER"),
        (FaultKind::Foreign, "default=/link"),
        (FaultKind::Foreign, "/stray"),
        (FaultKind::Foreign, "default=/folder"),
        (FaultKind::Format, ".larder/format"),
    ] {
        let named = |fault: &&Fault| fault.kind == kind && fault.place.ends_with(place);
        assert_eq!(verified.faults.iter().filter(named).count(), 1, "{place}: {:#?}", verified.faults);
    }
    assert_eq!(verified.faults.len(), 8, "{:#?}", verified.faults);
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_an_error() {
    let folder = TempDir::new().unwrap();
    let missing = FsConfig::new(folder.path().join("none"));
    let error = verify(&missing, &Faults::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
