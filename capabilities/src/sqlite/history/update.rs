//! The update of a message in place.

use larder_kernel::storage::history::{
    check_if_last, check_revision, check_update_at, no_such_message, used_for_another,
};
use larder_kernel::{MessageUpdate, Result, Seq, Updated};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::failure::{Fallible, corrupt};
use super::message::Encoded;
use super::removal_keys::FirstResult;
use super::thread::{Address, ThreadRow, UPDATED, expire};

const OPERATION: &str = "history.update";

/// An update with its message in the stored form.
pub(super) struct Update {
    pub(super) address: Address,
    pub(super) update: MessageUpdate,
    pub(super) message: Encoded,
    /// The digest of an update with an idempotency key.
    pub(super) digest: Option<[u8; 32]>,
}

/// A lost condition is the inner error, so that the transaction still commits the clear of an expired thread.
pub(super) fn update(sql: &Connection, wanted: &Update) -> Fallible<Result<Updated>> {
    let update = &wanted.update;
    let mut found = expire(sql, &wanted.address)?;
    if let Some(row) = &mut found
        && let Some(first_answer) = repeated(sql, row, wanted)?
    {
        if first_answer.is_ok() {
            row.raise_fence(sql, update.fence)?;
        }
        return Ok(first_answer);
    }
    if let Some(failure) = found.as_ref().and_then(|row| row.check_fence(OPERATION, update.fence).err()) {
        return Ok(Err(failure.into_error(OPERATION)));
    }
    let last = found.as_ref().map_or(Seq::ZERO, ThreadRow::last);
    let checked = check_if_last(OPERATION, update.if_last, last);
    if let Err(error) = checked.and_then(|()| check_update_at(update, last)) {
        return Ok(Err(error));
    }
    let Some(mut row) = found else { return Ok(Err(no_such_message())) };
    let mut statement = sql.prepare_cached(
        "SELECT coalesce(updated_by, placed_by, seq), updated_by, bytes FROM messages
         WHERE thread = ?1 AND seq = ?2",
    )?;
    let stored: Option<(i64, Option<i64>, i64)> = statement
        .query_row([row.id, update.seq.get()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((revision, updated_by, bytes)) = stored else { return Ok(Err(no_such_message())) };
    let revision = u64::try_from(revision).map_err(|_| corrupt(OPERATION))?;
    if let Err(error) = check_revision(update, revision) {
        return Ok(Err(error));
    }
    write(sql, &mut row, wanted, (updated_by, bytes))?;
    row.raise_fence(sql, update.fence)?;
    Ok(Ok(Updated::new(row.last())))
}

/// Returns the first result of an update with this key, or a conflict if it was another update or a removal.
fn repeated(sql: &Connection, row: &ThreadRow, wanted: &Update) -> Fallible<Option<Result<Updated>>> {
    let Some((key, digest)) = wanted.update.idempotency_key.as_ref().zip(wanted.digest) else {
        return Ok(None);
    };
    let found = FirstResult::find(sql, row.id, key.as_str())?;
    Ok(found.map(|first| match first.digest == digest {
        true => Ok(Updated::new(row.seq(first.last))),
        false => Err(used_for_another(OPERATION)),
    }))
}

/// Writes the message over the stored one, with its event, its key and the thread's row.
fn write(
    sql: &Connection,
    row: &mut ThreadRow,
    wanted: &Update,
    (updated_by, bytes): (Option<i64>, i64),
) -> Fallible<()> {
    let (seq, message) = (wanted.update.seq.get(), &wanted.message);
    row.bytes += message.bytes - bytes;
    let event = row.next_event();
    let (author, role) = message.author();
    let mut statement = sql.prepare_cached(
        "UPDATE messages SET run = ?3, author = ?4, author_role = ?5, bytes = ?6, body = ?7, updated_by = ?8
         WHERE thread = ?1 AND seq = ?2",
    )?;
    let (run, body) = (message.run(), &message.body);
    statement.execute(params![row.id, seq, run, author, role, message.bytes, body, event])?;
    // The event of the earlier update, which this one replaces.
    sql.prepare_cached("DELETE FROM thread_events WHERE thread = ?1 AND seq = ?2")?
        .execute(params![row.id, updated_by])?;
    let mut statement = sql.prepare_cached(
        "INSERT INTO thread_events (thread, seq, kind, removed, up_to, thread_bytes)
         VALUES (?1, ?2, ?3, 0, ?4, ?5)",
    )?;
    statement.execute([row.id, event, UPDATED, seq, row.bytes])?;
    if let Some((key, digest)) = wanted.update.idempotency_key.as_ref().zip(wanted.digest) {
        let first = FirstResult { digest, messages: 1, last: event, seqs: seq.to_string() };
        first.keep(sql, row.id, key.as_str())?;
    }
    row.save(sql)
}
