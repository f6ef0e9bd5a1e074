//! The removal of single messages, which is one call of a function.

use futures_util::future::BoxFuture;
use larder_kernel::limits::{BATCH_BYTES_MAX, POPPED_KEPT_MAX};
use larder_kernel::storage::history::{
    check_if_last, check_remove_at, check_removed_bytes, used_for_another,
};
use larder_kernel::{Error, Outcome, Removal, RemovalTarget, Removed, Seq, StoredMessage};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation};
use super::super::encode::{length, millis};
use super::super::engine::{Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::Address;
use super::write::{named, number};

const OPERATION: &str = "history.remove";

/// The parameters that name the messages: numbers, a position, and how many of the newest.
type Target = (Option<Vec<i64>>, Option<i64>, Option<i64>);

fn target(target: &RemovalTarget) -> Fallible<Target> {
    Ok(match target {
        RemovalTarget::Numbers(numbers) => (Some(numbers.iter().map(|seq| seq.get()).collect()), None, None),
        RemovalTarget::After(position) => (None, Some(position.get()), None),
        RemovalTarget::Newest(newest) => (None, None, Some(length(*newest))),
        _ => return Err(Error::unknown_value(OPERATION, "target").into()),
    })
}

pub(super) fn remove<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    removal: &'c Removal,
) -> BoxFuture<'c, Fallible<Removed>> {
    Box::pin(async move {
        let (numbers, after, newest) = target(&removal.target)?;
        let bound = removal.bound()?;
        let (namespace, agent, session) = address.key();
        let row = sqlx::query(concat!(
            "SELECT out_state, out_removed, out_last, out_generation, out_seqs, out_bodies, out_bytes
             FROM larder.remove_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             WHERE ",
            begin_write!("16", "17")
        ))
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(numbers)
        .bind(after)
        .bind(newest)
        .bind(bound.map(Seq::get))
        .bind(bound.and_then(named))
        .bind(removal.if_last.map(Seq::get))
        .bind(removal.if_last.and_then(named))
        .bind(removal.idempotency_key.as_ref().map(|key| key.as_str()))
        .bind(&removal.digest()[..])
        .bind(length(BATCH_BYTES_MAX))
        .bind(millis(POPPED_KEPT_MAX))
        .bind(number(removal.fence))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        done(&row, removal)
    })
}

fn done(row: &PgRow, removal: &Removal) -> Fallible<Removed> {
    let generation = generation(row.try_get(3)?);
    let last = Seq::new(row.try_get(2)?).in_generation(generation);
    match row.try_get::<i32, _>(0)? {
        0 => {}
        1 => return Err(used_for_another(OPERATION).into()),
        2 => check_if_last(OPERATION, removal.if_last, last)?,
        3 => check_remove_at(removal, last)?,
        4 => check_removed_bytes(removal, count(row.try_get(6)?)?)?,
        _ => return Err(corrupt(OPERATION).into()),
    }
    if row.try_get::<i32, _>(0)? != 0 {
        return Err(corrupt(OPERATION).into());
    }
    let seqs: Vec<i64> = row.try_get(4)?;
    let bodies = row.try_get::<Option<Vec<Vec<u8>>>, _>(5)?.unwrap_or_default();
    let message = |(seq, body): (&i64, Vec<u8>)| {
        // The removal is already committed.
        let corrupt = || corrupt(OPERATION).with_outcome(Outcome::Unknown);
        let message = crate::message::decode(&body).ok_or_else(corrupt)?;
        Fallible::Ok(StoredMessage::new(Seq::new(*seq), message))
    };
    let messages = seqs.iter().zip(bodies).map(message).collect::<Fallible<Vec<_>>>()?;
    let removed = Removed::new(count(row.try_get(1)?)?, last).with_messages(messages);
    Ok(removed.with_seqs(seqs.into_iter().map(Seq::new).collect()).in_generation(generation))
}
