//! Watches: the changes of a bucket, read in pages and again after each announcement.

use std::collections::VecDeque;
use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{Error, ErrorKind, KeyValueEvent, KeyValueEventKind, KeyValueEvents, Result, Revision};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::key::Entity;
use super::super::script::{Call, NUMBER_MAX, Script};
use super::rows::expiry;
use crate::follow::Subscriber;

const OPERATION: &str = "key_value.watch";
/// Most changes that are read at once.
const PAGE_CHANGES_MAX: u64 = 256;
/// A page ends when its values reach this size.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

static CHANGES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("changes.lua")));

/// Which changes are wanted, and after which revision.
struct Wanted {
    bucket: Entity,
    prefix: String,
    after: u64,
    /// Where the watch began: the bucket must have come as far as any later `after`.
    begun: u64,
    /// Whether it began at revision 0 and has told of nothing yet. Then it knows of no key that could be gone, and needs
    /// nothing that was forgotten.
    anew: bool,
    /// The greatest forgotten revision that the watch may lack: what was forgotten when it had told of nothing yet.
    excused: u64,
}

/// Changes with the prefix, and how far the bucket was looked through for them.
struct ChangePage {
    last: u64,
    forgotten: u64,
    cursor: u64,
    more: bool,
    events: VecDeque<KeyValueEvent>,
}

struct Watch {
    engine: Engine,
    wanted: Wanted,
    subscriber: Subscriber,
    events: VecDeque<KeyValueEvent>,
    more: bool,
    ended: bool,
}

/// The changes after a revision, and then those to come. The first page is read here, so that a revision that is too
/// old is refused at once.
pub(super) async fn follow(
    engine: Engine,
    bucket: Entity,
    prefix: &str,
    after: Revision,
) -> Result<KeyValueEvents> {
    let subscriber = engine.notifier().subscribe(bucket.channel());
    // No bucket gets as far as the greatest number that scripts take.
    let after = after.get().min(NUMBER_MAX);
    let wanted =
        Wanted { bucket, prefix: prefix.to_owned(), after, begun: after, anew: after == 0, excused: 0 };
    let mut watch = Watch { engine, wanted, subscriber, events: VecDeque::new(), more: true, ended: false };
    watch.advance().await?;
    let events = futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        watch.ended = event.is_err();
        Some((event, watch))
    });
    Ok(events.boxed())
}

impl Watch {
    async fn next(&mut self) -> Option<Result<KeyValueEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if !self.more {
                self.subscriber.wait().await;
            }
            if let Err(error) = self.advance().await {
                return Some(Err(error));
            }
        }
    }

    /// Reads the next page.
    async fn advance(&mut self) -> Result<()> {
        // Should the future be dropped after this, `more` makes the next one read again.
        self.more = true;
        self.subscriber.mark_seen();
        let call = ["meta", "values", "revisions", "expiries", "deleted", "expired"]
            .into_iter()
            .fold(Call::new(), |call, part| call.key(self.wanted.bucket.part(part)))
            .number(self.wanted.after)
            .arg(&self.wanted.prefix)
            .number(PAGE_CHANGES_MAX)
            .number(PAGE_BYTES_MAX);
        let answer = self.engine.read(OPERATION, &CHANGES, &call).await?;
        let page = change_page(answer).map_err(|error| error.in_operation(OPERATION))?;
        if self.wanted.after > self.wanted.begun && page.last < self.wanted.after {
            if !self.wanted.anew {
                return Err(Error::erased(OPERATION));
            }
            // Read again from the beginning.
            self.wanted.after = 0;
            return Ok(());
        }
        let new = page.last > self.wanted.after;
        if self.wanted.anew {
            self.wanted.excused = page.forgotten;
        }
        if new && self.wanted.after < page.forgotten && self.wanted.excused < page.forgotten {
            return Err(too_old());
        }
        if new {
            self.wanted.after = page.cursor;
            self.wanted.anew &= page.events.is_empty();
            self.events = page.events;
        }
        self.more = new && page.more;
        Ok(())
    }
}

fn change_page(answer: Value) -> Result<ChangePage> {
    let [last, forgotten, cursor, more, changes] = decode::tuple(answer)?;
    Ok(ChangePage {
        last: decode::count(last)?,
        forgotten: decode::count(forgotten)?,
        cursor: decode::count(cursor)?,
        more: decode::count(more)? > 0,
        events: decode::array(changes)?.into_iter().map(change).collect::<Result<_>>()?,
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
    Ok(KeyValueEvent { key: decode::id(key)?, revision: Revision::new(decode::count(revision)?), kind })
}

fn too_old() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "changes since that revision are forgotten; watch from revision 0 anew",
    )
}
