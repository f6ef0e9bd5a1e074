//! What the async API over SQLite costs beside SQLite itself: appends of 1 KB and reads of the last 50, each against
//! the plain statement on a connection of its own with the same settings, in turns within one process.
//!
//! `cargo run --release --example sqlite_cost`
#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use std::path::Path;
use std::time::{Duration, Instant};

use larder_capabilities::sqlite::{Sqlite, SqliteConfig};
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Namespace, Thread};
use rusqlite::{Connection, params};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 9;
const CALLS: u32 = 300;

fn plain(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE messages (thread INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (thread, seq)) WITHOUT ROWID;",
    )?;
    Ok(connection)
}

/// Text that does not compress, of 1,000 bytes.
fn body(number: u64) -> String {
    let mut state = number | 1;
    (0..125)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            format!("{:08x}", state >> 32)
        })
        .collect()
}

fn plain_appends(connection: &Connection, begin: u64) -> Outcome<Duration> {
    let bodies: Vec<String> = (0..u64::from(CALLS)).map(|n| body(begin + n)).collect();
    let begun = Instant::now();
    for (n, body) in (begin..).zip(&bodies) {
        connection
            .prepare_cached("INSERT INTO messages VALUES (1, ?1, ?2)")?
            .execute(params![i64::try_from(n)?, body])?;
    }
    Ok(begun.elapsed() / CALLS)
}

fn plain_tails(connection: &Connection) -> Outcome<Duration> {
    let begun = Instant::now();
    for _ in 0..CALLS {
        let mut statement = connection
            .prepare_cached("SELECT seq, body FROM messages WHERE thread = 1 ORDER BY seq DESC LIMIT 50")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        assert_eq!(rows.count(), 50);
    }
    Ok(begun.elapsed() / CALLS)
}

async fn appends(history: &dyn HistoryProvider, thread: &Thread, begin: u64) -> Outcome<Duration> {
    let messages: Vec<_> = (0..u64::from(CALLS)).map(|n| ChatMessage::user(body(begin + n))).collect();
    let begun = Instant::now();
    for message in messages {
        history.append(thread, message).await?;
    }
    Ok(begun.elapsed() / CALLS)
}

async fn tails(history: &dyn HistoryProvider, thread: &Thread) -> Outcome<Duration> {
    let begun = Instant::now();
    for _ in 0..CALLS {
        assert_eq!(history.tail(thread, None, 50).await?.len(), 50);
    }
    Ok(begun.elapsed() / CALLS)
}

fn report(what: &str, mut rounds: Vec<(Duration, Duration)>) {
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    rounds.sort_by(|left, right| {
        let ratio = |(larder, plain): &(Duration, Duration)| larder.as_secs_f64() / plain.as_secs_f64();
        ratio(left).total_cmp(&ratio(right))
    });
    let shown = |(larder, plain): (Duration, Duration)| {
        format!("{:.2} ({:.0} / {:.0} us)", micros(larder) / micros(plain), micros(larder), micros(plain))
    };
    let (least, most) = (rounds[0], rounds[ROUNDS - 1]);
    println!("{what}: median {}, least {}, most {}", shown(rounds[ROUNDS / 2]), shown(least), shown(most));
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let connection = plain(&folder.path().join("plain.db"))?;
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await?;
    let (history, thread) = (sqlite.history(Namespace::new("cost")?), Thread::new("agent", "session")?);
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let begin = u64::try_from(round)? * u64::from(CALLS);
        written.push((appends(&history, &thread, begin).await?, plain_appends(&connection, begin)?));
        read.push((tails(&history, &thread).await?, plain_tails(&connection)?));
    }
    println!("larder / SQLite {}, synchronous=full, journal_mode=wal", rusqlite::version());
    report("append of 1 KB", written);
    report("last 50 messages", read);
    Ok(())
}
