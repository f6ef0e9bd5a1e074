//! Subscriptions: the log of a thread, read in pages and again after each commit.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use larder_kernel::{
    Error, ErrorKind, HistoryEvent, HistoryEventKind, HistoryEvents, Outcome, Result, RunId, Seq,
};
use rusqlite::{Connection, Row, Rows};
use tokio::sync::watch;

use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::super::value::{count, now_ms};
use super::message::{decode, stored};
use super::removal::numbers;
use super::thread::{Address, CLEARED, REMOVED, REPLACED, REWOUND, RUN_CLEARED, ThreadRow, UPDATED};

const OPERATION: &str = "history.subscribe";
/// The maximum number of events in one page.
const PAGE_EVENTS_MAX: usize = 256;
/// A page ends when its messages reach this size.
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

struct Subscription {
    engine: Engine,
    address: Arc<Address>,
    commits: watch::Receiver<u64>,
    /// The position up to which the events were read.
    cursor: Seq,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// Returns the events after a `Seq`, and then the events to come.
pub(super) fn follow(engine: Engine, address: Address, after: Seq) -> HistoryEvents {
    let commits = engine.commits();
    let subscription = Subscription {
        engine,
        address: Arc::new(address),
        commits,
        cursor: after,
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
            // Marked before the read, so that a commit during the read is not missed.
            self.commits.mark_unchanged();
            let (address, after) = (Arc::clone(&self.address), self.cursor);
            match self.engine.read(OPERATION, move |sql| page(sql, &address, after)).await {
                Err(error) => return Some(Err(error)),
                Ok(page) => self.page = page,
            }
            match self.page.back() {
                Some(last) => self.cursor = last.seq,
                None if self.commits.changed().await.is_err() => return Some(Err(closed())),
                None => {}
            }
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, "the database was closed; open it again")
        .with_outcome(Outcome::NotApplied)
}

/// A stored event of a thread that is not a message.
struct EventRow {
    seq: i64,
    kind: i64,
    removed: i64,
    run: Option<String>,
    up_to: Option<i64>,
    thread_bytes: Option<i64>,
    seqs: Option<String>,
}

/// Returns the next events after a position, in order. Fails if the thread no longer has the position.
fn page(sql: &Connection, address: &Address, after: Seq) -> Fallible<VecDeque<HistoryEvent>> {
    let mut page = VecDeque::new();
    let found = ThreadRow::find(sql, address)?;
    let now_ms = now_ms();
    if !after.is_within(found.as_ref().map_or(Seq::ZERO, |row| row.last_at(now_ms))) {
        return Err(Error::erased(OPERATION).into());
    }
    let Some(thread) = found else { return Ok(page) };
    let after = after.get();
    if thread.last_seq <= after || thread.has_expired(now_ms) {
        return Ok(page);
    }
    let mut events = sql.prepare_cached(
        "SELECT seq, kind, removed, run, up_to, thread_bytes, seqs FROM thread_events
         WHERE thread = ?1 AND seq > ?2 ORDER BY seq",
    )?;
    let mut events = events.query([thread.id, after])?;
    let mut messages = sql.prepare_cached(
        "SELECT seq, thread_bytes, body, bytes FROM messages WHERE thread = ?1 AND seq > ?2 ORDER BY seq",
    )?;
    let mut messages = messages.query([thread.id, after])?;
    let (mut event, mut message) = (next_event(&mut events)?, next_message(&mut messages)?);
    let mut bytes = 0_u64;
    loop {
        let event_seq = event.as_ref().map(|event| event.seq);
        let message_seq = message.as_ref().map(|(message, _)| message.seq.get());
        let Some(seq) = event_seq.into_iter().chain(message_seq).min() else { return Ok(page) };
        if page.len() >= PAGE_EVENTS_MAX || bytes >= PAGE_BYTES_MAX {
            return Ok(page);
        }
        if event_seq == Some(seq) {
            let shown = event.take().map(|row| into_event(sql, thread.id, row)).transpose()?.flatten();
            if let Some(event) = shown {
                if let HistoryEventKind::Updated { message, .. } = &event.kind {
                    bytes = bytes.saturating_add(larder_kernel::check::size(message.size_bytes()));
                }
                page.push_back(event.in_generation(thread.generation));
            }
            event = next_event(&mut events)?;
        } else {
            if let Some((event, size)) = message.take() {
                page.push_back(event.in_generation(thread.generation));
                bytes = bytes.saturating_add(size);
            }
            message = next_message(&mut messages)?;
        }
    }
}

fn next_event(rows: &mut Rows<'_>) -> Fallible<Option<EventRow>> {
    let read = |row: &Row<'_>| -> rusqlite::Result<EventRow> {
        Ok(EventRow {
            seq: row.get(0)?,
            kind: row.get(1)?,
            removed: row.get(2)?,
            run: row.get(3)?,
            up_to: row.get(4)?,
            thread_bytes: row.get(5)?,
            seqs: row.get(6)?,
        })
    };
    Ok(rows.next()?.map(read).transpose()?)
}

/// Returns the event of the next message, and the size of the message.
fn next_message(rows: &mut Rows<'_>) -> Fallible<Option<(HistoryEvent, u64)>> {
    let Some(row) = rows.next()? else { return Ok(None) };
    let kind = HistoryEventKind::Appended { message: decode(row, 2)?, thread_bytes: count(row.get(1)?)? };
    Ok(Some((HistoryEvent::new(Seq::new(row.get(0)?), kind), count(row.get(3)?)?)))
}

/// Returns an event as a subscriber receives it; `None` for an update that is no longer the message's last.
fn into_event(sql: &Connection, thread: i64, row: EventRow) -> Fallible<Option<HistoryEvent>> {
    let removed = count(row.removed)?;
    let seqs = row.seqs.as_deref().map(numbers).transpose()?;
    let kind = match (row.kind, row.run, row.up_to, row.thread_bytes) {
        (REMOVED, ..) => HistoryEventKind::Removed { seqs: seqs.ok_or_else(|| corrupt(OPERATION))? },
        (REWOUND, ..) => {
            let after = seqs.and_then(|seqs| seqs.first().copied()).ok_or_else(|| corrupt(OPERATION))?;
            HistoryEventKind::Rewound { after, removed }
        }
        (CLEARED, ..) => HistoryEventKind::Cleared { removed },
        (RUN_CLEARED, Some(run), ..) => HistoryEventKind::RunCleared { run: RunId::try_from(run)?, removed },
        (REPLACED, _, Some(up_to), Some(thread_bytes)) => HistoryEventKind::Replaced {
            up_to: Seq::new(up_to),
            removed,
            messages: replacement_messages(sql, thread, up_to, row.seq)?,
            thread_bytes: count(thread_bytes)?,
        },
        (UPDATED, _, Some(of), Some(thread_bytes)) => {
            let Some(message) = updated_message(sql, thread, of, row.seq)? else { return Ok(None) };
            HistoryEventKind::Updated { of: Seq::new(of), message, thread_bytes: count(thread_bytes)? }
        }
        _ => return Err(corrupt(OPERATION).into()),
    };
    Ok(Some(HistoryEvent::new(Seq::new(row.seq), kind)))
}

/// Returns the message of an update, unless it was removed or updated again.
fn updated_message(
    sql: &Connection,
    thread: i64,
    of: i64,
    event: i64,
) -> Fallible<Option<Arc<larder_kernel::ChatMessage>>> {
    let mut statement =
        sql.prepare_cached("SELECT body FROM messages WHERE thread = ?1 AND seq = ?2 AND updated_by = ?3")?;
    let mut rows = statement.query([thread, of, event])?;
    rows.next()?.map(|row| decode(row, 0)).transpose()
}

/// Returns the remaining messages of a replacement.
fn replacement_messages(
    sql: &Connection,
    thread: i64,
    up_to: i64,
    event: i64,
) -> Fallible<Vec<larder_kernel::StoredMessage>> {
    let mut statement = sql.prepare_cached(
        "SELECT seq, body, coalesce(updated_by, placed_by) FROM messages
         WHERE thread = ?1 AND seq <= ?2 AND placed_by = ?3 ORDER BY seq",
    )?;
    let mut rows = statement.query([thread, up_to, event])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(stored(row)?);
    }
    Ok(messages)
}
