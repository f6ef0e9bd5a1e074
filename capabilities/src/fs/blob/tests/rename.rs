//! Renames.

use futures_util::future::join_all;
use larder_kernel::RenameMode;

use super::*;

/// Returns the folders below the namespace, relative to it.
fn folders(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.join("n=")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.push(path.strip_prefix(root.join("n=")).unwrap().to_owned());
                open.push(path);
            }
        }
    }
    found
}

#[tokio::test]
async fn a_rename_moves_the_file_and_removes_the_folders_that_it_emptied() {
    let root = TempDir::new().unwrap();
    let store = open(root.path()).await;
    store.put_bytes(&key("a/b/c"), "text".into()).await.unwrap();
    let inode = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        root.path().join(name).metadata().unwrap().ino()
    };
    let before = inode("n=/a=/b=/c");
    store.rename(&key("a/b/c"), &key("x/y"), RenameMode::Refuse).await.unwrap();
    assert_eq!((inode("n=/x=/y"), folders(root.path())), (before, vec![PathBuf::from("x=")]));
    // A refused rename leaves no folders.
    store.put_bytes(&key("other"), "text".into()).await.unwrap();
    let refused = store.rename(&key("missing"), &key("p/q"), RenameMode::Replace).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    let refused = store.rename(&key("other"), &key("x/y"), RenameMode::Refuse).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Conflict, Outcome::NotApplied));
    assert_eq!(folders(root.path()), [PathBuf::from("x=")]);
}

/// Each pair of folders is renamed in both directions, so two calls that lock them in different orders would
/// wait for each other. Folders with one lock file are among the pairs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn renames_in_opposite_directions_do_not_wait_for_each_other() {
    const FOLDERS: usize = 70;
    let root = TempDir::new().unwrap();
    let (one, other) = (open(root.path()).await, open(root.path()).await);
    let name = |folder: usize, blob: usize| key(&format!("f{}/b{blob}", folder % FOLDERS));
    for folder in 0..FOLDERS {
        for blob in [folder, folder + FOLDERS] {
            one.put_bytes(&name(folder, blob), Bytes::from(blob.to_string())).await.unwrap();
        }
    }
    let renames = (0..FOLDERS).flat_map(|folder| {
        let (next, blob) = (folder + 1, folder + FOLDERS);
        [
            (&one, folder, next, folder),
            (&other, next, folder, (next % FOLDERS) + FOLDERS),
            (&one, folder, folder + 7, blob),
        ]
    });
    let renames = renames.map(async |(store, from, to, blob)| {
        match store.rename(&name(from, blob), &name(to, blob), RenameMode::Refuse).await {
            Ok(_) => {}
            // Another rename of the same blob was faster.
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    });
    tokio::time::timeout(Duration::from_secs(120), join_all(renames)).await.unwrap();
    let listed = keys(&one, "", None).await;
    assert_eq!(listed.len(), 2 * FOLDERS);
    for name in listed {
        let blob = name.split_once("/b").unwrap().1;
        assert_eq!(other.get_bytes(&key(&name)).await.unwrap(), blob);
    }
}
