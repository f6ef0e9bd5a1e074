//! The reads of a thread. Each is one statement, and so sees one snapshot.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use larder_kernel::{
    AgentId, AuthorTerms, ChatMessage, Namespace, PageRequest, Revision, Seq, StoredMessage, Thread,
    ThreadInfo,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation, parse_id};
use super::super::encode::{integer, length};
use super::super::engine::{Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::Address;

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

/// The parameters of a read of messages.
pub(super) struct Wanted {
    pub(super) address: Address,
    pub(super) range: Range,
    pub(super) limit: usize,
}

/// The parameters of a read of messages by author.
pub(super) struct Matching {
    pub(super) address: Address,
    pub(super) terms: AuthorTerms,
    pub(super) before: Option<Seq>,
    pub(super) limit: usize,
}

/// The messages that a read found, and its effects on the thread's time to live.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) messages: Vec<StoredMessage>,
    /// The last position of the thread, unless the read needs no check of its position.
    pub(super) last: Option<Seq>,
    /// True if the time to live has passed, and the expiry is not yet recorded as a clear event.
    pub(super) expired: bool,
    /// The time of the read, if it extends the thread's life; `None` on a standby, which cannot write.
    pub(super) refresh: Option<i64>,
}

impl Seen {
    fn of(rows: &[PgRow]) -> Fallible<Self> {
        let Some(first) = rows.first() else { return Ok(Self { last: Some(Seq::ZERO), ..Self::default() }) };
        let generation = generation(first.try_get(4)?);
        let (expired, last): (bool, i64) = (first.try_get(2)?, first.try_get(5)?);
        let mut seen = Self {
            messages: Vec::new(),
            // The clear of an expired thread has the next number, even if it is not recorded yet.
            last: Some(Seq::new(last + i64::from(expired)).in_generation(generation)),
            expired,
            refresh: first.try_get(3)?,
        };
        for row in rows {
            if let Some(seq) = row.try_get(0)? {
                let message = StoredMessage::new(Seq::new(seq), decode(row, 1)?);
                let message = message.with_revision(Revision::at(Seq::new(row.try_get(6)?)));
                seen.messages.push(message.in_generation(generation));
            }
        }
        seen.messages.sort_unstable_by_key(|message| message.seq);
        Ok(seen)
    }
}

/// The start time of the statement, which is the same everywhere in it.
macro_rules! now_ms {
    () => {
        "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
    };
}

/// The limit up to which a read uses the statement with the smallest row bound. The statement repeats the
/// number.
const FEW: usize = 128;
/// The limit up to which a read uses the next statement, which repeats the number too.
const MORE: usize = 1_024;

/// Selects messages and the state of the thread. Each row contains the state; a thread without messages gives
/// one row with only the state. The query promises no order of rows, so the client sorts them: a final sort
/// would make the server copy the rows again.
///
/// `most` is an upper bound of the caller's limit. For a limit that is a parameter, the planner assumes a
/// tenth of the rows. It would then plan each small read again, which costs as much as the read. With a tenth
/// of `most` it keeps its plan. For long threads it would take a tenth for so many rows that it sorts the
/// whole thread.
macro_rules! select_messages {
    ($condition:literal, $order:literal, $most:literal) => {
        concat!(
            "SELECT m.seq, m.body,
                CASE WHEN t.expires_ms IS NULL THEN false ELSE t.expires_ms <= ",
            now_ms!(),
            " END,
                CASE WHEN t.ttl_refresh AND t.expires_ms < ",
            now_ms!(),
            " + t.ttl_ms AND NOT current_setting('transaction_read_only')::boolean THEN ",
            now_ms!(),
            " END, t.generation, t.last_seq, m.revision
             FROM larder.threads t LEFT JOIN LATERAL (
                SELECT seq, body, revision FROM (
                    SELECT seq, body, coalesce(updated_by, placed_by, seq) AS revision FROM larder.messages
                    WHERE namespace = $1 AND thread = t.id AND (t.expires_ms IS NULL OR t.expires_ms > ",
            now_ms!(),
            ") ",
            $condition,
            " ",
            $order,
            " LIMIT ",
            $most,
            ") few ",
            $order,
            " LIMIT $5
             ) m ON true WHERE t.namespace = $1 AND t.agent = $2 AND t.session = $3"
        )
    };
}

/// Selects the newest messages of a thread whose life a read does not extend. It looks up the state once
/// before the messages, so no row contains it. If it returns no row, the other statement finds out the
/// reason.
macro_rules! select_newest {
    ($most:literal) => {
        concat!(
            "SELECT seq, body,
                (SELECT generation FROM larder.threads WHERE namespace = $1 AND agent = $2 AND session = $3),
                revision
             FROM (
                SELECT seq, body, coalesce(updated_by, placed_by, seq) AS revision FROM larder.messages
                WHERE namespace = $1 AND seq < $4 AND thread = (
                    SELECT id FROM larder.threads WHERE namespace = $1 AND agent = $2 AND session = $3
                        AND (expires_ms IS NULL OR (NOT ttl_refresh AND expires_ms > ",
            now_ms!(),
            ")))
                ORDER BY seq DESC LIMIT ",
            $most,
            ") few ORDER BY seq DESC LIMIT $5"
        )
    };
}

/// Scans backwards from the newest message and skips the messages that the filter drops.
const MATCHING: &str = select_messages!(
    "AND seq < $4
        AND ($6::text[] IS NULL OR author = ANY ($6::text[]) OR author_role = ANY ($7::text[]))
        AND author <> ALL ($8::text[]) AND author_role <> ALL ($9::text[])",
    "ORDER BY seq DESC",
    "ALL"
);
/// The same for exactly one included author, with the index.
const MATCHING_ONE: &str = select_messages!(
    "AND seq < $4 AND author = $6 AND author <> ''
        AND author <> ALL ($7::text[]) AND author_role <> ALL ($8::text[])",
    "ORDER BY seq DESC",
    "ALL"
);

impl Range {
    /// Returns the position at which the range begins.
    pub(super) fn position(self) -> Option<Seq> {
        match self {
            Self::Offset(_) => None,
            Self::Before(before) => before,
            Self::After(after) => Some(after),
        }
    }

    /// Returns the statement for this limit, and the value of its bound.
    fn select(self, limit: usize) -> (&'static str, i64) {
        macro_rules! select {
            ($condition:literal, $order:literal) => {
                if limit <= FEW {
                    select_messages!($condition, $order, "128")
                } else if limit <= MORE {
                    select_messages!($condition, $order, "1024")
                } else {
                    select_messages!($condition, $order, "ALL")
                }
            };
        }
        match self {
            // Replacements may have numbers below 0, so the scan begins at the minimum.
            Self::Offset(0) => (select!("AND seq > $4", "ORDER BY seq"), i64::MIN),
            // The index alone finds the first number. For an offset that is a parameter, the planner assumes
            // a tenth of the thread, and would sort it whole.
            Self::Offset(offset) => (
                select!(
                    "AND seq >= (SELECT seq FROM larder.messages WHERE namespace = $1 AND thread = t.id
                        ORDER BY seq LIMIT 1 OFFSET $4)",
                    "ORDER BY seq"
                ),
                integer(offset),
            ),
            Self::Before(before) => {
                (select!("AND seq < $4", "ORDER BY seq DESC"), before.map_or(i64::MAX, Seq::get))
            }
            Self::After(after) => (select!("AND seq > $4", "ORDER BY seq"), after.get()),
        }
    }
}

/// Returns the newest messages, oldest first; none if the caller must run the other statement.
async fn newest(sql: &mut PgConnection, wanted: &Wanted, before: i64) -> Fallible<Vec<StoredMessage>> {
    let select = if wanted.limit <= FEW {
        select_newest!("128")
    } else if wanted.limit <= MORE {
        select_newest!("1024")
    } else {
        select_newest!("ALL")
    };
    let (namespace, agent, session) = wanted.address.key();
    let query = sqlx::query(select).bind(namespace).bind(agent).bind(session);
    let rows = query.bind(before).bind(length(wanted.limit)).fetch_all(sql).await?;
    let stored = |row: &PgRow| {
        let message = StoredMessage::new(Seq::new(row.try_get(0)?), decode(row, 1)?);
        let message = message.with_revision(Revision::at(Seq::new(row.try_get(3)?)));
        Ok(message.in_generation(generation(row.try_get(2)?)))
    };
    rows.iter().rev().map(stored).collect()
}

pub(super) fn messages<'c>(sql: &'c mut PgConnection, wanted: &'c Wanted) -> BoxFuture<'c, Fallible<Seen>> {
    Box::pin(async move {
        // A position with a generation is compared with the state of the thread, which the other statement
        // reads.
        if let Range::Before(before) = wanted.range
            && before.is_none_or(|before| before.generation().is_none())
        {
            let before = before.map_or(i64::MAX, Seq::get);
            let messages = newest(sql, wanted, before).await?;
            if !messages.is_empty() {
                return Ok(Seen { messages, ..Seen::default() });
            }
        }
        let (select, from) = wanted.range.select(wanted.limit);
        let (namespace, agent, session) = wanted.address.key();
        let rows = sqlx::query(select)
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(from)
            .bind(length(wanted.limit))
            .fetch_all(sql)
            .await?;
        Seen::of(&rows)
    })
}

/// Returns the newest messages that pass a filter.
pub(super) fn matching<'c>(sql: &'c mut PgConnection, wanted: &'c Matching) -> BoxFuture<'c, Fallible<Seen>> {
    Box::pin(async move {
        let (terms, (namespace, agent, session)) = (&wanted.terms, wanted.address.key());
        let one = terms.only_author();
        let query = sqlx::query(if one.is_some() { MATCHING_ONE } else { MATCHING })
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(wanted.before.map_or(i64::MAX, Seq::get))
            .bind(length(wanted.limit));
        let query = match (one, &terms.include) {
            (Some(author), _) => query.bind(author),
            (None, include) => {
                let (agents, roles) = include.as_ref().map(|set| (&set.agents, &set.roles)).unzip();
                query.bind(agents).bind(roles)
            }
        };
        let rows = query.bind(&terms.exclude.agents).bind(&terms.exclude.roles).fetch_all(sql).await?;
        Seen::of(&rows)
    })
}

/// Returns the message in `column`.
pub(super) fn decode(row: &PgRow, column: usize) -> Fallible<Arc<ChatMessage>> {
    let body: &[u8] = row.try_get(column)?;
    Ok(crate::message::decode(body).ok_or_else(|| corrupt("history.read"))?)
}

/// Returns the state of the thread. Records a passed expiry as a clear event.
pub(super) fn info<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
) -> BoxFuture<'c, Fallible<ThreadInfo>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let select =
            "SELECT messages, bytes, last_seq, generation, coalesce(expires_ms <= larder.now_ms(), false)
             FROM larder.threads WHERE namespace = $1 AND agent = $2 AND session = $3";
        let found =
            sqlx::query(select).bind(namespace).bind(agent).bind(session).fetch_optional(&mut *sql).await?;
        let expired = found.as_ref().map_or(Ok(false), |row| row.try_get(4))?;
        let found = if expired {
            let expire = concat!(
                "SELECT messages, bytes, last_seq, generation FROM larder.expire_thread($1, $2, $3)
                 WHERE ",
                begin_write!("4", "5")
            );
            let expire = sqlx::query(expire)
                .bind(namespace)
                .bind(agent)
                .bind(session)
                .bind(write.format)
                .bind(write.commit);
            expire.fetch_optional(sql).await?
        } else {
            found
        };
        let thread = address.thread.clone();
        match found {
            None => Ok(ThreadInfo::new(thread, 0, 0, Seq::ZERO)),
            Some(row) => Ok(ThreadInfo::new(
                thread,
                count(row.try_get(0)?)?,
                count(row.try_get(1)?)?,
                Seq::new(row.try_get(2)?).in_generation(generation(row.try_get(3)?)),
            )),
        }
    })
}

/// Returns the threads of a page and one more.
pub(super) fn threads<'c>(
    sql: &'c mut PgConnection,
    namespace: &'c Namespace,
    agent: Option<&'c AgentId>,
    page: &'c PageRequest<Thread>,
) -> BoxFuture<'c, Fallible<Vec<ThreadInfo>>> {
    Box::pin(async move {
        // An id is never empty, so the empty text sorts before all ids.
        let after =
            page.after.as_ref().map_or(("", ""), |after| (after.agent.as_str(), after.session.as_str()));
        let (select, after_agent, after_session) = match agent {
            None => (
                "SELECT agent, session, messages, bytes, last_seq, generation FROM larder.threads
                 WHERE namespace = $1 AND (agent, session) > ($2, $3)
                    AND messages > 0 AND (expires_ms IS NULL OR expires_ms > larder.now_ms())
                 ORDER BY agent, session LIMIT $4",
                after.0,
                after.1,
            ),
            Some(agent) if agent.as_str() < after.0 => return Ok(Vec::new()),
            Some(agent) => (
                "SELECT agent, session, messages, bytes, last_seq, generation FROM larder.threads
                 WHERE namespace = $1 AND agent = $2 AND session > $3
                    AND messages > 0 AND (expires_ms IS NULL OR expires_ms > larder.now_ms())
                 ORDER BY session LIMIT $4",
                agent.as_str(),
                if agent.as_str() == after.0 { after.1 } else { "" },
            ),
        };
        let rows = sqlx::query(select)
            .bind(namespace.as_str())
            .bind(after_agent)
            .bind(after_session)
            .bind(length(page.limit).saturating_add(1))
            .fetch_all(sql)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(ThreadInfo::new(
                    Thread { agent: parse_id(row.try_get(0)?)?, session: parse_id(row.try_get(1)?)? },
                    count(row.try_get(2)?)?,
                    count(row.try_get(3)?)?,
                    Seq::new(row.try_get(4)?).in_generation(generation(row.try_get(5)?)),
                ))
            })
            .collect()
    })
}
