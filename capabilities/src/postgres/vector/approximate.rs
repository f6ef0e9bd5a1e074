//! Searches by an index, which may miss a document in a hundred but never answers with too few.
//!
//! The index is asked for more documents than wanted, nearest first; they are scored again in 64 bits and held against the
//! filter. Where that leaves too few, or a tie may go on beyond what was seen, or few documents match in the first place,
//! the exact search answers.

use larder_kernel::storage::vector::check_dimension;
use larder_kernel::{CollectionName, Filter, Namespace, SearchHit, SearchRequest};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row, Statement};

use super::Scope;
use super::filtered::FEW_ROWS;
use super::index_builder::{IndexedType, indexed_type};
use super::prefilter::prefilter;
use super::read::dimensions;
use super::search;
use super::statement::{half_vector, vector};
use crate::postgres::encode::length;
use crate::postgres::failure::Fallible;

/// The greatest limit that the index serves; beyond, its search would be as wide as the exact one.
const LIMIT_MAX: usize = 400;

/// What is known before a search.
struct Found {
    dimensions: usize,
    indexed: bool,
}

/// Runs the requests and answers each in its place, and says whether the collection should have an index and has none. The
/// connection must be inside one snapshot.
pub(super) async fn search(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    requests: &[SearchRequest],
    operation: &'static str,
    rows_min: i64,
) -> Fallible<(Vec<Vec<SearchHit>>, bool)> {
    let Some(found) = look(connection, scope.namespace, scope.collection).await? else {
        return Ok((vec![Vec::new(); requests.len()], false));
    };
    for request in requests {
        check_dimension(operation, request.embedding.dimensions(), found.dimensions)?;
    }
    let Some(kind) = indexed_type(found.dimensions) else {
        return Ok((search::search(connection, scope, requests, operation).await?, false));
    };
    if !found.indexed {
        let large = at_least(connection, scope, None, rows_min).await?;
        return Ok((search::search(connection, scope, requests, operation).await?, large));
    }
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let hits = match by_index(connection, scope, request, kind).await? {
            Some(hits) => hits,
            None => {
                let one = std::slice::from_ref(request);
                search::search(connection, scope, one, operation).await?.concat()
            }
        };
        answers.push(hits);
    }
    Ok((answers, false))
}

/// Looks at the collection. The indexes of a collection are only found by plans that know the collection, so it also has
/// the server make such plans until the snapshot ends.
async fn look(
    connection: &mut PgConnection,
    namespace: &Namespace,
    collection: &CollectionName,
) -> Fallible<Option<Found>> {
    let row = sqlx::query(
        "SELECT c.dimensions, EXISTS (
             SELECT FROM pg_catalog.pg_class i JOIN pg_catalog.pg_index x ON x.indexrelid = i.oid
             WHERE i.relnamespace = 'larder'::regnamespace AND x.indisvalid
                AND i.relname = larder.index_name('hnsw', c.namespace, c.name, c.dimensions)),
            set_config('plan_cache_mode', 'force_custom_plan', true)
         FROM larder.collections c WHERE c.namespace = $1 AND c.name = $2",
    )
    .bind(namespace.as_str())
    .bind(collection.as_str())
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Found { dimensions: dimensions(&row, 0)?, indexed: row.try_get(1)? }))
}

/// Whether there are so many documents, of all or of those that satisfy the condition.
async fn at_least(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    condition: Option<&str>,
    rows: i64,
) -> Fallible<bool> {
    let sql = match condition {
        None => {
            "SELECT count(*) >= $3 FROM (
                 SELECT FROM larder.documents WHERE namespace = $1 AND collection = $2 LIMIT $3) found"
        }
        Some(_) => {
            "SELECT count(*) >= $3 FROM (
                 SELECT FROM larder.documents WHERE namespace = $1 AND collection = $2
                    AND metadata::jsonb @@ $4::text::jsonpath LIMIT $3) found"
        }
    };
    let query =
        sqlx::query_scalar(sql).bind(scope.namespace.as_str()).bind(scope.collection.as_str()).bind(rows);
    let query = match condition {
        None => query,
        Some(condition) => query.bind(condition.to_owned()),
    };
    Ok(query.fetch_one(connection).await?)
}

/// The answer of the index, or `None` where only the exact search is sure to be right.
async fn by_index(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    request: &SearchRequest,
    kind: IndexedType,
) -> Fallible<Option<Vec<SearchHit>>> {
    if request.limit == 0 {
        return Ok(Some(Vec::new()));
    }
    if request.limit > LIMIT_MAX {
        return Ok(None);
    }
    let condition = request.filter.as_ref().and_then(|filter: &Filter| prefilter(&[filter]));
    if condition.is_some() && !at_least(connection, scope, condition.as_deref(), FEW_ROWS).await? {
        return Ok(None);
    }
    let asked = request.limit * 2 + 32;
    prepare(connection, request.limit).await?;
    let rows = nearest(connection, scope, request, kind, condition, asked).await?;
    sqlx::query("SELECT set_config('enable_sort', 'on', true)").execute(connection).await?;
    if rows.len() < asked {
        return Ok(None);
    }
    let mut hits = search::scored(&rows, request)?;
    // The filter is looked at again: the condition lets too many pass.
    if let Some(filter) = &request.filter {
        hits.retain(|hit| filter.matches(&hit.metadata));
    }
    let tied = match (hits.get(request.limit.saturating_sub(1)), hits.last()) {
        (Some(last), Some(seen)) => hits.len() == request.limit || last.score <= seen.score,
        _ => true,
    };
    if tied {
        return Ok(None);
    }
    hits.truncate(request.limit);
    hits.retain(|hit| request.score_min.is_none_or(|floor| hit.score >= floor));
    Ok(Some(hits))
}

/// Sets how wide the index searches, and that it is used: the server's estimates of how many documents satisfy a condition
/// are too low, so that it would rather sort them.
async fn prepare(connection: &mut PgConnection, limit: usize) -> Fallible<()> {
    sqlx::query(
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', $1, true),
            set_config('enable_sort', 'off', true)",
    )
    .bind((limit * 4).clamp(400, 1_000).to_string())
    .execute(connection)
    .await?;
    Ok(())
}

async fn nearest(
    connection: &mut PgConnection,
    scope: Scope<'_>,
    request: &SearchRequest,
    kind: IndexedType,
    condition: Option<String>,
    asked: usize,
) -> Fallible<Vec<PgRow>> {
    let dimensions = request.embedding.dimensions();
    let only = if condition.is_some() { "AND metadata::jsonb @@ $5::text::jsonpath" } else { "" };
    // The index is found by its expression and its condition, so both are written as it has them.
    let sql = format!(
        "SELECT {dimensions}, id, content, metadata, embedding FROM larder.documents
         WHERE namespace = $1 AND collection = $2 AND octet_length(embedding) = {} {only}
         ORDER BY direction::{kind}({dimensions}) <=> $3::{kind}({dimensions}) LIMIT $4",
        dimensions * size_of::<f32>()
    );
    let statement = scope.statements.describe(connection, AssertSqlSafe(sql)).await?;
    let query = statement.query().bind(scope.namespace.as_str()).bind(scope.collection.as_str());
    let query = match kind {
        IndexedType::Vector => query.bind(vector(&statement, 3, &request.embedding)),
        IndexedType::HalfVector => query.bind(half_vector(&statement, 3, &request.embedding)),
    };
    let query = query.bind(length(asked));
    let query = match condition {
        None => query,
        Some(condition) => query.bind(condition),
    };
    scope.statements.checked(query.fetch_all(connection).await)
}
