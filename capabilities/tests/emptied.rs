//! A database file that was replaced by a new one.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the streams of a removed file are not followed")]

#[path = "live/emptied.rs"]
mod emptied;

use std::sync::Arc;

use emptied::Stores;
use larder_capabilities::sqlite::{Sqlite, SqliteConfig};
use larder_kernel::Namespace;

#[tokio::test]
async fn readers_from_before_a_new_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("larder.db");
    let open = async || {
        let sqlite = Sqlite::open(SqliteConfig::new(&path)).await.unwrap();
        let namespace = Namespace::new("n").unwrap();
        Stores {
            history: Arc::new(sqlite.history(namespace.clone())),
            values: Arc::new(sqlite.key_value(namespace.clone())),
            tasks: Arc::new(sqlite.tasks(namespace)),
        }
    };
    let empty = async || {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.path().join(format!("larder.db{suffix}")));
        }
    };
    let running = emptied::readers_from_before_are_refused(open, empty).await;
    // The streams of the removed file have nothing to read, and end or wait; they deliver nothing.
    drop(running);
}
