//! Appends on the condition that the thread has a known last position, compared with plain appends.

use larder_kernel::Thread;

use super::figure::{Figure, Subject, Target, Unit, in_rounds};
use super::history::Conversations;
use super::{Outcome, Plan, postgres, redis, sqlite};

pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("conditions.db").display());
    appends(plan, &url, "sqlite-append-if-last", sqlite::SETTINGS, plan.size(300, 100)).await
}

pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(postgres::VARIABLE)?;
    let mut connection = postgres::connect(&url).await?;
    let settings = postgres::settings(&mut connection).await?;
    appends(plan, &url, "postgres-append-if-last", &settings, plan.size(1_000, 200)).await
}

pub(super) async fn redis(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(redis::VARIABLE)?;
    appends(plan, &url, "redis-append-if-last", "one client", plan.size(2_000, 200)).await
}

/// Measures appends of one caller with and without the condition, each side on a separate thread.
async fn appends(
    plan: &Plan,
    url: &str,
    name: &'static str,
    settings: &str,
    calls: u32,
) -> Outcome<Vec<Figure>> {
    let (mut conditional, mut plain) = (Conversations::open(url).await?, Conversations::open(url).await?);
    let (first, second) = (Thread::new("bench", "conditional")?, Thread::new("bench", "plain")?);
    let subject = Subject {
        name,
        what: "append of a 1 KB message if the thread's last position is known, one caller".to_owned(),
        peer: "the same without the condition".to_owned(),
        settings: settings.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.1)),
    };
    let rounds = in_rounds(
        plan.rounds,
        async |_| conditional.append_if_last(&first, calls).await,
        async |_| plain.append(&second, calls).await,
    )
    .await;
    plain.erase().await?;
    Ok(vec![subject.figure(&rounds?)])
}
