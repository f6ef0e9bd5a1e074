//! Waits for locks that another process holds. The other process is frozen with SIGSTOP.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures_util::future::join_all;

use super::*;
use crate::fs::locks::LockedFile;

/// The variable with the folder whose lock the other process holds.
const FOLDER: &str = "LARDER_TEST_LOCKED_FOLDER";
/// The variable with the kind of the lock.
const KIND: &str = "LARDER_TEST_LOCK";
const BUSY_TIMEOUT: Duration = Duration::from_millis(300);
/// The time in which a call must end after its time limit.
const PROMPT: Duration = Duration::from_secs(10);
const PUTS: usize = 600;

/// Locks a file without the queues of this process.
pub(super) fn lock_as_another_process(store: &FsBlobStore, lock: Lock) -> Vec<LockedFile> {
    store
        .folder
        .for_writing("test")
        .unwrap()
        .locks()
        .lock_files(&[lock])
        .unwrap()
        .ok()
        .expect("the lock is free")
}

/// A frozen process that holds a lock. It does not outlive the test.
struct FrozenHolder(Child);

impl FrozenHolder {
    /// Starts this test program again, as the holder of a lock, and freezes it.
    async fn start(root: &Path, kind: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["fs::blob::tests::locks::holder_of_a_lock", "--exact", "--nocapture"])
            .env(FOLDER, root)
            .env(KIND, kind)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let holder = Self(child);
        let (sign, since) = (root.join("locked"), Instant::now());
        while !sign.exists() {
            assert!(since.elapsed() < Duration::from_secs(120), "the other process did not lock the folder");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::remove_file(sign).unwrap();
        let stopped = Command::new("kill").args(["-STOP", &holder.0.id().to_string()]).status();
        assert!(stopped.unwrap().success());
        holder
    }
}

impl Drop for FrozenHolder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other process: it takes the lock, reports it, and keeps it. Without the variables it does nothing.
#[tokio::test]
async fn holder_of_a_lock() {
    let Some(root) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let store = open(&root).await;
    let lock = match std::env::var(KIND).unwrap().as_str() {
        "namespace" => Lock::namespace(&store.namespace, LockMode::Exclusive),
        _ => Lock::folder(&layout::namespace_folders(&store.namespace), LockMode::Exclusive),
    };
    let _locked = lock_as_another_process(&store, lock);
    std::fs::write(root.join("locked"), []).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

async fn open_with(root: &Path, busy_timeout: Duration) -> FsBlobStore {
    let config = FsConfig::new(root).with_busy_timeout(busy_timeout);
    FsBlobStore::open(config, Namespace::new("n").unwrap()).await.unwrap()
}

fn assert_timeout<T: std::fmt::Debug>(result: Result<T>, begun: Instant) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::NotApplied), "{error}");
    assert!(error.message().contains("busy_timeout_ms"), "{error}");
    assert!(begun.elapsed() >= BUSY_TIMEOUT, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_frozen_process_costs_the_others_their_time_limit_and_nothing_is_written() {
    for kind in ["folder", "namespace"] {
        let folder = TempDir::new().unwrap();
        let store = open_with(folder.path(), BUSY_TIMEOUT).await;
        store.put_bytes(&key("kept"), "kept".into()).await.unwrap();
        let holder = FrozenHolder::start(folder.path(), kind).await;
        let (kept, new) = (key("kept"), key("new"));
        let begun = Instant::now();
        let (put, deleted, copied, renamed) = tokio::join!(
            store.put_bytes(&new, "late".into()),
            store.delete(&kept),
            store.copy(&kept, &new),
            store.rename(&kept, &new, RenameMode::Replace),
        );
        assert_timeout(renamed, begun);
        assert_timeout(put, begun);
        assert_timeout(deleted, begun);
        assert_timeout(copied, begun);
        let begun = Instant::now();
        if kind == "namespace" {
            assert_timeout(store.erase().await, begun);
        } else {
            let listed: Vec<_> = store.list("", None).await.unwrap().collect().await;
            assert_timeout(listed.into_iter().next().unwrap(), begun);
        }
        assert_eq!(store.get_bytes(&kept).await.unwrap(), "kept", "a read needs no lock");
        drop(holder);
        assert!(temporary_files(folder.path()).is_empty());
        assert_eq!(keys(&store, "", None).await, ["kept"]);
        store.put_bytes(&new, "in time".into()).await.unwrap();
        assert_eq!(keys(&store, "", None).await, ["kept", "new"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_were_given_up_leave_the_blocking_threads_to_the_program() {
    let folder = TempDir::new().unwrap();
    let store = open_with(folder.path(), Duration::from_secs(300)).await;
    let holder = FrozenHolder::start(folder.path(), "folder").await;
    let names: Vec<BlobKey> = (0..PUTS).map(|number| key(&format!("{number}"))).collect();
    {
        let puts = join_all(names.iter().map(|name| store.put_bytes(name, "late".into())));
        let all_wait = async {
            let since = Instant::now();
            // Each put has written its temporary file when it waits for the lock.
            while temporary_files(folder.path()).len() < PUTS && since.elapsed() < Duration::from_secs(60) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        tokio::select! {
            _ = puts => panic!("the lock is held"),
            () = all_wait => {}
        }
    }
    let unrelated = tokio::task::spawn_blocking(|| 1);
    let done = tokio::time::timeout(Duration::from_secs(10), unrelated).await;
    drop(holder);
    assert_eq!(done.expect("no thread is left for unrelated work").unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(temporary_files(folder.path()).is_empty());
    assert!(keys(&store, "", None).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_process_wait_for_each_other_without_a_time_limit() {
    let folder = TempDir::new().unwrap();
    let store = open_with(folder.path(), Duration::ZERO).await;
    let names: Vec<BlobKey> = (0..200).map(|number| key(&format!("{number}"))).collect();
    let puts = join_all(names.iter().map(|name| store.put_bytes(name, "x".into()))).await;
    assert!(puts.iter().all(Result::is_ok), "{puts:?}");
    assert_eq!(keys(&store, "", None).await.len(), 200);
}

/// Regression test: a process that was forked during a write, and lives on, must not keep the write's locks.
#[tokio::test]
async fn a_lock_ends_although_a_forked_process_has_its_file_open() {
    let folder = TempDir::new().unwrap();
    let store = open_with(folder.path(), BUSY_TIMEOUT).await;
    let lock = Lock::folder(&layout::namespace_folders(&store.namespace), LockMode::Exclusive);
    let held = lock_as_another_process(&store, lock);
    // As a fork does, this opens the same file a second time, with the same lock.
    let _forked: Vec<File> = held.iter().map(|file| file.0.try_clone().unwrap()).collect();
    drop(held);
    store.put_bytes(&key("a"), "not late".into()).await.unwrap();
}

/// Regression test: a lock file that is removed must not let two holders in.
#[tokio::test]
async fn a_lock_file_that_was_replaced_is_locked_again() {
    let folder = TempDir::new().unwrap();
    let store = open_with(folder.path(), BUSY_TIMEOUT).await;
    let lock = Lock::folder(&layout::namespace_folders(&store.namespace), LockMode::Exclusive);
    drop(lock_as_another_process(&store, lock));
    for file in std::fs::read_dir(folder.path().join(".larder/locks")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let _held = lock_as_another_process(&store, lock);
    assert!(store.folder.for_writing("test").unwrap().locks().lock_files(&[lock]).unwrap().is_err());
    assert_timeout(store.put_bytes(&key("a"), "late".into()).await, Instant::now() - BUSY_TIMEOUT);
}
