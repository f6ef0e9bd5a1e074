//! The update of a message in place, which is one call of a function.

use futures_util::future::BoxFuture;
use larder_kernel::storage::history::{
    check_if_last, check_revision, check_update_at, no_such_message, used_for_another,
};
use larder_kernel::{MessageUpdate, Seq, Updated};
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation};
use super::super::encode::integer;
use super::super::engine::{Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::Address;
use super::write::{Batch, named, number};

const OPERATION: &str = "history.update";

/// An update with its message in the stored form.
pub(super) struct Update {
    pub(super) address: Address,
    pub(super) update: MessageUpdate,
    pub(super) batch: Batch,
    /// The digest of an update with an idempotency key.
    pub(super) digest: Option<[u8; 32]>,
}

pub(super) fn update<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    wanted: &'c Update,
) -> BoxFuture<'c, Fallible<Updated>> {
    Box::pin(async move {
        let (update, batch) = (&wanted.update, &wanted.batch);
        let bound = update.bound()?;
        let (namespace, agent, session) = wanted.address.key();
        let row = sqlx::query(concat!(
            "SELECT out_state, out_last, out_generation, out_revision
             FROM larder.update_message($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                $16, $17)
             WHERE ",
            begin_write!("18", "19")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(update.seq.get())
        .bind(integer(update.revision.get()))
        .bind(bound.map(Seq::get))
        .bind(bound.and_then(named))
        .bind(update.if_last.map(Seq::get))
        .bind(update.if_last.and_then(named))
        .bind(update.idempotency_key.as_ref().map(|key| key.as_str()))
        .bind(wanted.digest.as_ref().map(|digest| &digest[..]))
        .bind(number(update.fence))
        .bind(batch.runs.first().cloned().flatten())
        .bind(batch.authors.first())
        .bind(batch.roles.first())
        .bind(batch.bytes())
        .bind(batch.bodies.first())
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        let last = Seq::new(row.try_get(1)?).in_generation(generation(row.try_get(2)?));
        match row.try_get::<i32, _>(0)? {
            0 => return Ok(Updated::new(last)),
            1 => return Err(used_for_another(OPERATION).into()),
            2 => check_if_last(OPERATION, update.if_last, last)?,
            3 => check_update_at(update, last)?,
            4 => return Err(no_such_message().into()),
            5 => check_revision(update, count(row.try_get(3)?)?)?,
            _ => {}
        }
        Err(corrupt(OPERATION).into())
    })
}
