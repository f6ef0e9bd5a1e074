//! Filtered searches in one round trip: the server ranks the documents that satisfy its condition, and the
//! filter is applied to the nearest.
//!
//! The server's condition lets a few documents pass that the filter rejects. If one of them is among the
//! nearest, this search returns no result, and the search that first lists all matching documents takes over.

use larder_kernel::{SearchHit, SearchRequest};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row, Statement};

use super::Scope;
use super::prefilter::prefilter;
use super::search::{NEAREST_PASSING, SURPLUS, hits};
use super::statement::vector;
use crate::postgres::decode;
use crate::postgres::encode::length;
use crate::postgres::failure::Fallible;

/// The maximum number of matching documents that are compared one by one when an index exists.
pub(super) const FEW_ROWS: i64 = 2_000;

/// Returns the result, or `None` if one statement is not enough. `indexed` is true if the collection may have
/// indexes.
pub(super) async fn search(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    request: &SearchRequest,
    indexed: bool,
    operation: &'static str,
) -> Fallible<Option<Vec<SearchHit>>> {
    let Some(filter) = request.filter.as_ref().filter(|_| request.limit > 0) else { return Ok(None) };
    let Some(condition) = prefilter(&[filter]) else { return Ok(None) };
    let asked = request.limit.saturating_add(SURPLUS);
    let sql = if indexed { AMONG_FEW } else { NEAREST_PASSING };
    let statement = scope.statements.describe(connection, sql).await?;
    let query = statement
        .query()
        .bind(scope.namespace.as_str())
        .bind(scope.collection.as_str())
        .bind(vector(&statement, 3, &request.embedding))
        .bind(length(asked))
        .bind(i32::try_from(request.embedding.dimensions()).unwrap_or(i32::MAX))
        .bind(condition);
    let query = if indexed { query.bind(FEW_ROWS) } else { query };
    let mut rows = scope.statements.checked(query.fetch_all(connection).await)?;
    if indexed
        && let Some(row) = rows.first()
        && !row.try_get::<bool, _>(5)?
    {
        return Ok(None);
    }
    let matches = |row: &PgRow| -> Fallible<bool> {
        // A collection without a nearest document is one row of NULLs.
        Ok(row.try_get::<Option<&str>, _>(3)?.is_none() || filter.matches(&decode::metadata(row, 3)?))
    };
    let mut kept = Vec::with_capacity(rows.len());
    for row in &rows {
        kept.push(matches(row)?);
    }
    // Fewer rows than requested are all the documents that satisfy the condition.
    if rows.len() >= asked && kept.contains(&false) {
        return Ok(None);
    }
    let mut kept = kept.into_iter();
    rows.retain(|_| kept.next().unwrap_or(false));
    Ok(Some(hits(&rows, request, operation)?))
}

/// The same for a collection with an index, if few documents satisfy the condition. The last column is true
/// in that case.
const AMONG_FEW: &str =
    "SELECT out_dimensions, out_id, out_content, out_metadata, out_embedding, out_complete
     FROM larder.nearest_among_few($1, $2, $3::vector::real[], $4, $5, $6, $7)";
