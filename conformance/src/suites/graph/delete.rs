//! Deletions and counts.

use larder_kernel::{DeletedEntity, GraphCounts, NeighborQuery};

use super::support::{
    all_entities, all_relationships, edges, entity_id, graph_is, nodes, outline, relationship_id, store_all,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

const STAR: [(&str, &str, &str, &str); 7] = [
    ("r1", "t", "hub", "a"),
    ("r2", "t", "a", "hub"),
    ("r3", "u", "hub", "b"),
    ("r4", "t", "hub", "hub"),
    ("r5", "t", "a", "b"),
    ("r6", "t", "b", "c"),
    ("r7", "t", "c", "c"),
];

pub(super) async fn an_entity_is_deleted_with_its_relationships(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    store_all(&*a, &nodes(&["hub", "a", "b", "c"])?, &edges(&STAR)?).await?;
    let answer = a.delete_entity(&entity_id("hub")?).await?;
    expect::equal("the answer", &answer, &DeletedEntity::new(true, 4))?;
    expect::equal("the entity", &b.get_entities(&[entity_id("hub")?]).await?, &vec![None])?;
    for id in ["r1", "r2", "r3", "r4"] {
        let found = b.get_relationships(&[relationship_id(id)?]).await?;
        expect::equal(&format!("the relationship {id}"), &found, &vec![None])?;
    }
    graph_is("the remaining data", &*b, &nodes(&["a", "b", "c"])?, &edges(&STAR[4..])?).await?;
    let answer = b.delete_entity(&entity_id("c")?).await?;
    expect::equal("a loop counts once", &answer, &DeletedEntity::new(true, 2))?;
    a.upsert_entities(nodes(&["lone"])?).await?;
    let answer = b.delete_entity(&entity_id("lone")?).await?;
    expect::equal("an entity alone", &answer, &DeletedEntity::new(true, 0))
}

pub(super) async fn neighbors_of_a_deleted_entity_remain(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let left = nodes(&["a", "b", "c"])?;
    store_all(&*a, &nodes(&["hub", "a", "b", "c"])?, &edges(&STAR)?).await?;
    let _ = a.delete_entity(&entity_id("hub")?).await?;
    graph_is("the remaining data", &*b, &left, &edges(&STAR[4..])?).await?;
    let reached = b.neighbors(&entity_id("a")?, &NeighborQuery::depth(5)).await?;
    let expected = (vec![("a", 0), ("b", 1), ("c", 2)], vec!["r5", "r6", "r7"]);
    expect::equal("a walk among them", &outline(&reached), &expected)
}

pub(super) async fn deleting_a_missing_entity_reports_it(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let nothing = DeletedEntity::new(false, 0);
    expect::equal("in an empty graph", &a.delete_entity(&entity_id("a")?).await?, &nothing)?;
    store_all(&*a, &nodes(&["a", "b"])?, &edges(&[("r", "t", "a", "b")])?).await?;
    for name in ["A", "r", "t", "a ", "%", "c"] {
        expect::equal(&format!("{name:?}"), &b.delete_entity(&entity_id(name)?).await?, &nothing)?;
    }
    graph_is("the stored data", &*b, &nodes(&["a", "b"])?, &edges(&[("r", "t", "a", "b")])?).await?;
    let _ = a.delete_entity(&entity_id("a")?).await?;
    expect::equal("the second time", &b.delete_entity(&entity_id("a")?).await?, &nothing)
}

pub(super) async fn a_deleted_relationship_leaves_its_entities(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["hub", "a", "b", "c"])?;
    store_all(&*a, &entities, &edges(&STAR)?).await?;
    let missing = a.delete_relationship(&relationship_id("R1")?).await?;
    expect::equal("a missing one", &missing, &false)?;
    expect::equal("an entity's id", &a.delete_relationship(&relationship_id("hub")?).await?, &false)?;
    for (gone, id) in ["r6", "r4"].iter().enumerate() {
        expect::equal("the reported existence", &a.delete_relationship(&relationship_id(id)?).await?, &true)?;
        expect::equal("the second time", &b.delete_relationship(&relationship_id(id)?).await?, &false)?;
        let found = b.get_relationships(&[relationship_id(id)?]).await?;
        expect::equal("read by id", &found, &vec![None])?;
        let left: Vec<_> = edges(&STAR)?
            .into_iter()
            .filter(|one| !["r6", "r4"][..=gone].contains(&one.id.as_str()))
            .collect();
        graph_is("the remaining data", &*b, &entities, &left).await?;
    }
    let reached = b.neighbors(&entity_id("hub")?, &NeighborQuery::depth(5)).await?;
    let expected = (vec![("hub", 0), ("a", 1), ("b", 1)], vec!["r1", "r2", "r3", "r5"]);
    expect::equal("the walk", &outline(&reached), &expected)
}

pub(super) async fn counts_equal_the_readable_items(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let none = GraphCounts::new(0, 0);
    expect::equal("of an empty graph", &b.count().await?, &none)?;
    store_all(&*a, &nodes(&["hub", "a", "b", "c"])?, &edges(&STAR)?).await?;
    expect::equal("of all", &b.count().await?, &GraphCounts::new(4, 7))?;
    a.upsert_entities(nodes(&["a", "d"])?).await?;
    a.upsert_relationships(edges(&[("r1", "v", "d", "d"), ("r8", "t", "d", "hub")])?).await?;
    expect::equal("after upserts", &b.count().await?, &GraphCounts::new(5, 8))?;
    a.delete_relationship(&relationship_id("r6")?).await?;
    a.delete_relationship(&relationship_id("r6")?).await?;
    expect::equal("after a deletion", &b.count().await?, &GraphCounts::new(5, 7))?;
    let _ = a.delete_entity(&entity_id("hub")?).await?;
    expect::equal("after deleting the hub", &b.count().await?, &GraphCounts::new(4, 3))?;
    let counts = a.count().await?;
    let read = (all_entities(&*b).await?.len(), all_relationships(&*b).await?.len());
    let counted = (usize::try_from(counts.entities).ok(), usize::try_from(counts.relationships).ok());
    expect::equal("the data read", &counted, &(Some(read.0), Some(read.1)))
}
