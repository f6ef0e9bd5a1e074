//! The reasons of failures that their error codes do not name.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Failure, GRACE, Write};

/// Asks a server that refused to write whether it is a standby. The connection is then closed, because the
/// next one may reach the primary server.
pub(super) async fn standby(connection: &mut PgConnection, failure: Failure) -> Failure {
    if !failure.is_read_only() {
        return failure;
    }
    let standby = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(connection);
    match tokio::time::timeout(GRACE, standby).await {
        Ok(Ok(true)) => Failure::Standby,
        _ => failure,
    }
}

/// Returns the failure that explains the failure of a job.
///
/// If a table, a column or a function is missing, a newer program may have upgraded the database: the
/// statement then failed before it compared the formats.
pub(super) async fn explain(connection: &mut PgConnection, write: Write, failure: Failure) -> Failure {
    if !failure.lacks_object() {
        return standby(connection, failure).await;
    }
    let compare = AssertSqlSafe(format!("SELECT larder.at_format({})", write.format));
    let compared = tokio::time::timeout(GRACE, sqlx::raw_sql(compare).execute(connection)).await;
    match compared.map(|answer| answer.map_err(Failure::from)) {
        Ok(Err(found)) if found.is_wrong_format() => found,
        _ => failure,
    }
}
