//! Fields × values: every field of entities and relationships reads back exactly, by every method that
//! returns them.

use larder_kernel::{
    Entity, EntityQuery, EntityWrite, Metadata, NeighborQuery, Relationship, RelationshipQuery,
    RelationshipWrite,
};

use super::support::{
    edge, entity_id, find_entities, find_relationships, relationship_type, store_all, typed,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::suites::values::{TEXTS, metadata, same};

/// Returns an entity for each field and each value, in the order of their ids.
fn entities() -> CaseResult<Vec<Entity>> {
    let mut written = Vec::new();
    for text in TEXTS {
        written.push(typed(&format!("{:04}", written.len()), text, Metadata::new())?);
    }
    for metadata in metadata() {
        written.push(typed(&format!("{:04}", written.len()), "node", metadata)?);
    }
    Ok(written)
}

/// Returns a relationship from the first entity for each field and each value, in the order of their ids.
fn relationships() -> CaseResult<Vec<Relationship>> {
    let mut written = Vec::new();
    for text in TEXTS {
        let number = written.len();
        written.push(edge(&format!("{number:04}"), text, "0000", &format!("{number:04}"))?);
    }
    for metadata in metadata() {
        let number = written.len();
        let one = edge(&format!("{number:04}"), "t", "0000", &format!("{number:04}"))?;
        written.push(one.with_properties(metadata));
    }
    Ok(written)
}

pub(super) async fn every_field_of_entities_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let written = entities()?;
    store_all(&*a, &written, &[]).await?;
    let ids: Vec<_> = written.iter().map(|entity| entity.id.clone()).collect();
    let found: Vec<_> = b.get_entities(&ids).await?.into_iter().flatten().collect();
    same("get_entities", &found, &written)?;
    let stored = b.get_stored_entities(&ids).await?.into_iter().flatten();
    same("get_stored_entities", &stored.map(|one| one.entity).collect::<Vec<_>>(), &written)?;
    same("find_entities", &find_entities(&*b, &EntityQuery::default(), 1_000).await?, &written)?;
    // A merge of the same properties keeps every value.
    for batch in found.chunks(500) {
        a.write_entities(batch.iter().cloned().map(EntityWrite::merge).collect()).await?;
    }
    let merged: Vec<_> = b.get_entities(&ids).await?.into_iter().flatten().collect();
    same("after a merge", &merged, &written)
}

pub(super) async fn every_field_of_relationships_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let (entities, written) = (entities()?, relationships()?);
    store_all(&*a, &entities, &written).await?;
    let ids: Vec<_> = written.iter().map(|one| one.id.clone()).collect();
    let found: Vec<_> = b.get_relationships(&ids).await?.into_iter().flatten().collect();
    same("get_relationships", &found, &written)?;
    let found = find_relationships(&*b, &RelationshipQuery::default(), 1_000).await?;
    same("find_relationships", &found, &written)?;
    let stored = b.get_stored_relationships(&ids).await?.into_iter().flatten();
    let stored: Vec<_> = stored.map(|one| one.relationship).collect();
    same("get_stored_relationships", &stored, &written)?;
    // A merge of the same properties keeps every value.
    for batch in stored.chunks(500) {
        a.write_relationships(batch.iter().cloned().map(RelationshipWrite::merge).collect()).await?;
    }
    let merged: Vec<_> = b.get_relationships(&ids).await?.into_iter().flatten().collect();
    same("after a merge", &merged, &written)
}

pub(super) async fn walks_return_every_field(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let (entities, written) = (entities()?, relationships()?);
    store_all(&*a, &entities, &written).await?;
    let mut reached = b.neighbors(&entity_id("0000")?, &NeighborQuery::depth(1)).await?;
    let mut found: Vec<_> = reached.entities.into_iter().map(|one| one.entity).collect();
    found.sort_by(|left, right| left.id.cmp(&right.id));
    same("the entities", &found, &entities)?;
    reached.relationships.sort_by(|left, right| left.id.cmp(&right.id));
    same("the relationships", &reached.relationships, &written)?;
    for one in written.iter().take(TEXTS.len()).filter(|one| one.target.as_str() != "0000") {
        let kind = relationship_type(one.relationship_type.as_str())?;
        let query = NeighborQuery::depth(1).with_types([kind]);
        let reached = b.neighbors(&one.target, &query).await?;
        same("a walk by a type", &reached.relationships, std::slice::from_ref(one))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::values::fields_of;

    #[test]
    fn every_field_has_values() {
        let fields: Vec<_> = fields_of(&entities().unwrap().pop().unwrap()).into_iter().collect();
        assert_eq!(fields, ["entity_type", "id", "properties"]);
        let fields: Vec<_> = fields_of(&relationships().unwrap().pop().unwrap()).into_iter().collect();
        assert_eq!(fields, ["id", "properties", "relationship_type", "source", "target"]);
    }
}
