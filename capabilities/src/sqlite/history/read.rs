//! The reads of a thread. Each runs inside one read transaction.

use larder_kernel::check::size;
use larder_kernel::storage::history::{check_after, check_before};
use larder_kernel::{
    AgentId, AuthorSet, AuthorTerms, Namespace, PageRequest, Result, Seq, SessionId, StoredMessage, Thread,
    ThreadInfo,
};
use rusqlite::{Connection, Params, params};

use super::super::engine::{INLINE_ROWS_MAX, ReadBudget};
use super::super::failure::{Failure, Fallible, corrupt};
use super::super::value::{count, generation, integer, length, now_ms};
use super::message::stored;
use super::thread::{Address, Refresh, ThreadRow};

pub(super) const THREADS: &str = "SELECT agent, session, messages, bytes, last_seq, generation FROM threads
     WHERE namespace = ?1 AND (agent, session) > (?2, ?3)
        AND live = 1 AND (expires_ms IS NULL OR expires_ms > ?4)
     ORDER BY agent, session LIMIT ?5";
pub(super) const THREADS_OF_AGENT: &str =
    "SELECT agent, session, messages, bytes, last_seq, generation FROM threads
     WHERE namespace = ?1 AND agent = ?2 AND session > ?3
        AND live = 1 AND (expires_ms IS NULL OR expires_ms > ?4)
     ORDER BY session LIMIT ?5";

/// A range of a thread's messages.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// The messages after this many of the oldest.
    Offset(u64),
    /// The newest messages, or those whose `Seq` is smaller.
    Before(Option<Seq>),
    /// The oldest messages whose `Seq` is greater.
    After(Seq),
}

/// A selection of a thread's messages by author.
pub(super) struct Matching {
    pub(super) terms: AuthorTerms,
    pub(super) before: Option<Seq>,
}

/// Scans backwards from the newest message and skips the messages that the filter drops. The lists of names
/// are JSON.
pub(super) const MATCHING: &str = "SELECT seq, body, coalesce(updated_by, placed_by, seq) FROM messages
     WHERE thread = ?1 AND seq < ?2
        AND (NOT ?4 OR author IN (SELECT value FROM json_each(?5)) OR author_role IN (SELECT value FROM \
        json_each(?6)))
        AND author NOT IN (SELECT value FROM json_each(?7))
        AND author_role NOT IN (SELECT value FROM json_each(?8))
     ORDER BY seq DESC LIMIT ?3";
/// The same for exactly one included author, with the index.
pub(super) const MATCHING_ONE: &str = "SELECT seq, body, coalesce(updated_by, placed_by, seq) FROM messages
     WHERE thread = ?1 AND seq < ?2 AND author = ?4 AND author <> ''
        AND author NOT IN (SELECT value FROM json_each(?5))
        AND author_role NOT IN (SELECT value FROM json_each(?6))
     ORDER BY seq DESC LIMIT ?3";

/// The maximum number of messages that an inline read skips.
const OFFSET_INLINE_MAX: u64 = 1_000;

/// The outcome of a read of messages.
pub(super) enum ReadOutcome {
    Messages {
        messages: Vec<StoredMessage>,
        refresh: Option<Refresh>,
    },
    /// The thread has expired, and the expiry is not yet recorded as a clear event.
    Expired,
}

impl Range {
    /// Returns true if an inline read can find this many messages.
    pub(super) fn fits_inline(self, limit: usize) -> bool {
        limit <= INLINE_ROWS_MAX && !matches!(self, Self::Offset(OFFSET_INLINE_MAX..))
    }
}

pub(super) fn messages(
    sql: &Connection,
    address: &Address,
    range: Range,
    limit: usize,
    budget: &mut ReadBudget,
) -> Fallible<ReadOutcome> {
    let check = |last| match range {
        Range::Offset(_) => Ok(()),
        Range::Before(before) => check_before("history.tail", before, last),
        Range::After(after) => check_after("history.page_after", after, last),
    };
    read_thread(sql, address, check, |thread| window(sql, thread, range, limit, budget))
}

/// Returns the newest messages that pass a filter.
pub(super) fn matching(
    sql: &Connection,
    address: &Address,
    wanted: &Matching,
    limit: usize,
) -> Fallible<ReadOutcome> {
    let check = |last| check_before("history.tail_matching", wanted.before, last);
    read_thread(sql, address, check, |thread| {
        let (before, limit) = (wanted.before.map_or(i64::MAX, Seq::get), length(limit));
        let (include, exclude) = (wanted.terms.include.as_ref(), Names::of(&wanted.terms.exclude));
        let found = if let Some(author) = wanted.terms.only_author() {
            let params = params![thread, before, limit, author, exclude.agents, exclude.roles];
            select(sql, MATCHING_ONE, params)
        } else {
            let included = include.map(Names::of).unwrap_or_default();
            let (agents, roles) = (included.agents, included.roles);
            let is_limited = include.is_some();
            let params =
                params![thread, before, limit, is_limited, agents, roles, exclude.agents, exclude.roles];
            select(sql, MATCHING, params)
        };
        let mut messages = found?;
        messages.reverse();
        Ok(messages)
    })
}

/// The names of a set as JSON, which can hold any text.
struct Names {
    agents: String,
    roles: String,
}

impl Names {
    fn of(set: &AuthorSet) -> Self {
        let json = |names: &[String]| serde_json::Value::from(names).to_string();
        Self { agents: json(&set.agents), roles: json(&set.roles) }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::of(&AuthorSet::default())
    }
}

/// Reads messages of an existing thread by its row id, unless the thread has expired. `check` gets the last
/// position of the thread.
fn read_thread(
    sql: &Connection,
    address: &Address,
    check: impl FnOnce(Seq) -> Result<()>,
    read: impl FnOnce(i64) -> Fallible<Vec<StoredMessage>>,
) -> Fallible<ReadOutcome> {
    let (found, now_ms) = (ThreadRow::find(sql, address)?, now_ms());
    check(found.as_ref().map_or(Seq::ZERO, |row| row.last_at(now_ms)))?;
    let Some(row) = found else {
        return Ok(ReadOutcome::Messages { messages: Vec::new(), refresh: None });
    };
    if row.has_expired(now_ms) {
        return Ok(ReadOutcome::Expired);
    }
    let mut messages = read(row.id)?;
    for message in &mut messages {
        message.seq = message.seq.in_generation(row.generation);
        message.revision = message.revision.in_generation(row.generation);
    }
    Ok(ReadOutcome::Messages { messages, refresh: row.refresh(now_ms) })
}

fn select(sql: &Connection, select: &str, params: impl Params) -> Fallible<Vec<StoredMessage>> {
    let mut statement = sql.prepare_cached(select)?;
    let mut rows = statement.query(params)?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(stored(row)?);
    }
    Ok(messages)
}

fn window(
    sql: &Connection,
    thread: i64,
    range: Range,
    limit: usize,
    budget: &mut ReadBudget,
) -> Fallible<Vec<StoredMessage>> {
    // SQLite does not load a body that is too long for the read.
    macro_rules! select {
        ($rest:literal) => {
            concat!(
                "SELECT seq, CASE WHEN bytes <= ?4 THEN body END, coalesce(updated_by, placed_by, seq), bytes
                 FROM messages WHERE thread = ?1 ",
                $rest
            )
        };
    }
    let (text, from) = match range {
        Range::Offset(offset) => (select!("ORDER BY seq LIMIT ?3 OFFSET ?2"), integer(offset)),
        Range::Before(before) => {
            (select!("AND seq < ?2 ORDER BY seq DESC LIMIT ?3"), before.map_or(i64::MAX, Seq::get))
        }
        Range::After(after) => (select!("AND seq > ?2 ORDER BY seq LIMIT ?3"), after.get()),
    };
    let mut statement = sql.prepare_cached(text)?;
    let mut rows = statement.query([thread, from, length(limit), budget.row_bytes_max()])?;
    let mut messages = Vec::with_capacity(limit.min(INLINE_ROWS_MAX));
    while let Some(row) = rows.next()? {
        let body = row.get_ref(1)?.as_blob_or_null().map_err(|_| corrupt("history.read"))?;
        let body = body.ok_or(Failure::BudgetExceeded)?;
        // A compressed body costs the time of the whole message.
        budget.take(length(body.len()).max(row.get(3)?))?;
        messages.push(stored(row)?);
    }
    if matches!(range, Range::Before(_)) {
        messages.reverse();
    }
    Ok(messages)
}

/// Returns the threads of a page and one more.
pub(super) fn threads(
    sql: &Connection,
    namespace: &Namespace,
    agent: Option<&AgentId>,
    page: &PageRequest<Thread>,
) -> Fallible<Vec<ThreadInfo>> {
    // An id is never empty, so the empty text sorts before all ids.
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
        found.push(ThreadInfo::new(
            Thread { agent, session },
            count(row.get(2)?)?,
            count(row.get(3)?)?,
            Seq::new(row.get(4)?).in_generation(generation(row.get(5)?)),
        ));
    }
    Ok(found)
}
