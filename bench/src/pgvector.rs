//! Filtered vector search in Postgres, compared with the best handwritten plan for it.
//!
//! The peer uses knowledge that Larder lacks: all searches filter by one field, which is a separate column
//! with an index. Both sides store the same vectors and return the same hits.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use larder::postgres::{Postgres, PostgresConfig, PostgresVectorStore};
use larder_kernel::{CollectionName, Filter, Namespace, PutMode, Store, VectorStore};
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::postgres::{VARIABLE, connect, settings};
use super::vectors::{LIMIT, TENANTS, Vectors};
use super::window::micros_each;
use super::{Outcome, Plan};

/// Dimensions of a vector.
const DIMENSIONS: usize = 384;
/// Documents per write during the filling.
const BATCH: usize = 1_000;

/// The data of both sides.
struct Sides {
    store: PostgresVectorStore,
    collection: CollectionName,
    vectors: Vectors,
    /// The peer's table.
    table: String,
}

/// A search among one document in a hundred.
pub(super) async fn filtered(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let mut connection = connect(&url).await?;
    let mark = if url.contains('?') { '&' } else { '?' };
    let postgres =
        Postgres::open(PostgresConfig::from_url(&format!("{url}{mark}vector_index=hnsw"))?).await?;
    let namespace = format!("bench-vectors-{}", std::process::id());
    let sides = Sides {
        store: postgres.vectors(Namespace::new(namespace.as_str())?, None).await?,
        collection: CollectionName::new("bench")?,
        vectors: Vectors::new(DIMENSIONS, 50),
        table: format!("larder_bench_vectors_{}", std::process::id()),
    };
    let figures = measure(plan, &sides, &mut connection, &namespace).await;
    // Removes the data after a failure, too.
    let drop = format!("DROP TABLE IF EXISTS {}", sides.table);
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
    sides.store.drop_collection(&sides.collection).await?;
    swept(&mut connection, &namespace).await?;
    sides.store.erase().await?;
    figures
}

/// Waits, with a limit, until the indexes of the dropped collection are removed.
async fn swept(connection: &mut PgConnection, namespace: &str) -> Outcome<()> {
    for _ in 0..100 {
        let left: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_catalog.pg_class i, unnest(ARRAY['hnsw', 'gin']) kind
             WHERE i.relnamespace = 'larder'::regnamespace AND i.relname = larder.index_name(kind, $1, \
             'bench', $2)",
        )
        .bind(namespace)
        .bind(i32::try_from(DIMENSIONS)?)
        .fetch_one(&mut *connection)
        .await?;
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn measure(
    plan: &Plan,
    sides: &Sides,
    connection: &mut PgConnection,
    namespace: &str,
) -> Outcome<Vec<Figure>> {
    let count = plan.size(50_000, 5_000);
    sides.fill(connection, namespace, count).await?;
    let settings = settings(connection).await?;
    let recall = sides.recall(connection).await?;
    let calls = plan.size(100, 20);
    let rounds = in_turns(
        plan,
        async |round| sides.searches(round, calls).await,
        async |round| sides.by_hand(connection, round, calls).await,
    )
    .await?;
    let what =
        format!("the best 10 of {count} vectors of {DIMENSIONS} numbers, among the 1 % that match a filter");
    let subject = |name, what, peer: &str, unit, target| Subject {
        name,
        what,
        peer: peer.to_owned(),
        settings: format!("{settings}; vector_index=hnsw"),
        unit,
        target: Some(target),
    };
    Ok(vec![
        subject(
            "postgres-vector-filter",
            what.clone(),
            "sqlx 0.9 in the same process, a prepared statement that ranks the rows of an indexed column by \
             distance",
            Unit::Micros,
            Target::AtMost(1.25),
        )
        .figure(&rounds),
        subject(
            "postgres-vector-recall",
            format!("hits found: {what}, each result with min(limit, matches) hits"),
            "the hits of the exact search",
            Unit::Hits,
            Target::AtLeast(0.99),
        )
        .figure(&[recall]),
    ])
}

impl Sides {
    /// Writes the same documents to both sides, with their indexes.
    async fn fill(&self, connection: &mut PgConnection, namespace: &str, count: u32) -> Outcome<()> {
        for first in (0..u64::from(count)).step_by(BATCH) {
            let next = u64::from(count).min(first + BATCH as u64);
            let documents = self.vectors.documents(first..next)?;
            self.store.put(&self.collection, documents, PutMode::Upsert).await?;
        }
        let statements = format!(
            "CREATE TABLE {table} (id text PRIMARY KEY, tenant text NOT NULL, content text NOT NULL,
                 metadata text NOT NULL, embedding vector({DIMENSIONS}) NOT NULL);
             INSERT INTO {table} SELECT id, metadata::jsonb ->> 'tenant', convert_from(content, 'UTF8'), \
             metadata, direction
                 FROM larder.documents WHERE namespace = '{namespace}';
             CREATE INDEX ON {table} (tenant)",
            table = self.table
        );
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *connection).await?;
        // The graph of the index is built in memory if enough is available. The setting is for this user and
        // this step only.
        let memory = |clause: &str| {
            format!(
                "DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I {clause}', \
                 current_database()); END $$"
            )
        };
        let (more, usual) =
            (memory("SET maintenance_work_mem = ''512MB''"), memory("RESET maintenance_work_mem"));
        sqlx::raw_sql(AssertSqlSafe(more)).execute(&mut *connection).await?;
        let built = self.store.build_index(&self.collection).await;
        sqlx::raw_sql(AssertSqlSafe(usual)).execute(&mut *connection).await?;
        if !built? {
            return Err("the collection got no index".into());
        }
        // Autovacuum does the same for both sides within about a minute.
        let vacuum = format!("VACUUM (ANALYZE) larder.documents, larder.collections, {}", self.table);
        sqlx::raw_sql(AssertSqlSafe(vacuum)).execute(connection).await?;
        Ok(())
    }

    /// Returns the microseconds of each search; each search has another tenant.
    async fn searches(&self, round: usize, calls: u32) -> Outcome<f64> {
        let requests = (0..u64::from(calls))
            .map(|call| {
                let request = self.vectors.query(round as u64 * u64::from(calls) + call)?;
                Ok(request.with_filter(Filter::eq("tenant", tenant(call))))
            })
            .collect::<Outcome<Vec<_>>>()?;
        let begun = Instant::now();
        for request in &requests {
            if self.store.search(&self.collection, request).await?.len() != LIMIT {
                return Err("a filtered search came short".into());
            }
        }
        Ok(micros_each(begun, calls))
    }

    async fn by_hand(&self, connection: &mut PgConnection, round: usize, calls: u32) -> Outcome<f64> {
        let mut queries = Vec::new();
        for call in 0..u64::from(calls) {
            let request = self.vectors.query(round as u64 * u64::from(calls) + call)?;
            queries.push((request.embedding.as_slice().to_vec(), tenant(call)));
        }
        let begun = Instant::now();
        for (query, tenant) in queries {
            if self.nearest(connection, query, tenant).await?.len() != LIMIT {
                return Err("the peer came short".into());
            }
        }
        Ok(micros_each(begun, calls))
    }

    /// Returns the ids of a tenant's nearest documents, by the peer.
    async fn nearest(
        &self,
        connection: &mut PgConnection,
        query: Vec<f32>,
        tenant: String,
    ) -> Outcome<HashSet<String>> {
        let select = format!(
            "SELECT id, content, metadata, 1 - (embedding <=> $1::real[]::vector) FROM {} WHERE tenant = $2
             ORDER BY embedding <=> $1::real[]::vector LIMIT {LIMIT}",
            self.table
        );
        let rows = sqlx::query(AssertSqlSafe(select)).bind(query).bind(tenant).fetch_all(connection).await?;
        let mut found = HashSet::new();
        for row in &rows {
            let metadata: Map<String, Value> = serde_json::from_str(row.try_get(2)?)?;
            std::hint::black_box((row.try_get::<String, _>(1)?, metadata, row.try_get::<f64, _>(3)?));
            found.insert(row.try_get(0)?);
        }
        Ok(found)
    }

    /// Returns the number of nearest documents that were found over all tenants, and their total.
    async fn recall(&self, connection: &mut PgConnection) -> Outcome<(f64, f64)> {
        let (mut found, mut there) = (0_u32, 0_u32);
        for number in 0..TENANTS {
            let request = self.vectors.query(1_000_000 + number)?;
            let exact =
                self.nearest(connection, request.embedding.as_slice().to_vec(), tenant(number)).await?;
            let request = request.with_filter(Filter::eq("tenant", tenant(number)));
            for hit in self.store.search(&self.collection, &request).await? {
                found += u32::from(exact.contains(hit.id.as_str()));
            }
            there += u32::try_from(exact.len())?;
        }
        Ok((found.into(), there.into()))
    }
}

fn tenant(number: u64) -> String {
    format!("tenant-{:03}", number % TENANTS)
}
