//! Tests of the drivers of files: permissions, volatile file systems, and places that move.

#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::{
    BlobKey, BlobStoreExt as _, ChatMessage, Durability, ErrorKind, HistoryProviderExt as _, Namespace,
    Outcome, RenameMode, Result, StoreSet, Thread,
};
use tempfile::TempDir;

use crate::driver::{BackendUrl, Connection, Driver, StoresRequest};
use crate::fs::FsDriver;
use crate::sqlite::SqliteDriver;

async fn open(url: &str) -> (Arc<dyn Connection>, StoreSet) {
    let parsed = BackendUrl::parse(url).unwrap();
    let driver: &dyn Driver = if parsed.scheme() == "file" { &FsDriver } else { &SqliteDriver };
    let connection = driver.read(&parsed).unwrap().open().await.unwrap();
    let stores = connection.stores(&StoresRequest::new(Namespace::new("n").unwrap())).await;
    (connection, stores)
}

fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

async fn put(stores: &StoreSet, name: &str) -> Result<()> {
    stores.blobs()?.put_bytes(&key(name), "bytes".into()).await.map(drop)
}

async fn append(stores: &StoreSet) -> Result<()> {
    let thread = Thread::new("agent", "session")?;
    stores.history()?.append(&thread, ChatMessage::user("hello")).await.map(drop)
}

/// Returns the modes of everything below a folder.
fn modes(folder: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let (path, metadata) = {
            let entry = entry.unwrap();
            (entry.path(), entry.metadata().unwrap())
        };
        found.push((path.clone(), metadata.is_dir(), metadata.permissions().mode() & 0o7777));
        if metadata.is_dir() {
            found.extend(modes(&path));
        }
    }
    found
}

/// The variable with the folder of a process that runs with another umask.
const FOLDER: &str = "LARDER_TEST_UMASK_FOLDER";
/// The variable with the parameter of the URL.
const PARAMETER: &str = "LARDER_TEST_PERMISSIONS";

/// The other process: writes with its umask, and leaves the files of an open database. Without the variables
/// it does nothing.
#[tokio::test]
async fn writer_with_a_umask() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let parameter = std::env::var(PARAMETER).unwrap();
    let query = if parameter.is_empty() { String::new() } else { format!("?permissions={parameter}") };
    let (_sqlite, sqlite) = open(&format!("sqlite:{folder}/new.db{query}")).await;
    append(&sqlite).await.unwrap();
    put(&sqlite, "a/b").await.unwrap();
    let (_files, files) = open(&format!("file:{folder}/deep/blobs{query}")).await;
    put(&files, "a/b").await.unwrap();
    let (_old, old) = open(&format!("sqlite:{folder}/old.db{query}")).await;
    append(&old).await.unwrap();
    let (_old, old) = open(&format!("file:{folder}/old{query}")).await;
    put(&old, "a/b").await.unwrap();
    // Without closing, so that the files next to the database stay.
    std::process::exit(0);
}

#[test]
fn new_files_have_their_permissions_whatever_the_umask_and_old_files_keep_theirs() {
    for (parameter, file, inside) in [("", 0o600, 0o700), ("0660", 0o660, 0o770), ("0644", 0o644, 0o755)] {
        for umask in ["000", "022", "077"] {
            let folder = TempDir::new().unwrap();
            let at = |name: &str| folder.path().join(name);
            std::fs::write(at("old.db"), "").unwrap();
            std::fs::set_permissions(at("old.db"), Permissions::from_mode(0o640)).unwrap();
            std::fs::create_dir(at("old")).unwrap();
            std::fs::set_permissions(at("old"), Permissions::from_mode(0o751)).unwrap();
            let script = "umask $0; exec \"$1\" files::tests::writer_with_a_umask --exact";
            let status = Command::new("sh")
                .args(["-c", script, umask])
                .arg(std::env::current_exe().unwrap())
                .env(FOLDER, folder.path())
                .env(PARAMETER, parameter)
                .status()
                .unwrap();
            assert!(status.success());
            let found = modes(folder.path());
            for name in ["new.db", "new.db-wal", "new.db-shm", "new.db.blobs/n=/a=/b", "deep/blobs/n=/a=/b"] {
                assert!(at(name).exists(), "{name}");
            }
            for (path, is_folder, mode) in found {
                let expected = match path.strip_prefix(folder.path()).unwrap().to_str().unwrap() {
                    "old.db" | "old.db-wal" | "old.db-shm" => 0o640,
                    "old" => 0o751,
                    _ if is_folder => inside,
                    _ => file,
                };
                assert_eq!(mode, expected, "{mode:o} {} umask {umask} {parameter}", path.display());
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_system_in_memory_declares_no_power_safety() {
    for (folder, durability) in [
        (TempDir::new_in("/dev/shm").unwrap(), Durability::Process),
        // The folder of this test program is on a disk.
        (TempDir::new_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap(), Durability::Power),
    ] {
        let link = folder.path().join("link.db");
        symlink(folder.path().join("a.db"), &link).unwrap();
        for name in ["a.db", "link.db"] {
            let (_connection, stores) = open(&format!("sqlite:{}/{name}", folder.path().display())).await;
            assert_eq!(stores.history().unwrap().capabilities().durability, durability, "{name}");
            assert_eq!(stores.blobs().unwrap().capabilities().durability, durability, "{name}");
        }
        let (_connection, stores) = open(&format!("file:{}/blobs", folder.path().display())).await;
        assert_eq!(stores.blobs().unwrap().capabilities().durability, durability);
    }
}

fn assert_moved(result: Result<()>, outcome: Outcome) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, outcome), "{error}");
    assert!(error.message().contains("moved, replaced or removed"), "{error}");
}

#[tokio::test]
async fn a_folder_that_was_moved_takes_no_write_until_it_is_back() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (_connection, stores) = open(&format!("file:{}", at("blobs").display())).await;
    put(&stores, "a").await.unwrap();
    for (from, to) in [("blobs", "aside"), ("blobs/.larder", "aside"), ("blobs/.larder/locks", "aside")] {
        std::fs::rename(at(from), at(to)).unwrap();
        for replaced in [false, true] {
            if replaced {
                std::fs::create_dir(at(from)).unwrap();
            }
            assert_moved(put(&stores, "b").await, Outcome::NotApplied);
            let blobs = stores.blobs().unwrap();
            assert_moved(blobs.delete(&key("a")).await.map(drop), Outcome::NotApplied);
            assert_moved(blobs.copy(&key("a"), &key("c")).await.map(drop), Outcome::NotApplied);
            let renamed = blobs.rename(&key("a"), &key("c"), RenameMode::Replace).await;
            assert_moved(renamed.map(drop), Outcome::NotApplied);
            assert_moved(stores.erase().await, Outcome::NotApplied);
        }
        std::fs::remove_dir(at(from)).unwrap();
        std::fs::rename(at(to), at(from)).unwrap();
        put(&stores, "a").await.unwrap();
    }
}

/// A thread moves the folder as soon as the blob is at its path. The flush of the folders takes longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_whose_folder_moves_during_the_write_is_not_acknowledged() {
    const ATTEMPTS: usize = 300;
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (_connection, stores) = open(&format!("file:{}", at("blobs").display())).await;
    for attempt in 0..ATTEMPTS {
        let (blob, from, to) = (at(&format!("blobs/n=/{attempt}")), at("blobs"), at("aside"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mover = std::thread::spawn(move || {
            while !blob.exists() && !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            std::fs::rename(&from, &to).unwrap();
            (from, to)
        });
        let written = put(&stores, &attempt.to_string()).await;
        stop.store(true, Ordering::Relaxed);
        let (from, to) = mover.join().unwrap();
        std::fs::rename(to, from).unwrap();
        if written.is_err() {
            assert_moved(written, Outcome::Unknown);
            return;
        }
    }
    panic!("no folder moved during {ATTEMPTS} writes");
}

#[tokio::test]
async fn a_database_opened_by_a_link_keeps_its_blobs_with_the_real_file() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("real")).unwrap();
    symlink("real/a.db", at("link.db")).unwrap();
    let by_link = format!("sqlite:{}", at("link.db").display());
    {
        let (_connection, stores) = open(&by_link).await;
        append(&stores).await.unwrap();
        put(&stores, "blob").await.unwrap();
    }
    assert!(at("real/a.db.blobs").exists() && !at("link.db.blobs").exists());
    let (_connection, stores) = open(&format!("sqlite:{}", at("real/a.db").display())).await;
    assert_eq!(stores.blobs().unwrap().get_bytes(&key("blob")).await.unwrap(), "bytes");
    // Earlier versions put them next to the link.
    std::fs::rename(at("real/a.db.blobs"), at("link.db.blobs")).unwrap();
    let (_connection, stores) = open(&by_link).await;
    append(&stores).await.unwrap();
    let error = put(&stores, "blob").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    assert!(error.message().contains("next to a symbolic link"), "{error}");
    assert!(!at("real/a.db.blobs").exists());
}
