//! A dump of all readable data of a graph, and sample data.

use larder_kernel::{
    Entity, EntityId, EntityQuery, EntityType, GraphStore, Metadata, PageRequest, Relationship,
    RelationshipId, RelationshipQuery, RelationshipType,
};
use serde_json::{Value, json};

use super::support::{all_entities, all_relationships, entity_ids, relationship_ids};
use crate::case::{CaseResult, Failure, implemented};
use crate::suites::known;

/// Reads all data of the namespace: entities, relationships and the counts, in the order of the listings.
pub(crate) async fn dump(store: &dyn GraphStore) -> CaseResult<Value> {
    let counts = implemented(store.count().await)?;
    let mut all = json!({
        "counts": value(&counts)?,
        "entities": value(&entities(store).await?)?,
        "relationships": value(&relationships(store).await?)?,
    });
    all.sort_all_objects();
    Ok(all)
}

/// Reads all entities. If the store cannot list yet, reads the entities that the suite writes.
async fn entities(store: &dyn GraphStore) -> CaseResult<Vec<Entity>> {
    if implemented(store.find_entities(&EntityQuery::default(), PageRequest::first(1)).await)?.is_some() {
        return all_entities(store).await;
    }
    let mut names: Vec<String> = ["a", "b", "c", "their", "bad", "new", "twice"].map(str::to_owned).into();
    names.extend(
        known::marked(|marker| ["a", "b", "c", "é"].map(|name| format!("{marker}-{name}"))).flatten(),
    );
    Ok(store.get_entities(&entity_ids(&names)?).await?.into_iter().flatten().collect())
}

/// Reads all relationships. If the store cannot list yet, reads the relationships that the suite writes.
/// Empty if the store has no relationships yet.
async fn relationships(store: &dyn GraphStore) -> CaseResult<Vec<Relationship>> {
    let first = PageRequest::first(1);
    if implemented(store.find_relationships(&RelationshipQuery::default(), first).await)?.is_some() {
        return all_relationships(store).await;
    }
    let numbered = ["r1", "r2", "r3", "r4", "r5"];
    let mut names: Vec<String> =
        numbered.into_iter().chain(["r9", "bad", "new", "twice"]).map(str::to_owned).collect();
    names.extend(known::marked(|marker| numbered.map(|name| format!("{marker}-{name}"))).flatten());
    let found = implemented(store.get_relationships(&relationship_ids(&names)?).await)?;
    Ok(found.unwrap_or_default().into_iter().flatten().collect())
}

fn value(of: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(of).map_err(|error| Failure::Engine(format!("the dump as JSON: {error}")))
}

/// Writes four entities of two types, a cycle, a loop and parallel relationships. Ids, types and properties
/// contain `marker`. Relationships are left out if the store does not implement them yet.
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
    implemented(store.upsert_relationships(relationships).await)?;
    Ok(())
}
