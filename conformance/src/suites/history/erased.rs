//! Subscribers during an erasure of their namespace.

use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{ErrorKind, HistoryEvents, Seq};

use super::support::{EVENT_WAIT, next_said, say, thread};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// Long enough for a subscriber to read everything and wait.
const WAITED: Duration = Duration::from_millis(30);

/// HIST-098.
pub(super) async fn a_waiting_subscription_ends_with_an_erasure(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for text in ["1", "2", "3"] {
        next_said(&mut events, text).await?;
    }
    let erasing = async {
        tokio::time::sleep(WAITED).await;
        stores.a.erase().await
    };
    let (ended, erased) = tokio::join!(ends(&mut events), erasing);
    erased?;
    ended
}

/// HIST-098: messages after the erasure do not continue the events from before it.
pub(super) async fn events_after_an_erasure_are_not_delivered_as_old_ones(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let mut events = stores.b.subscribe(&thread, Seq::new(1)).await?;
    for text in ["2", "3"] {
        next_said(&mut events, text).await?;
    }
    stores.a.erase().await?;
    say(&*stores.a, &thread, &["again"]).await?;
    ends(&mut events).await?;
    let mut later = stores.b.subscribe(&thread, Seq::ZERO).await?;
    next_said(&mut later, "again").await.map(drop)
}

/// HIST-087: a subscriber that waits for the first event continues to wait for it.
pub(super) async fn a_subscription_to_an_empty_thread_survives_an_erasure(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let early = tokio::time::timeout(WAITED, events.next()).await;
    expect::that(early.is_err(), "nothing before the first event", &early)?;
    stores.a.erase().await?;
    let early = tokio::time::timeout(WAITED, events.next()).await;
    expect::that(early.is_err(), "nothing at an erasure of nothing", &early)?;
    say(&*stores.a, &thread, &["first"]).await?;
    next_said(&mut events, "first").await.map(drop)
}

/// Checks that the stream ends with `Conflict`.
async fn ends(events: &mut HistoryEvents) -> CaseResult {
    let Ok(told) = tokio::time::timeout(EVENT_WAIT, events.next()).await else {
        return Err(expect::broken("Conflict after the erasure", "nothing came in 10 s"));
    };
    let told = expect::some("Conflict after the erasure", told)?;
    expect::error("the subscription after the erasure", told, ErrorKind::Conflict)?;
    let more = tokio::time::timeout(EVENT_WAIT, events.next()).await;
    expect::that(matches!(more, Ok(None)), "the end of the stream", more.is_ok())
}
