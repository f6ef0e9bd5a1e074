//! The changes of a bucket, as watches read them.

use std::sync::LazyLock;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{KeyValueEvent, KeyValueEventKind, KeyValueEvents, Result, Revision};
use redis::Value;

use super::super::decode;
use super::super::engine::{Engine, Followed};
use super::super::key::Entity;
use super::super::script::{Call, NUMBER_MAX, Script};
use super::rows::expiry;
use crate::change_log::{self, ChangeLog, ChangePage, OPERATION, PAGE_BYTES_MAX, PAGE_CHANGES_MAX};
use crate::follow::Subscriber;

static CHANGES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("changes.lua")));

struct BucketLog {
    engine: Engine,
    bucket: Entity,
    prefix: String,
    subscriber: Subscriber,
}

/// Returns the changes after a revision, and then the changes to come.
pub(super) async fn follow(
    engine: Engine,
    bucket: Entity,
    prefix: &str,
    after: Revision,
) -> Result<KeyValueEvents> {
    let followed = Followed::Bucket(bucket.part("meta"));
    let subscriber = engine.notifier().subscribe(bucket.channel(), followed);
    // No bucket reaches the greatest number that scripts support.
    let after = Revision::new(after.get().min(NUMBER_MAX)).in_generation(after.generation());
    change_log::follow(BucketLog { engine, bucket, prefix: prefix.to_owned(), subscriber }, after).await
}

#[async_trait]
impl ChangeLog for BucketLog {
    async fn page(&self, after: u64) -> Result<ChangePage> {
        let call = ["meta", "values", "revisions", "expiries", "deleted", "expired"]
            .into_iter()
            .fold(Call::new(), |call, part| call.key(self.bucket.part(part)))
            .number(after)
            .arg(&self.prefix)
            .number(PAGE_CHANGES_MAX)
            .number(PAGE_BYTES_MAX);
        let answer = self.engine.read(OPERATION, &CHANGES, &call).await?;
        let page = page(answer).map_err(|error| error.in_operation(OPERATION))?;
        if let (false, Ok(last), Ok(forgotten)) =
            (page.more, i64::try_from(page.last.get()), i64::try_from(page.forgotten))
        {
            self.engine.notifier().reached(&self.bucket.channel(), (last, forgotten));
        }
        Ok(page)
    }

    fn mark_seen(&mut self) {
        self.subscriber.mark_seen();
    }

    async fn wait(&mut self) -> Result<()> {
        self.subscriber.wait().await;
        Ok(())
    }
}

fn page(answer: Value) -> Result<ChangePage> {
    let [last, forgotten, cursor, more, changes, generation] = decode::tuple(answer)?;
    let generation = decode::generation(generation)?;
    let named = |answer| {
        let mut event = change(answer)?;
        event.revision = event.revision.in_generation(generation);
        Ok(event)
    };
    Ok(ChangePage {
        last: Revision::new(decode::count(last)?).in_generation(generation),
        forgotten: decode::count(forgotten)?,
        cursor: decode::count(cursor)?,
        more: decode::count(more)? > 0,
        events: decode::array(changes)?.into_iter().map(named).collect::<Result<_>>()?,
    })
}

fn change(answer: Value) -> Result<KeyValueEvent> {
    let [key, revision, bytes, expires] = decode::tuple(answer)?;
    let kind = match decode::optional(bytes) {
        None => KeyValueEventKind::Deleted,
        Some(bytes) => {
            KeyValueEventKind::Put { value: Bytes::from(decode::bytes(bytes)?), expires_at: expiry(expires)? }
        }
    };
    Ok(KeyValueEvent::new(decode::id(key)?, Revision::new(decode::count(revision)?), kind))
}
