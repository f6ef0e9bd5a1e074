mod closing;
mod inline_read;
#[cfg(unix)]
mod moved;

use std::time::Duration;

use larder_kernel::ErrorKind;
use tempfile::TempDir;

use super::super::expiry;
use super::*;

async fn open_with(config: SqliteConfig) -> Result<Engine> {
    Engine::open(config, Schema::CURRENT, expiry::JOB).await
}

async fn open(folder: &TempDir) -> Engine {
    let engine = open_with(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    engine
        .write("test.make", |sql| {
            Ok(sql.execute_batch("CREATE TABLE IF NOT EXISTS numbers (n INTEGER UNIQUE)")?)
        })
        .await
        .unwrap();
    engine
}

async fn add(engine: Engine, number: i64) -> Result<()> {
    engine
        .write("test.add", move |sql| {
            sql.prepare_cached("INSERT INTO numbers VALUES (?1)")?.execute([number])?;
            if number < 0 {
                return Err(Error::new(ErrorKind::Conflict, "test.add", "negative").into());
            }
            Ok(())
        })
        .await
}

async fn numbers(engine: &Engine) -> Vec<i64> {
    engine
        .read("test.read", |sql| {
            let mut statement = sql.prepare_cached("SELECT n FROM numbers ORDER BY n")?;
            let rows = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(rows)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn jobs_of_one_commit_succeed_and_fail_independently() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let hold = engine.write("test.hold", |_| {
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    });
    let jobs = [1, -1, 2, 2, 3].map(|number| add(engine.clone(), number));
    let (_, results) = futures_util::future::join(hold, futures_util::future::join_all(jobs)).await;
    let kinds: Vec<_> = results.into_iter().map(|result| result.err().map(|error| error.kind())).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Conflict), None, Some(ErrorKind::Unexpected), None]);
    assert_eq!(numbers(&engine).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_job_whose_future_is_dropped_completes() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let dropped = tokio::time::timeout(Duration::ZERO, async {
        tokio::task::yield_now().await;
        engine
            .write("test.slow", |sql| {
                std::thread::sleep(Duration::from_millis(30));
                Ok(sql.execute_batch("INSERT INTO numbers VALUES (7); INSERT INTO numbers VALUES (8)")?)
            })
            .await
    });
    let _ = dropped.await;
    add(engine.clone(), 9).await.unwrap();
    let found = numbers(&engine).await;
    assert!(found == [7, 8, 9] || found == [9], "{found:?}");
}

/// Regression test: each call waited for the lock from the instant at which the calls before it gave up.
#[tokio::test]
async fn calls_that_wait_for_another_process_time_out_independently() {
    const PATIENCE: Duration = Duration::from_millis(400);
    let folder = TempDir::new().unwrap();
    drop(open(&folder).await);
    let config = SqliteConfig::new(folder.path().join("larder.db")).with_busy_timeout(PATIENCE);
    let engine = open_with(config).await.unwrap();
    let other = Connection::open(folder.path().join("larder.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let late = |number: u64| {
        let engine = engine.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20 * number)).await;
            add(engine, 1).await.unwrap_err().kind()
        }
    };
    let abandoned = tokio::time::timeout(Duration::from_millis(30), add(engine.clone(), 7)).await;
    assert!(abandoned.is_err());
    let kinds = futures_util::future::join_all((1..=5).map(late)).await;
    assert_eq!(kinds, [ErrorKind::Timeout; 5]);
    // In sequence they would have waited five times as long.
    assert!(begun.elapsed() < PATIENCE * 3, "{:?}", begun.elapsed());
    other.execute_batch("ROLLBACK").unwrap();
    add(engine.clone(), 2).await.unwrap();
    // A call that gave up before its transaction began must not run later.
    assert_eq!(numbers(&engine).await, [2]);
}

/// Regression test: such a name was parsed as a URI with settings of SQLite.
#[tokio::test]
async fn a_path_is_a_path_whatever_it_looks_like() {
    let folder = TempDir::new().unwrap();
    let name = "file:a%20b.db?mode=memory";
    let inside = folder.path().join("file:");
    std::fs::create_dir(&inside).unwrap();
    for path in [folder.path().join(name), inside.join("c.db")] {
        open_with(SqliteConfig::new(&path)).await.unwrap().close().await;
        assert!(path.exists(), "{}", path.display());
    }
    let located = connection::with_absolute_path(SqliteConfig::new(name)).unwrap();
    assert!(located.path.is_absolute() && located.path.ends_with(name));
}

#[tokio::test]
async fn a_panicking_job_leaves_nothing_and_the_thread_continues() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let panicked: Result<()> = engine
        .write("test.panic", |sql| {
            sql.execute("INSERT INTO numbers VALUES (1)", [])?;
            panic!("on purpose")
        })
        .await;
    assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Unavailable);
    for _ in 0..2 * READERS {
        let panicked: Result<()> = engine.read("test.panic", |_| panic!("on purpose")).await;
        assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    add(engine.clone(), 2).await.unwrap();
    assert_eq!(numbers(&engine).await, [2]);
}

#[tokio::test]
async fn several_handles_open_a_new_file_and_write_concurrently() {
    let folder = TempDir::new().unwrap();
    let engines = futures_util::future::join_all((0..4).map(|_| open(&folder))).await;
    let jobs = (0..40_usize).map(|n| add(engines[n % 4].clone(), i64::try_from(n).unwrap()));
    for result in futures_util::future::join_all(jobs).await {
        result.unwrap();
    }
    assert_eq!(numbers(&engines[0]).await.len(), 40);
}

#[tokio::test]
async fn a_commit_of_another_handle_wakes_the_watcher() {
    let folder = TempDir::new().unwrap();
    let (ours, theirs) = (open(&folder).await, open(&folder).await);
    let mut commits = ours.commits();
    commits.mark_unchanged();
    add(theirs, 1).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), commits.changed()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_held_elsewhere_is_a_timeout_that_can_be_retried() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let config = SqliteConfig::new(&path).with_busy_timeout(Duration::from_millis(40));
    let engine = open_with(config).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = engine.write("test.write", |_| Ok(())).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Timeout, "test.write"));
    assert!(error.is_retryable());
    other.execute_batch("ROLLBACK").unwrap();
    engine.write("test.write", |_| Ok(())).await.unwrap();
}

#[tokio::test]
async fn durability_is_read_back_and_closing_waits_for_the_connections() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    assert_eq!(engine.durability(), Durability::Power);
    engine.close().await;
    assert!(!folder.path().join("larder.db-wal").exists());
    let config = SqliteConfig::new(folder.path().join("larder.db"))
        .with_synchronous(super::super::config::Synchronous::Normal);
    assert_eq!(open_with(config).await.unwrap().durability(), Durability::Process);
}

async fn refused(path: std::path::PathBuf) -> (ErrorKind, Option<&'static str>) {
    let error = open_with(SqliteConfig::new(path)).await.unwrap_err();
    assert_eq!(error.operation(), "sqlite.open");
    (error.kind(), error.field())
}

#[tokio::test]
async fn an_unusable_file_is_refused_by_kind_and_not_changed() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    assert_eq!(refused(file("none/larder.db")).await, (ErrorKind::InvalidInput, Some("path")));
    assert_eq!(refused(folder.path().to_owned()).await, (ErrorKind::InvalidInput, Some("path")));
    std::fs::write(file("text"), "no database, ".repeat(100)).unwrap();
    assert_eq!(refused(file("text")).await, (ErrorKind::Corrupt, Some("path")));
    let other = Connection::open(file("other.db")).unwrap();
    other.execute_batch("CREATE TABLE theirs (a)").unwrap();
    assert_eq!(refused(file("other.db")).await, (ErrorKind::InvalidInput, Some("path")));
    open(&folder).await.close().await;
    let newer = Connection::open(file("larder.db")).unwrap();
    newer.execute_batch("PRAGMA user_version = 1000").unwrap();
    assert_eq!(refused(file("larder.db")).await, (ErrorKind::Unsupported, Some("path")));
}

/// Keeps the writer busy until released. The jobs sent during that time wait together, and so share a
/// transaction.
async fn hold(engine: &Engine) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    let (begun, begins) = oneshot::channel();
    let engine = engine.clone();
    tokio::spawn(async move {
        let hold = move |_: &Connection| {
            let _ = begun.send(());
            let _ = held.recv_timeout(Duration::from_secs(10));
            Ok(())
        };
        engine.write("test.hold", hold).await.unwrap();
    });
    begins.await.unwrap();
    release
}

#[tokio::test]
async fn a_lost_transaction_is_acknowledged_to_no_caller() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let release = hold(&engine).await;
    let breaking = engine.write("test.break", |sql| Ok(sql.execute_batch("ROLLBACK")?));
    let all_sent = async move { release.send(()) };
    let (first, second) = (add(engine.clone(), 1), add(engine.clone(), 2));
    let (before, broken, after, _) = futures_util::future::join4(first, breaking, second, all_sent).await;
    let error = before.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, "test.add"));
    assert!(error.is_retryable());
    assert!(broken.is_err());
    after.unwrap();
    assert_eq!(numbers(&engine).await, [2]);
}

#[tokio::test]
async fn a_verdict_from_a_lost_write_is_not_returned() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let release = hold(&engine).await;
    // Sees the number that the previous job has written and that no commit keeps.
    let refused = engine.write("test.create", |sql| -> Fallible<()> {
        let found: i64 = sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0))?;
        assert_eq!(found, 1);
        Err(Error::new(ErrorKind::AlreadyExists, "test.create", "the number exists").into())
    });
    let breaking = engine.write("test.break", |sql| Ok(sql.execute_batch("ROLLBACK")?));
    let all_sent = async move { release.send(()) };
    let jobs = futures_util::future::join4(add(engine.clone(), 1), refused, breaking, all_sent);
    let (written, refused, _, _) = jobs.await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable);
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    assert!(numbers(&engine).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_never_stops_writing_leaves_others_their_turn() {
    let folder = TempDir::new().unwrap();
    let busy = open(&folder).await;
    let config = SqliteConfig::new(folder.path().join("larder.db"));
    let other = open_with(config.with_busy_timeout(Duration::from_millis(1_000))).await.unwrap();
    let (done, ended) = watch::channel(false);
    let floods: Vec<_> = (0..12)
        .map(|_| {
            let (busy, ended) = (busy.clone(), ended.clone());
            tokio::spawn(async move {
                while !*ended.borrow() {
                    let job = |sql: &Connection| {
                        std::thread::sleep(Duration::from_millis(20));
                        Ok(sql.execute_batch("INSERT INTO numbers VALUES (NULL)")?)
                    };
                    busy.write("test.flood", job).await.unwrap();
                }
            })
        })
        .collect();
    for number in 0..10 {
        add(other.clone(), number).await.unwrap();
    }
    done.send(true).unwrap();
    for flood in floods {
        flood.await.unwrap();
    }
}

#[test]
fn concurrent_openings_of_one_new_file_all_succeed() {
    for _ in 0..20 {
        let folder = TempDir::new().unwrap();
        let mut config = SqliteConfig::new(folder.path().join("larder.db"));
        // A slow disk does not end the wait of the last opening.
        config.busy_timeout = Duration::from_secs(60);
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let opening: Vec<_> = (0..24)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        connection::writer(&config, Schema::CURRENT)
                            .map(drop)
                            .map_err(|failure| failure.into_error("test.open"))
                    })
                })
                .collect();
            for opened in opening {
                opened.join().unwrap().unwrap();
            }
        });
    }
}

/// Replaces a record of 1 MiB as often as requested.
async fn write_records(engine: &Engine, times: usize) {
    const RECORD_BYTES: i64 = 1024 * 1024;
    engine.write("test.make", |sql| Ok(sql.execute_batch("CREATE TABLE records (b BLOB)")?)).await.unwrap();
    for _ in 0..times {
        let job = |sql: &Connection| {
            sql.execute("DELETE FROM records", [])?;
            sql.execute("INSERT INTO records VALUES (zeroblob(?1))", [RECORD_BYTES])?;
            Ok(())
        };
        engine.write("test.record", job).await.unwrap();
    }
}

fn log_bytes(folder: &TempDir) -> u64 {
    std::fs::metadata(folder.path().join("larder.db-wal")).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_small_under_constant_reads() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let (done, ended) = watch::channel(false);
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (engine, ended) = (engine.clone(), ended.clone());
            tokio::spawn(async move {
                while !*ended.borrow() {
                    let job = |sql: &Connection| {
                        let found: i64 =
                            sql.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0))?;
                        std::thread::sleep(Duration::from_millis(20));
                        Ok(found)
                    };
                    engine.read("test.look", job).await.unwrap();
                }
            })
        })
        .collect();
    write_records(&engine, 240).await;
    done.send(true).unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    let log_bytes = log_bytes(&folder);
    assert!(log_bytes < 128 * 1024 * 1024, "{log_bytes}");
}

/// The commit hook replaces SQLite's automatic checkpoints.
#[tokio::test]
async fn the_log_restarts_without_readers() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    write_records(&engine, 40).await;
    let log_bytes = log_bytes(&folder);
    assert!(log_bytes < 16 * 1024 * 1024, "{log_bytes}");
}
