use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{EntityType, RelationshipType, Store};
use rusqlite::{Connection, StatementStatus};
use tempfile::TempDir;

use super::*;
use crate::sqlite::SqliteConfig;
use larder_kernel::{Direction, Metadata};

fn entity(number: usize) -> EntityId {
    EntityId::new(format!("e{number:02}")).unwrap()
}

/// Returns a deterministic sequence of numbers less than `below`.
fn numbers(seed: u32) -> impl FnMut(usize) -> usize {
    let mut random = larder_kernel::random::Random::new(seed.into());
    move |below| random.below(below)
}

fn relationships(seed: u32) -> Vec<Relationship> {
    let mut next = numbers(seed);
    (0..40)
        .map(|number| {
            Relationship::new(
                RelationshipId::new(format!("r{number:02}")).unwrap(),
                RelationshipType::new(["knows", "likes"][next(2)]).unwrap(),
                entity(next(14)),
                entity(next(14)),
            )
            .with_properties(Metadata::new().with("number", number))
        })
        .collect()
}

/// Computes the contract's definition by repeated passes over all relationships.
fn expected(all: &[Relationship], query: &NeighborQuery) -> (Vec<(EntityId, u32)>, BTreeSet<RelationshipId>) {
    let types = &query.relationship_types;
    let walks: Vec<(&RelationshipId, &EntityId, &EntityId)> = all
        .iter()
        .filter(|one| types.is_empty() || types.contains(&one.relationship_type))
        .flat_map(|one| {
            let out = (query.direction != Direction::In).then_some((&one.id, &one.source, &one.target));
            let back = (query.direction != Direction::Out).then_some((&one.id, &one.target, &one.source));
            out.into_iter().chain(back)
        })
        .collect();
    let mut hops = BTreeMap::from([(entity(0), 0)]);
    for level in 1..=query.depth {
        let met: Vec<_> = walks.iter().filter(|walk| hops.get(walk.1) == Some(&(level - 1))).collect();
        for (_, _, to) in met {
            hops.entry((*to).clone()).or_insert(level);
        }
    }
    let mut order: Vec<_> = hops.into_iter().collect();
    order.sort_by(|left, right| (left.1, &left.0).cmp(&(right.1, &right.0)));
    order.truncate(query.limit);
    let kept: BTreeMap<_, _> = order.iter().cloned().collect();
    let walked = walks
        .iter()
        .filter(|(_, from, to)| {
            kept.get(*from).is_some_and(|hops| *hops < query.depth) && kept.contains_key(*to)
        })
        .map(|walk| walk.0.clone())
        .collect();
    (order, walked)
}

#[tokio::test]
async fn traversals_equal_the_definition() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    for seed in 0..3 {
        let graph = sqlite.graph(Namespace::new(format!("n{seed}")).unwrap());
        let kind = EntityType::new("node").unwrap();
        let entities = (0..14).map(|number| Entity::new(entity(number), kind.clone())).collect();
        graph.upsert_entities(entities).await.unwrap();
        let all = relationships(seed);
        graph.upsert_relationships(all.clone()).await.unwrap();
        for direction in [Direction::Both, Direction::Out, Direction::In] {
            for types in [vec![], vec![RelationshipType::new("knows").unwrap()]] {
                for (depth, limit) in
                    [0, 1, 2, 3, 32].into_iter().flat_map(|d| [0, 1, 2, 3, 4, 5, 7, 9, 100].map(|l| (d, l)))
                {
                    let query = NeighborQuery::depth(depth)
                        .with_direction(direction)
                        .with_types(types.clone())
                        .with_limit(limit);
                    let found = graph.neighbors(&entity(0), &query).await.unwrap();
                    let order: Vec<_> =
                        found.entities.iter().map(|one| (one.entity.id.clone(), one.hops)).collect();
                    let (expected_order, expected_walked) = expected(&all, &query);
                    assert_eq!(order, expected_order, "{query:?}");
                    let walked: Vec<_> =
                        all.iter().filter(|one| expected_walked.contains(&one.id)).cloned().collect();
                    assert_eq!(found.relationships, walked, "{query:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn relationships_satisfy_every_part_of_the_query() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let graph = sqlite.graph(Namespace::new("n").unwrap());
    let kind = EntityType::new("node").unwrap();
    let entities = (0..15).map(|number| Entity::new(entity(number), kind.clone())).collect();
    graph.upsert_entities(entities).await.unwrap();
    let all = relationships(7);
    graph.upsert_relationships(all.clone()).await.unwrap();
    for parts in 0..8 {
        let part = |bit: u32| parts & (1 << bit) != 0;
        let query = RelationshipQuery::default()
            .with_type(part(0).then(|| all[0].relationship_type.clone()))
            .with_source(part(1).then(|| all[0].source.clone()))
            .with_target(part(2).then(|| all[0].target.clone()));
        let expected: Vec<_> = all
            .iter()
            .filter(|one| query.relationship_type.as_ref().is_none_or(|kind| *kind == one.relationship_type))
            .filter(|one| query.source.as_ref().is_none_or(|source| *source == one.source))
            .filter(|one| query.target.as_ref().is_none_or(|target| *target == one.target))
            .cloned()
            .collect();
        let mut found = Vec::new();
        let mut page = PageRequest::first(3);
        loop {
            let answer = graph.find_relationships(&query, page).await.unwrap();
            found.extend(answer.items);
            let Some(next) = answer.next else { break };
            page = PageRequest::after(next, 3);
        }
        assert_eq!(found, expected, "{parts:b}");
    }
    let gone = graph.delete_entity(&all[0].source).await.unwrap();
    let touching = all.iter().filter(|one| one.source == all[0].source || one.target == all[0].source);
    assert_eq!((gone.existed, gone.relationships), (true, touching.count() as u64));
    assert_eq!(graph.count().await.unwrap().entities, 14);
}

#[tokio::test]
async fn no_lookup_visits_more_than_its_index() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let statements = [
        find::relationships_sql(true, false, true),
        find::relationships_sql(false, true, false),
        find::relationships_sql(false, false, true),
        traversal::OUT.to_owned(),
        traversal::IN.to_owned(),
        write::DELETE_OF_ENTITY.to_owned(),
        write::ERASE[0].to_owned(),
        write::ERASE[1].to_owned(),
    ];
    let plans: Vec<String> = sqlite
        .engine
        .read("test.plan", move |connection| {
            statements.iter().map(|sql| crate::sqlite::tests::plan(connection, sql)).collect()
        })
        .await
        .unwrap();
    let uses = |place: usize, index: &str| assert!(plans[place].contains(index), "{}", plans[place]);
    uses(0, "relationships_by_source (source=? AND id>?)");
    uses(1, "relationships_by_target (target=? AND id>?)");
    uses(2, "relationships_by_type (namespace=? AND relationship_type=? AND id>?)");
    assert!(plans.iter().all(|plan| !plan.contains("TEMP B-TREE")), "{plans:?}");
    uses(3, "COVERING INDEX relationships_by_source (source=? AND id>?)");
    uses(4, "COVERING INDEX relationships_by_target (target=? AND id>?)");
    uses(5, "MULTI-INDEX OR");
    uses(6, "COVERING INDEX");
    uses(7, "COVERING INDEX");
    assert!(plans[5..].iter().all(|plan| plan.contains("INTEGER PRIMARY KEY (rowid=?)")), "{plans:?}");
}

#[tokio::test]
async fn an_erasure_deletes_a_bounded_number_of_rows_in_a_transaction() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let graph = sqlite.graph(Namespace::new("n").unwrap());
    let fill = |connection: &Connection| {
        connection.execute_batch(
            "INSERT INTO entities (namespace, id, entity_type, revision, properties)
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4001)
                 SELECT 'n', 'e' || i, 't', i, '{}' FROM n;
             INSERT INTO relationships
                 (namespace, id, relationship_type, source, target, revision, properties)
                 SELECT 'n', 'r' || key, 't', key, (SELECT min(key) FROM entities), key, '{}' FROM entities",
        )?;
        Ok(())
    };
    sqlite.engine.write("test.fill", fill).await.unwrap();
    let mut left = Vec::new();
    for delete in write::ERASE {
        loop {
            let namespace = graph.namespace.clone();
            let step = move |connection: &Connection| write::erase_step(connection, &namespace, delete);
            let more = sqlite.engine.write("test.step", step).await.unwrap();
            let counts = graph.count().await.unwrap();
            left.push((counts.entities, counts.relationships));
            if !more {
                break;
            }
        }
    }
    assert_eq!(left, [(4001, 2001), (4001, 1), (4001, 0), (2001, 0), (1, 0), (0, 0)]);
    sqlite.engine.write("test.fill", fill).await.unwrap();
    graph.erase().await.unwrap();
    assert_eq!(graph.count().await.unwrap(), GraphCounts::new(0, 0));
}

#[tokio::test]
async fn no_statement_of_a_traversal_is_prepared_again_for_another_entity() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let job = |connection: &Connection| {
        for sql in [traversal::OUT, traversal::IN, traversal::FULL_OUT, traversal::FULL_IN] {
            let mut statement = connection.prepare(sql)?;
            for key in 0..5_i64 {
                statement.raw_bind_parameter(1, key)?;
                if statement.parameter_count() == 2 {
                    statement.raw_bind_parameter(2, "")?;
                }
                assert!(statement.raw_query().next()?.is_none());
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{sql}");
        }
        Ok(())
    };
    sqlite.engine.read("test.again", job).await.unwrap();
}
