//! Traversals: small graphs for each rule, and random graphs against the model.

use larder_kernel::{
    Direction, Entity, EntityId, GraphStore, Metadata, NeighborQuery, Relationship, SubGraph,
};

use super::model;
use super::support::{edge, edges, entity_id, node, nodes, outline, relationship_type, store_all, typed};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

async fn walk(store: &dyn GraphStore, start: &str, query: &NeighborQuery) -> CaseResult<SubGraph> {
    Ok(store.neighbors(&entity_id(start)?, query).await?)
}

async fn walk_is(
    store: &dyn GraphStore,
    start: &str,
    query: &NeighborQuery,
    entities: &[(&str, u32)],
    relationships: &[&str],
) -> CaseResult {
    let reached = walk(store, start, query).await?;
    let what = format!("from {start} by {query:?}");
    expect::equal(&what, &outline(&reached), &(entities.to_vec(), relationships.to_vec()))
}

pub(super) async fn traversals_follow_both_directions_by_default(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    // in2 -> in -> start -> out -> out2, and across from `out` to `in`.
    let relationships = edges(&[
        ("r1", "t", "in2", "in"),
        ("r2", "t", "in", "start"),
        ("r3", "t", "start", "out"),
        ("r4", "t", "out", "out2"),
    ])?;
    store_all(&*a, &nodes(&["in", "in2", "out", "out2", "start"])?, &relationships).await?;
    let query = NeighborQuery::depth(2);
    let both: [(&str, u32); 5] = [("start", 0), ("in", 1), ("out", 1), ("in2", 2), ("out2", 2)];
    walk_is(&*b, "start", &query, &both, &["r1", "r2", "r3", "r4"]).await?;
    let query = query.with_direction(Direction::Both);
    walk_is(&*b, "start", &query, &both, &["r1", "r2", "r3", "r4"]).await?;
    expect::equal("the default depth", &NeighborQuery::default(), &NeighborQuery::depth(1))?;
    walk_is(&*b, "out", &NeighborQuery::default(), &[("out", 0), ("out2", 1), ("start", 1)], &["r3", "r4"])
        .await
}

pub(super) async fn outgoing_and_incoming_follow_the_direction(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let relationships = edges(&[
        ("r1", "t", "in2", "in"),
        ("r2", "t", "in", "start"),
        ("r3", "t", "start", "out"),
        ("r4", "t", "out", "out2"),
        ("r5", "t", "in", "out"),
    ])?;
    store_all(&*a, &nodes(&["in", "in2", "out", "out2", "start"])?, &relationships).await?;
    let out = NeighborQuery::depth(2).with_direction(Direction::Out);
    walk_is(&*b, "start", &out, &[("start", 0), ("out", 1), ("out2", 2)], &["r3", "r4"]).await?;
    let inward = NeighborQuery::depth(2).with_direction(Direction::In);
    walk_is(&*b, "start", &inward, &[("start", 0), ("in", 1), ("in2", 2)], &["r1", "r2"]).await?;
    walk_is(&*b, "out2", &out, &[("out2", 0)], &[]).await?;
    walk_is(&*b, "in2", &inward, &[("in2", 0)], &[]).await
}

pub(super) async fn each_entity_within_the_depth_is_returned_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    // A chain of 40 with a shortcut from the first to the tenth.
    let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    let entities: Vec<Entity> = names
        .iter()
        .map(|name| typed(name, "link", Metadata::new().with("name", name.clone())))
        .collect::<CaseResult<_>>()?;
    let mut relationships: Vec<Relationship> = names
        .windows(2)
        .map(|pair| edge(&format!("{}-{}", pair[0], pair[1]), "next", &pair[0], &pair[1]))
        .collect::<CaseResult<_>>()?;
    relationships.push(edge("short", "cut", "n00", "n10")?);
    store_all(&*a, &entities, &relationships).await?;
    for depth in [0, 1, 2, 5, 9, 10, 11, 31, 32] {
        for direction in [Direction::Both, Direction::Out, Direction::In] {
            for start in ["n00", "n10", "n39"] {
                let query = NeighborQuery::depth(depth).with_direction(direction);
                compare(&*b, &entities, &relationships, &entity_id(start)?, &query).await?;
            }
        }
    }
    let reached = walk(&*b, "n00", &NeighborQuery::depth(32)).await?;
    let last = reached.entities.last().map(|one| (one.entity.id.as_str(), one.hops));
    expect::equal("the farthest by the shortcut", &last, &Some(("n39", 30)))
}

pub(super) async fn depth_zero_returns_the_entity_alone(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let start = typed("a", "person", Metadata::new().with("v", 1))?;
    store_all(&*a, &[start.clone(), node("b")?], &edges(&[("loop", "t", "a", "a"), ("r", "t", "a", "b")])?)
        .await?;
    for direction in [Direction::Both, Direction::Out, Direction::In] {
        let reached = walk(&*b, "a", &NeighborQuery::depth(0).with_direction(direction)).await?;
        expect::equal("the walk", &outline(&reached), &(vec![("a", 0)], vec![]))?;
        expect::equal("the entity", &reached.entities[0].entity, &start)?;
    }
    Ok(())
}

pub(super) async fn only_the_given_types_are_followed(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let relationships = edges(&[
        ("r1", "knows", "a", "b"),
        ("r2", "likes", "a", "b"),
        ("r3", "likes", "b", "c"),
        ("r4", "Knows", "a", "d"),
        ("r5", "know", "a", "e"),
        ("r6", "knows%", "a", "f"),
    ])?;
    store_all(&*a, &nodes(&["a", "b", "c", "d", "e", "f"])?, &relationships).await?;
    let of = |kinds: &[&str]| -> CaseResult<NeighborQuery> {
        let kinds = kinds.iter().map(|kind| relationship_type(kind)).collect::<CaseResult<Vec<_>>>()?;
        Ok(NeighborQuery::depth(3).with_types(kinds))
    };
    walk_is(&*b, "a", &of(&["knows"])?, &[("a", 0), ("b", 1)], &["r1"]).await?;
    let expected: [(&str, u32); 3] = [("a", 0), ("b", 1), ("c", 2)];
    walk_is(&*b, "a", &of(&["likes", "knows"])?, &expected, &["r1", "r2", "r3"]).await?;
    walk_is(&*b, "a", &of(&["likes", "likes"])?, &expected, &["r2", "r3"]).await?;
    walk_is(&*b, "a", &of(&["Knows", "knows%"])?, &[("a", 0), ("d", 1), ("f", 1)], &["r4", "r6"]).await?;
    walk_is(&*b, "a", &of(&["nothing", "_nows", "%"])?, &[("a", 0)], &[]).await?;
    let mut many: Vec<String> = (0..63).map(|number| format!("t{number}")).collect();
    many.push("know".to_owned());
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    walk_is(&*b, "a", &of(&many)?, &[("a", 0), ("e", 1)], &["r5"]).await
}

/// Checks parallel relationships, loops, and relationships between visited entities; at the last hop only
/// those on a path count.
pub(super) async fn every_followed_relationship_is_returned(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let relationships = edges(&[
        ("p1", "t", "a", "b"),
        ("p2", "t", "a", "b"),
        ("p3", "u", "b", "a"),
        ("q1", "t", "a", "c"),
        ("s1", "t", "b", "c"),
        ("l1", "t", "a", "a"),
        ("l2", "t", "b", "b"),
        ("x1", "t", "c", "d"),
    ])?;
    store_all(&*a, &nodes(&["a", "b", "c", "d"])?, &relationships).await?;
    let one = NeighborQuery::depth(1);
    walk_is(&*b, "a", &one, &[("a", 0), ("b", 1), ("c", 1)], &["l1", "p1", "p2", "p3", "q1"]).await?;
    let out = one.with_direction(Direction::Out);
    walk_is(&*b, "a", &out, &[("a", 0), ("b", 1), ("c", 1)], &["l1", "p1", "p2", "q1"]).await?;
    let two = NeighborQuery::depth(2);
    let all = ["l1", "l2", "p1", "p2", "p3", "q1", "s1", "x1"];
    walk_is(&*b, "a", &two, &[("a", 0), ("b", 1), ("c", 1), ("d", 2)], &all).await?;
    let back = two.with_direction(Direction::In);
    walk_is(&*b, "a", &back, &[("a", 0), ("b", 1)], &["l1", "l2", "p1", "p2", "p3"]).await
}

pub(super) async fn returned_relationships_have_both_entities_in_the_result(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names: Vec<String> = (0..12).map(|number| format!("n{number:02}")).collect();
    let mut relationships = Vec::new();
    for (from, source) in names.iter().enumerate() {
        for (to, target) in names.iter().enumerate() {
            if (from * 5 + to * 3) % 4 == 0 {
                relationships.push(edge(&format!("{source}{target}"), "t", source, target)?);
            }
        }
    }
    let entities = names.iter().map(|name| node(name)).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &entities, &relationships).await?;
    for depth in 0..4 {
        for limit in [0, 1, 2, 3, 5, 11, 12] {
            let reached = walk(&*b, "n03", &NeighborQuery::depth(depth).with_limit(limit)).await?;
            let there: Vec<&EntityId> = reached.entities.iter().map(|one| &one.entity.id).collect();
            let lacking: Vec<_> = reached
                .relationships
                .iter()
                .filter(|one| !there.contains(&&one.source) || !there.contains(&&one.target))
                .collect();
            let what = format!("relationships without their ends at depth {depth}, limit {limit}");
            expect::equal(&what, &lacking, &Vec::new())?;
        }
    }
    Ok(())
}

pub(super) async fn traversals_through_cycles_terminate(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names = ["a", "b", "c", "d", "e"];
    let mut relationships = edges(&[("loop", "t", "a", "a")])?;
    // Every entity with every other, in both directions: a traversal without a visited set never ends within
    // 32 hops.
    for source in names {
        for target in names.iter().filter(|target| **target != source) {
            relationships.push(edge(&format!("{source}{target}"), "t", source, target)?);
        }
    }
    let entities = nodes(&names)?;
    store_all(&*a, &entities, &relationships).await?;
    for direction in [Direction::Both, Direction::Out, Direction::In] {
        let query = NeighborQuery::depth(32).with_direction(direction);
        compare(&*b, &entities, &relationships, &entity_id("c")?, &query).await?;
    }
    Ok(())
}

pub(super) async fn a_limit_returns_the_nearest_entities_by_id(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let relationships = edges(&[
        ("r1", "t", "m", "z"),
        ("r2", "t", "m", "b"),
        ("r3", "t", "m", "é"),
        ("r4", "t", "m", "B"),
        ("r5", "t", "z", "a"),
        ("r6", "t", "b", "A"),
        ("r7", "t", "b", "z"),
    ])?;
    store_all(&*a, &nodes(&["m", "z", "b", "é", "B", "a", "A"])?, &relationships).await?;
    let order: [(&str, u32); 7] = [("m", 0), ("B", 1), ("b", 1), ("z", 1), ("é", 1), ("A", 2), ("a", 2)];
    let taken: [&[&str]; 7] = [
        &[],
        &["r4"],
        &["r2", "r4"],
        &["r1", "r2", "r4", "r7"],
        &["r1", "r2", "r3", "r4", "r7"],
        &["r1", "r2", "r3", "r4", "r6", "r7"],
        &["r1", "r2", "r3", "r4", "r5", "r6", "r7"],
    ];
    for limit in 1..=7 {
        let query = NeighborQuery::depth(2).with_limit(limit);
        walk_is(&*b, "m", &query, &order[..limit], taken[limit - 1]).await?;
    }
    walk_is(&*b, "m", &NeighborQuery::depth(2).with_limit(10_000), &order, taken[6]).await
}

pub(super) async fn a_missing_start_entity_returns_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    for depth in [0, 1, 32] {
        walk_is(&*b, "a", &NeighborQuery::depth(depth), &[], &[]).await?;
    }
    store_all(&*a, &nodes(&["a", "b"])?, &edges(&[("r", "t", "a", "b")])?).await?;
    for name in ["A", "r", "t", "a ", "c", "%"] {
        walk_is(&*b, name, &NeighborQuery::depth(2), &[], &[]).await?;
    }
    Ok(())
}

pub(super) async fn a_limit_of_zero_returns_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    store_all(&*a, &nodes(&["a", "b"])?, &edges(&[("r", "t", "a", "b"), ("l", "t", "a", "a")])?).await?;
    for depth in [0, 1, 2] {
        walk_is(&*b, "a", &NeighborQuery::depth(depth).with_limit(0), &[], &[]).await?;
    }
    walk_is(&*b, "a", &NeighborQuery::depth(0).with_limit(1), &[("a", 0)], &[]).await
}

async fn compare(
    store: &dyn GraphStore,
    entities: &[Entity],
    relationships: &[Relationship],
    start: &EntityId,
    query: &NeighborQuery,
) -> CaseResult {
    let got = store.neighbors(start, query).await?;
    let expected = model::neighbors(entities, relationships, start, query);
    // The outlines come first, because they are short and most informative.
    let what = format!("from {start} by {query:?}");
    expect::equal(&what, &outline(&got), &outline(&expected))?;
    expect::equal(&format!("{what}, whole"), &got, &expected)
}

/// Returns a random multigraph with loops, parallel relationships, islands and four types.
fn random_graph(context: &Context, draw: u64) -> CaseResult<(Vec<Entity>, Vec<Relationship>)> {
    const ENTITIES: u64 = 24;
    let name = |number: u64| {
        let prefix = ["n", "N", "é", "z:"][usize::try_from(number % 4).unwrap_or_default()];
        format!("{prefix}{}", context.random(draw + number) % 1_000 * ENTITIES + number)
    };
    let entity = |number: u64| typed(&name(number), "node", Metadata::new().with("number", number));
    let entities = (0..ENTITIES).map(entity).collect::<CaseResult<Vec<_>>>()?;
    let relationship = |number: u64| {
        let roll = |part: u64| context.random(draw + 1_000 + number * 4 + part);
        let kind =
            ["knows", "likes", "KNOWS", "located in"][usize::try_from(roll(0) % 4).unwrap_or_default()];
        let (source, target) = (name(roll(1) % (ENTITIES - 3)), name(roll(2) % (ENTITIES - 3)));
        let one = edge(&format!("{:x}-{number}", roll(3) % 256), kind, &source, &target)?;
        Ok(one.with_properties(Metadata::new().with("weight", number)))
    };
    let relationships = (0..36).map(relationship).collect::<CaseResult<Vec<_>>>()?;
    Ok((entities, relationships))
}

async fn random_walks(context: Context, draws: [u64; 2], pick: fn(u64) -> NeighborQuery) -> CaseResult {
    for draw in draws {
        let namespace = context.sibling(&format!("-{draw}"))?;
        let stores = context.open_with(&namespace, &crate::harness::OpenOptions::default()).await?;
        let store = stores.graph()?;
        let (entities, relationships) = random_graph(&context, draw)?;
        store_all(&*store, &entities, &relationships).await?;
        for number in 0..120 {
            let roll = context.random(draw + 9_000 + number);
            let start = usize::try_from(roll % 24).unwrap_or_default();
            let mut query = pick(context.random(draw + 20_000 + number));
            query.direction = [Direction::Both, Direction::Out, Direction::In]
                [usize::try_from(roll / 24 % 3).unwrap_or_default()];
            compare(&*store, &entities, &relationships, &entities[start].id, &query).await?;
        }
        store.erase().await?;
    }
    Ok(())
}

pub(super) async fn random_traversals_agree_with_the_model(context: Context) -> CaseResult {
    random_walks(context, [0, 100_000], |roll| {
        NeighborQuery::depth([0, 1, 2, 3, 4, 6, 10, 32][usize::try_from(roll % 8).unwrap_or_default()])
    })
    .await
}

pub(super) async fn random_limited_traversals_agree_with_the_model(context: Context) -> CaseResult {
    random_walks(context, [200_000, 300_000], |roll| {
        let depth = [1, 2, 3, 5, 32][usize::try_from(roll % 5).unwrap_or_default()];
        NeighborQuery::depth(depth).with_limit(usize::try_from(roll / 5 % 20).unwrap_or_default())
    })
    .await
}

pub(super) async fn random_typed_traversals_agree_with_the_model(context: Context) -> CaseResult {
    random_walks(context, [400_000, 500_000], |roll| {
        let mask = roll / 5 % 16;
        let kinds = ["knows", "likes", "KNOWS", "located in"].iter().enumerate();
        let kinds = kinds.filter(|(place, _)| mask >> place & 1 == 1);
        let kinds = kinds.filter_map(|(_, kind)| larder_kernel::RelationshipType::new(kind).ok());
        let limit = [3, 8, 10_000][usize::try_from(roll / 80 % 3).unwrap_or_default()];
        let depth = [1, 2, 3, 5, 32][usize::try_from(roll % 5).unwrap_or_default()];
        NeighborQuery::depth(depth).with_types(kinds).with_limit(limit)
    })
    .await
}
