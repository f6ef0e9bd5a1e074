//! A dump of all readable data of a graph, and sample data.

use larder_kernel::{
    Entity, EntityId, EntityType, GraphStore, Metadata, Relationship, RelationshipId, RelationshipType,
};
use serde_json::{Value, json};

use super::support::{all_entities, all_relationships};
use crate::case::{CaseResult, Failure};

/// Reads all data of the namespace: entities, relationships and the counts, in the order of the listings.
pub(crate) async fn dump(store: &dyn GraphStore) -> CaseResult<Value> {
    let counts = store.count().await?;
    let mut all = json!({
        "counts": value(&counts)?,
        "entities": value(&all_entities(store).await?)?,
        "relationships": value(&all_relationships(store).await?)?,
    });
    all.sort_all_objects();
    Ok(all)
}

fn value(of: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(of).map_err(|error| Failure::Engine(format!("what was read as JSON: {error}")))
}

/// Writes four entities of two types, a cycle, a loop and parallel relationships. Ids, types and properties
/// contain `marker`.
pub(crate) async fn populate(store: &dyn GraphStore, marker: &str) -> CaseResult {
    let entity = |name: &str, kind: &str| -> CaseResult<Entity> {
        let id = EntityId::new(format!("{marker}-{name}"))?;
        let properties =
            Metadata::new().with("marker", marker).with(format!("{marker}-key"), json!([name, 1.5]));
        Ok(Entity::new(id, EntityType::new(format!("{marker}-{kind}"))?).with_properties(properties))
    };
    let entities =
        vec![entity("a", "person")?, entity("b", "person")?, entity("c", "place")?, entity("é", "place")?];
    store.upsert_entities(entities).await?;
    let relationship = |name: &str, kind: &str, source: &str, target: &str| -> CaseResult<Relationship> {
        let end = |name: &str| EntityId::new(format!("{marker}-{name}"));
        let id = RelationshipId::new(format!("{marker}-{name}"))?;
        let kind = RelationshipType::new(format!("{marker}-{kind}"))?;
        let properties = Metadata::new().with("marker", json!({ marker: [true, null] }));
        Ok(Relationship::new(id, kind, end(source)?, end(target)?).with_properties(properties))
    };
    let relationships = vec![
        relationship("r1", "knows", "a", "b")?,
        relationship("r2", "knows", "b", "c")?,
        relationship("r3", "likes", "c", "a")?,
        relationship("r4", "knows", "a", "b")?,
        relationship("r5", "is", "b", "b")?,
    ];
    store.upsert_relationships(relationships).await?;
    Ok(())
}
