//! Verification of the graphs: every node and edge is read, in one snapshot of a transaction that only reads.

use futures_util::TryStreamExt;
use larder_kernel::{Namespace, Result};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::rows::{entity, field, record, relationship, revision};
use crate::age::AgeConfig;
use crate::age::schema::{GraphName, SEARCH_PATH, look};
use crate::postgres::failure::Fallible;
use crate::postgres::verify::{begin_step, end_step, snapshot};
use crate::verify::FaultKind::{Counter, Index, Record, Reference};
use crate::verify::{Fault, Faults};

/// The indexes of a graph that these stores create.
const INDEXES: [&str; 5] = [
    "larder_entities",
    "larder_entities_by_type",
    "larder_entities_in_cypher",
    "larder_relationships",
    "larder_relationships_by_type",
];

/// Verifies the graphs of all namespaces.
///
/// # Errors
/// As the verification of Postgres.
pub(in crate::age) async fn verify(config: &AgeConfig, faults: &Faults) -> Result<()> {
    snapshot(&config.postgres, faults, |sql, faults| Box::pin(all(sql, faults))).await
}

async fn all(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    if !look(sql).await?.is_prepared() {
        return Ok(());
    }
    sqlx::raw_sql(SEARCH_PATH).execute(&mut *sql).await?;
    let graphs = sqlx::query(
        "SELECT coalesce(l.namespace, ''), coalesce(l.graph, g.name::text), g.name IS NOT NULL
         FROM larder.age_graphs l FULL JOIN
            (SELECT name FROM ag_catalog.ag_graph WHERE starts_with(name::text, 'larder_')) g
            ON g.name::text = l.graph ORDER BY 2",
    )
    .persistent(false)
    .fetch_all(&mut *sql)
    .await?;
    let last: i64 = sqlx::query_scalar(
        "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM larder.entity_revisions",
    )
    .persistent(false)
    .fetch_one(&mut *sql)
    .await?;
    for row in &graphs {
        let (namespace, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let place = format!("graph {name} of {namespace}");
        match Namespace::new(namespace).map(|namespace| GraphName::of(&namespace)) {
            Ok(graph) if graph.name == name && row.try_get(2)? => {
                let graph = Graph { name: &graph, place: &place, last };
                graph.check(sql, faults).await?;
            }
            _ => {
                let seen = "its namespace has no graph, or another one";
                faults.add(Fault::new(Reference, place, seen));
            }
        }
    }
    Ok(())
}

/// The graph of a namespace.
struct Graph<'g> {
    name: &'g GraphName,
    place: &'g str,
    /// The last revision that was drawn, for any graph.
    last: i64,
}

impl Graph<'_> {
    async fn check(&self, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
        self.indexes(sql, faults).await?;
        begin_step(sql).await?;
        let read = self.entities(sql, faults).await;
        end_step(sql, read, self.place, faults).await?;
        begin_step(sql).await?;
        let read = self.relationships(sql, faults).await;
        end_step(sql, read, self.place, faults).await
    }

    async fn indexes(&self, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
        let found: Vec<String> = sqlx::query_scalar(
            "SELECT c.relname::text FROM pg_catalog.pg_class c
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
             WHERE n.nspname::text = $1 AND i.indisvalid AND i.indisready",
        )
        .bind(&self.name.name)
        .persistent(false)
        .fetch_all(sql)
        .await?;
        for index in INDEXES.iter().filter(|index| !found.iter().any(|found| found == *index)) {
            let place = format!("index {index} of the {}", self.place);
            faults.add(Fault::new(Index, place, "it is missing or not valid"));
        }
        Ok(())
    }

    async fn entities(&self, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
        let select = format!(
            concat!(
                "SELECT ",
                record!("e"),
                ", coalesce(",
                field!("e", "id"),
                ", ''), ",
                revision!("e"),
                r#" FROM {}."Entity" e"#
            ),
            self.name.name
        );
        let mut rows = sqlx::query(AssertSqlSafe(select)).persistent(false).fetch(sql);
        while let Some(row) = rows.try_next().await? {
            faults.read(1);
            let place = format!("entity {} in the {}", row.try_get::<&str, _>(1)?, self.place);
            let number: i64 = row.try_get(2)?;
            if entity(&row).is_err() {
                faults.add(Fault::new(Record, place, "it cannot be decoded"));
            } else {
                self.revision(number, &place, faults);
            }
        }
        Ok(())
    }

    fn revision(&self, number: i64, place: &str, faults: &Faults) {
        if number > self.last || number < 0 {
            let seen = format!("its revision is {number}; the last one that was drawn is {}", self.last);
            faults.add(Fault::new(Counter, place, seen));
        }
    }

    async fn relationships(&self, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
        let select = format!(
            concat!(
                "SELECT ",
                record!("r"),
                ", coalesce(",
                field!("r", "id"),
                r#", ''),
                 EXISTS (SELECT FROM {0}."Entity" e WHERE e.id OPERATOR(ag_catalog.=) r.start_id)
                    AND EXISTS (SELECT FROM {0}."Entity" e WHERE e.id OPERATOR(ag_catalog.=) r.end_id), "#,
                revision!("r"),
                r#" FROM {0}."Relationship" r"#
            ),
            self.name.name
        );
        let mut rows = sqlx::query(AssertSqlSafe(select)).persistent(false).fetch(sql);
        while let Some(row) = rows.try_next().await? {
            faults.read(1);
            let place = format!("relationship {} in the {}", row.try_get::<&str, _>(1)?, self.place);
            if relationship(&row).is_err() {
                faults.add(Fault::new(Record, &place, "it cannot be decoded"));
            } else {
                self.revision(row.try_get(3)?, &place, faults);
            }
            if !row.try_get::<bool, _>(2)? {
                faults.add(Fault::new(Reference, place, "its source or target does not exist"));
            }
        }
        Ok(())
    }
}
