//! The row of a thread: its sequence numbers, its counters and its time to live.

use larder_kernel::storage::history::check_fence;
use larder_kernel::{FencingToken, Generation, Namespace, Seq, Thread, ThreadInfo, Ttl};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::failure::Fallible;
use super::super::value::{count, generation, integer, length, millis, new_generation, now_ms};

/// The `kind` of an event's row.
pub(super) const CLEARED: i64 = 1;
pub(super) const RUN_CLEARED: i64 = 2;
pub(super) const REPLACED: i64 = 3;
pub(super) const REMOVED: i64 = 4;
pub(super) const REWOUND: i64 = 5;
pub(super) const UPDATED: i64 = 6;

/// The namespace and ids that identify a thread.
pub(super) struct Address {
    pub(super) namespace: Namespace,
    pub(super) thread: Thread,
}

/// A thread's row. The default is the row of a thread that was never used.
#[derive(Default)]
pub(super) struct ThreadRow {
    pub(super) id: i64,
    pub(super) generation: Option<Generation>,
    /// The greatest number assigned to a message or an event.
    pub(super) last_seq: i64,
    /// The number of the last event that removed messages.
    pub(super) changed_seq: i64,
    pub(super) messages: i64,
    pub(super) bytes: i64,
    ttl_ms: Option<i64>,
    ttl_refresh: bool,
    expires_ms: Option<i64>,
    /// The due time of the expiry check: the thread's expiry or earlier.
    sweep_ms: Option<i64>,
    /// True if the stored row is marked as having messages.
    live: bool,
    /// The greatest fencing token with which a write succeeded.
    fence: Option<i64>,
}

impl ThreadRow {
    pub(super) fn find(sql: &Connection, address: &Address) -> Fallible<Option<Self>> {
        let mut statement = sql.prepare_cached(
            "SELECT id, last_seq, changed_seq, messages, bytes, ttl_ms, ttl_refresh, expires_ms, live, \
             sweep_ms, generation, fence
             FROM threads WHERE namespace = ?1 AND agent = ?2 AND session = ?3",
        )?;
        let thread = &address.thread;
        let key = (address.namespace.as_str(), thread.agent.as_str(), thread.session.as_str());
        Ok(statement.query_row(key, Self::read).optional()?)
    }

    pub(super) fn with_id(sql: &Connection, id: i64) -> Fallible<Option<Self>> {
        let mut statement = sql.prepare_cached(
            "SELECT id, last_seq, changed_seq, messages, bytes, ttl_ms, ttl_refresh, expires_ms, live, \
             sweep_ms, generation, fence
             FROM threads WHERE id = ?1",
        )?;
        Ok(statement.query_row([id], Self::read).optional()?)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            last_seq: row.get(1)?,
            changed_seq: row.get(2)?,
            messages: row.get(3)?,
            bytes: row.get(4)?,
            ttl_ms: row.get(5)?,
            ttl_refresh: row.get(6)?,
            expires_ms: row.get(7)?,
            live: row.get(8)?,
            sweep_ms: row.get(9)?,
            generation: generation(row.get(10)?),
            fence: row.get(11)?,
        })
    }

    /// Returns the thread, and creates it if it was never used.
    pub(super) fn find_or_make(sql: &Connection, address: &Address) -> Fallible<Self> {
        expire(sql, address)?.map_or_else(|| Self::make(sql, address), Ok)
    }

    /// Creates a thread that was never used.
    pub(super) fn make(sql: &Connection, address: &Address) -> Fallible<Self> {
        let mut statement = sql.prepare_cached(
            "INSERT INTO threads (namespace, agent, session, live, last_seq, changed_seq, messages, bytes, \
             ttl_refresh, generation)
             VALUES (?1, ?2, ?3, 0, 0, 0, 0, 0, 0, ?4)",
        )?;
        let (thread, drawn) = (&address.thread, new_generation());
        let key = (address.namespace.as_str(), thread.agent.as_str(), thread.session.as_str(), drawn);
        let id = statement.insert(key)?;
        Ok(Self { id, generation: generation(drawn), ..Self::default() })
    }

    /// Returns the position of a number in the thread.
    pub(super) fn seq(&self, number: i64) -> Seq {
        Seq::new(number).in_generation(self.generation)
    }

    /// Returns the last position.
    pub(super) fn last(&self) -> Seq {
        self.seq(self.last_seq)
    }

    pub(super) fn save(&mut self, sql: &Connection) -> Fallible<()> {
        if self.messages == 0 {
            // The next messages do not inherit the time to live.
            self.set_ttl(None, 0);
        }
        let mut statement = sql.prepare_cached(
            "UPDATE threads SET last_seq = ?2, changed_seq = ?3, messages = ?4, bytes = ?5, ttl_ms = ?6,
                ttl_refresh = ?7, expires_ms = ?8
             WHERE id = ?1",
        )?;
        statement.execute(params![
            self.id,
            self.last_seq,
            self.changed_seq,
            self.messages,
            self.bytes,
            self.ttl_ms,
            self.ttl_refresh,
            self.expires_ms,
        ])?;
        let live = self.messages > 0;
        if live != self.live {
            // A separate statement, so that only the first and the last message touch the index.
            sql.prepare_cached("UPDATE threads SET live = ?2 WHERE id = ?1")?
                .execute(params![self.id, live])?;
            self.live = live;
        }
        let sweep_ms = self.expires_ms.map(|at| self.sweep_ms.map_or(at, |earlier| earlier.min(at)));
        self.schedule_expiry(sql, sweep_ms)
    }

    /// Stores the due time of the expiry check. A separate statement, so that a use that extends the life
    /// does not touch the index.
    fn schedule_expiry(&mut self, sql: &Connection, sweep_ms: Option<i64>) -> Fallible<()> {
        if sweep_ms != self.sweep_ms {
            sql.prepare_cached("UPDATE threads SET sweep_ms = ?2 WHERE id = ?1")?
                .execute(params![self.id, sweep_ms])?;
            self.sweep_ms = sweep_ms;
        }
        Ok(())
    }

    /// Schedules the next check for the expiry of the thread.
    pub(super) fn reschedule_expiry(&mut self, sql: &Connection) -> Fallible<()> {
        self.schedule_expiry(sql, self.expires_ms)
    }

    /// Refuses a write whose fencing token is missing or too low.
    pub(super) fn check_fence(&self, operation: &'static str, fence: Option<FencingToken>) -> Fallible<()> {
        let greatest = self.fence.map(count).transpose()?.map(FencingToken::new);
        Ok(check_fence(operation, fence, greatest)?)
    }

    /// Remembers the fencing token of a write that succeeded. A separate statement, because few writes raise
    /// the fence.
    pub(super) fn raise_fence(&mut self, sql: &Connection, fence: Option<FencingToken>) -> Fallible<()> {
        let fence = fence.map(|token| integer(token.get()));
        if fence > self.fence {
            sql.prepare_cached("UPDATE threads SET fence = ?2 WHERE id = ?1")?
                .execute(params![self.id, fence])?;
            self.fence = fence;
        }
        Ok(())
    }

    /// Makes an expiry final, even if the clock is set back: some of the messages are already removed.
    pub(super) fn end_for_good(&mut self, sql: &Connection) -> Fallible<()> {
        if self.expires_ms != Some(0) {
            self.expires_ms = Some(0);
            self.save(sql)?;
        }
        Ok(())
    }

    pub(super) fn info(&self, thread: Thread) -> Fallible<ThreadInfo> {
        Ok(ThreadInfo::new(thread, count(self.messages)?, count(self.bytes)?, self.last()))
    }

    pub(super) fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| now_ms >= expires_ms)
    }

    /// Records a passed expiry as a clear event.
    pub(super) fn expire(&mut self, sql: &Connection, now_ms: i64) -> Fallible<()> {
        if self.has_expired(now_ms) {
            self.clear(sql)?;
        }
        Ok(())
    }

    pub(super) fn set_ttl(&mut self, ttl: Option<Ttl>, now_ms: i64) {
        self.ttl_ms = ttl.map(|ttl| millis(ttl.after));
        self.ttl_refresh = ttl.is_some_and(|ttl| ttl.refresh_on_use);
        self.expires_ms = self.ttl_ms.map(|ttl_ms| now_ms.saturating_add(ttl_ms));
    }

    /// Returns the row as it reads after its expiry, whose event has the next number.
    pub(super) fn without_messages(self) -> Self {
        Self { messages: 0, bytes: 0, last_seq: self.last_seq + i64::from(self.messages > 0), ..self }
    }

    /// Returns the last position at a time. An expiry that has passed counts, even if it is not recorded.
    pub(super) fn last_at(&self, now_ms: i64) -> Seq {
        self.seq(self.last_seq + i64::from(self.messages > 0 && self.has_expired(now_ms)))
    }

    /// Restarts a time to live that refreshes on use.
    pub(super) fn touch(&mut self, now_ms: i64) {
        self.expires_ms = self.refreshed(now_ms).or(self.expires_ms);
    }

    /// Returns the new expiry if the thread is used now; `None` if the use does not change it.
    fn refreshed(&self, now_ms: i64) -> Option<i64> {
        let expires_ms = now_ms.saturating_add(self.ttl_ms.filter(|_| self.ttl_refresh)?);
        (self.expires_ms? < expires_ms).then_some(expires_ms)
    }

    /// Returns the refresh of the time to live that a read at `now_ms` causes.
    pub(super) fn refresh(&self, now_ms: i64) -> Option<Refresh> {
        self.refreshed(now_ms).map(|expires_ms| Refresh { thread: self.id, read_ms: now_ms, expires_ms })
    }

    /// Removes all messages and the time to live, and returns the number of removed messages.
    pub(super) fn clear(&mut self, sql: &Connection) -> Fallible<u64> {
        self.set_ttl(None, 0);
        sql.prepare_cached("DELETE FROM popped_messages WHERE thread = ?1")?.execute([self.id])?;
        if self.messages == 0 {
            return Ok(0);
        }
        sql.prepare_cached("DELETE FROM messages WHERE thread = ?1")?.execute([self.id])?;
        sql.prepare_cached("DELETE FROM thread_events WHERE thread = ?1")?.execute([self.id])?;
        let removed = std::mem::take(&mut self.messages);
        self.bytes = 0;
        let seq = self.next_event();
        let mut statement = sql.prepare_cached(
            "INSERT INTO thread_events (thread, seq, kind, removed) VALUES (?1, ?2, ?3, ?4)",
        )?;
        statement.execute([self.id, seq, CLEARED, removed])?;
        count(removed)
    }

    /// Assigns the number of an event that removes or replaces messages.
    pub(super) fn next_event(&mut self) -> i64 {
        self.last_seq += 1;
        self.changed_seq = self.last_seq;
        self.last_seq
    }

    /// Counts one more message and returns the new size of the thread.
    pub(super) fn grow(&mut self, bytes: i64) -> i64 {
        self.messages += 1;
        self.bytes += bytes;
        self.bytes
    }

    /// Subtracts removed messages from the counters.
    pub(super) fn shrink(&mut self, messages: usize, bytes: i64) {
        self.messages -= length(messages);
        self.bytes -= bytes;
    }
}

/// A use of a thread whose time to live refreshes on use.
pub(super) struct Refresh {
    thread: i64,
    read_ms: i64,
    expires_ms: i64,
}

impl Refresh {
    /// Extends the life that the read found. A life that was set, ended or extended further since then stays
    /// as it is.
    pub(super) fn apply(&self, sql: &Connection) -> Fallible<()> {
        let mut statement = sql.prepare_cached(
            "UPDATE threads SET expires_ms = min(?3, ?2 + ttl_ms)
             WHERE id = ?1 AND ttl_refresh AND expires_ms > ?2 AND expires_ms < min(?3, ?2 + ttl_ms)",
        )?;
        statement.execute([self.thread, self.read_ms, self.expires_ms])?;
        Ok(())
    }
}

/// Records a passed expiry as a clear event, and returns the current row of the thread.
pub(super) fn expire(sql: &Connection, address: &Address) -> Fallible<Option<ThreadRow>> {
    let Some(mut row) = ThreadRow::find(sql, address)? else { return Ok(None) };
    let now_ms = now_ms();
    if row.has_expired(now_ms) {
        row.clear(sql)?;
        row.save(sql)?;
    }
    Ok(Some(row))
}
