//! Programs and files of different format numbers.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{
    BucketName, ChatMessage, Entity, EntityId, EntityType, GraphStore, HistoryProvider, HistoryProviderExt,
    Key, KeyValueStore, KeyValueStoreExt, Namespace, Result, Store, Thread, Ttl,
};

use super::*;

/// The schema of the next release: one migration more.
const NEXT: Schema = Schema { migrations: &NEXT_STEPS };
const NEXT_STEPS: [&str; Schema::CURRENT.migrations.len() + 1] = {
    let mut steps = ["CREATE TABLE later (n INTEGER)"; Schema::CURRENT.migrations.len() + 1];
    let mut at = 0;
    while at < Schema::CURRENT.migrations.len() {
        steps[at] = Schema::CURRENT.migrations[at];
        at += 1;
    }
    steps
};

async fn open_next(path: &Path) -> Sqlite {
    Sqlite::open_at(SqliteConfig::new(path), NEXT).await.unwrap()
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

fn thread() -> Thread {
    Thread::new("agent", "session").unwrap()
}

async fn append(sqlite: &Sqlite, text: &str) -> Result<()> {
    sqlite.history(namespace()).append(&thread(), ChatMessage::user(text)).await.map(drop)
}

/// Writes once with each kind of call.
async fn write_in_each_way(sqlite: &Sqlite) -> Vec<Result<()>> {
    let (history, values, graph) =
        (sqlite.history(namespace()), sqlite.key_value(namespace()), sqlite.graph(namespace()));
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
    let entity = Entity::new(EntityId::new("e").unwrap(), EntityType::new("t").unwrap());
    vec![
        append(sqlite, "text").await,
        history.set_ttl(&thread(), Some(Ttl::fixed(Duration::from_secs(60))), None).await,
        history.clear(&thread(), None).await.map(drop),
        history.erase().await,
        values.set(&bucket, &key, Bytes::from_static(b"value")).await.map(drop),
        values.delete(&bucket, &key, None).await.map(drop),
        graph.upsert_entities(vec![entity]).await.map(drop),
        sqlite.sweep().await.map(drop),
    ]
}

/// Returns all rows of all tables.
fn rows(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut names =
        connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").unwrap();
    let names: rusqlite::Result<Vec<String>> = names.query_map([], |row| row.get(0)).unwrap().collect();
    let mut found = Vec::new();
    for table in names.unwrap() {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|at| row.get_ref(at).unwrap()).collect();
            found.push(format!("{table} {values:?}"));
        }
    }
    found
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_refused_by_number_and_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let newer = open_next(&path).await;
    write_in_each_way(&newer).await.into_iter().for_each(Result::unwrap);
    newer.close().await;
    let before = std::fs::read(&path).unwrap();
    let error = open(&path).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("path")));
    let (own, next) = (Schema::CURRENT.formats().newest, NEXT.formats().newest);
    assert!(error.message().contains(&format!("format {next}; ")), "{error}");
    assert!(error.message().contains(&format!("up to format {own} ")), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(!path.with_extension("db-wal").exists());
}

#[tokio::test]
async fn a_running_program_does_not_write_after_a_newer_one_upgraded_the_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let older = open(&path).await.unwrap();
    write_in_each_way(&older).await.into_iter().for_each(Result::unwrap);
    append(&older, "first").await.unwrap();
    let newer = open_next(&path).await;
    append(&newer, "second").await.unwrap();
    let before = rows(&path);
    for (call, written) in write_in_each_way(&older).await.into_iter().enumerate() {
        let error = written.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied), "{call}");
        assert!(error.message().contains("`larder load` into a new file"), "{error}");
    }
    // Concurrent writers share a transaction, which is refused for all of them.
    let together: Vec<_> = (0..16).map(|_| append(&older, "text")).collect();
    for written in futures_util::future::join_all(together).await {
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(rows(&path), before);
    // The refused transactions hold no lock.
    append(&newer, "third").await.unwrap();
    assert_eq!(newer.history(namespace()).tail(&thread(), None, 10).await.unwrap().messages.len(), 3);
}

/// The writer removes expired data in a separate transaction.
#[tokio::test]
async fn a_running_program_does_not_remove_expired_data_after_an_upgrade() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let first = open(&path).await.unwrap();
    append(&first, "text").await.unwrap();
    let brief = Ttl::fixed(Duration::from_millis(500));
    first.history(namespace()).set_ttl(&thread(), Some(brief), None).await.unwrap();
    first.close().await;
    // Its first removal is due after its first call, which comes after the upgrade.
    let older = open(&path).await.unwrap();
    open_next(&path).await.close().await;
    let before = rows(&path);
    tokio::time::sleep(Duration::from_millis(550)).await;
    for _ in 0..2 {
        assert_eq!(append(&older, "text").await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    older.close().await;
    assert_eq!(rows(&path), before);
}
