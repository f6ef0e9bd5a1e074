//! The writes of a thread: calls of the database's functions.

use futures_util::future::BoxFuture;
use larder_kernel::storage::history::{check_fork, check_if_last, check_replace_at};
use larder_kernel::{
    AgentRole, Appended, ChatMessage, Error, ErrorKind, FencingToken, Forked, IdempotencyKey, Namespace,
    Replaced, Result, RunId, Seq, Ttl,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation};
use super::super::encode::{integer, length, millis};
use super::super::engine::{Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::{APPEND, Address};

/// The maximum number of threads that one step of an erasure removes.
const ERASED_AT_ONCE_MAX: i64 = 200;

/// Messages in their stored form, column by column.
pub(super) struct Batch {
    pub(super) runs: Vec<Option<String>>,
    /// The author and the author's role; both are empty if the message names no author.
    pub(super) authors: Vec<String>,
    pub(super) roles: Vec<String>,
    pub(super) sizes: Vec<i64>,
    pub(super) bodies: Vec<Vec<u8>>,
}

impl Batch {
    pub(super) fn new(operation: &'static str, messages: &[ChatMessage]) -> Result<Self> {
        let authors = messages.iter().map(|message| {
            let author = message.author.as_ref();
            let role = author.and_then(|author| author.role.as_ref());
            let id = author.map_or("", |author| author.agent.as_str());
            (id.to_owned(), role.map_or("", AgentRole::as_str).to_owned())
        });
        let (authors, roles) = authors.unzip();
        Ok(Self {
            authors,
            roles,
            runs: messages
                .iter()
                .map(|message| message.run.as_ref().map(|run| run.as_str().to_owned()))
                .collect(),
            sizes: messages.iter().map(|message| length(message.size_bytes())).collect(),
            bodies: messages
                .iter()
                .map(|message| crate::message::encode(operation, message))
                .collect::<Result<_>>()?,
        })
    }

    /// Returns the total bytes of the messages.
    pub(super) fn bytes(&self) -> i64 {
        self.sizes.iter().sum()
    }
}

/// An append.
pub(super) struct Append {
    pub(super) address: Address,
    pub(super) batch: Batch,
    pub(super) key: Option<(IdempotencyKey, [u8; 32])>,
    pub(super) ttl: Option<Ttl>,
    pub(super) if_last: Option<Seq>,
    pub(super) fence: Option<FencingToken>,
}

impl Append {
    /// Returns true if the append has no options, so that others may join its statement.
    pub(super) fn is_plain(&self) -> bool {
        self.key.is_none() && self.ttl.is_none() && self.if_last.is_none() && self.fence.is_none()
    }
}

/// Appends one message to an existing thread, in one statement without a function call. Returns no row if the
/// thread is new, its time to live has passed, a condition does not hold, or the database has another format.
macro_rules! append_one {
    ($condition:literal) => {
        concat!("WITH t AS (
        UPDATE larder.threads s
        SET last_seq = s.last_seq + 1, messages = s.messages + 1, bytes = s.bytes + $5,
            expires_ms = CASE WHEN s.ttl_refresh THEN larder.prolonged(s.expires_ms, s.ttl_ms) ELSE \
            s.expires_ms END
        WHERE s.namespace = $1 AND s.agent = $2 AND s.session = $3
            AND (s.expires_ms IS NULL OR larder.is_to_come(s.expires_ms)) ", $condition, "
            AND (SELECT v.version FROM larder.schema_version v
                WHERE set_config('synchronous_commit', $10, true) <> '') = $9
        RETURNING CASE WHEN s.watched_until_ms IS NULL THEN s.id
                ELSE larder.announced(s.id, s.watched_until_ms, $1, $2, $3) END AS id,
            s.last_seq, s.bytes, s.generation
    )
    INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, run, author, author_role, body)
    SELECT $1, t.id, t.last_seq, $5, t.bytes, $4, $7, $8, $6 FROM t
    RETURNING seq, (SELECT t.generation FROM t)")
    };
}

/// The fence is only compared and not raised: the first append of a writer calls the function.
const APPEND_ONE: &str = append_one!("AND s.fence IS NOT DISTINCT FROM $11");
/// The same on the condition that the thread has this last position.
const APPEND_ONE_IF_LAST: &str = append_one!(
    "AND s.fence IS NOT DISTINCT FROM $11
            AND s.last_seq = $12 AND ($13::bigint IS NULL OR s.generation = $13)"
);

/// Appends one message and returns its number.
async fn append_one(sql: &mut PgConnection, write: Write, append: &Append) -> Fallible<Option<Appended>> {
    let batch = &append.batch;
    let ([run], [size], [body]) = (&batch.runs[..], &batch.sizes[..], &batch.bodies[..]) else {
        return Ok(None);
    };
    let ([author], [role]) = (&batch.authors[..], &batch.roles[..]) else { return Ok(None) };
    if append.key.is_some() || append.ttl.is_some() {
        return Ok(None);
    }
    let (namespace, agent, session) = append.address.key();
    let query = sqlx::query(if append.if_last.is_some() { APPEND_ONE_IF_LAST } else { APPEND_ONE })
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(run)
        .bind(size)
        .bind(body)
        .bind(author)
        .bind(role)
        .bind(write.format)
        .bind(write.commit)
        .bind(number(append.fence));
    let query = match append.if_last {
        Some(last) => query.bind(last.get()).bind(named(last)),
        None => query,
    };
    let Some(row) = query.fetch_optional(sql).await? else { return Ok(None) };
    let seq = Seq::new(row.try_get(0)?).in_generation(generation(row.try_get(1)?));
    Ok(Some(Appended::new(seq, seq)))
}

pub(super) fn append<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    append: &'c Append,
) -> BoxFuture<'c, Fallible<Appended>> {
    Box::pin(async move {
        if let Some(appended) = append_one(sql, write, append).await? {
            return Ok(appended);
        }
        let (namespace, agent, session) = append.address.key();
        let row = sqlx::query(concat!(
            "SELECT out_first, out_last, out_generation, out_found
             FROM larder.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             WHERE ",
            begin_write!("16", "17")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(&append.batch.runs)
        .bind(&append.batch.authors)
        .bind(&append.batch.roles)
        .bind(&append.batch.sizes)
        .bind(&append.batch.bodies)
        .bind(append.key.as_ref().map(|(key, _)| key.as_str()))
        .bind(append.key.as_ref().map(|(_, digest)| &digest[..]))
        .bind(append.ttl.map(|ttl| millis(ttl.after)))
        .bind(append.ttl.is_some_and(|ttl| ttl.refresh_on_use))
        .bind(append.if_last.map(Seq::get))
        .bind(append.if_last.and_then(named))
        .bind(number(append.fence))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        if row.try_get::<Option<i64>, _>(3)?.is_some() {
            check_if_last(APPEND, append.if_last, last(&row, 3, 2)?)?;
            return Err(corrupt(APPEND).into());
        }
        match (row.try_get(0)?, row.try_get(1)?) {
            (Some(first), Some(last)) => {
                let appended = Appended::new(Seq::new(first), Seq::new(last));
                Ok(appended.in_generation(generation(row.try_get(2)?)))
            }
            _ => Err(Error::new(
                ErrorKind::Conflict,
                APPEND,
                "the idempotency key was used for different messages; use a new key",
            )
            .into()),
        }
    })
}

pub(super) fn clear<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    fence: Option<FencingToken>,
) -> BoxFuture<'c, Fallible<u64>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let clear = sqlx::query_scalar(concat!(
            "SELECT larder.clear_thread($1, $2, $3, $4) WHERE ",
            begin_write!("5", "6")
        ));
        count(
            clear
                .bind(namespace)
                .bind(agent)
                .bind(session)
                .bind(number(fence))
                .bind(write.format)
                .bind(write.commit)
                .fetch_one(sql)
                .await?,
        )
    })
}

pub(super) fn clear_run<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    run: &'c RunId,
    fence: Option<FencingToken>,
) -> BoxFuture<'c, Fallible<u64>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let clear = sqlx::query_scalar(concat!(
            "SELECT larder.clear_run($1, $2, $3, $4, $5) WHERE ",
            begin_write!("6", "7")
        ));
        let clear = clear
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(run.as_str())
            .bind(number(fence))
            .bind(write.format)
            .bind(write.commit);
        count(clear.fetch_one(sql).await?)
    })
}

/// Returns the generation that a position names, as a parameter.
pub(super) fn named(position: Seq) -> Option<i64> {
    position.generation().map(|named| integer(named.get()))
}

/// Returns a fencing token as a parameter.
pub(super) fn number(fence: Option<FencingToken>) -> Option<i64> {
    fence.map(|token| integer(token.get()))
}

/// Returns the position in two columns. A thread that does not exist has neither.
fn last(row: &PgRow, number: usize, generation_column: usize) -> Fallible<Seq> {
    let number: Option<i64> = row.try_get(number)?;
    Ok(Seq::new(number.unwrap_or(0)).in_generation(generation(row.try_get(generation_column)?)))
}

pub(super) fn target_is_there() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "history.fork",
        "the target already has messages; fork into an empty thread",
    )
}

pub(super) fn fork<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    source: &'c Address,
    target: &'c Address,
    up_to: Option<Seq>,
    fence: Option<FencingToken>,
) -> BoxFuture<'c, Fallible<Forked>> {
    Box::pin(async move {
        let (namespace, from_agent, from_session) = source.key();
        let (_, to_agent, to_session) = target.key();
        let row = sqlx::query(concat!(
            "SELECT out_state, out_messages, out_last, out_generation
             FROM larder.fork_thread($1, $2, $3, $4, $5, $6, $7, $8)
             WHERE ",
            begin_write!("9", "10")
        ))
        .bind(namespace)
        .bind(from_agent)
        .bind(from_session)
        .bind(to_agent)
        .bind(to_session)
        .bind(up_to.map_or(i64::MAX, Seq::get))
        .bind(up_to.and_then(named))
        .bind(number(fence))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        match row.try_get::<i32, _>(0)? {
            0 => Ok(Forked::new(count(row.try_get(1)?)?, last(&row, 2, 3)?)),
            1 => Err(target_is_there().into()),
            3 => {
                check_fork(up_to, last(&row, 2, 3)?)?;
                Err(corrupt("history.fork").into())
            }
            _ => Err(Error::new(
                ErrorKind::NotFound,
                "history.fork",
                "the source has no messages to copy; check the thread and `up_to`",
            )
            .into()),
        }
    })
}

/// A replacement.
pub(super) struct Replace {
    pub(super) address: Address,
    pub(super) batch: Batch,
    pub(super) up_to: Seq,
    pub(super) seen: Seq,
    pub(super) fence: Option<FencingToken>,
}

pub(super) fn replace<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    replace: &'c Replace,
) -> BoxFuture<'c, Fallible<Replaced>> {
    let conflict = |message| Err(Error::new(ErrorKind::Conflict, "history.replace", message).into());
    Box::pin(async move {
        let named = replace.seen.generation().or(replace.up_to.generation());
        check_replace_at(replace.up_to, replace.seen, Seq::ZERO.in_generation(named))?;
        let (namespace, agent, session) = replace.address.key();
        let row = sqlx::query(concat!(
            "SELECT out_state, out_removed, out_seq, out_generation
             FROM larder.replace_beginning($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             WHERE ",
            begin_write!("13", "14")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(replace.up_to.get())
        .bind(replace.seen.get())
        .bind(named.map(|named| integer(named.get())))
        .bind(number(replace.fence))
        .bind(&replace.batch.runs)
        .bind(&replace.batch.authors)
        .bind(&replace.batch.roles)
        .bind(&replace.batch.sizes)
        .bind(&replace.batch.bodies)
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        match row.try_get::<i32, _>(0)? {
            0 => Ok(Replaced::new(count(row.try_get(1)?)?, last(&row, 2, 3)?)),
            1 => conflict("`up_to` or `seen` is beyond the thread's last `Seq`; read the thread again"),
            3 => {
                check_replace_at(replace.up_to, replace.seen, last(&row, 2, 3)?)?;
                Err(corrupt("history.replace").into())
            }
            _ => conflict("messages were removed from the thread after `seen`; read the thread again"),
        }
    })
}

/// Erases some of the namespace's threads, and returns true if any existed.
pub(super) fn erase<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    namespace: &'c Namespace,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let erase =
            sqlx::query_scalar(concat!("SELECT larder.erase_threads($1, $2) WHERE ", begin_write!("3", "4")));
        let erase =
            erase.bind(namespace.as_str()).bind(ERASED_AT_ONCE_MAX).bind(write.format).bind(write.commit);
        let erased: i64 = erase.fetch_one(sql).await?;
        Ok(erased > 0)
    })
}
