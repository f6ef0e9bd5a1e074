//! The writes of a thread. Each runs inside the writer's transaction.

use larder_kernel::storage::history::{check_fork, check_if_last, check_replace_at};
use larder_kernel::{
    Appended, Error, ErrorKind, FencingToken, Forked, IdempotencyKey, Replaced, Replacement, Result, RunId,
    Seq, Ttl,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::failure::Fallible;
use super::super::value::{count, length, now_ms};
use super::message::Encoded;
use super::thread::{Address, REPLACED, RUN_CLEARED, ThreadRow, expire};

const INSERT: &str =
    "INSERT INTO messages (thread, seq, run, author, author_role, placed_by, bytes, thread_bytes, body)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// The options of an append.
#[derive(Default)]
pub(super) struct Append {
    pub(super) key: Option<(IdempotencyKey, [u8; 32])>,
    pub(super) ttl: Option<Ttl>,
    pub(super) if_last: Option<Seq>,
    pub(super) fence: Option<FencingToken>,
}

/// A lost condition is the inner error, as in [`replace`].
pub(super) fn append(
    sql: &Connection,
    address: &Address,
    messages: &[Encoded],
    options: &Append,
) -> Fallible<Result<Appended>> {
    const OPERATION: &str = "history.append_many";
    let mut found = expire(sql, address)?;
    if let (Some(row), Some((key, digest))) = (&mut found, &options.key)
        && let Some(first_answer) = repeated(sql, row.id, key, digest)?
    {
        if first_answer.is_ok() {
            row.raise_fence(sql, options.fence)?;
        }
        return Ok(first_answer.map(|answer| answer.in_generation(row.generation)));
    }
    if let Some(failure) = found.as_ref().and_then(|row| row.check_fence(OPERATION, options.fence).err()) {
        return Ok(Err(failure.into_error(OPERATION)));
    }
    let last = found.as_ref().map_or(Seq::ZERO, ThreadRow::last);
    if let Err(error) = check_if_last(OPERATION, options.if_last, last) {
        return Ok(Err(error));
    }
    let mut row = found.map_or_else(|| ThreadRow::make(sql, address), Ok)?;
    let first = row.last_seq + 1;
    let mut insert = sql.prepare_cached(INSERT)?;
    for message in messages {
        row.last_seq += 1;
        let thread_bytes = row.grow(message.bytes);
        let (author, role) = message.author();
        let placed_by: Option<i64> = None;
        insert.execute(params![
            row.id,
            row.last_seq,
            message.run(),
            author,
            role,
            placed_by,
            message.bytes,
            thread_bytes,
            message.body
        ])?;
    }
    match options.ttl {
        Some(ttl) => row.set_ttl(Some(ttl), now_ms()),
        None => row.touch(now_ms()),
    }
    row.save(sql)?;
    row.raise_fence(sql, options.fence)?;
    if let Some((key, digest)) = &options.key {
        let mut statement = sql.prepare_cached(
            "INSERT INTO append_keys (thread, idempotency_key, digest, first_seq, last_seq)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        statement.execute(params![row.id, key.as_str(), digest, first, row.last_seq])?;
    }
    Ok(Ok(Appended::new(row.seq(first), row.last())))
}

/// Returns the first result of an append with this key, or a conflict if its messages were different.
fn repeated(
    sql: &Connection,
    thread: i64,
    key: &IdempotencyKey,
    digest: &[u8; 32],
) -> Fallible<Option<Result<Appended>>> {
    let mut statement = sql.prepare_cached(
        "SELECT digest, first_seq, last_seq FROM append_keys WHERE thread = ?1 AND idempotency_key = ?2",
    )?;
    let found: Option<([u8; 32], i64, i64)> = statement
        .query_row(params![thread, key.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    Ok(found.map(|(first_digest, first, last)| {
        if first_digest == *digest {
            return Ok(Appended::new(Seq::new(first), Seq::new(last)));
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "history.append_many",
            "the idempotency key was used for different messages; use a new key",
        ))
    }))
}

pub(super) fn clear_run(sql: &Connection, row: &mut ThreadRow, run: &RunId) -> Fallible<u64> {
    let (removed, bytes) = {
        let mut statement = sql.prepare_cached(
            "SELECT count(*), ifnull(sum(bytes), 0) FROM messages WHERE thread = ?1 AND run = ?2",
        )?;
        let sums: (i64, i64) =
            statement.query_row(params![row.id, run.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        sums
    };
    if removed == 0 {
        return Ok(0);
    }
    let deleted = sql
        .prepare_cached("DELETE FROM messages WHERE thread = ?1 AND run = ?2")?
        .execute(params![row.id, run.as_str()])?;
    row.shrink(deleted, bytes);
    let seq = row.next_event();
    let mut statement = sql.prepare_cached(
        "INSERT INTO thread_events (thread, seq, kind, removed, run) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    statement.execute(params![row.id, seq, RUN_CLEARED, removed, run.as_str()])?;
    count(removed)
}

pub(super) fn target_exists() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "history.fork",
        "the target already has messages; fork into an empty thread",
    )
}

pub(super) fn fork(
    sql: &Connection,
    source: &Address,
    target: &Address,
    up_to: Option<Seq>,
    fence: Option<FencingToken>,
) -> Fallible<Forked> {
    let source = expire(sql, source)?;
    let existing = expire(sql, target)?;
    if let Some(row) = &existing {
        row.check_fence("history.fork", fence)?;
    }
    if existing.is_some_and(|row| row.messages > 0) {
        return Err(target_exists().into());
    }
    check_fork(up_to, source.as_ref().map_or(Seq::ZERO, ThreadRow::last))?;
    let source = source.filter(|row| row.messages > 0).map_or(0, |row| row.id);
    let slices = slices(sql, source, up_to.map_or(i64::MAX, Seq::get))?;
    if slices.is_empty() {
        return Err(Error::new(
            ErrorKind::NotFound,
            "history.fork",
            "the source has no messages to copy; check the thread and `up_to`",
        )
        .into());
    }
    let mut row = ThreadRow::find_or_make(sql, target)?;
    let mut statement = sql.prepare_cached(
        "INSERT INTO messages (thread, seq, run, author, author_role, bytes, thread_bytes, body)
         SELECT ?1, ?2 + row_number() OVER (ORDER BY seq), run, author, author_role, bytes,
            ?3 + sum(bytes) OVER (ORDER BY seq), body
         FROM messages WHERE thread = ?4 AND seq > ?5 AND seq <= ?6",
    )?;
    // A replacement longer than the removed messages uses numbers below the first.
    let mut after = i64::MIN;
    for slice in slices {
        statement.execute([row.id, row.last_seq, row.bytes, source, after, slice.end])?;
        row.last_seq += slice.messages;
        row.messages += slice.messages;
        row.bytes += slice.bytes;
        after = slice.end;
    }
    row.save(sql)?;
    row.raise_fence(sql, fence)?;
    Ok(Forked::new(count(row.messages)?, row.last()))
}

/// Consecutive messages of a thread that are copied in one step.
struct Slice {
    /// The number of the last message.
    end: i64,
    messages: i64,
    bytes: i64,
}

/// The maximum bytes of messages that are copied in one step. A statement that copies within a table buffers
/// all its rows until the read ends. So this bounds the memory of a fork, for a thread of any length.
const SLICE_BYTES: i64 = 4 << 20;

/// Returns the messages of a thread up to `up_to`, in slices.
fn slices(sql: &Connection, thread: i64, up_to: i64) -> Fallible<Vec<Slice>> {
    let mut statement =
        sql.prepare_cached("SELECT seq, bytes FROM messages WHERE thread = ?1 AND seq <= ?2 ORDER BY seq")?;
    let mut rows = statement.query([thread, up_to])?;
    let mut slices: Vec<Slice> = Vec::new();
    while let Some(row) = rows.next()? {
        let (end, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
        match slices.last_mut().filter(|slice| slice.bytes < SLICE_BYTES) {
            Some(slice) => {
                slice.end = end;
                slice.messages += 1;
                slice.bytes += bytes;
            }
            None => slices.push(Slice { end, messages: 1, bytes }),
        }
    }
    Ok(slices)
}

/// A conflict is the inner error, so that the transaction still commits the clear of an expired thread. The
/// caller then succeeds after it has read the thread again.
pub(super) fn replace(
    sql: &Connection,
    address: &Address,
    replacement: &Replacement,
    messages: &[Encoded],
) -> Fallible<Result<Replaced>> {
    const OPERATION: &str = "history.replace";
    let conflict = |message| Ok(Err(Error::new(ErrorKind::Conflict, OPERATION, message)));
    let Replacement { up_to, seen, fence, .. } = *replacement;
    let found = expire(sql, address)?;
    if let Some(failure) = found.as_ref().and_then(|row| row.check_fence(OPERATION, fence).err()) {
        return Ok(Err(failure.into_error(OPERATION)));
    }
    let last = found.as_ref().map_or(Seq::ZERO, ThreadRow::last);
    if let Err(error) = check_replace_at(up_to, seen, last) {
        return Ok(Err(error));
    }
    let (last_seq, changed_seq) = found.map_or((0, 0), |row| (row.last_seq, row.changed_seq));
    if seen.get() > last_seq {
        return conflict("`up_to` or `seen` is beyond the thread's last `Seq`; read the thread again");
    }
    if changed_seq > seen.get() {
        return conflict("messages were removed from the thread after `seen`; read the thread again");
    }
    let mut row = ThreadRow::find_or_make(sql, address)?;
    let removed = remove_up_to(sql, &mut row, up_to.get())?;
    let seq = row.next_event();
    insert_replacement(sql, &mut row, up_to.get(), seq, messages)?;
    // The new messages may use the numbers of these events, and the following event replaces their
    // information.
    sql.prepare_cached("DELETE FROM thread_events WHERE thread = ?1 AND (seq <= ?2 OR up_to <= ?2)")?
        .execute([row.id, up_to.get()])?;
    let mut statement = sql.prepare_cached(
        "INSERT INTO thread_events (thread, seq, kind, removed, up_to, thread_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    statement.execute([row.id, seq, REPLACED, length(removed), up_to.get(), row.bytes])?;
    row.save(sql)?;
    row.raise_fence(sql, fence)?;
    Ok(Ok(Replaced::new(larder_kernel::check::size(removed), row.seq(seq))))
}

fn remove_up_to(sql: &Connection, row: &mut ThreadRow, up_to: i64) -> Fallible<usize> {
    let bytes: i64 = sql
        .prepare_cached("SELECT ifnull(sum(bytes), 0) FROM messages WHERE thread = ?1 AND seq <= ?2")?
        .query_row([row.id, up_to], |row| row.get(0))?;
    let removed = sql
        .prepare_cached("DELETE FROM messages WHERE thread = ?1 AND seq <= ?2")?
        .execute([row.id, up_to])?;
    row.shrink(removed, bytes);
    Ok(removed)
}

/// Writes the messages of the replacement `event`, the last one at `up_to`. Each stores the size of the
/// thread after the whole replacement, because one transaction writes them all.
fn insert_replacement(
    sql: &Connection,
    row: &mut ThreadRow,
    up_to: i64,
    event: i64,
    messages: &[Encoded],
) -> Fallible<()> {
    for message in messages {
        row.grow(message.bytes);
    }
    let mut insert = sql.prepare_cached(INSERT)?;
    let mut seq = up_to - length(messages.len());
    for message in messages {
        seq += 1;
        let (run, (author, role)) = (message.run(), message.author());
        insert.execute(params![
            row.id,
            seq,
            run,
            author,
            role,
            event,
            message.bytes,
            row.bytes,
            message.body
        ])?;
    }
    Ok(())
}
