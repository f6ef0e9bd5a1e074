use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    AppendOptions, BucketName, ChatMessage, HistoryEventKind, HistoryProvider, HistoryProviderExt,
    IdempotencyKey, Key, KeyValueEventKind, KeyValuePutOptions, KeyValueStore, KeyValueStoreExt, Namespace,
    Removal, Revision, Seq, Thread, Ttl,
};
use tempfile::TempDir;

use super::super::tests::plan;
use super::super::{Sqlite, SqliteConfig, Synchronous};
use super::*;
use crate::driver::OpenMode;

/// More messages than one step removes.
const MANY: usize = 3_000;

struct Database {
    _folder: TempDir,
    file: PathBuf,
}

impl Database {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self { file: folder.path().join("larder.db"), _folder: folder }
    }

    async fn open(&self) -> Sqlite {
        let config = SqliteConfig::new(&self.file).with_synchronous(Synchronous::Normal);
        Sqlite::open(config).await.unwrap()
    }

    fn look(&self) -> Connection {
        Connection::open(&self.file).unwrap()
    }

    fn count(&self, what: &str) -> i64 {
        self.look().query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
    }
}

fn app() -> Namespace {
    Namespace::new("app").unwrap()
}

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

async fn write(history: &impl HistoryProvider, thread: &Thread, messages: usize, ttl: Option<Ttl>) {
    for first in (0..messages).step_by(1_000) {
        let batch = (first..messages.min(first + 1_000)).map(|number| ChatMessage::user(number.to_string()));
        history.append_many(thread, batch.collect(), AppendOptions::default()).await.unwrap();
    }
    if ttl.is_some() {
        history.set_ttl(thread, ttl, None).await.unwrap();
    }
}

fn brief() -> Ttl {
    Ttl::fixed(Duration::from_millis(1))
}

#[tokio::test]
async fn an_unused_expired_thread_is_removed_in_parts_and_its_numbers_continue() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    write(&history, &thread("gone"), MANY, None).await;
    write(&history, &thread("kept"), 2, None).await;
    write(&history, &thread("later"), 2, Some(Ttl::fixed(Duration::from_secs(3_600)))).await;
    // The subscription begins while the thread is alive; later, it would record the expiry as a clear event.
    let all = Seq::new(i64::try_from(MANY).unwrap());
    let mut events = history.subscribe(&thread("gone"), all).await.unwrap();
    history.set_ttl(&thread("gone"), Some(brief()), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(sqlite.sweep().await.unwrap(), 1);
    assert_eq!(database.count("messages"), 4);
    assert_eq!(database.count("threads WHERE sweep_ms IS NOT NULL"), 1);
    let event = events.next().await.unwrap().unwrap();
    assert!(
        matches!(event.kind, HistoryEventKind::Cleared { removed } if removed == MANY as u64),
        "{event:?}"
    );
    let next = history.append(&thread("gone"), ChatMessage::user("again")).await.unwrap();
    assert_eq!(next.get(), i64::try_from(MANY).unwrap() + 2);
    assert_eq!(sqlite.sweep().await.unwrap(), 0);
}

/// Between two steps the thread is absent, and a clock that is set back does not restore half of it.
#[tokio::test]
async fn a_partially_removed_thread_reads_as_empty() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    let gone = thread("gone");
    write(&history, &gone, MANY, Some(Ttl::sliding(Duration::from_millis(300)))).await;
    database.look().execute("UPDATE threads SET expires_ms = expires_ms - 1000, sweep_ms = 1", []).unwrap();
    let step = remove_expired(&database.look()).unwrap();
    assert_eq!(step, ExpiryStep { removed: 0, more: true });
    let left = database.count("messages");
    assert!(left > 0 && left < i64::try_from(MANY).unwrap(), "{left} left");
    assert_eq!(database.count("threads WHERE expires_ms = 0 AND sweep_ms = 0"), 1);
    assert!(history.tail(&gone, None, 10).await.unwrap().messages.is_empty());
    assert!(history.list_threads(None, Default::default()).await.unwrap().items.is_empty());
    let next = history.append(&gone, ChatMessage::user("again")).await.unwrap();
    assert_eq!(next.get(), i64::try_from(MANY).unwrap() + 2);
    assert_eq!(database.count("messages"), 1);
}

#[tokio::test]
async fn an_extension_is_seen_after_the_first_expiry() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    let used = thread("used");
    write(&history, &used, 1, Some(Ttl::sliding(Duration::from_secs(3_600)))).await;
    database.look().execute("UPDATE threads SET sweep_ms = 1", []).unwrap();
    assert_eq!(sqlite.sweep().await.unwrap(), 0);
    assert_eq!(database.count("threads WHERE sweep_ms = expires_ms"), 1);
    assert_eq!(history.tail(&used, None, 10).await.unwrap().messages.len(), 1);
    history.set_ttl(&used, None, None).await.unwrap();
    assert_eq!(database.count("threads WHERE sweep_ms IS NOT NULL"), 0);
}

#[tokio::test]
async fn writes_remove_expired_data() {
    let database = Database::new();
    let sqlite = database.open().await;
    write(&sqlite.history(app()), &thread("gone"), MANY, Some(brief())).await;
    sqlite.close().await;
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    let since = Instant::now();
    while database.count("messages WHERE thread = 1") > 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "the thread is still there");
        history.append(&thread("other"), ChatMessage::user("text")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_expired_value_is_removed_without_writes_and_watchers_are_notified() {
    let database = Database::new();
    let sqlite = database.open().await;
    let values = sqlite.key_value(app());
    let bucket = BucketName::new("bucket").unwrap();
    let [gone, kept, recent] = ["gone", "kept", "recent"].map(|key| Key::new(key).unwrap());
    let brief = |ttl_ms| KeyValuePutOptions::default().with_ttl(Duration::from_millis(ttl_ms));
    let put = values.put(&bucket, &gone, Bytes::from_static(b"value"), brief(1)).await.unwrap();
    values.set(&bucket, &kept, Bytes::from_static(b"value")).await.unwrap();
    database
        .look()
        .execute_batch(
            "UPDATE kv_entries SET expires_ms = expires_ms - 70000; UPDATE kv_buckets SET sweep_ms = \
                                   sweep_ms - 70000",
        )
        .unwrap();
    // A key that has just expired stays, because active watchers may not have read its put.
    values.put(&bucket, &recent, Bytes::from_static(b"value"), brief(1)).await.unwrap();
    // The write removed the other key.
    assert_eq!(database.count("kv_tombstones WHERE expired = 1"), 1);
    assert_eq!(sqlite.sweep().await.unwrap(), 0);
    database
        .look()
        .execute_batch(
            "UPDATE kv_entries SET expires_ms = expires_ms - 70000; UPDATE kv_buckets SET sweep_ms = \
                                   sweep_ms - 70000",
        )
        .unwrap();
    assert_eq!(sqlite.sweep().await.unwrap(), 1);
    assert_eq!((database.count("kv_entries"), database.count("kv_buckets WHERE sweep_ms IS NULL")), (1, 1));
    let events = values.watch(&bucket, "", Revision::ZERO).await.unwrap();
    let found: Vec<_> = events.take(3).map(Result::unwrap).collect().await;
    assert_eq!(found[0].revision, put);
    let told: Vec<_> =
        found.iter().map(|event| (event.key.as_str(), event.kind == KeyValueEventKind::Deleted)).collect();
    assert_eq!(told, [("gone", true), ("kept", false), ("recent", true)]);
}

#[tokio::test]
async fn many_keys_and_large_values_are_removed_in_parts() {
    let database = Database::new();
    let sqlite = database.open().await;
    let values = sqlite.key_value(app());
    let bucket = BucketName::new("bucket").unwrap();
    let brief = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
    for number in 0..300_u32 {
        let value = Bytes::from(vec![1; if number < 3 { 3 << 20 } else { 8 }]);
        values.put(&bucket, &Key::new(number.to_string()).unwrap(), value, brief).await.unwrap();
    }
    database
        .look()
        .execute_batch(
            "UPDATE kv_entries SET expires_ms = expires_ms - 70000; UPDATE kv_buckets SET sweep_ms = 1",
        )
        .unwrap();
    let first = remove_expired(&database.look()).unwrap();
    assert_eq!(first, ExpiryStep { removed: 2, more: true });
    assert_eq!(sqlite.sweep().await.unwrap(), 298);
    assert_eq!(database.count("kv_entries"), 0);
}

#[tokio::test]
async fn looking_costs_a_step_into_an_index() {
    let database = Database::new();
    database.open().await.close().await;
    let sql = database.look();
    for (table, index) in [("threads", "threads_to_sweep"), ("kv_buckets", "kv_buckets_to_sweep")] {
        let plan =
            plan(&sql, &format!("SELECT 1 FROM {table} WHERE sweep_ms <= ?1 ORDER BY sweep_ms LIMIT ?2"));
        let plan = plan.unwrap();
        assert!(plan.contains(&format!("{index} (sweep_ms<?)")) && !plan.contains("TEMP"), "{plan}");
    }
}

#[tokio::test]
async fn what_a_pop_keeps_is_removed_when_its_time_has_passed() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    write(&history, &thread("popped"), 200, None).await;
    let pop = Removal::newest(100).with_idempotency_key(IdempotencyKey::new("k").unwrap());
    assert_eq!(history.remove(&thread("popped"), pop.clone()).await.unwrap().messages.len(), 100);
    sqlite.sweep().await.unwrap();
    assert_eq!(database.count("popped_messages"), 100);
    let kept = "SELECT max(kept_until_ms) FROM popped_messages";
    let kept_until_ms: i64 = database.look().query_row(kept, [], |row| row.get(0)).unwrap();
    assert!(kept_until_ms <= now_ms() + 600_000, "{kept_until_ms}");
    database.look().execute("UPDATE popped_messages SET kept_until_ms = 1", []).unwrap();
    // The time has passed, and nothing has removed the messages yet.
    assert_eq!(history.remove(&thread("popped"), pop.clone()).await.unwrap().messages.len(), 0);
    sqlite.sweep().await.unwrap();
    assert_eq!(database.count("popped_messages"), 0);
    let again = history.remove(&thread("popped"), pop).await.unwrap();
    assert_eq!((again.removed, again.seqs.len(), again.messages.len()), (100, 100, 0));
    assert_eq!(database.count("messages"), 100);
}

#[tokio::test]
async fn one_step_removes_a_bounded_size_of_popped_messages() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    write(&history, &thread("large"), 6, None).await;
    let pop = Removal::newest(6).with_idempotency_key(IdempotencyKey::new("k").unwrap());
    history.remove(&thread("large"), pop).await.unwrap();
    let large = "UPDATE popped_messages SET kept_until_ms = 1, body = randomblob(2000000)";
    database.look().execute(large, []).unwrap();
    let first = remove_expired(&database.look()).unwrap();
    let left = database.count("popped_messages");
    assert!(first.more && (1..6).contains(&left), "{first:?} {left}");
    sqlite.sweep().await.unwrap();
    assert_eq!(database.count("popped_messages"), 0);
}

#[tokio::test]
async fn a_reader_without_write_access_counts_an_expiry_that_is_not_recorded() {
    let database = Database::new();
    let sqlite = database.open().await;
    let history = sqlite.history(app());
    write(&history, &thread("gone"), 2, None).await;
    history.set_ttl(&thread("gone"), Some(brief()), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let config = SqliteConfig::new(&database.file).with_mode(OpenMode::ReadOnly);
    let reader = Sqlite::open(config).await.unwrap().history(app());
    let info = reader.thread_info(&thread("gone")).await.unwrap();
    assert_eq!((info.messages, info.last), (0, Seq::new(3)));
    assert_eq!(reader.page_after(&thread("gone"), info.last, 10).await.unwrap().messages.len(), 0);
    let next = AppendOptions::default().with_if_last(info.last);
    let appended = history.append_many(&thread("gone"), vec![ChatMessage::user("next")], next).await.unwrap();
    assert_eq!(appended.first, Seq::new(4));
}
