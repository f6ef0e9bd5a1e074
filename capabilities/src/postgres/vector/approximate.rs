//! Searches by an index, which may miss one in a hundred of the nearest documents but never return too few.
//!
//! The index returns more candidates than requested, nearest first. They are scored again in 64 bits, and the
//! filter is applied. The exact search takes over in three cases: too few candidates are left, a tie may
//! continue beyond the candidates, or few documents match in the first place.

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

/// The maximum limit for a search by the index. A larger limit would make it as wide as the exact search.
const LIMIT_MAX: usize = 400;

/// The facts about a collection before a search.
struct Found {
    dimensions: usize,
    indexed: bool,
}

/// Runs the requests and returns their results in the same order. Also returns true if the collection should
/// have an index and has none. The connection must be inside one snapshot.
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

/// Reads the facts about the collection. Only a plan for the specific collection uses its indexes, so this
/// also makes the server plan each statement with its parameters until the snapshot ends.
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

/// Returns true if at least this many documents exist, or satisfy the condition if one is given.
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

/// Returns the result of the index, or `None` if only the exact search is certain to be right.
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
    // The filter is applied again, because the condition lets too many documents pass.
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

/// Sets the search width of the index, and forces its use. The server underestimates the number of documents
/// that satisfy a condition, so it would otherwise sort them.
async fn prepare(connection: &mut PgConnection, limit: usize) -> Fallible<()> {
    sqlx::query(
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', $1, \
         true),
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
    // The planner matches the index by its expression and its condition, so both are written exactly as in
    // the index.
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
