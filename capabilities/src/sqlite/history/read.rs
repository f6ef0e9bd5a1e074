//! The reads of a thread. Each runs inside one read transaction.

use larder_kernel::check::size;
use larder_kernel::{AgentId, Namespace, PageRequest, Seq, SessionId, StoredMessage, Thread, ThreadInfo};
use rusqlite::{Connection, params};

use super::super::failure::Fallible;
use super::super::value::{count, integer, length, now_ms};
use super::message::stored;
use super::thread::{Address, Refresh, ThreadRow};

pub(super) const THREADS: &str = "SELECT agent, session, messages, bytes, last_seq FROM threads
     WHERE namespace = ?1 AND (agent, session) > (?2, ?3)
        AND live = 1 AND (expires_ms IS NULL OR expires_ms > ?4)
     ORDER BY agent, session LIMIT ?5";
pub(super) const THREADS_OF_AGENT: &str = "SELECT agent, session, messages, bytes, last_seq FROM threads
     WHERE namespace = ?1 AND agent = ?2 AND session > ?3
        AND live = 1 AND (expires_ms IS NULL OR expires_ms > ?4)
     ORDER BY session LIMIT ?5";

/// Which messages of a thread.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// Those after so many of the oldest.
    Offset(u64),
    /// The newest whose `Seq` is smaller.
    Before(Seq),
    /// The oldest whose `Seq` is greater.
    After(Seq),
}

/// What a read of messages found.
pub(super) enum Seen {
    Messages {
        messages: Vec<StoredMessage>,
        refresh: Option<Refresh>,
    },
    /// The thread's time has passed, which is still to be made into a clear.
    Expired,
}

pub(super) fn messages(sql: &Connection, address: &Address, range: Range, limit: usize) -> Fallible<Seen> {
    let Some(row) = ThreadRow::find(sql, address)? else {
        return Ok(Seen::Messages { messages: Vec::new(), refresh: None });
    };
    let now_ms = now_ms();
    if row.has_expired(now_ms) {
        return Ok(Seen::Expired);
    }
    let limit = length(limit);
    let (select, from) = match range {
        Range::Offset(offset) => (
            "SELECT seq, body FROM messages WHERE thread = ?1 ORDER BY seq LIMIT ?3 OFFSET ?2",
            integer(offset),
        ),
        Range::Before(before) => (
            "SELECT seq, body FROM messages WHERE thread = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
            before.get(),
        ),
        Range::After(after) => (
            "SELECT seq, body FROM messages WHERE thread = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            after.get(),
        ),
    };
    let mut statement = sql.prepare_cached(select)?;
    let mut rows = statement.query([row.id, from, limit])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(stored(row)?);
    }
    if matches!(range, Range::Before(_)) {
        messages.reverse();
    }
    Ok(Seen::Messages { messages, refresh: row.refresh(now_ms) })
}

/// The threads of a page and one more.
pub(super) fn threads(
    sql: &Connection,
    namespace: &Namespace,
    agent: Option<&AgentId>,
    page: &PageRequest<Thread>,
) -> Fallible<Vec<ThreadInfo>> {
    // An id is never empty, so the empty text stands before all.
    let after = page.after.as_ref().map_or(("", ""), |after| (after.agent.as_str(), after.session.as_str()));
    let (select, after_agent, after_session) = match agent {
        None => (THREADS, after.0, after.1),
        Some(agent) if agent.as_str() < after.0 => return Ok(Vec::new()),
        Some(agent) => {
            (THREADS_OF_AGENT, agent.as_str(), if agent.as_str() == after.0 { after.1 } else { "" })
        }
    };
    let limit = integer(size(page.limit) + 1);
    let mut statement = sql.prepare_cached(select)?;
    let mut rows =
        statement.query(params![namespace.as_str(), after_agent, after_session, now_ms(), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let agent = AgentId::try_from(row.get::<_, String>(0)?)?;
        let session = SessionId::try_from(row.get::<_, String>(1)?)?;
        found.push(ThreadInfo {
            thread: Thread { agent, session },
            messages: count(row.get(2)?)?,
            bytes: count(row.get(3)?)?,
            last: Seq::new(row.get(4)?),
        });
    }
    Ok(found)
}
