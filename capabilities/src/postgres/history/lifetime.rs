//! The lifetime of a thread: its expiry, and the mark of its subscriptions.

use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{FencingToken, Ttl};
use sqlx::PgConnection;

use super::super::encode::millis;
use super::super::engine::{Write, begin_write};
use super::super::failure::Fallible;
use super::Address;
use super::write::number;

/// Records a passed expiry as a clear event.
pub(super) fn expire<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
) -> BoxFuture<'c, Fallible<()>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let expire = sqlx::query(concat!(
            "SELECT 1 FROM larder.expire_thread($1, $2, $3) WHERE ",
            begin_write!("4", "5")
        ));
        expire
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(write.format)
            .bind(write.commit)
            .execute(sql)
            .await?;
        Ok(())
    })
}

/// Returns the number under which the thread's changes are announced. Records a passed expiry as a clear
/// event.
pub(super) fn notify_number<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
) -> BoxFuture<'c, Fallible<i64>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let number = sqlx::query_scalar(concat!(
            "SELECT larder.wake('h', $1, $2, $3) FROM (SELECT count(*) FROM larder.expire_thread($1, $2, \
             $3)) expired
             WHERE ",
            begin_write!("4", "5")
        ));
        Ok(number
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(write.format)
            .bind(write.commit)
            .fetch_one(sql)
            .await?)
    })
}

/// Marks the thread as watched for the lease. Returns false if that cannot be stored.
pub(super) fn watch<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    lease: Duration,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let watch = sqlx::query_scalar(concat!(
            "SELECT larder.watch_thread($1, $2, $3, $4) WHERE ",
            begin_write!("5", "6")
        ));
        let watch = watch
            .bind(namespace)
            .bind(agent)
            .bind(session)
            .bind(millis(lease))
            .bind(write.format)
            .bind(write.commit);
        Ok(watch.fetch_one(sql).await?)
    })
}

/// Extends the life of a thread that was read at `read_ms`. A life that was set, ended or extended further
/// since then stays as it is.
pub(super) fn refresh<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    read_ms: i64,
) -> BoxFuture<'c, Fallible<()>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        sqlx::query(concat!(
            "UPDATE larder.threads SET expires_ms = $4 + ttl_ms
             WHERE namespace = $1 AND agent = $2 AND session = $3
                AND ttl_refresh AND expires_ms > $4 AND expires_ms < $4 + ttl_ms
                AND ",
            begin_write!("5", "6")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(read_ms)
        .bind(write.format)
        .bind(write.commit)
        .execute(sql)
        .await?;
        Ok(())
    })
}

/// Sets or removes the time to live, and returns true if the thread holds messages.
pub(super) fn set_ttl<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    ttl: Option<Ttl>,
    fence: Option<FencingToken>,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let set = sqlx::query_scalar(concat!(
            "SELECT larder.set_ttl($1, $2, $3, $4, $5, $6) WHERE ",
            begin_write!("7", "8")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(ttl.map(|ttl| millis(ttl.after)))
        .bind(ttl.is_some_and(|ttl| ttl.refresh_on_use))
        .bind(number(fence))
        .bind(write.format)
        .bind(write.commit);
        Ok(set.fetch_one(sql).await?)
    })
}
