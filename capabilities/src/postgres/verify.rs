//! Verification of a database: every row is read, in one snapshot of a transaction that only reads.

mod contents;
mod objects;
mod repair;
mod rows;
mod sums;

use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use sqlx::{Connection as _, PgConnection};

use super::config::PostgresConfig;
use super::engine::establish;
use super::failure::{Failure, Fallible};
use super::schema::{self, Schema};
use super::session::leave_nothing;
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

pub(super) use repair::repair;

/// The time for a connection to close.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// Verifies the database.
///
/// # Errors
/// The errors of connecting. `NotFound` if the database has no schema of this program; `Unsupported` if it
/// has another format.
pub(super) async fn verify(config: &PostgresConfig, faults: &Faults) -> Result<()> {
    snapshot(config, faults, |sql, faults| Box::pin(all(sql, faults))).await
}

/// Runs checks in one transaction that only reads, and whose reads see one snapshot.
pub(crate) async fn snapshot(
    config: &PostgresConfig,
    faults: &Faults,
    checks: impl for<'c> FnOnce(&'c mut PgConnection, &'c Faults) -> BoxFuture<'c, Fallible<()>>,
) -> Result<()> {
    let look = async {
        let mut session = establish(config).await?;
        let mode = session.mode;
        let mut transaction = session.begin("REPEATABLE READ, READ ONLY").await?;
        // A read of everything takes longer than a call is allowed.
        sqlx::raw_sql("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
            .execute(&mut *transaction)
            .await?;
        let looked = match check_format(&mut transaction).await {
            Ok(()) => checks(&mut transaction, faults).await,
            refused => refused,
        };
        leave_nothing(&mut transaction, mode).await?;
        transaction.rollback().await?;
        let _ = tokio::time::timeout(CLOSING_MAX, session.connection.close()).await;
        looked
    };
    let looked: Fallible<()> = look.await;
    looked.map_err(|failure| failure.into_error(OPERATION).with_outcome(Outcome::NotApplied))
}

async fn check_format(sql: &mut PgConnection) -> Fallible<()> {
    let found = schema::version(sql).await?;
    if found == 0 {
        let message = "the database has no data of this program; check the URL";
        return Err(Error::new(ErrorKind::NotFound, OPERATION, message).with_field("url").into());
    }
    Ok(Schema::CURRENT.formats().check(OPERATION, found)?)
}

async fn all(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    objects::check(sql, faults).await?;
    sums::check(sql, faults).await?;
    rows::check(sql, faults).await?;
    contents::check(sql, faults).await
}

/// Begins a step whose failure does not end the transaction.
pub(crate) async fn begin_step(sql: &mut PgConnection) -> Fallible<()> {
    sqlx::raw_sql("SAVEPOINT larder_step").execute(sql).await?;
    Ok(())
}

/// Ends a step. Adds a fault if a statement failed because the database is damaged.
pub(crate) async fn end_step(
    sql: &mut PgConnection,
    done: Fallible<()>,
    place: &str,
    faults: &Faults,
) -> Fallible<()> {
    match done {
        Err(failure) if is_damage(&failure) => {
            sqlx::raw_sql("ROLLBACK TO SAVEPOINT larder_step").execute(sql).await?;
            let seen = failure.into_error(OPERATION).message().to_owned();
            faults.add(Fault::new(FaultKind::Record, place, format!("the rest cannot be read: {seen}")));
            Ok(())
        }
        Err(failure) => Err(failure),
        Ok(()) => {
            sqlx::raw_sql("RELEASE SAVEPOINT larder_step").execute(sql).await?;
            Ok(())
        }
    }
}

/// Returns true if the failure is a finding: stored data is damaged, or a statement names a table or a column
/// that the database lacks, which the check of the schema has reported.
fn is_damage(failure: &Failure) -> bool {
    match failure {
        Failure::Contract(error) => error.kind() == ErrorKind::Corrupt,
        Failure::Database(sqlx::Error::Database(error)) => {
            let code = error.code().unwrap_or_default();
            code.starts_with("22")
                || matches!(code.as_ref(), "XX001" | "XX002" | "42P01" | "42703" | "42883" | "42704")
        }
        Failure::Database(sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => true,
        _ => false,
    }
}
