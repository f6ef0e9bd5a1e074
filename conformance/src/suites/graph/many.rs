//! Graphs with many entities, a hub with many relationships, and many parallel relationships.

use larder_kernel::limits::{BATCH_GRAPH_ITEMS_MAX, PAGE_ITEMS_MAX};
use larder_kernel::{
    Contract, DeletedEntity, Entity, EntityQuery, EntityType, EntityWrite, Filter, GraphCounts, GraphStore,
    Metadata, NeighborQuery, Relationship, RelationshipQuery, RelationshipWrite,
};

use super::support::{
    all_entities, all_relationships, edge, entity_id, entity_ids, find_entities, find_relationships,
    relationship_ids, relationship_type, store_all, typed,
};
use crate::case::{CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::many::{Row, count};

const CONTRACT: Contract = Contract::Graph;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("upsert_entities", case!(Graph, "GRAPH-003", many_entities_are_created_and_replaced)),
        ("write_entities", case!(Graph, "GRAPH-045", many_writes_return_their_revisions)),
        ("upsert_relationships", case!(Graph, "GRAPH-009", two_entities_have_many_relationships)),
        ("write_relationships", case!(Graph, "GRAPH-056", many_writes_of_relationships_return_revisions)),
        ("get_stored_relationships", case!(Graph, "GRAPH-064", many_stored_relationships_are_read)),
        ("get_entities", case!(Graph, "GRAPH-011", many_entities_are_read_in_the_order_of_ids)),
        ("get_stored_entities", case!(Graph, "GRAPH-053", many_stored_entities_are_read)),
        ("get_relationships", case!(Graph, "GRAPH-012", many_relationships_are_read)),
        ("neighbors", case!(Graph, "GRAPH-027", a_walk_from_a_hub_fills_its_limit)),
        ("neighbors", case!(Graph, "GRAPH-024", a_walk_returns_many_parallel_relationships)),
        ("delete_entity", case!(Graph, "GRAPH-031", a_hub_is_deleted_with_its_relationships)),
        ("delete_entity", case!(Graph, "GRAPH-066", a_larger_hub_is_deleted_in_steps)),
        ("find_entities", case!(Graph, "GRAPH-036", many_entities_are_found_once)),
        ("find_entities", case!(Graph, "GRAPH-035", the_last_of_many_entities_is_found)),
        ("find_relationships", case!(Graph, "GRAPH-038", many_relationships_are_found_once)),
        ("find_relationships", case!(Graph, "GRAPH-037", the_last_of_many_relationships_is_found)),
        ("count", case!(Graph, "GRAPH-039", many_entities_and_relationships_are_counted)),
        ("erase", case!(Graph, "STORE-006", erasing_a_large_graph_leaves_nothing)),
    ]
}

fn properties(number: usize, many: usize) -> Metadata {
    Metadata::new().with("rare", number + 1 == many)
}

fn name(number: usize) -> String {
    format!("e{number:06}")
}

/// Returns many entities of two types. The last one alone is rare.
fn entities(many: usize) -> CaseResult<Vec<Entity>> {
    let one = |number: usize| typed(&name(number), ["even", "odd"][number % 2], properties(number, many));
    (0..many).map(one).collect()
}

/// Returns relationships from the hub to many entities. The last one alone is rare.
fn spokes(many: usize) -> CaseResult<Vec<Relationship>> {
    let one = |number: usize| {
        let spoke = edge(&format!("r{number:06}"), "has", "hub", &name(number))?;
        Ok(spoke.with_properties(properties(number, many)))
    };
    (0..many).map(one).collect()
}

/// Returns many relationships from the first entity to the second.
fn parallel(many: usize) -> CaseResult<Vec<Relationship>> {
    (0..many).map(|number| edge(&format!("p{number:06}"), "likes", &name(0), &name(1))).collect()
}

async fn fill(store: &dyn GraphStore, many: usize) -> CaseResult {
    store_all(store, &[typed("hub", "hub", Metadata::new())?], &[]).await?;
    store_all(store, &entities(many)?, &spokes(many)?).await
}

async fn large(context: &Context) -> CaseResult<(Handles<dyn GraphStore>, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move {
        let store = context.graph().await?.a;
        fill(&*store, many).await?;
        store_all(&*store, &[], &parallel(many)?).await
    };
    Ok((context.large(CONTRACT, "many", load).await?.graph().await?, many))
}

fn names(found: &[Entity]) -> Vec<&str> {
    found.iter().map(|entity| entity.id.as_str()).collect()
}

async fn many_entities_are_created_and_replaced(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.graph().await?, context.many(CONTRACT));
    let (mut created, mut replaced) = (0, 0);
    for round in 0..2 {
        for batch in entities(many)?.chunks(BATCH_GRAPH_ITEMS_MAX) {
            let report = a.upsert_entities(batch.to_vec()).await?;
            (created, replaced) = (created + report.created, replaced + report.replaced);
        }
        let expected = (count(many), round * count(many));
        expect::equal("entities created and replaced", &(created, replaced), &expected)?;
    }
    expect::equal("the counts", &b.count().await?, &GraphCounts::new(count(many), 0))
}

async fn many_writes_return_their_revisions(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.graph().await?, context.many(CONTRACT));
    for round in 0..2 {
        for batch in entities(many)?.chunks(BATCH_GRAPH_ITEMS_MAX) {
            let ids: Vec<_> = batch.iter().map(|entity| entity.id.clone()).collect();
            let before = b.get_stored_entities(&ids).await?;
            let written = a.write_entities(batch.iter().cloned().map(EntityWrite::merge).collect()).await?;
            expect::equal("the number of results", &written.len(), &batch.len())?;
            for (written, before) in written.iter().zip(before) {
                expect::equal("whether the entity was created", &written.created, &(round == 0))?;
                let greater = before.is_none_or(|before| written.revision.get() > before.revision.get());
                expect::that(greater, "a greater revision", written)?;
            }
        }
    }
    Ok(())
}

async fn many_writes_of_relationships_return_revisions(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.graph().await?, context.many(CONTRACT));
    store_all(&*a, &entities(2)?, &[]).await?;
    for round in 0..2 {
        for batch in parallel(many)?.chunks(BATCH_GRAPH_ITEMS_MAX) {
            let ids: Vec<_> = batch.iter().map(|relationship| relationship.id.clone()).collect();
            let before = b.get_stored_relationships(&ids).await?;
            let writes = batch.iter().cloned().map(RelationshipWrite::merge).collect();
            let written = a.write_relationships(writes).await?;
            expect::equal("the number of results", &written.len(), &batch.len())?;
            for (written, before) in written.iter().zip(before) {
                expect::equal("whether the relationship was created", &written.created, &(round == 0))?;
                let greater = before.is_none_or(|before| written.revision.get() > before.revision.get());
                expect::that(greater, "a greater revision", written)?;
            }
        }
    }
    Ok(())
}

async fn many_stored_relationships_are_read(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let expected = parallel(many)?;
    for batch in expected.chunks(PAGE_ITEMS_MAX) {
        let ids: Vec<_> = batch.iter().map(|relationship| relationship.id.clone()).collect();
        let found = stores.b.get_stored_relationships(&ids).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|stored| stored.relationship).collect();
        expect::equal("the number of relationships", &found.len(), &batch.len())?;
        expect::that(found == batch, "the relationships in the order of the ids", found.first())?;
    }
    Ok(())
}

async fn two_entities_have_many_relationships(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let query = RelationshipQuery::default().with_source(entity_id(&name(0))?);
    let found = find_relationships(&*stores.b, &query, 10_000).await?;
    expect::equal("the number of relationships", &found.len(), &many)?;
    expect::that(found == parallel(many)?, "every relationship as written", found.first())
}

async fn many_entities_are_read_in_the_order_of_ids(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let ids = entity_ids(&(0..many).rev().map(name).collect::<Vec<_>>())?;
    for asked in ids.chunks(PAGE_ITEMS_MAX) {
        let found = stores.b.get_entities(asked).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|entity| entity.id).collect();
        expect::equal("the number of entities", &found.len(), &asked.len())?;
        expect::that(found == asked, "the entities in the order of the ids", found.first())?;
    }
    Ok(())
}

async fn many_stored_entities_are_read(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let ids = entity_ids(&(0..many).rev().map(name).collect::<Vec<_>>())?;
    for asked in ids.chunks(PAGE_ITEMS_MAX) {
        let found = stores.b.get_stored_entities(asked).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|stored| stored.entity.id).collect();
        expect::equal("the number of entities", &found.len(), &asked.len())?;
        expect::that(found == asked, "the entities in the order of the ids", found.first())?;
    }
    Ok(())
}

async fn many_relationships_are_read(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let ids = (0..many).rev().map(|number| format!("r{number:06}")).collect::<Vec<_>>();
    let ids = relationship_ids(&ids)?;
    for asked in ids.chunks(PAGE_ITEMS_MAX) {
        let found = stores.b.get_relationships(asked).await?;
        let found: Vec<_> = found.into_iter().flatten().map(|one| one.id).collect();
        expect::equal("the number of relationships", &found.len(), &asked.len())?;
        expect::that(found == asked, "the relationships in the order of the ids", found.first())?;
    }
    Ok(())
}

async fn a_walk_from_a_hub_fills_its_limit(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let query = NeighborQuery::depth(1).with_types([relationship_type("has")?]);
    for limit in [2_049, 10_000] {
        let reached = stores.b.neighbors(&entity_id("hub")?, &query.clone().with_limit(limit)).await?;
        let taken = (many + 1).min(limit);
        expect::equal("the number of entities", &reached.entities.len(), &taken)?;
        let expected = std::iter::once("hub".to_owned()).chain((0..taken - 1).map(name));
        let ordered = reached.entities.iter().map(|one| one.entity.id.as_str().to_owned()).eq(expected);
        expect::that(ordered, "the entities by hops and id", reached.entities.get(1))?;
        expect::equal("the number of relationships", &reached.relationships.len(), &(taken - 1))?;
    }
    Ok(())
}

async fn a_walk_returns_many_parallel_relationships(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let query = NeighborQuery::depth(1).with_types([relationship_type("likes")?]);
    let reached = stores.b.neighbors(&entity_id(&name(1))?, &query).await?;
    expect::equal("the number of entities", &reached.entities.len(), &2)?;
    expect::equal("the number of relationships", &reached.relationships.len(), &many)
}

async fn a_hub_is_deleted_with_its_relationships(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.graph().await?, context.many(CONTRACT));
    let most = many.min(PAGE_ITEMS_MAX);
    store_all(&*a, &[typed("hub", "hub", Metadata::new())?], &[]).await?;
    store_all(&*a, &entities(most)?, &spokes(most)?).await?;
    let deleted = a.delete_entity(&entity_id("hub")?).await?;
    expect::equal("the result", &deleted, &DeletedEntity::new(true, count(most)))?;
    expect::equal("the relationships", &all_relationships(&*b).await?, &Vec::new())?;
    expect::equal("the counts", &b.count().await?, &GraphCounts::new(count(most), 0))
}

async fn a_larger_hub_is_deleted_in_steps(context: Context) -> CaseResult {
    const MOST: usize = PAGE_ITEMS_MAX;
    let Handles { a, b } = context.graph().await?;
    let hub = entity_id("hub")?;
    store_all(&*a, &[typed("hub", "hub", Metadata::new())?], &[]).await?;
    store_all(&*a, &entities(2)?, &[]).await?;
    // Every third relationship arrives at the hub, and one is a loop.
    let one = |number: usize| match number {
        0 => edge("loop", "has", "hub", "hub"),
        _ if number.is_multiple_of(3) => edge(&format!("r{number:06}"), "has", &name(0), "hub"),
        _ => edge(&format!("r{number:06}"), "has", "hub", &name(1)),
    };
    store_all(&*a, &[], &(0..=MOST).map(one).collect::<CaseResult<Vec<_>>>()?).await?;
    let deleted = a.delete_entity(&hub).await?;
    let expected = DeletedEntity::new(true, count(MOST)).with_more(true);
    expect::equal("the first result", &deleted, &expected)?;
    expect::equal("the counts in between", &b.count().await?, &GraphCounts::new(3, 1))?;
    let left = b.neighbors(&hub, &NeighborQuery::depth(1)).await?.relationships.len();
    expect::equal("the relationships of the hub in between", &left, &1)?;
    let deleted = b.delete_entity(&hub).await?;
    expect::equal("the second result", &deleted, &DeletedEntity::new(true, 1))?;
    expect::equal("the counts", &a.count().await?, &GraphCounts::new(2, 0))
}

async fn many_entities_are_found_once(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    for (kind, expected) in [(None, many + 1), (Some("even"), many.div_ceil(2)), (Some("odd"), many / 2)] {
        let query = match kind {
            Some(kind) => EntityQuery::default().with_type(EntityType::new(kind)?),
            None => EntityQuery::default(),
        };
        for limit in [10_000, 977] {
            let found = find_entities(&*stores.b, &query, limit).await?;
            expect::equal(&format!("the number of {kind:?}"), &found.len(), &expected)?;
            let ordered = found.windows(2).all(|pair| pair[0].id < pair[1].id);
            expect::that(ordered, "each entity once, in byte order", names(&found).first())?;
        }
    }
    Ok(())
}

async fn the_last_of_many_entities_is_found(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let rare = EntityQuery::default().with_filter(Filter::eq("rare", true));
    let found = find_entities(&*stores.b, &rare, 10).await?;
    expect::equal("the rare entity", &names(&found), &vec![name(many - 1).as_str()])?;
    let common = EntityQuery::default().with_filter(Filter::eq("rare", false));
    let found = find_entities(&*stores.b, &common, 10_000).await?;
    expect::equal("the number of common entities", &found.len(), &(many - 1))
}

async fn many_relationships_are_found_once(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let found = find_relationships(&*stores.b, &RelationshipQuery::default(), limit).await?;
        expect::equal("the number of relationships", &found.len(), &(2 * many))?;
        let ordered = found.windows(2).all(|pair| pair[0].id < pair[1].id);
        expect::that(ordered, "each relationship once, in byte order", found.first())?;
    }
    Ok(())
}

async fn the_last_of_many_relationships_is_found(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let hub = RelationshipQuery::default().with_source(entity_id("hub")?);
    let last = name(many - 1);
    let queries = [
        hub.clone().with_filter(Filter::eq("rare", true)),
        hub.clone().with_target(entity_id(&last)?),
        RelationshipQuery::default().with_filter(Filter::eq("rare", true)),
    ];
    for query in queries {
        let found = find_relationships(&*stores.b, &query, 10).await?;
        let found: Vec<_> = found.iter().map(|one| one.target.as_str()).collect();
        expect::equal(&format!("the target of {query:?}"), &found, &vec![last.as_str()])?;
    }
    let found = find_relationships(&*stores.b, &hub, 10_000).await?;
    expect::equal("the relationships of the hub", &found.len(), &many)
}

async fn many_entities_and_relationships_are_counted(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let expected = GraphCounts::new(count(many + 1), count(2 * many));
    expect::equal("the counts", &stores.b.count().await?, &expected)
}

async fn erasing_a_large_graph_leaves_nothing(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.graph().await?, context.many(CONTRACT));
    fill(&*a, many).await?;
    a.erase().await?;
    expect::equal("the counts", &b.count().await?, &GraphCounts::default())?;
    expect::equal("the entities", &all_entities(&*b).await?, &Vec::new())?;
    expect::equal("the relationships", &all_relationships(&*b).await?, &Vec::new())
}
