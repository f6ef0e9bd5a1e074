//! Several statements that read one state of the database.

use futures_util::future::BoxFuture;
use larder_kernel::Result;
use sqlx::PgConnection;

use super::engine::Engine;
use super::failure::Fallible;

impl Engine {
    /// Runs a job that only reads, all of it in the state that its first statement finds.
    pub(crate) async fn snapshot<A, T, F>(&self, operation: &'static str, context: &A, job: F) -> Result<T>
    where
        A: Sync,
        T: Send,
        F: for<'c> Fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Fallible<T>> + Sync,
    {
        let result = self
            .transaction(operation, &(context, &job), |connection, &(context, job)| {
                Box::pin(async move {
                    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                        .execute(&mut *connection)
                        .await?;
                    job(connection, context).await
                })
            })
            .await;
        result.map_err(|error| error.with_idempotent(true))
    }
}
