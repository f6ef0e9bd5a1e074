//! The removal of single messages: by number, after a position, and from the end.

use larder_kernel::limits::POPPED_KEPT_MAX;
use larder_kernel::storage::history::{
    check_if_last, check_remove_at, check_removed_bytes, used_for_another,
};
use larder_kernel::{Error, Removal, RemovalTarget, Removed, Result, Seq, StoredMessage};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::failure::{Fallible, corrupt};
use super::super::value::{count, integer, length, millis, now_ms};
use super::message::{decode, stored};
use super::removal_keys::FirstResult;
use super::thread::{Address, REMOVED, REWOUND, ThreadRow, expire};

const OPERATION: &str = "history.remove";

/// A lost condition is the inner error, so that the transaction still commits the clear of an expired thread.
pub(super) fn remove(sql: &Connection, address: &Address, removal: &Removal) -> Fallible<Result<Removed>> {
    let mut found = expire(sql, address)?;
    if let Some(row) = &mut found
        && let Some(first_answer) = repeated(sql, row.id, removal)?
    {
        if first_answer.is_ok() {
            row.raise_fence(sql, removal.fence)?;
        }
        return Ok(first_answer.map(|answer| answer.in_generation(row.generation)));
    }
    if let Some(failure) = found.as_ref().and_then(|row| row.check_fence(OPERATION, removal.fence).err()) {
        return Ok(Err(failure.into_error(OPERATION)));
    }
    let last = found.as_ref().map_or(Seq::ZERO, ThreadRow::last);
    let checked = check_if_last(OPERATION, removal.if_last, last);
    if let Err(error) = checked.and_then(|()| check_remove_at(removal, last)) {
        return Ok(Err(error));
    }
    let mut row = match found {
        Some(row) => row,
        // Only a key must be remembered.
        None if removal.idempotency_key.is_none() => return Ok(Ok(Removed::new(0, Seq::ZERO))),
        None => ThreadRow::make(sql, address)?,
    };
    let removed = match &removal.target {
        RemovalTarget::After(position) => rewind(sql, &mut row, position.get())?,
        _ => take(sql, &mut row, removal)?,
    };
    remember(sql, row.id, removal, &removed)?;
    row.raise_fence(sql, removal.fence)?;
    Ok(Ok(removed.in_generation(row.generation)))
}

/// Returns the first result of a removal with this key, or a conflict if it was another removal or an update.
fn repeated(sql: &Connection, thread: i64, removal: &Removal) -> Fallible<Option<Result<Removed>>> {
    let Some(key) = &removal.idempotency_key else { return Ok(None) };
    let Some(first) = FirstResult::find(sql, thread, key.as_str())? else { return Ok(None) };
    if first.digest != removal.digest() {
        return Ok(Some(Err(used_for_another(OPERATION))));
    }
    let mut statement = sql.prepare_cached(
        "SELECT seq, body, seq FROM popped_messages
         WHERE thread = ?1 AND idempotency_key = ?2 AND kept_until_ms > ?3 ORDER BY seq",
    )?;
    let mut rows = statement.query(params![thread, key.as_str(), now_ms()])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(stored(row)?);
    }
    let answer = Removed::new(count(first.messages)?, Seq::new(first.last)).with_seqs(numbers(&first.seqs)?);
    Ok(Some(Ok(answer.with_messages(messages))))
}

/// Removes every message after a number.
fn rewind(sql: &Connection, row: &mut ThreadRow, after: i64) -> Fallible<Removed> {
    let bytes: i64 = sql
        .prepare_cached("SELECT ifnull(sum(bytes), 0) FROM messages WHERE thread = ?1 AND seq > ?2")?
        .query_row([row.id, after], |row| row.get(0))?;
    let removed = sql
        .prepare_cached("DELETE FROM messages WHERE thread = ?1 AND seq > ?2")?
        .execute([row.id, after])?;
    if removed > 0 {
        row.shrink(removed, bytes);
        record(sql, row, REWOUND, removed, &after.to_string())?;
    }
    Ok(Removed::new(larder_kernel::check::size(removed), row.last()))
}

/// Removes messages by number or from the end, and returns them.
fn take(sql: &Connection, row: &mut ThreadRow, removal: &Removal) -> Fallible<Removed> {
    let found = sizes(sql, row.id, &removal.target)?;
    let bytes: i64 = found.iter().map(|(_, bytes)| bytes).sum();
    check_removed_bytes(removal, count(bytes)?)?;
    if found.is_empty() {
        return Ok(Removed::new(0, row.last()));
    }
    let mut messages = Vec::with_capacity(found.len());
    // One instant for all messages of a pop, which expire together.
    let until_ms = now_ms().saturating_add(millis(POPPED_KEPT_MAX));
    let mut read = sql.prepare_cached("SELECT body FROM messages WHERE thread = ?1 AND seq = ?2")?;
    let mut delete = sql.prepare_cached("DELETE FROM messages WHERE thread = ?1 AND seq = ?2")?;
    for (seq, _) in &found {
        let message = {
            let mut rows = read.query([row.id, *seq])?;
            decode(rows.next()?.ok_or_else(|| corrupt(OPERATION))?, 0)?
        };
        messages.push(StoredMessage::new(Seq::new(*seq), message));
        if let (RemovalTarget::Newest(_), Some(key)) = (&removal.target, &removal.idempotency_key) {
            let mut keep = sql.prepare_cached(
                "INSERT INTO popped_messages (thread, idempotency_key, seq, kept_until_ms, body)
                 SELECT thread, ?3, seq, ?4, body FROM messages WHERE thread = ?1 AND seq = ?2",
            )?;
            keep.execute(params![row.id, seq, key.as_str(), until_ms])?;
        }
        delete.execute([row.id, *seq])?;
    }
    row.shrink(found.len(), bytes);
    record(sql, row, REMOVED, found.len(), &text(found.iter().map(|(seq, _)| *seq)))?;
    let seqs = found.iter().map(|(seq, _)| Seq::new(*seq)).collect();
    let removed = Removed::new(larder_kernel::check::size(found.len()), row.last());
    Ok(removed.with_seqs(seqs).with_messages(messages))
}

/// Returns the numbers and sizes of the messages, in order.
fn sizes(sql: &Connection, thread: i64, target: &RemovalTarget) -> Fallible<Vec<(i64, i64)>> {
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, i64)> { Ok((row.get(0)?, row.get(1)?)) };
    let mut found: Vec<(i64, i64)> = match target {
        RemovalTarget::Numbers(numbers) => {
            let mut statement =
                sql.prepare_cached("SELECT seq, bytes FROM messages WHERE thread = ?1 AND seq = ?2")?;
            let mut found = Vec::new();
            for number in numbers {
                found.extend(statement.query_row([thread, number.get()], read).optional()?);
            }
            found
        }
        RemovalTarget::Newest(newest) => sql
            .prepare_cached("SELECT seq, bytes FROM messages WHERE thread = ?1 ORDER BY seq DESC LIMIT ?2")?
            .query_map([thread, length(*newest)], read)?
            .collect::<rusqlite::Result<_>>()?,
        _ => return Err(Error::unknown_value(OPERATION, "target").into()),
    };
    found.sort_unstable();
    Ok(found)
}

/// Writes the event and the row.
fn record(sql: &Connection, row: &mut ThreadRow, kind: i64, removed: usize, seqs: &str) -> Fallible<()> {
    let seq = row.next_event();
    let mut statement = sql.prepare_cached(
        "INSERT INTO thread_events (thread, seq, kind, removed, seqs) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    statement.execute(params![row.id, seq, kind, length(removed), seqs])?;
    row.save(sql)
}

fn remember(sql: &Connection, thread: i64, removal: &Removal, removed: &Removed) -> Fallible<()> {
    let Some(key) = &removal.idempotency_key else { return Ok(()) };
    let first = FirstResult {
        digest: removal.digest(),
        messages: integer(removed.removed),
        last: removed.last.get(),
        seqs: text(removed.seqs.iter().map(|seq| seq.get())),
    };
    first.keep(sql, thread, key.as_str())
}

fn text(numbers: impl Iterator<Item = i64>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// Returns the numbers of a column.
pub(super) fn numbers(text: &str) -> Fallible<Vec<Seq>> {
    let numbers = text.split(',').filter(|number| !number.is_empty());
    let number = |text: &str| -> Fallible<Seq> {
        let number = text.parse::<i64>().map_err(|_| corrupt(OPERATION))?;
        Ok(Seq::new(number))
    };
    numbers.map(number).collect()
}
