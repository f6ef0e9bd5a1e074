//! Subscriptions: the log of a thread, read in pages and again after each announcement.

use std::collections::VecDeque;
use std::time::Instant;

use futures_util::StreamExt;
use larder_kernel::{
    Error, HistoryEvent, HistoryEventKind, HistoryEvents, Result, RunId, Seq, StoredMessage,
};
use redis::Value;

use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::value::{self, millis};
use super::super::wake::Bell;
use super::address::Address;
use super::message::{Entry, stored};
use super::read::settle;
use super::script::{EVENTS, WATCH};
use crate::watched::{LEASE, Watched};

const OPERATION: &str = "history.subscribe";
/// Most events that are read at once.
const PAGE_EVENTS_MAX: usize = 256;
/// A page ends when its messages reach this size.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

struct Subscription {
    engine: Engine,
    address: Address,
    /// The last number seen.
    after: Seq,
    /// Whether that number is one of an event that was told, so that the thread must have come that far.
    told: bool,
    bell: Bell,
    watched: Watched,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// The events after a `Seq`, and then those to come.
pub(super) fn follow(engine: Engine, address: Address, after: Seq) -> HistoryEvents {
    let bell = engine.wakes().bell(address.place().channel());
    let subscription = Subscription {
        engine,
        address,
        after,
        told: false,
        bell,
        watched: Watched::default(),
        page: VecDeque::new(),
        ended: false,
    };
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        subscription.ended = event.is_err();
        Some((event, subscription))
    })
    .boxed()
}

impl Subscription {
    async fn next(&mut self) -> Option<Result<HistoryEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                return Some(Ok(event));
            }
            self.bell.hush();
            match page(&self.engine, &self.address, self.after).await {
                Err(error) => return Some(Err(error)),
                Ok(page) => self.page = page,
            }
            match self.page.back() {
                Some(last) => (self.after, self.told) = (last.seq, true),
                None => {
                    match self.watches_anew().await {
                        Err(error) => return Some(Err(error)),
                        // What was appended before it did is not announced.
                        Ok(true) => continue,
                        Ok(false) => {}
                    }
                    match self.stands().await {
                        Err(error) => return Some(Err(error)),
                        Ok(()) => self.bell.wait().await,
                    }
                }
            }
        }
    }

    /// Has appends announced, if that is due. False where it is not, or cannot be: the first append to a new thread is
    /// announced in any case.
    async fn watches_anew(&mut self) -> Result<bool> {
        if !self.watched.is_due() {
            return Ok(false);
        }
        let asked = Instant::now();
        let call = self.address.call().number(millis(LEASE));
        let announces = value::integer(self.engine.repeat(OPERATION, &WATCH, &call).await?)? == 1;
        self.watched.answered(asked, announces);
        Ok(announces)
    }

    /// Refuses a thread that stands behind what was told of it, where only an erasure takes it.
    async fn stands(&self) -> Result<()> {
        if !self.told {
            return Ok(());
        }
        let stands = settle(&self.engine, OPERATION, &self.address).await?;
        if stands.last < self.after { Err(Error::erased(OPERATION)) } else { Ok(()) }
    }
}

/// The next events after `after`, in order.
async fn page(engine: &Engine, address: &Address, after: Seq) -> Result<VecDeque<HistoryEvent>> {
    let call = address.call().number(after.get()).number(PAGE_EVENTS_MAX).number(PAGE_BYTES_MAX);
    let answer = engine.repeat(OPERATION, &EVENTS, &call).await?;
    let page = value::array(answer).and_then(|events| events.into_iter().map(shown).collect());
    page.map_err(|error: Error| error.in_operation(OPERATION))
}

/// A message alone, or an event with the messages that are left of what it put in place.
fn shown(answer: Value) -> Result<HistoryEvent> {
    let mut parts = value::array(answer)?.into_iter();
    let first = value::bytes(parts.next().unwrap_or(Value::Nil))?;
    if first.contains(&0) {
        let entry = Entry::parse(Value::BulkString(first))?;
        let (seq, thread_bytes) = (Seq::new(entry.seq), entry.thread_bytes);
        let kind = HistoryEventKind::Appended { message: entry.into_message()?, thread_bytes };
        return Ok(HistoryEvent { seq, kind });
    }
    let placed = parts.map(stored).collect::<Result<Vec<StoredMessage>>>()?;
    let text = String::from_utf8(first).map_err(|_| corrupt(OPERATION))?;
    other(&text, placed).ok_or_else(|| corrupt(OPERATION))
}

/// An event that is not a message: '<seq> <kind> <removed> <up to> <thread bytes> <placed> <run>'.
fn other(text: &str, messages: Vec<StoredMessage>) -> Option<HistoryEvent> {
    let mut fields = text.splitn(7, ' ');
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (seq, kind, removed, up_to, thread_bytes) = (number()?, number()?, number()?, number()?, number()?);
    number()?;
    let run = fields.next()?;
    let removed = u64::try_from(removed).ok()?;
    let kind = match kind {
        1 => HistoryEventKind::Cleared { removed },
        2 => HistoryEventKind::RunCleared { run: RunId::new(run).ok()?, removed },
        3 => HistoryEventKind::Replaced {
            up_to: Seq::new(up_to),
            removed,
            messages,
            thread_bytes: u64::try_from(thread_bytes).ok()?,
        },
        _ => return None,
    };
    Some(HistoryEvent { seq: Seq::new(seq), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_with_a_run_of_any_signs() {
        let event = other("7 2 3 0 12 0 run 1 \u{1f980}", Vec::new()).unwrap();
        assert_eq!(event.seq, Seq::new(7));
        let run = RunId::new("run 1 \u{1f980}").unwrap();
        assert_eq!(event.kind, HistoryEventKind::RunCleared { run, removed: 3 });
        for foreign in ["", "7 2 3 0 12 0", "7 4 3 0 12 0 ", "7 2 3 0 12 0 ", "7 1 -3 0 12 0 "] {
            assert!(other(foreign, Vec::new()).is_none(), "{foreign:?}");
        }
    }
}
