//! The repair: counters, last numbers, expiry marks and indexes, which follow from other rows. It removes no
//! row.

use std::sync::Arc;

use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::super::config::{Migrate, PostgresConfig};
use super::super::engine::{Session, establish};
use super::super::failure::Fallible;
use super::super::session::leave_nothing;
use super::super::{Postgres, decode};
use super::{check_format, objects, sums};
use crate::before_repair;
use crate::driver::Connection;
use crate::verify::{OPERATION, Repaired};

/// Dumps every namespace, then repairs the database in one transaction.
///
/// # Errors
/// `Conflict` if another session is connected to the database. The errors of connecting.
pub(in super::super) async fn repair(config: &PostgresConfig) -> Result<Repaired> {
    let not_applied = |error: Error| error.with_outcome(Outcome::NotApplied);
    let looked = look(config).await;
    let namespaces = looked.map_err(|failure| not_applied(failure.into_error(OPERATION)))?;
    let config = PostgresConfig { migrate: Migrate::Check, ..config.clone() };
    let opened =
        Arc::new(Postgres::open(config.clone()).await.map_err(|error| error.in_operation(OPERATION))?);
    let dumped = before_repair::dump(opened.as_ref(), &namespaces).await;
    Connection::close(opened).await;
    let folder = dumped?;
    apply(&config).await.map_err(|failure| failure.into_error(OPERATION))?;
    Ok(Repaired::new(folder))
}

/// Refuses a database that is in use, and returns its namespaces.
async fn look(config: &PostgresConfig) -> Fallible<Vec<Namespace>> {
    let mut session = establish(config).await?;
    let mode = session.mode;
    let mut transaction = session.begin("READ COMMITTED").await?;
    check_format(&mut transaction).await?;
    check_alone(&mut transaction).await?;
    let rows = sqlx::query(
        "SELECT namespace FROM larder.threads UNION SELECT namespace FROM larder.kv_buckets
         UNION SELECT namespace FROM larder.collections UNION SELECT namespace FROM larder.entities
         UNION SELECT namespace FROM larder.boards ORDER BY 1",
    )
    .persistent(false)
    .fetch_all(&mut *transaction)
    .await?;
    leave_nothing(&mut transaction, mode).await?;
    transaction.rollback().await?;
    session.connection.close().await?;
    // A name that is no namespace is a finding that no repair removes.
    Ok(rows.iter().filter_map(|row| decode::id(row, 0).ok()).collect())
}

async fn check_alone(sql: &mut PgConnection) -> Fallible<()> {
    // The server hides the type of other users' sessions, but only sessions of clients have a user.
    let others: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_catalog.pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
            AND a.leader_pid IS NULL AND coalesce(a.backend_type, 'client backend') = 'client backend'",
    )
    .persistent(false)
    .fetch_one(sql)
    .await?;
    if others == 0 {
        return Ok(());
    }
    let message = "another session is connected to the database; end it, then repair; nothing was changed";
    let error = Error::new(ErrorKind::Conflict, OPERATION, message).with_context("sessions", others);
    Err(error.with_outcome(Outcome::NotApplied).into())
}

async fn apply(config: &PostgresConfig) -> Fallible<()> {
    let mut session: Session = establish(config).await?;
    let mode = session.mode;
    let mut transaction = session.begin("READ COMMITTED").await?;
    // Writes of programs that connect from now on wait for the end of the repair.
    sqlx::raw_sql(
        "SET LOCAL statement_timeout = 0;
         LOCK TABLE larder.schema_version IN ACCESS EXCLUSIVE MODE",
    )
    .execute(&mut *transaction)
    .await?;
    check_format(&mut transaction).await?;
    check_alone(&mut transaction).await?;
    for statement in objects::index_repairs(&mut transaction).await? {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *transaction).await?;
    }
    for (_, statement) in sums::checks().filter_map(|check| check.repair) {
        sqlx::raw_sql(statement).execute(&mut *transaction).await?;
    }
    leave_nothing(&mut transaction, mode).await?;
    transaction.commit().await?;
    session.connection.close().await?;
    Ok(())
}
