//! Durable appends from many sessions at once beside as many clients of `pgbench`, each with a thread of its own.

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::history::Conversations;
use super::pgbench::Pgbench;
use super::postgres::{PeerTable, VARIABLE, connect, settings};
use super::{Outcome, Plan};

/// Sessions, and clients of the peer.
const SESSIONS: u32 = 16;

/// Sixteen sessions in SQLite.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("sessions.db").display());
    beside(plan, "sqlite-append-16", &url, "sqlite: journal_mode=wal synchronous=full; ", 1.5).await
}

/// Sixteen sessions in Postgres.
pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    beside(plan, "postgres-append-16", &plan.url(VARIABLE)?, "", 0.9).await
}

async fn beside(
    plan: &Plan,
    name: &'static str,
    url: &str,
    own_settings: &str,
    target: f64,
) -> Outcome<Vec<Figure>> {
    let server = plan.url(VARIABLE)?;
    let pgbench = Pgbench::new(&server)?;
    let mut connection = connect(&server).await?;
    let mut conversations = Conversations::open(url).await?;
    let table = PeerTable::create(&mut connection, &plan.scratch).await?;
    let each = plan.size(200, 40);
    let rounds = in_turns(
        plan,
        async |_| conversations.append_from(SESSIONS, each).await,
        async |round: usize| {
            let seq = (round * usize::try_from(each)?).to_string();
            pgbench.per_second(&table.append_own, SESSIONS, each, &[("body", &table.body), ("seq", &seq)])
        },
    )
    .await;
    let settings = format!("{own_settings}{}", settings(&mut connection).await?);
    // Whatever happened, nothing stays behind.
    table.remove(&mut connection).await?;
    conversations.erase().await?;
    let subject = Subject {
        name,
        what: format!("acknowledged appends of 1 KB messages, {SESSIONS} sessions at once"),
        peer: format!("{}, {SESSIONS} clients, prepared INSERT of one row as large", pgbench.name),
        settings,
        unit: Unit::MessagesPerSecond,
        target: Some(Target::AtLeast(target)),
    };
    Ok(vec![subject.figure(&rounds?)])
}
