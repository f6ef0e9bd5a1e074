//! openCypher queries, each in a read-only transaction.

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{CypherRow, Error, ErrorKind};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::agtype::{self, Parameter};
use super::query::Query;
use super::schema::{GraphName, SEARCH_PATH, is_absent};
use crate::postgres::failure::{Failure, Fallible};

pub(super) const OPERATION: &str = "graph.cypher";

/// The parameters of a call.
pub(super) struct Call<'q> {
    pub(super) graph: &'q GraphName,
    pub(super) text: &'q str,
    pub(super) query: &'q Query,
    /// The query's parameters as agtype.
    pub(super) parameters: &'q str,
}

/// Runs a query. `None` if the graph does not exist.
pub(super) async fn run(connection: &mut PgConnection, call: &Call<'_>) -> Fallible<Option<Vec<CypherRow>>> {
    // Any agtype value loads AGE's library, without which its queries do not parse. Without containment, a
    // pattern's properties compare one by one, which can use the index, and a map matches only an equal map.
    let prepare = format!(
        "{SEARCH_PATH};
         SELECT '0'::ag_catalog.agtype; SET LOCAL age.enable_containment = off"
    );
    let prepared = sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await;
    if let Err(failure) = prepared.map_err(Failure::from) {
        return if is_absent(&failure) { Ok(None) } else { Err(failure) };
    }
    let rows = sqlx::query(AssertSqlSafe(statement(call)))
        .bind(Parameter(call.parameters.to_owned()))
        .persistent(false)
        .fetch_all(&mut *connection)
        .await;
    let rows = match rows.map_err(Failure::from) {
        Err(failure) if is_absent(&failure) => return Ok(None),
        rows => rows.map_err(in_query)?,
    };
    if rows.len() > PAGE_ITEMS_MAX {
        let many = Error::new(ErrorKind::ResourceExhausted, OPERATION, "more than 10000 rows; add a `LIMIT`");
        return Err(many.into());
    }
    // Not every version of AGE respects a read-only transaction. A transaction that writes has an id.
    let wrote = sqlx::query("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
        .fetch_one(connection)
        .await?
        .try_get(0)?;
    if wrote {
        return Err(writes().into());
    }
    let row = |row| -> Fallible<CypherRow> {
        let named = call.query.columns.iter().enumerate();
        named.map(|(at, column)| Ok((column.clone(), value(row, at)?))).collect()
    };
    Ok(Some(rows.iter().map(row).collect::<Fallible<_>>()?))
}

fn value(row: &sqlx::postgres::PgRow, at: usize) -> Fallible<serde_json::Value> {
    row.try_get::<Option<&str>, _>(at)?.map_or(Ok(serde_json::Value::Null), agtype::parse)
}

/// Returns the query in AGE's form: a quoted constant that the query cannot end, and one column definition
/// for each column.
fn statement(call: &Call<'_>) -> String {
    use std::fmt::Write;
    let (mut texts, mut columns) = (String::new(), String::new());
    for at in 0..call.query.columns.len() {
        let comma = if at == 0 { "" } else { ", " };
        // Writing to a String does not fail.
        let _ = write!(texts, "{comma}pg_catalog.textin(ag_catalog.agtype_out(c{at}))");
        let _ = write!(columns, "{comma}c{at} ag_catalog.agtype");
    }
    let (graph, text, quote) = (&call.graph.name, call.text, &call.query.quote);
    let limit = PAGE_ITEMS_MAX + 1;
    format!(
        "SELECT {texts} FROM ag_catalog.cypher('{graph}', ${quote}${text}${quote}$, $1) AS ({columns}) LIMIT \
         {limit}"
    )
}

fn writes() -> Error {
    Error::invalid(OPERATION, "query", "would write; use the store's methods to write")
}

/// Translates a failure of the query: its grammar, its names or types, or a value that it read. The server's
/// message may quote the query or stored text, so it is dropped.
fn in_query(failure: Failure) -> Failure {
    let Failure::Database(sqlx::Error::Database(error)) = &failure else { return failure };
    let code = error.code().unwrap_or_default();
    let message = match code.as_ref() {
        "25006" => return writes().into(),
        "42601" => "does not parse; correct the query",
        "42501" => return failure,
        "0A000" => "contains openCypher that AGE does not support; rewrite the query",
        code if code.starts_with("42") => {
            "names something that does not exist, or a value has the wrong type; correct the query"
        }
        code if code.starts_with("22") => "fails on a stored value; add a condition on its type",
        _ => return failure,
    };
    Error::invalid(OPERATION, "query", message).into()
}
