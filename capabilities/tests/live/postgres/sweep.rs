//! Expired data is removed from disk, even if no caller uses it again.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    AppendOptions, BucketName, ChatMessage, HistoryEventKind, HistoryProvider, HistoryProviderExt,
    IdempotencyKey, Key, KeyValueEventKind, KeyValuePutOptions, KeyValueStore, Namespace, Removal, Revision,
    Seq, Thread, Ttl,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{open, with_database};

/// More than one call removes.
const MANY: usize = 2_500;

async fn count(admin: &mut PgConnection, what: &str) -> i64 {
    let select = format!("SELECT count(*) FROM larder.{what}");
    sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(admin).await.unwrap()
}

async fn run(admin: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(admin).await.unwrap();
}

async fn write(history: &impl HistoryProvider, thread: &Thread, messages: usize, ttl: Option<Ttl>) {
    for first in (0..messages).step_by(500) {
        let batch = (first..messages.min(first + 500)).map(|number| ChatMessage::user(number.to_string()));
        history.append_many(thread, batch.collect(), AppendOptions::default()).await.unwrap();
    }
    if ttl.is_some() {
        history.set_ttl(thread, ttl, None).await.unwrap();
    }
}

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

fn app() -> Namespace {
    Namespace::new("app").unwrap()
}

pub(crate) async fn an_unused_expired_thread_is_removed_in_parts() {
    with_database("sweep_threads", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        write(&history, &thread("gone"), MANY, Some(Ttl::fixed(Duration::from_millis(1)))).await;
        write(&history, &thread("kept"), 2, None).await;
        write(&history, &thread("later"), 2, Some(Ttl::fixed(Duration::from_secs(3_600)))).await;
        let mut events = history.subscribe(&thread("gone"), Seq::ZERO).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        // More threads than one batch examines.
        for number in 0..150 {
            let brief = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(1)));
            let messages = vec![ChatMessage::user("text")];
            history.append_many(&thread(&number.to_string()), messages, brief).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let gone = postgres.sweep().await.unwrap();
        // The subscription may have turned the first expiry into its clear.
        assert!((150..=151).contains(&gone), "{gone}");
        assert_eq!(count(&mut admin, "messages").await, 4);
        assert_eq!(count(&mut admin, "threads WHERE sweep_ms IS NOT NULL").await, 1);
        let event = events.next().await.unwrap().unwrap();
        let all = u64::try_from(MANY).unwrap();
        assert!(matches!(event.kind, HistoryEventKind::Cleared { removed } if removed == all), "{event:?}");
        let next = history.append(&thread("gone"), ChatMessage::user("again")).await.unwrap();
        assert_eq!(next.get(), i64::try_from(MANY).unwrap() + 2);
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        postgres.close().await;
    })
    .await;
}

/// The thread does not exist between two calls, and a clock that is set back does not restore half of it.
pub(crate) async fn a_partially_removed_thread_reads_as_empty() {
    with_database("sweep_half", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        let gone = thread("gone");
        write(&history, &gone, MANY, Some(Ttl::sliding(Duration::from_millis(1)))).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let sweep = "SELECT larder.sweep_thread('app', 'agent', 'gone', 1000, 1000000000)";
        let state: i32 = sqlx::query_scalar(sweep).fetch_one(&mut admin).await.unwrap();
        assert_eq!((state, count(&mut admin, "messages").await), (3, 1_500));
        assert_eq!(count(&mut admin, "threads WHERE expires_ms = 0 AND sweep_ms = 0").await, 1);
        // A batch also has a limit in bytes, but is never empty.
        let sweep = "SELECT larder.sweep_thread('app', 'agent', 'gone', 1000, 1)";
        let state: i32 = sqlx::query_scalar(sweep).fetch_one(&mut admin).await.unwrap();
        assert_eq!((state, count(&mut admin, "messages").await), (3, 1_499));
        assert!(history.tail(&gone, None, 10).await.unwrap().messages.is_empty());
        let next = history.append(&gone, ChatMessage::user("again")).await.unwrap();
        assert_eq!(next.get(), i64::try_from(MANY).unwrap() + 2);
        assert_eq!(count(&mut admin, "messages").await, 1);
        postgres.close().await;
    })
    .await;
}

/// A statement that removed all of them could exceed the time limit of a call every time.
pub(crate) async fn popped_messages_are_removed_in_parts_of_bounded_size() {
    with_database("sweep_popped", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        write(&history, &thread("popped"), 20, None).await;
        let pop = Removal::newest(10).with_idempotency_key(IdempotencyKey::new("k").unwrap());
        let first = history.remove(&thread("popped"), pop.clone()).await.unwrap();
        assert_eq!(first.messages.len(), 10);
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        assert_eq!(count(&mut admin, "popped_messages").await, 10);
        run(&mut admin, "UPDATE larder.popped_messages SET kept_until_ms = 1, body = repeat('x', 9)::bytea")
            .await;
        // The time has passed, and nothing has removed the messages yet.
        let late = history.remove(&thread("popped"), pop).await.unwrap();
        assert_eq!((late.removed, late.seqs, late.messages.len()), (10, first.seqs, 0));
        for (rows_max, bytes_max, more, left) in [(9, 10, true, 8), (3, 1_000, true, 5), (9, 1, true, 4)] {
            let sweep = format!("SELECT larder.sweep_popped({rows_max}, {bytes_max})");
            let found: bool = sqlx::query_scalar(AssertSqlSafe(sweep)).fetch_one(&mut admin).await.unwrap();
            assert_eq!((found, count(&mut admin, "popped_messages").await), (more, left));
        }
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        assert_eq!(count(&mut admin, "popped_messages").await, 0);
        assert_eq!(count(&mut admin, "messages").await, 10);
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn an_expired_value_is_removed_from_an_idle_bucket() {
    with_database("sweep_values", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let values = postgres.key_value(app());
        let bucket = BucketName::new("bucket").unwrap();
        let key = |number: u32| Key::new(format!("{number:04}")).unwrap();
        let brief = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
        for number in 0..1_200 {
            let value = Bytes::from(number.to_string());
            values.put(&bucket, &key(number), value, brief).await.unwrap();
        }
        let kept = Key::new("kept").unwrap();
        values
            .put(&bucket, &kept, Bytes::from_static(b"value"), KeyValuePutOptions::default())
            .await
            .unwrap();
        // A newly expired entry stays, because active watchers may not have seen its put.
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        run(
            &mut admin,
            "UPDATE larder.kv_entries SET expires_ms = expires_ms - 70000;
             UPDATE larder.kv_buckets SET sweep_ms = sweep_ms - 70000",
        )
        .await;
        assert_eq!(postgres.sweep().await.unwrap(), 1_200);
        assert_eq!(count(&mut admin, "kv_entries").await, 1);
        assert_eq!(count(&mut admin, "kv_buckets WHERE sweep_ms IS NULL").await, 1);
        let events = values.watch(&bucket, "", Revision::new(1_199)).await.unwrap();
        let found: Vec<_> = events.take(2).map(Result::unwrap).collect().await;
        assert_eq!((&found[0].key, &found[0].kind), (&key(1_199), &KeyValueEventKind::Deleted));
        assert_eq!(found[1].key, kept);
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn data_in_use_is_removed_next_time() {
    with_database("sweep_locked", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        for session in ["held", "free"] {
            write(&history, &thread(session), 1, Some(Ttl::fixed(Duration::from_millis(1)))).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        run(&mut admin, "BEGIN; SELECT 1 FROM larder.threads WHERE session = 'held' FOR UPDATE").await;
        let swept = tokio::time::timeout(Duration::from_secs(20), postgres.sweep()).await;
        assert_eq!(swept.expect("nobody waits for the lock").unwrap(), 1);
        run(&mut admin, "COMMIT").await;
        assert_eq!(postgres.sweep().await.unwrap(), 1);
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn extending_a_time_to_live_does_not_change_the_index() {
    with_database("sweep_used", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        let used = thread("used");
        write(&history, &used, 1, Some(Ttl::sliding(Duration::from_secs(3_600)))).await;
        let earlier = "threads WHERE sweep_ms < expires_ms";
        tokio::time::sleep(Duration::from_millis(5)).await;
        history.append(&used, ChatMessage::user("text")).await.unwrap();
        assert_eq!(count(&mut admin, earlier).await, 1);
        run(&mut admin, "UPDATE larder.threads SET sweep_ms = 1").await;
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        assert_eq!(count(&mut admin, "threads WHERE sweep_ms = expires_ms").await, 1);
        assert_eq!(history.tail(&used, None, 10).await.unwrap().messages.len(), 2);
        history.set_ttl(&used, None, None).await.unwrap();
        assert_eq!(count(&mut admin, "threads WHERE sweep_ms IS NOT NULL").await, 0);
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn a_thread_that_cannot_be_swept_does_not_keep_the_others_from_it() {
    with_database("sweep_stuck", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let history = postgres.history(app());
        for session in ["stuck", "free"] {
            write(&history, &thread(session), 1, Some(Ttl::fixed(Duration::from_millis(1)))).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        run(
            &mut admin,
            "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'stuck'; END $$;
             CREATE TRIGGER stop BEFORE UPDATE ON larder.threads FOR EACH ROW
             WHEN (old.session = 'stuck') EXECUTE FUNCTION stop()",
        )
        .await;
        postgres.sweep().await.unwrap_err();
        assert_eq!(count(&mut admin, "threads WHERE messages > 0").await, 1);
        run(&mut admin, "DROP TRIGGER stop ON larder.threads").await;
        assert_eq!(postgres.sweep().await.unwrap(), 1);
        assert_eq!(count(&mut admin, "messages").await, 0);
        postgres.close().await;
    })
    .await;
}
