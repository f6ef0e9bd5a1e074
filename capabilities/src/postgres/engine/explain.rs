//! The reasons of failures that their error codes do not name.

use std::future::Future;

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Failure, GRACE, Write};

/// Returns the failure that explains another one.
///
/// A server that refused to write may be a standby. The connection is then closed, because the next one may
/// reach the primary server. If a table, a column or a function is missing, a newer program may have upgraded
/// the database: the statement then failed before it compared the formats.
pub(super) async fn explain(connection: &mut PgConnection, write: Write, failure: Failure) -> Failure {
    if failure.is_read_only() {
        let standby = sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(connection);
        return if soon(standby).await.is_some_and(|answer| matches!(answer, Ok(true))) {
            Failure::Standby
        } else {
            failure
        };
    }
    if failure.lacks_object() {
        let compare = AssertSqlSafe(format!("SELECT larder.at_format({})", write.format));
        if let Some(Err(error)) = soon(sqlx::raw_sql(compare).execute(connection)).await {
            let found = Failure::from(error);
            return if found.is_wrong_format() { found } else { failure };
        }
    }
    failure
}

/// Returns `None` if the server does not respond.
async fn soon<T>(answer: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(GRACE, answer).await.ok()
}
