//! Writes and reads of entities.

use std::sync::Arc;

use larder_kernel::{Metadata, NeighborQuery, UpsertReport};
use serde_json::json;
use tokio::task::JoinSet;

use super::support::{
    all_entities, edge, edges, entity_id, entity_ids, graph_is, node, nodes, outline, read, rich_properties,
    store_all, typed,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::support::joined;

pub(super) async fn entities_read_back_equal(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut deep = json!("bottom");
    for _ in 0..31 {
        deep = json!([deep]);
    }
    let long = "x".repeat(512);
    let entities = [
        typed("rich", "Person", rich_properties())?,
        typed("bare", "person", Metadata::new())?,
        typed("deep", "a type with 'quotes' é", Metadata::new().with("k", deep))?,
        typed("full", "`node`", Metadata::new().with("k", "x".repeat(65_535)))?,
        typed(&long, &long, Metadata::new().with("", ""))?,
    ];
    store_all(&*a, &entities, &[]).await?;
    for expected in &entities {
        expect::equal("the entity", &read(&*b, expected.id.as_str()).await?, expected)?;
    }
    graph_is("listed", &*b, &entities, &[]).await
}

pub(super) async fn replaced_entities_keep_their_relationships(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let relationships =
        edges(&[("r1", "knows", "a", "b"), ("r2", "knows", "b", "a"), ("r3", "is", "a", "a")])?;
    let old = Metadata::new().with("old", 1).with("nested", json!({"x": 1, "y": 2}));
    let other = typed("b", "person", old.clone())?;
    store_all(&*a, &[typed("a", "person", old)?, other.clone()], &relationships).await?;
    let new = typed("a", "robot", Metadata::new().with("nested", json!({"x": 3})))?;
    a.upsert_entities(vec![new.clone()]).await?;
    graph_is("after the replacement", &*b, &[new.clone(), other.clone()], &relationships).await?;
    let reached = b.neighbors(&entity_id("a")?, &NeighborQuery::depth(1)).await?;
    expect::equal("the walk", &outline(&reached), &(vec![("a", 0), ("b", 1)], vec!["r1", "r2", "r3"]))?;
    expect::equal("the entity in the walk", &reached.entities[0].entity, &new)?;
    let bare = node("a")?;
    a.upsert_entities(vec![bare.clone()]).await?;
    graph_is("without properties", &*b, &[bare, other], &relationships).await
}

pub(super) async fn upserts_count_created_and_replaced(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let report = a.upsert_entities(nodes(&["a", "b", "c"])?).await?;
    expect::equal("all new", &report, &UpsertReport::new(3, 0))?;
    let report = b.upsert_entities(nodes(&["d", "b", "B", "c", "e"])?).await?;
    expect::equal("some new", &report, &UpsertReport::new(3, 2))?;
    let report = a.upsert_entities(nodes(&["a"])?).await?;
    expect::equal("none new", &report, &UpsertReport::new(0, 1))?;
    let some = edges(&[("r1", "t", "a", "b"), ("r2", "t", "a", "b")])?;
    expect::equal("relationships", &a.upsert_relationships(some).await?, &UpsertReport::new(2, 0))?;
    let more = edges(&[("r0", "t", "a", "b"), ("r2", "u", "b", "a"), ("R1", "t", "a", "b")])?;
    expect::equal("some new", &b.upsert_relationships(more).await?, &UpsertReport::new(2, 1))
}

pub(super) async fn a_full_batch_is_stored_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = (0..1_000).map(|number| node(&format!("n{number:04}"))).collect::<CaseResult<Vec<_>>>()?;
    let report = a.upsert_entities(entities.clone()).await?;
    expect::equal("entities", &report, &UpsertReport::new(1_000, 0))?;
    let ring = |number: usize| {
        let (source, target) = (format!("n{number:04}"), format!("n{:04}", (number + 1) % 1_000));
        edge(&format!("r{number:04}"), "next", &source, &target)
    };
    let relationships = (0..1_000).map(ring).collect::<CaseResult<Vec<_>>>()?;
    let report = a.upsert_relationships(relationships.clone()).await?;
    expect::equal("relationships", &report, &UpsertReport::new(1_000, 0))?;
    graph_is("all of both batches", &*b, &entities, &relationships).await
}

pub(super) async fn batches_are_visible_completely_or_not_at_all(context: Context) -> CaseResult {
    const BATCH: u64 = 40;
    let Handles { a, b } = context.graph().await?;
    let mut tasks: JoinSet<CaseResult> = JoinSet::new();
    for writer in 0..4 {
        let store = Arc::clone(if writer % 2 == 0 { &a } else { &b });
        tasks.spawn(async move {
            for batch in 0..3 {
                let name = |number: u64| format!("{writer}-{batch}-{number}");
                let entities = (0..BATCH).map(|number| node(&name(number))).collect::<CaseResult<_>>()?;
                store.upsert_entities(entities).await?;
                let one = |number: u64| edge(&name(number), "t", &name(number), &name(0));
                store.upsert_relationships((0..BATCH).map(one).collect::<CaseResult<_>>()?).await?;
            }
            Ok(())
        });
    }
    for store in [a, Arc::clone(&b)] {
        tasks.spawn(async move {
            for _ in 0..25 {
                let counts = store.count().await?;
                let whole = counts.entities % BATCH == 0 && counts.relationships % BATCH == 0;
                expect::that(whole, format!("counts of whole batches of {BATCH}"), counts)?;
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    joined(tasks).await?;
    let counts = b.count().await?;
    expect::equal("in the end", &(counts.entities, counts.relationships), &(12 * BATCH, 12 * BATCH))
}

/// Checks that a batch with an invalid last entity stores no other entity.
pub(super) async fn a_refused_batch_stores_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let kept = typed("kept", "person", Metadata::new().with("v", 1))?;
    store_all(&*a, std::slice::from_ref(&kept), &[]).await?;
    let mut batch = nodes(&["kept", "x", "y"])?;
    batch.push(typed("z", "node", Metadata::new().with("k", "\0"))?);
    expect::invalid("a bad entity at the end", a.upsert_entities(batch).await, "entity.properties")?;
    let batch = nodes(&["kept", "x", "y", "x"])?;
    expect::invalid("an id twice", a.upsert_entities(batch).await, "entities.id")?;
    expect::equal("the stored data", &all_entities(&*b).await?, &vec![kept])
}

pub(super) async fn reads_return_entities_in_the_order_of_ids(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    store_all(&*a, &nodes(&["a", "b", "c"])?, &[]).await?;
    let asked = ["c", "missing", "a", "C", "b", "a", "a ", "c"];
    let found = b.get_entities(&entity_ids(&asked)?).await?;
    expect::equal("places", &found.len(), &asked.len())?;
    for (asked, found) in asked.iter().zip(found) {
        let expected = if ["a", "b", "c"].contains(asked) { Some(node(asked)?) } else { None };
        expect::equal(&format!("the position of {asked:?}"), &found, &expected)?;
    }
    expect::equal("the result for an empty list of ids", &b.get_entities(&[]).await?, &Vec::new())?;
    let mut many: Vec<_> = (0..9_999).map(|number| format!("n{number}")).collect();
    many.push("b".to_owned());
    let found = b.get_entities(&entity_ids(&many)?).await?;
    expect::equal("places of 10,000", &found.len(), &10_000)?;
    expect::equal("positions of existing ids", &found.iter().flatten().count(), &1)?;
    expect::equal("the last place", &found.last().cloned().flatten(), &Some(node("b")?))
}
