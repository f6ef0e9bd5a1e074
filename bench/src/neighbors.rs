//! The neighborhood of an entity with all properties, compared with the best handwritten statements.
//!
//! Both sides read the same tables of the same database. Several such statements are possible; the fastest in
//! a first round is the peer.

mod by_hand;

use std::sync::Arc;
use std::time::Instant;

use larder::Stores;
use larder_kernel::random::Random;
use larder_kernel::{
    Direction, Entity, EntityId, EntityType, GraphStore, Metadata, Namespace, NeighborQuery, Relationship,
    RelationshipId, RelationshipType, SubGraph,
};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use sqlx::PgConnection;

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::postgres::{VARIABLE, connect, settings};
use super::window::micros_each;
use super::{Outcome, Plan};
use by_hand::{ONE_LATERAL, ONE_STATEMENT, TWO_STATEMENTS};

/// Relationships that leave each entity.
const DEGREE: u64 = 10;
/// Items per write during the filling.
const BATCH: usize = 1_000;

/// The result of a peer: the number of entities and of relationships.
type Found = (usize, usize);

/// A graph that only this run uses.
struct Graph {
    stores: Stores,
    graph: Arc<dyn GraphStore>,
    namespace: String,
    nodes: u64,
}

impl Graph {
    async fn open(url: &str, nodes: u32) -> Outcome<Self> {
        let namespace = format!("bench-graph-{}", std::process::id());
        let stores = Stores::builder().namespace(Namespace::new(namespace.as_str())?).url(url).open().await?;
        let graph = Self { graph: stores.set().graph()?, stores, namespace, nodes: nodes.into() };
        graph.fill().await?;
        Ok(graph)
    }

    async fn fill(&self) -> Outcome<()> {
        let (thing, knows) = (EntityType::new("person")?, RelationshipType::new("knows")?);
        let entity = |number: u64| -> Outcome<Entity> {
            let properties =
                Metadata::new().with("name", format!("Person {number}")).with("age", number % 90);
            Ok(Entity::new(id(number)?, thing.clone()).with_properties(properties))
        };
        let entities = (0..self.nodes).map(entity).collect::<Outcome<Vec<_>>>()?;
        for batch in entities.chunks(BATCH) {
            self.graph.upsert_entities(batch.to_vec()).await?;
        }
        let mut numbers = Random::new(7);
        let mut relationship = |number: u64| -> Outcome<Relationship> {
            let (source, target) = (id(number / DEGREE)?, id((numbers.draw() >> 33) % self.nodes)?);
            let properties = Metadata::new().with("since", 1990 + number % 30);
            let name = RelationshipId::new(format!("relationship-{number}"))?;
            Ok(Relationship::new(name, knows.clone(), source, target).with_properties(properties))
        };
        let relationships = (0..self.nodes * DEGREE).map(&mut relationship).collect::<Outcome<Vec<_>>>()?;
        for batch in relationships.chunks(BATCH) {
            self.graph.upsert_relationships(batch.to_vec()).await?;
        }
        Ok(())
    }

    /// Returns the same starts for both sides, and other starts in each round.
    fn starts(&self, round: usize, calls: u32) -> impl Iterator<Item = Outcome<EntityId>> + '_ {
        (0..u64::from(calls)).map(move |call| id((round as u64 * 7_919 + call * 104_729) % self.nodes))
    }

    /// Returns the microseconds of a traversal.
    async fn walks(&self, depth: u32, round: usize, calls: u32) -> Outcome<f64> {
        let query = NeighborQuery::depth(depth).with_direction(Direction::Out);
        let starts = self.starts(round, calls).collect::<Outcome<Vec<_>>>()?;
        let begun = Instant::now();
        for start in &starts {
            std::hint::black_box(self.graph.neighbors(start, &query).await?);
        }
        Ok(micros_each(begun, calls))
    }

    async fn found(&self, start: &EntityId, depth: u32) -> Outcome<Found> {
        let query = NeighborQuery::depth(depth).with_direction(Direction::Out);
        let SubGraph { entities, relationships, .. } = self.graph.neighbors(start, &query).await?;
        Ok((entities.len(), relationships.len()))
    }
}

fn id(number: u64) -> Outcome<EntityId> {
    Ok(EntityId::new(format!("entity-{number}"))?)
}

fn same(found: Found, expected: Found) -> Outcome<()> {
    if found == expected && found.1 > 0 {
        return Ok(());
    }
    Err(format!("the peer found {found:?} entities and relationships instead of {expected:?}").into())
}

/// The names of a backend's figures, and the number of hops.
const SQLITE: [(&str, u32); 2] = [("sqlite-neighbors-1", 1), ("sqlite-neighbors-2", 2)];
const POSTGRES: [(&str, u32); 2] = [("postgres-neighbors-1", 1), ("postgres-neighbors-2", 2)];

fn subject(name: &'static str, depth: u32, graph: &Graph, peer: String, settings: &str) -> Subject {
    Subject {
        name,
        what: format!(
            "the entities within {depth} outgoing {} and the relationships between them, with properties, of \
             {} \
             entities and {} relationships",
            if depth == 1 { "hop" } else { "hops" },
            graph.nodes,
            graph.nodes * DEGREE
        ),
        peer,
        settings: settings.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.25)),
    }
}

/// The figures in SQLite.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let file = plan.scratch.join("graph.db");
    let graph = Graph::open(&format!("sqlite:{}", file.display()), plan.size(20_000, 2_000)).await?;
    let connection = Connection::open(&file)?;
    // As on Larder's connections: with QPSG, a statement is not prepared again for new values.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let ways: [(&str, by_hand::SqliteWay); 3] = [
        ("one recursive statement for the entities and one for the relationships", by_hand::sqlite_recursive),
        ("a statement for each entity on the way, by rows", by_hand::sqlite_by_rows),
        ("a statement for each entity on the way, with joins", by_hand::sqlite_by_entities),
    ];
    let mut figures = Vec::new();
    for (name, depth) in SQLITE {
        let calls = plan.size(if depth == 1 { 1_000 } else { 200 }, 20);
        let walk = |way: by_hand::SqliteWay, round| -> Outcome<f64> {
            let starts = graph.starts(round, calls).collect::<Outcome<Vec<_>>>()?;
            let begun = Instant::now();
            for start in &starts {
                std::hint::black_box(way(&connection, &graph.namespace, start.as_str(), depth)?);
            }
            Ok(micros_each(begun, calls))
        };
        let mut best: Option<(f64, usize)> = None;
        for (place, (_, way)) in ways.iter().enumerate() {
            let start = id(3)?;
            let found = way(&connection, &graph.namespace, start.as_str(), depth)?;
            same(found, graph.found(&start, depth).await?)?;
            walk(*way, 0)?;
            let micros = walk(*way, 0)?;
            if best.is_none_or(|(least, _)| micros < least) {
                best = Some((micros, place));
            }
        }
        let (how, way) = ways[best.map_or(0, |(_, place)| place)];
        let rounds = in_turns(
            plan,
            async |round| graph.walks(depth, round, calls).await,
            async |round| walk(way, round),
        )
        .await?;
        let peer = format!("SQLite {}, {how}, properties parsed", rusqlite::version());
        figures.push(subject(name, depth, &graph, peer, "the same file, in the page cache").figure(&rounds));
    }
    Ok(figures)
}

/// The figures in Postgres.
pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let mut connection = connect(&url).await?;
    let graph = Graph::open(&url, plan.size(20_000, 2_000)).await?;
    // Autovacuum does the same within about a minute.
    sqlx::raw_sql("VACUUM (ANALYZE) larder.entities, larder.relationships").execute(&mut connection).await?;
    let figures = beside_statements(plan, &graph, &mut connection).await;
    // Removes the data after a failure, too.
    graph.stores.erase().await?;
    figures
}

async fn beside_statements(
    plan: &Plan,
    graph: &Graph,
    connection: &mut PgConnection,
) -> Outcome<Vec<Figure>> {
    let settings = settings(connection).await?;
    let ways = [
        ("one statement", ONE_STATEMENT),
        ("one statement along the indexes", ONE_LATERAL),
        ("two statements", TWO_STATEMENTS),
    ];
    let mut figures = Vec::new();
    for (name, depth) in POSTGRES {
        let calls = plan.size(if depth == 1 { 500 } else { 200 }, 20);
        let mut best: Option<(f64, usize)> = None;
        for (place, (_, statements)) in ways.iter().enumerate() {
            let start = id(3)?;
            let found =
                by_hand::postgres(connection, statements, &graph.namespace, start.as_str(), depth).await?;
            same(found, graph.found(&start, depth).await?)?;
            walk(connection, graph, statements, depth, 0, calls).await?;
            let micros = walk(connection, graph, statements, depth, 0, calls).await?;
            if best.is_none_or(|(least, _)| micros < least) {
                best = Some((micros, place));
            }
        }
        let (how, statements) = ways[best.map_or(0, |(_, place)| place)];
        let rounds = in_turns(
            plan,
            async |round| graph.walks(depth, round, calls).await,
            async |round| walk(connection, graph, statements, depth, round, calls).await,
        )
        .await?;
        let peer =
            format!("sqlx 0.9 in the same process, {how} with a recursive walk, prepared, properties parsed");
        figures.push(subject(name, depth, graph, peer, &settings).figure(&rounds));
    }
    Ok(figures)
}

async fn walk(
    connection: &mut PgConnection,
    graph: &Graph,
    statements: &[&'static str],
    depth: u32,
    round: usize,
    calls: u32,
) -> Outcome<f64> {
    let starts = graph.starts(round, calls).collect::<Outcome<Vec<_>>>()?;
    let begun = Instant::now();
    for start in &starts {
        by_hand::postgres(connection, statements, &graph.namespace, start.as_str(), depth).await?;
    }
    Ok(micros_each(begun, calls))
}
