//! Conversations in SQLite, compared with the plain statement on a separate connection with the same
//! settings.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};

use super::figure::{Figure, Subject, Target, Unit};
use super::history::{Beside, Conversations, Names};
use super::machine::field;
use super::window::micros_each;
use super::{Outcome, Plan, payload};

pub(super) const SETTINGS: &str = "journal_mode=wal synchronous=full";

/// Append of one message, and the last 50.
pub(super) async fn history(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("larder.db").display());
    let mut conversations = Conversations::open(&url).await?;
    let connection = plain(&plan.scratch.join("plain.db"))?;
    let calls = plan.size(300, 100);
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what}, one caller"),
        peer: format!("SQLite {}, {peer}", rusqlite::version()),
        settings: SETTINGS.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(2.0)),
    };
    super::history::beside(
        // No more rounds: after three times as many appends, the peer's reads of its last rows take twice the
        // time.
        plan.rounds,
        &mut conversations,
        calls,
        Beside {
            subject: subject(
                "sqlite-append",
                "append of a 1 KB message",
                "prepared INSERT of one row of the same size",
            ),
            round: async |round| plain_appends(&connection, round, calls, payload::text),
        },
        async || Ok(()),
        Beside {
            subject: subject(
                "sqlite-last-50",
                "last 50 messages of 1 KB",
                "prepared SELECT of 50 rows of the same size",
            ),
            round: async |_| plain_reads(&connection, calls),
        },
    )
    .await
}

/// The same in a thread of a hundred messages and in one of a million.
pub(super) async fn long_thread(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("long.db").display());
    let mut conversations = Conversations::open(&url).await?;
    let names = Names {
        backend: "SQLite",
        time: "sqlite-append-long",
        bytes: "sqlite-append-long-log",
        read: "sqlite-last-50-long",
        window: "sqlite-window-long",
        log: "bytes written to its files",
    };
    // The bytes that the process wrote to files, because SQLite reuses its WAL from the start.
    let written = async || Ok(written_by_this_process());
    super::history::long_thread(plan, &mut conversations, names, SETTINGS, async || Ok(()), written).await
}

/// Returns the bytes that this process wrote to files; some systems do not report it.
fn written_by_this_process() -> Option<u64> {
    field("/proc/self/io", "wchar")?.parse().ok()
}

pub(super) fn plain(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE messages (thread INTEGER, seq INTEGER, body TEXT, PRIMARY KEY (thread, seq)) WITHOUT \
         ROWID;",
    )?;
    Ok(connection)
}

pub(super) fn plain_appends(
    connection: &Connection,
    round: usize,
    calls: u32,
    text: fn(u64) -> String,
) -> Outcome<f64> {
    let first = u64::try_from(round)? * u64::from(calls);
    let bodies: Vec<String> = (first..first + u64::from(calls)).map(text).collect();
    let begun = Instant::now();
    for (seq, body) in (first..).zip(&bodies) {
        let mut statement = connection.prepare_cached("INSERT INTO messages VALUES (1, ?1, ?2)")?;
        statement.execute(params![i64::try_from(seq)?, body])?;
    }
    Ok(micros_each(begun, calls))
}

pub(super) fn plain_reads(connection: &Connection, calls: u32) -> Outcome<f64> {
    let begun = Instant::now();
    for _ in 0..calls {
        let mut statement = connection
            .prepare_cached("SELECT seq, body FROM messages WHERE thread = 1 ORDER BY seq DESC LIMIT 50")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
        let mut found = 0;
        for row in rows {
            row?;
            found += 1;
        }
        if found != 50 {
            return Err(format!("a read of the last 50 rows returned {found}").into());
        }
    }
    Ok(micros_each(begun, calls))
}
