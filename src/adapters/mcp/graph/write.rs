//! Writing the graph.

use std::sync::Arc;

use larder_kernel::storage::graph::{check_entities, check_relationships};
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityType, Error, Metadata, Relationship, RelationshipId,
    RelationshipType, RelationshipWrite, Result, UpsertReport, check, limits,
};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change;
use super::view::{EntityView, OBSERVATIONS};
use crate::adapters::mcp::argument::{Id, named};
use crate::adapters::mcp::digest::digest;
use crate::adapters::mcp::registry::Shared;
use crate::graph::delete_in_steps;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct EntitiesInput {
    /// 1 to 1,000 entities, each id once.
    #[schemars(length(min = 1, max = 1000))]
    entities: Vec<EntityInput>,
    /// `merge` keeps the properties and observations of an existing entity that the call does not name;
    /// `replace` drops them. `merge` by default.
    #[serde(default)]
    mode: Mode,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[schemars(crate = "rmcp::schemars")]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Merge,
    Replace,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct EntityInput {
    id: Id,
    /// The type, such as `person` or `place`.
    entity_type: Id,
    /// Any properties, at most 64 KiB together with the observations.
    #[serde(default)]
    properties: Map<String, Value>,
    /// The observations, one text each.
    #[serde(default)]
    observations: Vec<String>,
}

impl EntityInput {
    fn made(self, operation: &'static str) -> Result<Entity> {
        let mut properties = Metadata::from(self.properties);
        if !self.observations.is_empty() {
            if properties.get(OBSERVATIONS).is_some() {
                let message = "is also in `properties`; pass it once";
                return Err(Error::invalid(operation, "observations", message));
            }
            properties.insert(OBSERVATIONS, self.observations);
        }
        let id = named("id", EntityId::new(&self.id))?;
        Ok(Entity::new(id, EntityType::new(&self.entity_type)?).with_properties(properties))
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct UpsertOutput {
    /// The number of entities or relationships that the call created.
    created: u64,
    /// The number of entities or relationships that existed before the call.
    replaced: u64,
    /// The generated ids of relationships without an id, in the order of the call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    made_ids: Vec<String>,
}

impl UpsertOutput {
    fn new(report: UpsertReport, made_ids: Vec<String>) -> Self {
        Self { created: report.created, replaced: report.replaced, made_ids }
    }
}

pub(crate) async fn upsert_entities(shared: Arc<Shared>, input: EntitiesInput) -> Result<UpsertOutput> {
    const OPERATION: &str = "mcp.graph_upsert_entities";
    check::batch(OPERATION, "entities", input.entities.len(), limits::BATCH_GRAPH_ITEMS_MAX)?;
    let made = input.entities.into_iter().map(|entity| entity.made(OPERATION));
    let entities: Vec<Entity> = made.collect::<Result<_>>()?;
    check_entities(&entities)?;
    let graph = shared.stores.graph()?;
    let report = match input.mode {
        Mode::Replace => graph.upsert_entities(entities).await?,
        Mode::Merge => change::merge(OPERATION, &shared, entities).await?,
    };
    Ok(UpsertOutput::new(report, Vec::new()))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct RelationshipsInput {
    /// 1 to 1,000 relationships, each id once.
    #[schemars(length(min = 1, max = 1000))]
    relationships: Vec<RelationshipInput>,
    /// `merge` keeps the properties of an existing relationship that the call does not name; `replace` drops
    /// them. `merge` by default.
    #[serde(default)]
    mode: Mode,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct RelationshipInput {
    /// The id; derived from type, source and target by default.
    id: Option<Id>,
    /// The type, in active voice, such as `knows` or `works_at`.
    relationship_type: Id,
    /// The id of the source entity.
    source: Id,
    /// The id of the target entity.
    target: Id,
    /// Any properties, at most 64 KiB.
    #[serde(default)]
    properties: Map<String, Value>,
}

impl RelationshipInput {
    fn made(self) -> Result<Relationship> {
        let kind = RelationshipType::new(&self.relationship_type)?;
        let source = named("source", EntityId::new(&self.source))?;
        let target = named("target", EntityId::new(&self.target))?;
        let id = match &self.id {
            Some(id) => named("id", RelationshipId::new(id))?,
            None => own_id(&kind, &source, &target)?,
        };
        Ok(Relationship::new(id, kind, source, target).with_properties(self.properties.into()))
    }
}

/// Returns the id of a relationship without an id: the same for the same type, source and target.
fn own_id(kind: &RelationshipType, source: &EntityId, target: &EntityId) -> Result<RelationshipId> {
    RelationshipId::new(digest(&[kind.as_str(), source.as_str(), target.as_str()]))
}

pub(crate) async fn upsert_relationships(
    shared: Arc<Shared>,
    input: RelationshipsInput,
) -> Result<UpsertOutput> {
    const OPERATION: &str = "mcp.graph_upsert_relationships";
    check::batch(OPERATION, "relationships", input.relationships.len(), limits::BATCH_GRAPH_ITEMS_MAX)?;
    let (mut relationships, mut ids) = (Vec::new(), Vec::new());
    for given in input.relationships {
        let made = given.id.is_none();
        let relationship = given.made()?;
        if made {
            ids.push(relationship.id.to_string());
        }
        relationships.push(relationship);
    }
    check_relationships(&relationships)?;
    let graph = shared.stores.graph()?;
    let report = match input.mode {
        Mode::Replace => graph.upsert_relationships(relationships).await?,
        Mode::Merge => {
            let writes = relationships.into_iter().map(RelationshipWrite::merge).collect();
            UpsertReport::of(&graph.write_relationships(writes).await?)
        }
    };
    Ok(UpsertOutput::new(report, ids))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ObservationsInput {
    /// The id of the entity.
    entity: Id,
    #[schemars(length(min = 1, max = 1000))]
    observations: Vec<String>,
}

pub(crate) async fn add_observations(shared: Arc<Shared>, input: ObservationsInput) -> Result<EntityView> {
    change("mcp.graph_add_observations", &shared, input, change::add).await
}

pub(crate) async fn remove_observations(shared: Arc<Shared>, input: ObservationsInput) -> Result<EntityView> {
    let remove = |known: &mut Vec<String>, texts: &[String]| known.retain(|text| !texts.contains(text));
    change("mcp.graph_remove_observations", &shared, input, remove).await
}

async fn change(
    operation: &'static str,
    shared: &Shared,
    input: ObservationsInput,
    change: impl Fn(&mut Vec<String>, &[String]) + Send + Sync,
) -> Result<EntityView> {
    let id = EntityId::new(&input.entity)?;
    check::batch(operation, "observations", input.observations.len(), limits::BATCH_GRAPH_ITEMS_MAX)?;
    for text in &input.observations {
        check::batch(operation, "observations", text.len(), limits::METADATA_BYTES_MAX)?;
        check::no_nul(operation, "observations", text)?;
    }
    let changed = |known: &mut Vec<String>| change(known, &input.observations);
    Ok(change::observations(operation, shared, &id, changed).await?.into())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct EntityIdInput {
    /// The id of the entity.
    entity: Id,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct DeletedEntityOutput {
    /// `true` if the entity existed.
    existed: bool,
    /// The number of relationships that were deleted with it.
    relationships: u64,
}

pub(crate) async fn delete_entity(shared: Arc<Shared>, input: EntityIdInput) -> Result<DeletedEntityOutput> {
    let id = EntityId::new(&input.entity)?;
    let graph = shared.stores.graph()?;
    let _alone = shared.entities.lock().await;
    let DeletedEntity { existed, relationships, .. } = delete_in_steps(&*graph, &id).await?;
    Ok(DeletedEntityOutput { existed, relationships })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct RelationshipIdInput {
    /// The id of the relationship.
    relationship: Id,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct DeletedOutput {
    /// `true` if the relationship existed.
    existed: bool,
}

pub(crate) async fn delete_relationship(
    shared: Arc<Shared>,
    input: RelationshipIdInput,
) -> Result<DeletedOutput> {
    let id = RelationshipId::new(&input.relationship)?;
    let existed = shared.stores.graph()?.delete_relationship(&id).await?;
    Ok(DeletedOutput { existed })
}
