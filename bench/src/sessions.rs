//! Durable appends from many concurrent sessions, compared with as many `pgbench` clients, each with its own
//! thread.

use super::curve::Plot;
use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::history::Conversations;
use super::pgbench::Pgbench;
use super::postgres::{PeerTable, VARIABLE, connect, settings};
use super::{Outcome, Plan};

/// The numbers of sessions in the curves.
const WRITERS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Sessions of Larder, and clients of the peer.
const SESSIONS: u32 = 16;

/// Sixteen sessions in SQLite.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("sessions.db").display());
    beside(plan, "sqlite-append-16", "SQLite", &url, "sqlite: journal_mode=wal synchronous=full; ", 1.5).await
}

/// Sixteen sessions in Postgres.
pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    beside(plan, "postgres-append-16", "Postgres", &plan.url(VARIABLE)?, "", 0.9).await
}

async fn beside(
    plan: &Plan,
    name: &'static str,
    backend: &str,
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
    let curve = throughput(plan, &mut conversations).await;
    let settings = format!("{own_settings}{}", settings(&mut connection).await?);
    // Removes the data after a failure, too.
    table.remove(&mut connection).await?;
    conversations.erase().await?;
    plan.draw(Plot::DurableThroughput, backend, curve?);
    let subject = Subject {
        name,
        what: format!("acknowledged appends of 1 KB messages, {SESSIONS} concurrent sessions"),
        peer: format!("{}, {SESSIONS} clients, prepared INSERT of one row of the same size", pgbench.name),
        settings,
        unit: Unit::MessagesPerSecond,
        target: Some(Target::AtLeast(target)),
    };
    Ok(vec![subject.figure(&rounds?)])
}

/// Returns the acknowledged appends per second of concurrent writers.
async fn throughput(plan: &Plan, conversations: &mut Conversations) -> Outcome<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for writers in WRITERS {
        let each = plan.size(1_600, 160) / writers.max(4);
        points.push((f64::from(writers), conversations.append_from(writers, each).await?));
    }
    Ok(points)
}
