//! The representation of entities and relationships in tool results.

use larder_kernel::{Entity, Metadata, Relationship};
use rmcp::schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The property that contains the observations of an entity.
pub(super) const OBSERVATIONS: &str = "observations";

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct EntityView {
    pub(crate) id: String,
    entity_type: String,
    /// The observations of the entity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    observations: Vec<String>,
    /// The other properties.
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Value>,
}

impl From<Entity> for EntityView {
    fn from(entity: Entity) -> Self {
        let observations = observations(&entity.properties);
        let mut properties = entity.properties.into_map();
        if observations.is_some() {
            properties.remove(OBSERVATIONS);
        }
        Self {
            id: entity.id.into(),
            entity_type: entity.entity_type.into(),
            observations: observations.unwrap_or_default(),
            properties,
        }
    }
}

/// Returns the observations among the properties, if they are a list of texts.
pub(super) fn observations(properties: &Metadata) -> Option<Vec<String>> {
    let texts = properties.get(OBSERVATIONS)?.as_array()?;
    texts.iter().map(|text| text.as_str().map(ToOwned::to_owned)).collect()
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct RelationshipView {
    pub(crate) id: String,
    relationship_type: String,
    /// The source entity.
    source: String,
    /// The target entity.
    target: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Value>,
}

impl From<Relationship> for RelationshipView {
    fn from(relationship: Relationship) -> Self {
        Self {
            id: relationship.id.into(),
            relationship_type: relationship.relationship_type.into(),
            source: relationship.source.into(),
            target: relationship.target.into(),
            properties: relationship.properties.into_map(),
        }
    }
}
