//! Concurrent writers: their notifications, and the statements that they share.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Namespace, Seq, Thread};
use sqlx::postgres::PgListener;
use sqlx::{Connection, PgConnection, Row};

use super::{open, with_database};

/// Returns the server's reply to a query with one value.
async fn asked(connection: &mut PgConnection, question: &'static str) -> bool {
    sqlx::raw_sql(question).fetch_one(connection).await.unwrap().get(0)
}

pub(crate) async fn writers_do_not_take_each_other_for_listeners() {
    with_database("listeners", async |url: String| {
        open(&url).await.unwrap().close().await;
        let mut first = PgConnection::connect(&url).await.unwrap();
        let mut second = PgConnection::connect(&url).await.unwrap();
        let mut listener = PgConnection::connect(&url).await.unwrap();
        const NOBODY: &str = "SELECT larder.nobody_listens()";
        // Both in a transaction: all commits with a notification queue for one lock.
        let mut one = first.begin().await.unwrap();
        let mut two = second.begin().await.unwrap();
        assert!(asked(&mut one, NOBODY).await);
        assert!(asked(&mut two, NOBODY).await);
        // A new listener waits for the writers that checked for listeners before.
        const LISTENS: &str = "SELECT pg_try_advisory_lock_shared(1282565234, 2)";
        const EARLIER_ENDED: &str = "SELECT pg_try_advisory_lock(1282565234, 4)";
        assert!(asked(&mut listener, LISTENS).await);
        assert!(!asked(&mut listener, EARLIER_ENDED).await);
        one.commit().await.unwrap();
        two.commit().await.unwrap();
        assert!(asked(&mut listener, EARLIER_ENDED).await);
        // During this wait and after it, writers notify.
        assert!(!asked(&mut first, NOBODY).await);
        assert!(asked(&mut listener, "SELECT pg_advisory_unlock(1282565234, 4)").await);
        assert!(!asked(&mut first, NOBODY).await);
        listener.close().await.unwrap();
    })
    .await;
}

/// Creates threads with one message each.
async fn begun(history: &dyn HistoryProvider, count: usize) -> Vec<Thread> {
    let threads: Vec<_> = (0..count).map(|number| Thread::new("a", format!("s{number}")).unwrap()).collect();
    for thread in &threads {
        history.append(thread, ChatMessage::user("first")).await.unwrap();
    }
    threads
}

/// Returns the number of committed client transactions of the database. The server counts those of a session
/// after it has been idle for a while.
async fn commits(url: &str) -> i64 {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut connection = PgConnection::connect(url).await.unwrap();
    let select = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(select).fetch_one(&mut connection).await.unwrap()
}

/// Returns the notifications so far, by the number of each thread.
async fn announced(listener: &mut PgListener, threads: &[(i64, &str)]) -> Vec<String> {
    let mut heard = Vec::new();
    while let Ok(said) = tokio::time::timeout(Duration::from_millis(300), listener.recv()).await {
        let wake: i64 = said.unwrap().payload().parse().unwrap();
        let (_, session) = threads.iter().find(|(number, _)| *number == wake).unwrap();
        heard.push((*session).to_owned());
    }
    heard.sort();
    heard
}

/// Once, all commits sent notifications as soon as any thread had a subscriber. They queued for one lock.
pub(crate) async fn appends_are_announced_where_somebody_follows() {
    with_database("watched", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let threads = begun(&history, 4).await;
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let mut numbers = Vec::new();
        for session in ["s0", "s1", "s2", "s3", "new"] {
            let number = sqlx::query_scalar("SELECT larder.wake('h', 'n', 'a', $1)").bind(session);
            numbers.push((number.fetch_one(&mut admin).await.unwrap(), session));
        }
        let mut listener = PgListener::connect(&url).await.unwrap();
        listener.listen("larder").await.unwrap();

        let new = Thread::new("a", "new").unwrap();
        let mut followed = history.subscribe(&threads[1], Seq::new(1)).await.unwrap();
        let mut fresh = history.subscribe(&new, Seq::ZERO).await.unwrap();
        let say = async |thread: &Thread| history.append(thread, ChatMessage::user("next")).await.unwrap();
        {
            let mut both = pin!(join(followed.next(), fresh.next()));
            // Until both wait and the listener of the handle exists.
            assert!(tokio::time::timeout(Duration::from_millis(500), &mut both).await.is_err());
            for thread in &threads {
                say(thread).await;
            }
            say(&new).await;
            assert_eq!(announced(&mut listener, &numbers).await, ["new", "s1"]);
            let (one, other) = both.await;
            assert_eq!((one.unwrap().unwrap().seq, other.unwrap().unwrap().seq), (Seq::new(2), Seq::new(1)));
        }
        // The thread exists now, and is followed from here on, like the threads whose appends share a
        // statement.
        let mut both = pin!(join(followed.next(), fresh.next()));
        assert!(tokio::time::timeout(Duration::from_millis(500), &mut both).await.is_err());
        join_all(threads.iter().chain([&new]).map(say)).await;
        assert_eq!(announced(&mut listener, &numbers).await, ["new", "s1"]);
        let (one, other) = both.await;
        assert_eq!((one.unwrap().unwrap().seq, other.unwrap().unwrap().seq), (Seq::new(3), Seq::new(2)));

        // No call renews it, so it expires.
        sqlx::raw_sql("UPDATE larder.threads SET watched_until_ms = 1").execute(&mut admin).await.unwrap();
        join_all(threads.iter().chain([&new]).map(say)).await;
        assert!(announced(&mut listener, &numbers).await.is_empty());
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn a_thread_that_somebody_works_on_keeps_its_subscriptions() {
    with_database("followed", async |url: String| {
        let postgres = open(&format!("{url}?lock_timeout_ms=400")).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let thread = begun(&history, 1).await.remove(0);
        let mut events = history.subscribe(&thread, Seq::ZERO).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let mut holder = admin.begin().await.unwrap();
        sqlx::raw_sql("SELECT 1 FROM larder.threads FOR UPDATE").execute(&mut *holder).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
        let next = tokio::time::timeout(Duration::from_millis(1_500), events.next()).await;
        assert!(next.is_err(), "{next:?}");
        holder.commit().await.unwrap();
        history.append(&thread, ChatMessage::user("next")).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(2));
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn concurrent_appends_share_a_statement() {
    const EACH: i64 = 50;
    with_database("together", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let threads = begun(&history, 16).await;
        let before = commits(&url).await;
        join_all(threads.iter().map(async |thread| {
            for number in 2..2 + EACH {
                let appended = history.append(thread, ChatMessage::user("next")).await.unwrap();
                assert_eq!(appended.get(), number);
            }
        }))
        .await;
        let commits = commits(&url).await - before;
        let appends = i64::try_from(threads.len()).unwrap() * EACH;
        assert!(commits < appends / 2, "{appends} appends in {commits} transactions");
        for thread in &threads {
            let info = history.thread_info(thread).await.unwrap();
            assert_eq!(i64::try_from(info.messages).unwrap(), 1 + EACH);
        }
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn a_thread_that_somebody_works_on_holds_up_no_other() {
    with_database("held", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let threads = begun(&history, 12).await;
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let mut holder = admin.begin().await.unwrap();
        let lock = "SELECT 1 FROM larder.threads WHERE session IN ('s0', 's1', 's2') FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut *holder).await.unwrap();
        let (held, free) = threads.split_at(3);
        let append = async |thread: &Thread| history.append(thread, ChatMessage::user("next")).await.unwrap();
        let waiting = join_all(held.iter().map(append));
        let others = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            for _ in 0..3 {
                join_all(free.iter().map(append)).await;
            }
            holder.commit().await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(20), join(waiting, others)).await.unwrap();
        for (thread, messages) in
            held.iter().map(|thread| (thread, 2)).chain(free.iter().map(|thread| (thread, 4)))
        {
            assert_eq!(history.thread_info(thread).await.unwrap().messages, messages);
        }
        postgres.close().await;
    })
    .await;
}
