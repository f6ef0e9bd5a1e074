//! Removes the messages of expired threads.

use rusqlite::Connection;

use super::super::engine::ExpiryStep;
use super::super::failure::Fallible;
use super::super::value::length;
use super::thread::ThreadRow;

/// The maximum number of threads that one step checks.
const THREADS_MAX: usize = 64;
/// The maximum number of messages that one step removes. Together with the limit in bytes it bounds the wait
/// of a writer.
const MESSAGES_MAX: i64 = 1_024;
const BYTES_MAX: i64 = 4 << 20;

/// Returns true if a thread is due for a check, or messages of a pop were kept long enough.
pub(crate) fn is_due(sql: &Connection, now_ms: i64) -> Fallible<bool> {
    let mut statement = sql.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM threads WHERE sweep_ms <= ?1)
            OR EXISTS (SELECT 1 FROM popped_messages WHERE kept_until_ms <= ?1)",
    )?;
    Ok(statement.query_row([now_ms], |row| row.get(0))?)
}

/// Removes the messages of pops that were kept long enough, and records passed expiries as clear events.
pub(crate) fn remove_expired(sql: &Connection, now_ms: i64) -> Fallible<ExpiryStep> {
    let due: Vec<i64> = sql
        .prepare_cached("SELECT id FROM threads WHERE sweep_ms <= ?1 ORDER BY sweep_ms LIMIT ?2")?
        .query_map([now_ms, length(THREADS_MAX)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut room = Room { messages: MESSAGES_MAX, bytes: BYTES_MAX };
    let forgot_all = room.forget_popped(sql, now_ms)?;
    let mut step = ExpiryStep { removed: 0, more: due.len() == THREADS_MAX || !forgot_all };
    for id in due {
        let Some(mut row) = ThreadRow::with_id(sql, id)? else { continue };
        if !row.has_expired(now_ms) {
            row.reschedule_expiry(sql)?;
        } else if room.holds_rest_of(sql, id)? {
            row.clear(sql)?;
            row.save(sql)?;
            step.removed += 1;
        } else {
            row.end_for_good(sql)?;
            step.more = true;
            break;
        }
    }
    Ok(step)
}

/// The remaining allowance of one step.
struct Room {
    messages: i64,
    bytes: i64,
}

impl Room {
    /// Removes the messages of pops that were kept long enough, as many as the allowance covers. Returns true
    /// if it covers all of them.
    fn forget_popped(&mut self, sql: &Connection, now_ms: i64) -> Fallible<bool> {
        let mut statement = sql.prepare_cached(
            "SELECT rowid, length(body) FROM popped_messages WHERE kept_until_ms <= ?1
             ORDER BY kept_until_ms",
        )?;
        let mut rows = statement.query([now_ms])?;
        let mut due: Vec<i64> = Vec::new();
        let covers_all = loop {
            let Some(row) = rows.next()? else { break true };
            if self.is_spent() {
                break false;
            }
            due.push(row.get(0)?);
            self.charge(row.get(1)?);
        };
        drop(rows);
        let mut delete = sql.prepare_cached("DELETE FROM popped_messages WHERE rowid = ?1")?;
        for rowid in due {
            delete.execute([rowid])?;
        }
        Ok(covers_all)
    }

    fn is_spent(&self) -> bool {
        self.messages == 0 || self.bytes <= 0
    }

    fn charge(&mut self, bytes: i64) {
        self.messages -= 1;
        self.bytes -= bytes;
    }

    /// Returns true if the allowance covers the remaining messages of a thread. If not, removes as many as it
    /// covers. The row still counts the removed messages, but the thread has expired and no call returns it.
    fn holds_rest_of(&mut self, sql: &Connection, thread: i64) -> Fallible<bool> {
        let mut statement =
            sql.prepare_cached("SELECT seq, bytes FROM messages WHERE thread = ?1 ORDER BY seq")?;
        let mut rows = statement.query([thread])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            if self.is_spent() {
                drop(rows);
                sql.prepare_cached("DELETE FROM messages WHERE thread = ?1 AND seq <= ?2")?
                    .execute((thread, last))?;
                return Ok(false);
            }
            last = Some(row.get::<_, i64>(0)?);
            self.charge(row.get(1)?);
        }
        Ok(true)
    }
}
