//! Watchers during an erasure of their namespace.

use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{ErrorKind, KeyValueEvents, Revision};

use super::support::{EVENT_WITHIN, bucket, events_until, next, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

/// Long enough for a watcher to read everything and wait.
const WAITED: Duration = Duration::from_millis(30);

pub(super) async fn a_waiting_watch_ends_with_an_erasure(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("watched")?;
    set(&*a, &bucket, "one", "1").await?;
    let last = set(&*a, &bucket, "two", "2").await?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    events_until(&mut events, last).await?;
    let erasing = async {
        tokio::time::sleep(WAITED).await;
        a.erase().await
    };
    let (ended, erased) = tokio::join!(ends(&mut events), erasing);
    erased?;
    ended
}

pub(super) async fn events_after_an_erasure_are_not_delivered_as_old_ones(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("watched")?;
    for number in 0..3 {
        set(&*a, &bucket, "one", &number.to_string()).await?;
    }
    let last = set(&*a, &bucket, "two", "2").await?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    events_until(&mut events, last).await?;
    a.erase().await?;
    set(&*a, &bucket, "again", "1").await?;
    ends(&mut events).await?;
    let mut later = b.watch(&bucket, "", Revision::ZERO).await?;
    expect::equal("the key of the event", &next(&mut later, "of the new key").await?.key.as_str(), &"again")
}

/// Checks that the stream ends with `Conflict`.
async fn ends(events: &mut KeyValueEvents) -> CaseResult {
    let Ok(told) = tokio::time::timeout(EVENT_WITHIN, events.next()).await else {
        return Err(expect::broken("Conflict after the erasure", "nothing came"));
    };
    let told = expect::some("Conflict after the erasure", told)?;
    expect::error("the watch after the erasure", told, ErrorKind::Conflict)?;
    let more = tokio::time::timeout(EVENT_WITHIN, events.next()).await;
    expect::that(matches!(more, Ok(None)), "the end of the stream", more.is_ok())
}
