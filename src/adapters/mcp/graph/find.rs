//! Reading the graph.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_kernel::storage::graph::{check_entity_query, check_neighbors, check_relationship_query};
use larder_kernel::{
    Direction, Entity, EntityId, EntityQuery, Filter, NeighborQuery, PageRequest, RelationshipId,
    RelationshipQuery, RelationshipType, Result, check,
};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::view::{EntityView, RelationshipView};
use crate::adapters::mcp::answer::Room;
use crate::adapters::mcp::argument::{self, Id, LIST_ITEMS_MAX, Limit, named, optional, page};
use crate::adapters::mcp::cursor;
use crate::adapters::mcp::registry::Shared;

/// The number of entities that one search scans, and the number per store call.
const SCANNED_ENTITIES_MAX: u64 = 5_000;
const ENTITIES_STEP: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct GetInput {
    /// The ids of 1 to 200 entities.
    #[schemars(length(min = 1, max = 200))]
    entities: Vec<Id>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct GetOutput {
    /// The existing entities, in the requested order.
    entities: Vec<EntityView>,
    /// The ids of the missing entities.
    missing: Vec<String>,
    /// The ids that exceeded the size of this result; request them again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

pub(crate) async fn get(shared: Arc<Shared>, input: GetInput) -> Result<GetOutput> {
    const OPERATION: &str = "mcp.graph_get";
    check::batch(OPERATION, "entities", input.entities.len(), LIST_ITEMS_MAX)?;
    let made = input.entities.iter().map(|id| named("entities", EntityId::new(id)));
    let ids: Vec<EntityId> = made.collect::<Result<_>>()?;
    let found = shared.stores.graph()?.get_entities(&ids).await?;
    let mut output = GetOutput { entities: Vec::new(), missing: Vec::new(), left_out: Vec::new() };
    let mut room = Room::new();
    for (id, entity) in ids.into_iter().zip(found) {
        match entity.map(EntityView::from) {
            None => output.missing.push(id.into()),
            Some(view) if room.takes(&view)? => output.entities.push(view),
            Some(view) => output.left_out.push(view.id),
        }
    }
    Ok(output)
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[schemars(crate = "rmcp::schemars", inline)]
#[serde(rename_all = "snake_case")]
enum DirectionInput {
    #[default]
    Both,
    Out,
    In,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct NeighborsInput {
    /// The id of the entity to start from.
    entity: Id,
    /// The maximum number of hops, 0 to 32; the default is 1.
    #[schemars(range(max = 32))]
    depth: Option<u32>,
    /// `out` follows relationships from source to target, `in` from target to source.
    #[serde(default)]
    direction: DirectionInput,
    /// Follow only relationships of these types, at most 64.
    #[serde(default)]
    #[schemars(length(max = 64))]
    relationship_types: Vec<Id>,
    /// The maximum number of entities, including the start; the default is 50.
    #[serde(default)]
    limit: Limit,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct NeighborsOutput {
    /// The entities, nearest first; empty if the start does not exist.
    entities: Vec<ReachedView>,
    /// The relationships between the entities.
    relationships: Vec<RelationshipView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ReachedView {
    /// The length of the shortest path to the entity.
    hops: u32,
    #[serde(flatten)]
    entity: EntityView,
}

pub(crate) async fn neighbors(shared: Arc<Shared>, input: NeighborsInput) -> Result<NeighborsOutput> {
    let entity = EntityId::new(&input.entity)?;
    let types = input.relationship_types.iter();
    let types = types.map(|name| named("relationship_types", RelationshipType::new(name)));
    let direction = match input.direction {
        DirectionInput::Both => Direction::Both,
        DirectionInput::Out => Direction::Out,
        DirectionInput::In => Direction::In,
    };
    let query = NeighborQuery::depth(input.depth.unwrap_or(1))
        .with_direction(direction)
        .with_types(types.collect::<Result<Vec<_>>>()?)
        .with_limit(input.limit.items("mcp.graph_neighbors")?);
    check_neighbors(&query)?;
    let reached = shared.stores.graph()?.neighbors(&entity, &query).await?;
    let entities = reached.entities.into_iter();
    let entities = entities.map(|reached| ReachedView { hops: reached.hops, entity: reached.entity.into() });
    Ok(NeighborsOutput {
        entities: entities.collect(),
        relationships: reached.relationships.into_iter().map(Into::into).collect(),
    })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchInput {
    /// The text to find in ids, types, properties and observations, ignoring case.
    #[schemars(length(min = 1, max = 1024))]
    query: Option<String>,
    /// Find only entities of this type.
    entity_type: Option<Id>,
    /// Find only entities whose properties have these values.
    #[serde(default, rename = "where")]
    equal: Map<String, Value>,
    /// Find only entities whose properties are lists that contain all of these values.
    #[serde(default)]
    contains: BTreeMap<String, Vec<Value>>,
    /// The maximum number of entities; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct SearchOutput {
    /// The matching entities, ordered by id.
    entities: Vec<EntityView>,
    /// The cursor for the rest of the search; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(crate) async fn search(shared: Arc<Shared>, input: SearchInput) -> Result<SearchOutput> {
    const OPERATION: &str = "mcp.graph_search";
    let PageRequest { mut after, limit, .. } = page(OPERATION, input.cursor.as_deref(), &input.limit)?;
    let text = input.query.as_deref().map(|text| argument::query(OPERATION, text)).transpose()?;
    let conditions = input.equal.into_iter().map(|(key, value)| Filter::eq(key, value));
    let lists = input.contains.into_iter().map(|(key, values)| Filter::contains_all(key, values));
    let filter = Filter::all(conditions.chain(lists).collect::<Vec<_>>());
    let query = EntityQuery::default()
        .with_type(optional(input.entity_type.as_ref())?)
        .with_filter((filter != Filter::And(Vec::new())).then_some(filter));
    let step = if text.is_some() { ENTITIES_STEP } else { limit };
    check_entity_query(&query, &PageRequest::first(step).with_after(after.clone()))?;
    let graph = shared.stores.graph()?;
    let (mut entities, mut room, mut scanned) = (Vec::new(), Room::new(), 0);
    loop {
        let found = graph.find_entities(&query, PageRequest::first(step).with_after(after.clone())).await?;
        let ended = found.next.is_none();
        for entity in found.items {
            let id = entity.id.clone();
            if text.as_deref().is_none_or(|text| mentions(&entity, text)) {
                let view = EntityView::from(entity);
                if entities.len() == limit || !room.takes(&view)? {
                    return Ok(SearchOutput { entities, next_cursor: next(after.as_ref())? });
                }
                entities.push(view);
            }
            after = Some(id);
            scanned += 1;
        }
        if ended {
            return Ok(SearchOutput { entities, next_cursor: None });
        }
        if entities.len() == limit || scanned >= SCANNED_ENTITIES_MAX {
            return Ok(SearchOutput { entities, next_cursor: next(after.as_ref())? });
        }
    }
}

fn next(after: Option<&EntityId>) -> Result<Option<String>> {
    after.map(cursor::encode).transpose()
}

fn mentions(entity: &Entity, text: &str) -> bool {
    holds(entity.id.as_str(), text)
        || holds(entity.entity_type.as_str(), text)
        || entity.properties.iter().any(|(key, value)| holds(key, text) || value_holds(value, text))
}

fn holds(within: &str, text: &str) -> bool {
    within.to_lowercase().contains(text)
}

fn value_holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(within) => holds(within, text),
        Value::Array(items) => items.iter().any(|item| value_holds(item, text)),
        Value::Object(map) => map.iter().any(|(key, item)| holds(key, text) || value_holds(item, text)),
        Value::Number(number) => number.to_string().contains(text),
        Value::Bool(_) | Value::Null => false,
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct RelationshipsInput {
    /// List only relationships of this type.
    relationship_type: Option<Id>,
    /// List only relationships from this entity.
    source: Option<Id>,
    /// List only relationships to this entity.
    target: Option<Id>,
    /// The maximum number of relationships; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct RelationshipsOutput {
    /// The matching relationships, ordered by id.
    relationships: Vec<RelationshipView>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub(crate) async fn relationships(
    shared: Arc<Shared>,
    input: RelationshipsInput,
) -> Result<RelationshipsOutput> {
    const OPERATION: &str = "mcp.graph_relationships";
    let request = page::<RelationshipId>(OPERATION, input.cursor.as_deref(), &input.limit)?;
    let query = RelationshipQuery::default()
        .with_type(optional(input.relationship_type.as_ref())?)
        .with_source(named("source", optional(input.source.as_ref()))?)
        .with_target(named("target", optional(input.target.as_ref()))?);
    check_relationship_query(&query, &request)?;
    let page = shared.stores.graph()?.find_relationships(&query, request).await?;
    let (mut relationships, mut room, mut last, mut next) = (Vec::new(), Room::new(), None, page.next);
    for relationship in page.items {
        let id = relationship.id.clone();
        let view = RelationshipView::from(relationship);
        if !room.takes(&view)? {
            next = last;
            break;
        }
        last = Some(id);
        relationships.push(view);
    }
    Ok(RelationshipsOutput { relationships, next_cursor: next.as_ref().map(cursor::encode).transpose()? })
}
