//! The methods of [`GraphStore`] and [`CypherCapable`](larder_kernel::CypherCapable).

use larder_kernel::{
    Capability, Direction, Entity, EntityId, EntityQuery, EntityType, EntityWrite, Error, Filter, GraphStore,
    GraphWritten, Metadata, NeighborQuery, PageRequest, Relationship, RelationshipId, RelationshipQuery,
    RelationshipType, RelationshipWrite, Result,
};

use super::{World, calls};
use crate::case::{CaseResult, implemented};

fn entity(name: &str, kind: &str, text: &str) -> Result<Entity> {
    let properties = Metadata::new().with("of", text).with("first", name == "a");
    Ok(Entity::new(EntityId::new(name)?, EntityType::new(kind)?).with_properties(properties))
}

fn relationship(name: &str, kind: &str, ends: [&str; 2], text: &str) -> Result<Relationship> {
    let (id, kind) = (RelationshipId::new(name)?, RelationshipType::new(kind)?);
    let properties = Metadata::new().with("of", text).with("first", name == "r1");
    let [source, target] = ends;
    Ok(Relationship::new(id, kind, EntityId::new(source)?, EntityId::new(target)?)
        .with_properties(properties))
}

pub(super) async fn lay_out(store: &dyn GraphStore, world: World) -> CaseResult {
    let text = world.text();
    let mut entities =
        vec![entity("a", "person", text)?, entity("b", "person", text)?, entity("c", "place", text)?];
    let mut relationships =
        vec![relationship("r1", "knows", ["a", "b"], text)?, relationship("r2", "in", ["b", "c"], text)?];
    if world.is_theirs() {
        entities.push(entity("their", "person", text)?);
        relationships[0] = relationship("r1", "knows", ["b", "a"], text)?;
        relationships.push(relationship("r3", "knows", ["a", "their"], text)?);
        relationships.push(relationship("r4", "knows", ["a", "c"], text)?);
    }
    store.upsert_entities(entities).await?;
    // A store that does not implement relationships yet has entities alone.
    implemented(store.upsert_relationships(relationships).await)?;
    Ok(())
}

fn entities(kind: Option<&str>, filter: Option<Filter>) -> Result<EntityQuery> {
    Ok(EntityQuery::default().with_type(kind.map(EntityType::new).transpose()?).with_filter(filter))
}

fn any() -> RelationshipQuery {
    RelationshipQuery::default()
}

fn first() -> Filter {
    Filter::eq("first", true)
}

fn a() -> Result<EntityId> {
    EntityId::new("a")
}

/// Returns the results of writes without the revisions, which may come from one counter for all namespaces.
fn created(written: Vec<GraphWritten>) -> Result<Vec<bool>> {
    Ok(written.into_iter().map(|written| written.created).collect())
}

calls! { Graph, graph;
    "upsert_entities" => |store| {
        store.upsert_entities(vec![entity("a", "place", "new")?, entity("their", "place", "new")?]).await
    }
    "write_entities" => |store| {
        created(store.write_entities(vec![EntityWrite::replace(entity("a", "place", "new")?)]).await?)
    }
    "write_entities/that_merge" => |store| {
        let given = Entity::new(a()?, EntityType::new("place")?);
        let given = given.with_properties(Metadata::new().with("n", 1));
        created(store.write_entities(vec![EntityWrite::merge(given)]).await?)
    }
    "write_entities/that_are_new" => |store| {
        created(store.write_entities(vec![EntityWrite::create(entity("their", "place", "new")?)]).await?)
    }
    "get_stored_entities" => |store| {
        let stored = store.get_stored_entities(&[a()?, EntityId::new("their")?]).await?;
        Ok(stored.into_iter().map(|stored| stored.map(|stored| stored.entity)).collect::<Vec<_>>())
    }
    "upsert_relationships" => |store| {
        let batch = vec![
            relationship("r1", "likes", ["c", "b"], "new")?,
            relationship("r3", "likes", ["c", "c"], "new")?,
        ];
        store.upsert_relationships(batch).await
    }
    "upsert_relationships/without_an_end" => |store| {
        store.upsert_relationships(vec![relationship("r9", "likes", ["a", "their"], "new")?]).await
    }
    "write_relationships" => |store| {
        let write = RelationshipWrite::replace(relationship("r1", "likes", ["c", "b"], "new")?);
        created(store.write_relationships(vec![write]).await?)
    }
    "write_relationships/that_merge" => |store| {
        let given = relationship("r1", "likes", ["c", "b"], "new")?;
        let given = given.with_properties(Metadata::new().with("n", 1));
        created(store.write_relationships(vec![RelationshipWrite::merge(given)]).await?)
    }
    "write_relationships/that_are_new" => |store| {
        let write = RelationshipWrite::create(relationship("r3", "likes", ["c", "b"], "new")?);
        created(store.write_relationships(vec![write]).await?)
    }
    "get_stored_relationships" => |store| {
        let ids = [RelationshipId::new("r3")?, RelationshipId::new("r1")?];
        let stored = store.get_stored_relationships(&ids).await?;
        Ok(stored.into_iter().map(|stored| stored.map(|stored| stored.relationship)).collect::<Vec<_>>())
    }
    "get_entities" => |store| { store.get_entities(&[a()?, EntityId::new("their")?]).await }
    "get_relationships" => |store| {
        store.get_relationships(&[RelationshipId::new("r3")?, RelationshipId::new("r1")?]).await
    }
    "neighbors" => |store| { store.neighbors(&a()?, &NeighborQuery::depth(3)).await }
    "neighbors/of_a_type_outward" => |store| {
        let query = NeighborQuery::depth(2).with_direction(Direction::Out);
        store.neighbors(&a()?, &query.with_types([RelationshipType::new("knows")?])).await
    }
    "neighbors/of_a_type_inward" => |store| {
        let query = NeighborQuery::depth(2).with_direction(Direction::In);
        store.neighbors(&a()?, &query.with_types([RelationshipType::new("knows")?])).await
    }
    "neighbors/of_what_is_not_there" => |store| {
        store.neighbors(&EntityId::new("their")?, &NeighborQuery::depth(1)).await
    }
    "delete_entity" => |store| { store.delete_entity(&a()?).await }
    "delete_entity/that_is_not_there" => |store| { store.delete_entity(&EntityId::new("their")?).await }
    "delete_relationship" => |store| { store.delete_relationship(&RelationshipId::new("r1")?).await }
    "delete_relationship/that_is_not_there" => |store| {
        store.delete_relationship(&RelationshipId::new("r3")?).await
    }
    "find_entities" => |store| { store.find_entities(&entities(None, None)?, PageRequest::default()).await }
    "find_entities/of_a_type" => |store| {
        store.find_entities(&entities(Some("person"), None)?, PageRequest::default()).await
    }
    "find_entities/that_match" => |store| {
        store.find_entities(&entities(Some("person"), Some(!first()))?, PageRequest::default()).await
    }
    "find_entities/after" => |store| {
        store.find_entities(&entities(None, None)?, PageRequest::after(a()?, 10)).await
    }
    "find_relationships" => |store| { store.find_relationships(&any(), PageRequest::default()).await }
    "find_relationships/of_a_type" => |store| {
        let query = any().with_type(RelationshipType::new("knows")?);
        store.find_relationships(&query, PageRequest::default()).await
    }
    "find_relationships/from" => |store| {
        let query = any().with_source(a()?);
        store.find_relationships(&query, PageRequest::default()).await
    }
    "find_relationships/to" => |store| {
        let query = any().with_target(EntityId::new("c")?);
        store.find_relationships(&query, PageRequest::default()).await
    }
    "find_relationships/that_match" => |store| {
        let query = any().with_filter(!first());
        store.find_relationships(&query, PageRequest::default()).await
    }
    "count" => |store| { store.count().await }
    "cypher" => |store| {
        let Some(cypher) = store.as_cypher() else {
            return Err(Error::unsupported("graph.cypher", Capability::Cypher));
        };
        let query = "MATCH (e:Entity)-[r]-(f:Entity) RETURN e, r, f ORDER BY e.id, r.id, f.id";
        cypher.cypher(query, Metadata::new()).await
    }
}
