//! The contents of blobs that were replaced, deleted or never completed.

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::super::{Write, begin_write};
use crate::postgres::encode::length;
use crate::postgres::failure::Fallible;

/// The number of chunks that one statement removes: 16 MiB.
const SWEPT_AT_ONCE: usize = 64;

/// The result of one step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swept {
    /// Another transaction uses the content, or it is not due.
    Busy,
    /// Nothing of the content is left.
    Removed,
    /// More of the content is left.
    More,
    /// A blob has the content.
    InUse,
}

/// Returns the namespaces and numbers of the contents that are due.
pub(crate) fn due(sql: &mut PgConnection, at_most: i64) -> BoxFuture<'_, Fallible<Vec<(String, i64)>>> {
    Box::pin(async move {
        let contents = sqlx::query_as(
            "SELECT namespace, content FROM larder.blob_leftovers
             WHERE sweep_ms <= (SELECT larder.now_ms()) ORDER BY sweep_ms LIMIT $1",
        );
        Ok(contents.bind(at_most).fetch_all(sql).await?)
    })
}

/// Removes some chunks of a content that no blob has.
pub(crate) fn sweep<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (namespace, content): &'c (String, i64),
) -> BoxFuture<'c, Fallible<Swept>> {
    Box::pin(async move {
        let sweep = sqlx::query_scalar(concat!(
            "SELECT larder.sweep_blob($1, $2, $3) WHERE ",
            begin_write!("4", "5")
        ));
        let sweep = sweep.bind(namespace).bind(content).bind(length(SWEPT_AT_ONCE));
        Ok(match sweep.bind(write.format).bind(write.commit).fetch_one(sql).await? {
            0 => Swept::Busy,
            1 => Swept::Removed,
            2 => Swept::More,
            _ => Swept::InUse,
        })
    })
}
