//! Positions that the server does not have.

use larder_kernel::{Error, ErrorKind, Outcome, Result};
use sqlx::PgConnection;

use super::Engine;
use crate::postgres::failure::Fallible;

impl Engine {
    /// Explains the refusal of a position. A standby may still receive one that `may_follow`, so the caller
    /// can try again.
    pub(crate) async fn explain_position(&self, refusal: Error, may_follow: bool) -> Error {
        if !may_follow {
            return refusal;
        }
        let operation = refusal.operation();
        let asked = self.read(operation, &(), |sql, (): &()| Box::pin(is_standby(sql))).await;
        if !matches!(asked, Ok(true)) {
            return refusal;
        }
        let message = "the standby has not received this position yet; try again later, or name the primary \
                       server";
        let lags = Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied);
        match refusal.field() {
            Some(field) => lags.with_field(field),
            None => lags,
        }
    }
}

impl Engine {
    /// Draws a new generation for every thread, bucket and board, in one transaction, and returns their
    /// number.
    pub(crate) async fn renew_generations(&self) -> Result<u64> {
        self.transaction("postgres.renew_generations", &(), |sql, (): &()| Box::pin(renew(sql))).await
    }
}

async fn renew(connection: &mut PgConnection) -> Fallible<u64> {
    let mut renewed = 0;
    for update in [
        "UPDATE larder.threads SET generation = larder.draw_generation()",
        "UPDATE larder.kv_buckets SET generation = larder.draw_generation()",
        "UPDATE larder.boards SET generation = larder.draw_generation()",
    ] {
        renewed += sqlx::query(update).execute(&mut *connection).await?.rows_affected();
    }
    Ok(renewed)
}

async fn is_standby(connection: &mut PgConnection) -> Fallible<bool> {
    Ok(sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(connection).await?)
}
