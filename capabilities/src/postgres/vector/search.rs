//! Searches: the database ranks by pgvector's distance, and the best candidates are scored again in 64 bits.

use larder_kernel::storage::vector::check_dimension;
use larder_kernel::{Embedding, Filter, SearchHit, SearchRequest};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row, Statement};

use super::Scope;
use super::embedding::{from_bytes, score};
use super::matching::matching;
use super::read::dimensions;
use super::statement::vector;
use crate::postgres::decode;
use crate::postgres::encode::length;
use crate::postgres::failure::{Fallible, corrupt};

/// The number of rows beyond the limit that are read. The database's distances are 32-bit sums, so a document
/// just after the limit may belong just before it. Equal embeddings have equal distances and are cut in the
/// order of their ids.
pub(super) const SURPLUS: usize = 8;

/// Selects the dimension of the collection and the nearest documents, in one statement and so from one
/// snapshot. If the dimension differs from the query's, no distance is computed.
macro_rules! nearest {
    ($condition:literal) => {
        concat!(
            "SELECT c.dimensions, d.id, d.content, d.metadata, d.embedding
             FROM larder.collections c LEFT JOIN LATERAL (
                 SELECT id, content, metadata, embedding FROM larder.documents
                 WHERE namespace = $1 AND collection = $2 AND c.dimensions = $5",
            $condition,
            " ORDER BY direction <=> $3::vector, id LIMIT $4) d ON TRUE
             WHERE c.namespace = $1 AND c.name = $2"
        )
    };
}

/// The nearest documents that satisfy a condition of the server.
pub(super) const NEAREST_PASSING: &str = nearest!(" AND metadata::jsonb @@ $6::text::jsonpath");

/// Runs the requests and returns their results in the same order. The connection must be inside one snapshot
/// if several requests or a filter are given.
pub(super) async fn search(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    requests: &[SearchRequest],
    operation: &'static str,
) -> Fallible<Vec<Vec<SearchHit>>> {
    let filters: Vec<&Filter> = requests
        .iter()
        .filter(|request| request.limit > 0)
        .filter_map(|request| request.filter.as_ref())
        .collect();
    let matching = match filters.is_empty() {
        true => Vec::new(),
        false => matching(connection, scope.namespace, scope.collection, &filters).await?,
    };
    let mut matching = matching.into_iter();
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let only = if request.limit > 0 && request.filter.is_some() { matching.next() } else { None };
        let rows = nearest(connection, scope, request, only).await?;
        answers.push(hits(&rows, request, operation)?);
    }
    Ok(answers)
}

/// Returns the rows of the documents nearest to the query, of all documents or `only` of some.
async fn nearest(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    request: &SearchRequest,
    only: Option<Vec<String>>,
) -> Fallible<Vec<PgRow>> {
    let surplus = if request.limit > 0 { SURPLUS } else { 0 };
    let sql = match only {
        None => nearest!(""),
        Some(_) => nearest!(" AND id = ANY($6)"),
    };
    let dimensions = request.embedding.dimensions();
    let statement = scope.statements.describe(connection, sql).await?;
    let query = statement
        .query()
        .bind(scope.namespace.as_str())
        .bind(scope.collection.as_str())
        .bind(vector(&statement, 3, &request.embedding))
        .bind(length(request.limit.saturating_add(surplus)))
        .bind(i32::try_from(dimensions).unwrap_or(i32::MAX));
    let query = match only {
        None => query,
        Some(ids) => query.bind(ids),
    };
    scope.statements.checked(query.fetch_all(connection).await)
}

/// Returns the hits in rows of the dimension and the columns of a document. A collection without a nearest
/// document is one row of its dimension and NULLs. No row means that the collection does not exist.
pub(super) fn hits(
    rows: &[PgRow],
    request: &SearchRequest,
    operation: &'static str,
) -> Fallible<Vec<SearchHit>> {
    if let Some(row) = rows.first() {
        check_dimension(operation, request.embedding.dimensions(), dimensions(row, 0)?)?;
    }
    let mut hits = scored(rows, request)?;
    hits.retain(|hit| request.score_min.is_none_or(|floor| hit.score >= floor));
    hits.truncate(request.limit);
    Ok(hits)
}

/// Returns the documents in rows, scored in 64 bits, best first.
pub(super) fn scored(rows: &[PgRow], request: &SearchRequest) -> Fallible<Vec<SearchHit>> {
    let mut hits = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(hit) = hit(row, &request.embedding)? {
            hits.push(hit);
        }
    }
    hits.sort_by(|left, right| right.score.total_cmp(&left.score).then_with(|| left.id.cmp(&right.id)));
    Ok(hits)
}

fn hit(row: &PgRow, query: &Embedding) -> Fallible<Option<SearchHit>> {
    let Some(bytes) = row.try_get::<Option<&[u8]>, _>(4)? else { return Ok(None) };
    let stored = from_bytes(bytes).ok_or_else(|| corrupt("postgres.read"))?;
    Ok(Some(
        SearchHit::new(
            decode::id(row, 1)?,
            score(query, &stored).ok_or_else(|| corrupt("postgres.read"))?,
            decode::text(row, 2)?,
        )
        .with_metadata(decode::metadata(row, 3)?),
    ))
}
