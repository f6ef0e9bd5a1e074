//! The counts of threads.

use futures_util::future::BoxFuture;
use larder_kernel::{AgentId, Namespace, PageRequest, Seq, Thread, ThreadInfo};
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation, parse_id};
use super::super::encode::length;
use super::super::engine::{Write, begin_write};
use super::super::failure::Fallible;
use super::Address;

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
