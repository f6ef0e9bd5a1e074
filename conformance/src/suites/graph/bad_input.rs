//! Invalid calls, each of which must leave all data unchanged.

use larder_kernel::{
    Contract, Entity, EntityId, EntityQuery, EntityType, Error, Filter, GraphStore, Metadata, NeighborQuery,
    PageRequest, Relationship, RelationshipId, RelationshipQuery, RelationshipType,
};
use serde_json::{Value, json};

use super::dump::{dump, populate};
use super::support::{edge, entity_id, entity_ids, node, relationship_ids, relationship_type, typed};
use crate::case::{Case, CaseResult, Level};
use crate::context::{Context, Handles};
use crate::expect;

const MARKER: &str = "kept";

enum Call {
    /// The result of a constructor; no store is called.
    Made(Result<(), Error>),
    Entities(Vec<Entity>),
    Relationships(Vec<Relationship>),
    GetEntities(Vec<EntityId>),
    GetRelationships(Vec<RelationshipId>),
    Neighbors(NeighborQuery),
    FindEntities(EntityQuery, usize),
    FindRelationships(RelationshipQuery, usize),
}

#[derive(Clone, Copy)]
struct Refusal {
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: fn() -> CaseResult<Call>,
}

const fn refusal(
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: fn() -> CaseResult<Call>,
) -> Refusal {
    Refusal { name, field, limit, call }
}

pub(super) fn cases() -> Vec<Case> {
    [names(), entities(), relationships(), reads(), filters()].into_iter().flatten().map(case).collect()
}

fn case(refusal: Refusal) -> Case {
    let Refusal { name, field, limit, call } = refusal;
    Case::new(Contract::Graph, "STORE-010", format!("refuses_{name}"), move |context: Context| async move {
        let Handles { a, b } = context.graph().await?;
        populate(&*a, MARKER).await?;
        let before = dump(&*b).await?;
        let refusal = expect::invalid(name, run(&*a, call()?).await?, field)?;
        if limit.is_some() {
            expect::equal("the limit named", &refusal.limit(), &limit)?;
        }
        expect::equal("everything afterwards", &dump(&*b).await?, &before)
    })
    .at_level(Level::Hostile)
}

async fn run(store: &dyn GraphStore, call: Call) -> CaseResult<Result<(), Error>> {
    Ok(match call {
        Call::Made(result) => result,
        Call::Entities(entities) => store.upsert_entities(entities).await.map(drop),
        Call::Relationships(relationships) => store.upsert_relationships(relationships).await.map(drop),
        Call::GetEntities(ids) => store.get_entities(&ids).await.map(drop),
        Call::GetRelationships(ids) => store.get_relationships(&ids).await.map(drop),
        Call::Neighbors(query) => store.neighbors(&entity_id("kept-a")?, &query).await.map(drop),
        Call::FindEntities(query, limit) => {
            store.find_entities(&query, PageRequest::first(limit)).await.map(drop)
        }
        Call::FindRelationships(query, limit) => {
            store.find_relationships(&query, PageRequest::first(limit)).await.map(drop)
        }
    })
}

fn made<T>(result: Result<T, Error>) -> CaseResult<Call> {
    Ok(Call::Made(result.map(drop)))
}

fn long() -> String {
    "x".repeat(513)
}

fn names() -> Vec<Refusal> {
    vec![
        refusal("an_empty_entity_id", "entity", Some(1), || made(EntityId::new(""))),
        refusal("a_long_entity_id", "entity", Some(512), || made(EntityId::new(long()))),
        refusal("nul_in_an_entity_id", "entity", None, || made(EntityId::new("a\0b"))),
        refusal("an_empty_entity_type", "entity_type", Some(1), || made(EntityType::new(""))),
        refusal("a_long_entity_type", "entity_type", Some(512), || made(EntityType::new(long()))),
        refusal("nul_in_an_entity_type", "entity_type", None, || made(EntityType::new("\0"))),
        refusal("an_empty_relationship_id", "relationship", Some(1), || made(RelationshipId::new(""))),
        refusal("a_long_relationship_id", "relationship", Some(512), || made(RelationshipId::new(long()))),
        refusal("nul_in_a_relationship_id", "relationship", None, || made(RelationshipId::new("a\0"))),
        refusal("an_empty_relationship_type", "relationship_type", Some(1), || {
            made(RelationshipType::new(""))
        }),
        refusal("a_long_relationship_type", "relationship_type", Some(512), || {
            made(RelationshipType::new("é".repeat(257)))
        }),
        refusal("nul_in_a_relationship_type", "relationship_type", None, || {
            made(RelationshipType::new("\0a"))
        }),
    ]
}

fn nested(levels: usize) -> Value {
    (0..levels)
        .fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"k": inner}) })
}

/// Puts a replacement and a new entity around the invalid one: neither may be stored.
fn entity_with(properties: Metadata) -> CaseResult<Call> {
    Ok(Call::Entities(vec![node("kept-a")?, typed("bad", "node", properties)?, node("new")?]))
}

fn relationship_with(properties: Metadata) -> CaseResult<Call> {
    let bad = edge("bad", "t", "kept-a", "kept-b")?.with_properties(properties);
    let replacement = edge("kept-r1", "t", "kept-c", "kept-c")?;
    Ok(Call::Relationships(vec![replacement, bad, edge("new", "t", "kept-a", "kept-b")?]))
}

fn entities() -> Vec<Refusal> {
    vec![
        refusal("no_entities", "entities", Some(1), || Ok(Call::Entities(Vec::new()))),
        refusal("1001_entities", "entities", Some(1_000), || {
            Ok(Call::Entities(
                (0..1_001).map(|number| node(&format!("n{number}"))).collect::<CaseResult<_>>()?,
            ))
        }),
        refusal("an_entity_twice", "entities.id", None, || {
            Ok(Call::Entities(vec![node("new")?, node("kept-a")?, node("new")?]))
        }),
        refusal("entity_properties_over_64_kib", "entity.properties", Some(65_536), || {
            entity_with(Metadata::new().with("k", "x".repeat(65_536)))
        }),
        refusal("entity_properties_too_deep", "entity.properties", Some(32), || {
            entity_with(Metadata::new().with("k", nested(32)))
        }),
        refusal("nul_in_an_entity_property_key", "entity.properties", None, || {
            entity_with(Metadata::new().with("a\0", 1))
        }),
        refusal("nul_in_an_entity_property", "entity.properties", None, || {
            entity_with(Metadata::new().with("k", json!({"a": ["b\0"]})))
        }),
    ]
}

fn relationships() -> Vec<Refusal> {
    vec![
        refusal("no_relationships", "relationships", Some(1), || Ok(Call::Relationships(Vec::new()))),
        refusal("1001_relationships", "relationships", Some(1_000), || {
            let one = |number: u32| edge(&format!("n{number}"), "t", "kept-a", "kept-b");
            Ok(Call::Relationships((0..1_001).map(one).collect::<CaseResult<_>>()?))
        }),
        refusal("a_relationship_twice", "relationships.id", None, || {
            let one = |id: &str| edge(id, "t", "kept-a", "kept-b");
            Ok(Call::Relationships(vec![one("new")?, one("kept-r1")?, one("new")?]))
        }),
        refusal("relationship_properties_over_64_kib", "relationship.properties", Some(65_536), || {
            relationship_with(Metadata::new().with("k", "x".repeat(65_536)))
        }),
        refusal("relationship_properties_too_deep", "relationship.properties", Some(32), || {
            relationship_with(Metadata::new().with("k", nested(32)))
        }),
        refusal("nul_in_a_relationship_property_key", "relationship.properties", None, || {
            relationship_with(Metadata::new().with("k", json!([{"\0": 1}])))
        }),
        refusal("nul_in_a_relationship_property", "relationship.properties", None, || {
            relationship_with(Metadata::new().with("k", "\0"))
        }),
        refusal("bad_properties_before_a_missing_end", "relationship.properties", None, || {
            let bad = edge("bad", "t", "missing", "kept-b")?.with_properties(Metadata::new().with("\0", 1));
            Ok(Call::Relationships(vec![bad]))
        }),
    ]
}

fn many<T>(make: fn(&[String]) -> CaseResult<Vec<T>>) -> CaseResult<Vec<T>> {
    make(&(0..10_001).map(|number| format!("n{number}")).collect::<Vec<_>>())
}

fn reads() -> Vec<Refusal> {
    vec![
        refusal("reading_10001_entities", "ids", Some(10_000), || Ok(Call::GetEntities(many(entity_ids)?))),
        refusal("reading_10001_relationships", "ids", Some(10_000), || {
            Ok(Call::GetRelationships(many(relationship_ids)?))
        }),
        refusal("a_depth_of_33", "depth", Some(32), || Ok(Call::Neighbors(NeighborQuery::depth(33)))),
        refusal("the_greatest_depth", "depth", Some(32), || {
            Ok(Call::Neighbors(NeighborQuery::depth(u32::MAX).with_limit(0)))
        }),
        refusal("a_walk_limit_of_10001", "limit", Some(10_000), || {
            Ok(Call::Neighbors(NeighborQuery::depth(0).with_limit(10_001)))
        }),
        refusal("65_types", "relationship_types", Some(64), || {
            let kinds = (0..65).map(|number| relationship_type(&format!("t{number}")));
            Ok(Call::Neighbors(NeighborQuery::depth(1).with_types(kinds.collect::<CaseResult<Vec<_>>>()?)))
        }),
        refusal("a_page_of_10001_entities", "limit", Some(10_000), || {
            Ok(Call::FindEntities(EntityQuery::default(), 10_001))
        }),
        refusal("a_page_of_10001_relationships", "limit", Some(10_000), || {
            Ok(Call::FindRelationships(RelationshipQuery::default(), usize::MAX))
        }),
    ]
}

fn entities_by(filter: Filter) -> CaseResult<Call> {
    Ok(Call::FindEntities(EntityQuery::default().with_filter(filter), 10))
}

fn relationships_by(filter: Filter) -> CaseResult<Call> {
    Ok(Call::FindRelationships(RelationshipQuery::default().with_filter(filter), 10))
}

fn filters() -> Vec<Refusal> {
    vec![
        refusal("an_entity_filter_of_257_conditions", "filter", Some(256), || {
            entities_by(Filter::all((0..256).map(|_| Filter::exists("marker"))))
        }),
        refusal("a_relationship_filter_33_deep", "filter.depth", Some(32), || {
            relationships_by((0..32).fold(Filter::exists("marker"), |inner, _| !inner))
        }),
        refusal("an_entity_field_without_keys", "filter.field", Some(1), || {
            entities_by(Filter::exists(Vec::<String>::new()))
        }),
        refusal("a_relationship_field_of_nine_keys", "filter.field", Some(8), || {
            relationships_by(Filter::eq(vec!["k".to_owned(); 9], 1))
        }),
        refusal("nul_in_an_entity_operand", "filter.value", None, || entities_by(Filter::ne("marker", "\0"))),
        refusal("10001_relationship_operands", "filter.values", Some(10_000), || {
            relationships_by(Filter::is_in("marker", 0..10_001))
        }),
        refusal("nul_in_a_key_of_an_entity_filter", "filter.key", None, || {
            entities_by(Filter::contains_key("marker", "\0"))
        }),
    ]
}
