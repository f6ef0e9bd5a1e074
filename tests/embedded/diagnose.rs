//! The diagnosis of a backend: its findings, and that it changes nothing. The tests of the command in
//! `larder-cli` diagnose live services.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(any(feature = "sqlite", feature = "fs"))]
use std::fs;
#[cfg(any(feature = "sqlite", feature = "fs"))]
use std::path::Path;
use std::time::Duration;
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use std::time::Instant;

#[cfg(any(feature = "sqlite", feature = "fs"))]
use larder::Backend;
#[cfg(any(feature = "sqlite", feature = "fs"))]
use larder::diagnose::opening_changes;
use larder::diagnose::{Check, CheckStatus, Diagnosis, diagnose};
use larder_kernel::{ErrorKind, Namespace};

const LONG: Duration = Duration::from_secs(60);

fn named<'d>(diagnosis: &'d Diagnosis, name: &str) -> &'d Check {
    diagnosis
        .checks
        .iter()
        .find(|check| check.name == name)
        .unwrap_or_else(|| panic!("no {name} in {diagnosis:#?}"))
}

/// Returns every file below a folder with its bytes.
#[cfg(any(feature = "sqlite", feature = "fs"))]
fn everything(folder: &Path) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.clone(), None));
            found.extend(everything(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, Some(bytes)));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn memory_keeps_nothing_and_a_malformed_url_is_an_error() {
    let diagnosis = diagnose("memory:", LONG).await.unwrap();
    assert_eq!((diagnosis.backend, diagnosis.status()), ("memory", CheckStatus::Warn));
    let text = serde_json::to_string(&diagnosis).unwrap();
    assert!(
        text.starts_with(r#"{"backend":"memory","checks":[{"name":"durability","status":"warn""#),
        "{text}"
    );
    let error = diagnose("memory:?size=s3cret", LONG).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
    assert!(!format!("{error:?}").contains("s3cret"));
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_diagnosis_does_not_change_the_database_file() {
    use larder_kernel::{ChatMessage, HistoryProviderExt, Namespace, Thread};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a file?.db");
    let url = format!("sqlite:{}", path.display().to_string().replace('?', "%3F"));
    let absent = diagnose(&url, LONG).await.unwrap();
    assert_eq!((named(&absent, "reach").status, absent.status()), (CheckStatus::Warn, CheckStatus::Warn));
    assert!(opening_changes(&url).unwrap().unwrap().contains("does not exist"));
    assert_eq!(everything(folder.path()), [], "looking made something");

    let place = Backend::open(&url).await.unwrap();
    let stores = place.stores(&Namespace::new("n").unwrap()).await;
    let thread = Thread::new("a", "s").unwrap();
    stores.set().history().unwrap().append(&thread, ChatMessage::user("canary")).await.unwrap();
    // During the use by a program, and after the program closed the database.
    let open = diagnose(&url, LONG).await.unwrap();
    assert!(open.checks.iter().all(|check| check.status != CheckStatus::Fail), "{open:#?}");
    drop(stores);
    place.close().await;
    let before = everything(folder.path());
    let closed = diagnose(&url, LONG).await.unwrap();
    assert_eq!(everything(folder.path()), before, "looking changed something");
    assert_eq!(opening_changes(&url).unwrap(), None);
    for name in
        ["reach", "writable", "flush", "durability", "journal", "owner", "schema", "latency", "integrity"]
    {
        let status = named(&closed, name).status;
        // A busy machine is slow.
        assert!(
            status == CheckStatus::Ok || ["flush", "latency"].contains(&name),
            "{:?}",
            named(&closed, name)
        );
    }
    assert!(!serde_json::to_string(&closed).unwrap().contains("canary"));
    let normal = diagnose(&format!("{url}?synchronous=normal"), LONG).await.unwrap();
    assert_eq!(named(&normal, "durability").status, CheckStatus::Warn);
}

/// A diagnosis used to release the locks that this process held on the file. A program with an older SQLite
/// that then closed the file removed the WAL, with acknowledged writes in it.
#[cfg(all(feature = "sqlite", target_os = "linux"))]
#[tokio::test]
async fn a_diagnosis_of_an_open_file_keeps_its_locks() {
    use std::os::unix::fs::MetadataExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("larder.db");
    let url = format!("sqlite:{}", path.display());
    let place = Backend::open(&url).await.unwrap();
    let file = format!(":{} ", fs::metadata(&path).unwrap().ino());
    let locks =
        || fs::read_to_string("/proc/locks").unwrap().lines().filter(|lock| lock.contains(&file)).count();
    assert_ne!(locks(), 0, "an open file is locked");
    diagnose(&url, LONG).await.unwrap();
    opening_changes(&url).unwrap();
    assert_ne!(locks(), 0, "the look took the locks away");
    place.close().await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_file_of_another_version_program_or_kind_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, statements: &str| {
        let path = folder.path().join(name);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(statements).unwrap();
        format!("sqlite:{}", path.display())
    };
    let mark = "PRAGMA application_id = 0x4c726472;";
    let old = file("old.db", &format!("{mark} CREATE TABLE t (x); PRAGMA user_version = 1;"));
    let diagnosis = diagnose(&old, LONG).await.unwrap();
    assert_eq!(named(&diagnosis, "schema").status, CheckStatus::Fail);
    assert!(named(&diagnosis, "schema").seen.contains("version 1 of"), "{diagnosis:#?}");
    assert!(named(&diagnosis, "schema").advice.as_ref().unwrap().contains("larder dump"), "{diagnosis:#?}");
    assert_eq!(opening_changes(&old).unwrap(), None);
    let new = file("new.db", &format!("{mark} CREATE TABLE t (x); PRAGMA user_version = 1000;"));
    assert_eq!(named(&diagnose(&new, LONG).await.unwrap(), "schema").status, CheckStatus::Fail);
    let other = file("other.db", "CREATE TABLE t (x)");
    assert_eq!(named(&diagnose(&other, LONG).await.unwrap(), "owner").status, CheckStatus::Fail);
    let text = folder.path().join("text.db");
    fs::write(&text, "this is no database, however long it may grow to be").unwrap();
    let diagnosis = diagnose(&format!("sqlite:{}", text.display()), LONG).await.unwrap();
    assert_eq!(named(&diagnosis, "journal").status, CheckStatus::Fail);
    let nowhere = diagnose("sqlite:/nonexistent/x.db", LONG).await.unwrap();
    assert_eq!(named(&nowhere, "reach").status, CheckStatus::Fail);
}

#[cfg(all(feature = "sqlite", unix))]
#[tokio::test]
async fn a_damaged_file_is_reported() {
    use std::os::unix::fs::FileExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
                INSERT INTO t SELECT i, hex(randomblob(50)) FROM n";
    connection
        .execute_batch(
            "PRAGMA application_id = 0x4c726472; PRAGMA user_version = 2; CREATE TABLE t (x PRIMARY KEY, y)",
        )
        .unwrap();
    connection.execute_batch(rows).unwrap();
    drop(connection);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 4096], 40 * 4096).unwrap();
    let diagnosis = diagnose(&format!("sqlite:{}", path.display()), LONG).await.unwrap();
    assert_eq!(named(&diagnosis, "integrity").status, CheckStatus::Fail, "{diagnosis:#?}");
}

#[cfg(all(feature = "fs", unix))]
#[tokio::test]
async fn a_diagnosis_does_not_change_the_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("blobs");
    let url = format!("file:{}", root.display());
    let absent = diagnose(&url, LONG).await.unwrap();
    assert_eq!(named(&absent, "reach").status, CheckStatus::Warn);
    assert!(!root.exists() && opening_changes(&url).unwrap().is_some());

    let backend = Backend::open(&url).await.unwrap();
    let stores = backend.stores(&Namespace::new("n").unwrap()).await;
    stores.blobs().unwrap().put("k", "v").await.unwrap();
    drop(stores);
    backend.close().await;
    let before = everything(scratch.path());
    let found = diagnose(&url, LONG).await.unwrap();
    assert_eq!(everything(scratch.path()), before, "looking changed something");
    assert_eq!(opening_changes(&url).unwrap(), None);
    for name in ["reach", "writable", "durability", "leftovers"] {
        assert_eq!(named(&found, name).status, CheckStatus::Ok, "{:?}", named(&found, name));
    }
    assert!(named(&found, "flush").seen.contains("and removed"));
    fs::create_dir(root.join(".larder/trash/old")).unwrap();
    assert_eq!(named(&diagnose(&url, LONG).await.unwrap(), "leftovers").status, CheckStatus::Warn);
    fs::write(scratch.path().join("taken"), "x").unwrap();
    let taken = format!("file:{}", scratch.path().join("taken").display());
    assert_eq!(named(&diagnose(&taken, LONG).await.unwrap(), "reach").status, CheckStatus::Fail);
}

/// A port without a listener, and a port whose listener accepts connections and stays silent.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
#[tokio::test]
async fn an_unreachable_server_is_reported_in_time_without_the_secret() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let urls = [
        #[cfg(feature = "postgres")]
        "postgres://u53r:s3cret@127.0.0.1:PORT/db",
        #[cfg(feature = "age")]
        "age://u53r:s3cret@127.0.0.1:PORT/db",
        #[cfg(feature = "redis")]
        "redis://u53r:s3cret@127.0.0.1:PORT/0",
        #[cfg(feature = "redis")]
        "redis+cluster://u53r:s3cret@127.0.0.1:PORT",
        #[cfg(feature = "s3")]
        "s3://u53r:s3cret@files?endpoint=http://127.0.0.1:PORT&region=x",
    ];
    for url in urls {
        for (port, timeout) in [("1".to_owned(), LONG), (silent.to_string(), Duration::from_secs(1))] {
            let begun = Instant::now();
            let diagnosis = diagnose(&url.replace("PORT", &port), timeout).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(45), "{url}: {:?}", begun.elapsed());
            assert_eq!(diagnosis.status(), CheckStatus::Fail, "{diagnosis:#?}");
            let text = format!("{diagnosis:?} {}", serde_json::to_string(&diagnosis).unwrap());
            assert!(!text.contains("s3cret") && !text.contains("u53r"), "{text}");
        }
    }
}
