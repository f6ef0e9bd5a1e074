//! Subscriptions: the log of a thread, read in pages and again after each notification.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    Error, HistoryEvent, HistoryEventKind, HistoryEvents, Result, RunId, Seq, StoredMessage,
};
use redis::Value;

use super::super::decode;
use super::super::engine::{Engine, Followed};
use super::super::failure::corrupt;
use super::super::script::millis;
use super::address::Address;
use super::message::{Entry, stored};
use super::read::settle;
use super::removal::numbers;
use super::scripts::{EVENTS, WATCH};
use crate::follow::{self, EventLog, OPERATION};

/// The maximum number of events in one page.
const PAGE_EVENTS_MAX: usize = 256;
/// A page ends when its messages reach this size.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The log of a thread.
struct ThreadLog {
    engine: Engine,
    address: Address,
}

/// Returns the events after a `Seq`, and then the events to come.
pub(super) fn follow(engine: Engine, address: Address, after: Seq) -> HistoryEvents {
    let followed = Followed::Thread(address.head());
    let subscriber = engine.notifier().subscribe(address.place().channel(), followed);
    follow::follow(ThreadLog { engine, address }, subscriber, after)
}

#[async_trait]
impl EventLog for ThreadLog {
    async fn page(&self, after: Seq) -> Result<VecDeque<HistoryEvent>> {
        let page = page(&self.engine, &self.address, after).await?;
        if page.is_empty() {
            self.engine.notifier().reached(&self.address.place().channel(), (after.get(), 0));
        }
        Ok(page)
    }

    async fn watch(&self, lease: Duration) -> Result<bool> {
        let call = self.address.call().number(millis(lease));
        Ok(decode::integer(self.engine.repeat(OPERATION, &WATCH, &call).await?)? == 1)
    }

    async fn last(&self) -> Result<Seq> {
        Ok(settle(&self.engine, OPERATION, &self.address).await?.last)
    }
}

/// Returns the next events after `after`, in order.
async fn page(engine: &Engine, address: &Address, after: Seq) -> Result<VecDeque<HistoryEvent>> {
    let call = address.call().number(after.get()).number(PAGE_EVENTS_MAX).number(PAGE_BYTES_MAX);
    let answer = engine.repeat(OPERATION, &EVENTS, &call).await?;
    let page = decode::tuple(answer).and_then(|[generation, events]| {
        let generation = decode::generation(generation)?;
        let events = decode::array(events)?.into_iter();
        events.map(|event| Ok(shown(event)?.in_generation(generation))).collect()
    });
    page.map_err(|error: Error| error.in_operation(OPERATION))
}

/// Returns a message event, or another event with the remaining messages of its replacement.
fn shown(answer: Value) -> Result<HistoryEvent> {
    let mut parts = decode::array(answer)?.into_iter();
    let first = decode::bytes(parts.next().unwrap_or(Value::Nil))?;
    if first.contains(&0) {
        let entry = Entry::parse(Value::BulkString(first))?;
        let (seq, thread_bytes) = (Seq::new(entry.seq), entry.thread_bytes);
        let kind = HistoryEventKind::Appended { message: entry.into_message()?, thread_bytes };
        return Ok(HistoryEvent::new(seq, kind));
    }
    let placed = parts.map(stored).collect::<Result<Vec<StoredMessage>>>()?;
    let text = String::from_utf8(first).map_err(|_| corrupt(OPERATION))?;
    other(&text, placed).ok_or_else(|| corrupt(OPERATION))
}

/// Parses an event that is not a message: '<seq> <kind> <removed> <up to> <thread bytes> <placed> <run>'. A
/// removal has its numbers in place of the run, and a rewind its position. An update has its message.
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
        4 => HistoryEventKind::Removed { seqs: numbers(run)? },
        5 => HistoryEventKind::Rewound { after: *numbers(run)?.first()?, removed },
        6 => HistoryEventKind::Updated {
            of: Seq::new(up_to),
            message: messages.into_iter().next()?.message,
            thread_bytes: u64::try_from(thread_bytes).ok()?,
        },
        _ => return None,
    };
    Some(HistoryEvent::new(Seq::new(seq), kind))
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
        let seqs = [-3, 5].map(Seq::new).to_vec();
        assert_eq!(other("7 4 2 0 12 0 -3,5", Vec::new()).unwrap().kind, HistoryEventKind::Removed { seqs });
        let rewound = HistoryEventKind::Rewound { after: Seq::new(-3), removed: 2 };
        assert_eq!(other("7 5 2 0 12 0 -3", Vec::new()).unwrap().kind, rewound);
        for foreign in [
            "",
            "7 2 3 0 12 0",
            "7 6 3 0 12 0 ",
            "7 4 1 0 12 0 x",
            "7 5 1 0 12 0 ",
            "7 2 3 0 12 0 ",
            "7 1 -3 0 12 0 ",
        ] {
            assert!(other(foreign, Vec::new()).is_none(), "{foreign:?}");
        }
    }
}
