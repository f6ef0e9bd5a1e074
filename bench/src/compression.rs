//! Long messages, which are stored compressed, compared with the same texts as plain rows of SQLite.

use std::path::Path;
use std::time::Duration;

use larder_kernel::Thread;
use rusqlite::Connection;

use super::figure::{Figure, Subject, Target, Unit, in_rounds};
use super::history::Conversations;
use super::sqlite::{SETTINGS, plain, plain_reads};
use super::{Outcome, Plan, payload};

/// The messages of the thread whose size is measured.
const STORED: u32 = 300;

/// The size of a thread of long messages, and the cost of its appends and of its last 50 messages.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let subject = |name, what: &str, peer: &str, unit, most| Subject {
        name,
        what: what.to_owned(),
        peer: format!("SQLite {}, {peer}", rusqlite::version()),
        settings: SETTINGS.to_owned(),
        unit,
        target: Some(Target::AtMost(most)),
    };
    let sizes = in_rounds(
        plan.rounds,
        async |round| stored(plan, round).await,
        async |round| plain_stored(plan, round),
    );
    let what = "file of 300 messages of 9 KB of JSON";
    let size =
        subject("sqlite-size-9k", what, "the same texts as rows", Unit::Bytes, 0.2).figure(&sizes.await?);

    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("nine.db").display());
    let mut conversations = Conversations::open(&url).await?;
    let connection = plain(&plan.scratch.join("nine-plain.db"))?;
    let (thread, calls) = (Thread::new("bench", "session")?, plan.size(300, 100));
    let appends = in_rounds(
        plan.rounds,
        async |_| conversations.append_each(&thread, calls, payload::json).await,
        async |round| super::sqlite::plain_appends(&connection, round, calls, payload::json),
    );
    let append = subject(
        "sqlite-append-9k",
        "append of a message of 9 KB of JSON, one caller",
        "prepared INSERT of one row as large",
        Unit::Micros,
        2.0,
    )
    .figure(&appends.await?);
    let reads = in_rounds(
        plan.rounds,
        async |_| conversations.last_50(&thread, calls).await,
        async |_| plain_reads(&connection, calls),
    );
    let read = subject(
        "sqlite-last-50-9k",
        "last 50 messages of 9 KB of JSON, one caller",
        "prepared SELECT of 50 rows as large",
        Unit::Micros,
        2.0,
    )
    .figure(&reads.await?);
    Ok(vec![size, append, read])
}

/// Returns the size of a closed file with long messages.
async fn stored(plan: &Plan, round: usize) -> Outcome<f64> {
    let path = plan.scratch.join(format!("stored-{round}.db"));
    let mut conversations = Conversations::open(&format!("sqlite:{}", path.display())).await?;
    conversations.append_each(&Thread::new("bench", "session")?, STORED, payload::json).await?;
    drop(conversations);
    let connection = Connection::open(&path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    file_bytes(&path)
}

fn plain_stored(plan: &Plan, round: usize) -> Outcome<f64> {
    let path = plan.scratch.join(format!("stored-plain-{round}.db"));
    let connection = plain(&path)?;
    super::sqlite::plain_appends(&connection, 0, STORED, payload::json)?;
    connection.close().map_err(|(_, error)| error)?;
    file_bytes(&path)
}

fn file_bytes(path: &Path) -> Outcome<f64> {
    let bytes = std::fs::metadata(path)?.len();
    std::fs::remove_file(path)?;
    Ok(bytes as f64)
}
