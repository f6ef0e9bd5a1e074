//! Pops and updates of single messages in SQLite, compared with plain statements on a separate connection.

use std::time::Instant;

use larder_kernel::Thread;
use rusqlite::Connection;

use super::figure::{Figure, Subject, Target, Unit, in_rounds};
use super::history::Conversations;
use super::window::micros_each;
use super::{Outcome, Plan, payload, sqlite};

pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("pops.db").display());
    let mut conversations = Conversations::open(&url).await?;
    let mut connection = sqlite::plain(&plan.scratch.join("plain-pops.db"))?;
    let (thread, calls) = (Thread::new("bench", "pops")?, plan.size(300, 100));
    let subject = Subject {
        name: "sqlite-pop",
        what: "pop of the newest message of 1 KB, one caller".to_owned(),
        peer: format!("SQLite {}, prepared DELETE of the last row, which returns it", rusqlite::version()),
        settings: sqlite::SETTINGS.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.25)),
    };
    let rounds = in_rounds(
        plan.rounds,
        async |_| conversations.pop(&thread, calls).await,
        async |_| plain_pops(&mut connection, calls),
    )
    .await;
    Ok(vec![subject.figure(&rounds?)])
}

pub(super) async fn sqlite_updates(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("updates.db").display());
    let mut conversations = Conversations::open(&url).await?;
    let mut connection = sqlite::plain(&plan.scratch.join("plain-updates.db"))?;
    let (thread, calls) = (Thread::new("bench", "updates")?, plan.size(300, 100));
    let subject = Subject {
        name: "sqlite-update",
        what: "update in place of a message of 1 KB, one caller".to_owned(),
        peer: format!("SQLite {}, prepared UPDATE of the row", rusqlite::version()),
        settings: sqlite::SETTINGS.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.25)),
    };
    let rounds = in_rounds(
        plan.rounds,
        async |_| conversations.update(&thread, calls).await,
        async |_| plain_updates(&mut connection, calls),
    )
    .await;
    Ok(vec![subject.figure(&rounds?)])
}

fn plain_updates(connection: &mut Connection, calls: u32) -> Outcome<f64> {
    connection.execute("INSERT OR REPLACE INTO messages VALUES (1, 1, '')", [])?;
    let begun = Instant::now();
    for number in 0..u64::from(calls) {
        let mut statement =
            connection.prepare_cached("UPDATE messages SET body = ?1 WHERE thread = 1 AND seq = 1")?;
        statement.execute([payload::text(number)])?;
    }
    Ok(micros_each(begun, calls))
}

fn plain_pops(connection: &mut Connection, calls: u32) -> Outcome<f64> {
    let filling = connection.transaction()?;
    for seq in 0..u64::from(calls) {
        let mut statement = filling.prepare_cached("INSERT INTO messages VALUES (1, ?1, ?2)")?;
        statement.execute((i64::try_from(seq)?, payload::text(seq)))?;
    }
    filling.commit()?;
    let begun = Instant::now();
    for _ in 0..calls {
        let mut statement = connection.prepare_cached(
            "DELETE FROM messages WHERE thread = 1 AND seq = (SELECT max(seq) FROM messages WHERE thread = 1)
             RETURNING seq, body",
        )?;
        let _: (i64, String) = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    }
    Ok(micros_each(begun, calls))
}
