//! One rule, many places: filters, types and revisions mean the same in every method that evaluates them.

use larder_kernel::{
    EntityQuery, EntityType, EntityWrite, ErrorKind, GraphCondition, GraphMode, GraphStore, Metadata,
    NeighborQuery, RelationshipQuery, Revision,
};

use super::support::{
    edge, entity_id, find_entities, find_relationships, node, relationship_type, store_all, typed,
};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::filter_table;

/// Types that a collation or a pattern takes for each other.
const TYPES: &[&str] =
    &["a", "A", "a ", "a_", "ab", "a%", "%", "_", "*", "e\u{301}", "\u{e9}", "a:b", "'", "1"];

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Graph, "GRAPH-035", found_entities_follow_type_and_filter),
        case!(Graph, "GRAPH-037", found_relationships_follow_ends_and_filter),
        case!(Graph, "GRAPH-023", walks_and_listings_agree_on_types),
        case!(Graph, "GRAPH-047", writes_follow_the_table_of_revisions),
    ]
}

fn names<T>(found: &[T], id: impl Fn(&T) -> String) -> Vec<String> {
    found.iter().map(id).collect()
}

async fn found_entities_follow_type_and_filter(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let stored = filter_table::stored().into_iter().enumerate();
    let entities = stored
        .map(|(number, properties)| typed(&format!("{number:03}"), ["a", "A"][number % 2], properties))
        .collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &entities, &[]).await?;
    for filter in [filter_table::equality(), filter_table::groups()].concat().iter().step_by(2) {
        let query = EntityQuery::default().with_type(EntityType::new("a")?).with_filter(filter.clone());
        let found = find_entities(&*b, &query, 1_000).await?;
        let expected = entities
            .iter()
            .filter(|one| one.entity_type.as_str() == "a" && filter.matches(&one.properties))
            .map(|one| one.id.to_string());
        let found = names(&found, |one| one.id.to_string());
        expect::equal(&format!("entities of a type by {filter:?}"), &found, &expected.collect())?;
    }
    Ok(())
}

async fn found_relationships_follow_ends_and_filter(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let stored = filter_table::stored().into_iter().enumerate();
    let relationships = stored
        .map(|(number, properties)| {
            let (source, target) = if number % 2 == 0 { ("x", "y") } else { ("y", "x") };
            Ok(edge(&format!("{number:03}"), "t", source, target)?.with_properties(properties))
        })
        .collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &[node("x")?, node("y")?], &relationships).await?;
    for filter in [filter_table::equality(), filter_table::groups()].concat().iter().step_by(2) {
        let filtered = RelationshipQuery::default().with_filter(filter.clone());
        for query in [filtered.clone().with_source(entity_id("x")?), filtered.with_target(entity_id("y")?)] {
            let found = find_relationships(&*b, &query, 1_000).await?;
            let expected = relationships
                .iter()
                .filter(|one| one.source.as_str() == "x" && filter.matches(&one.properties))
                .map(|one| one.id.to_string());
            let found = names(&found, |one| one.id.to_string());
            expect::equal(&format!("relationships of an end by {filter:?}"), &found, &expected.collect())?;
        }
    }
    Ok(())
}

async fn walks_and_listings_agree_on_types(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut entities = vec![typed("hub", "hub", Metadata::new())?];
    let mut relationships = Vec::new();
    for (number, name) in TYPES.iter().enumerate() {
        entities.push(typed(&format!("e{number:02}"), name, Metadata::new())?);
        relationships.push(edge(&format!("r{number:02}"), name, "hub", &format!("e{number:02}"))?);
    }
    store_all(&*a, &entities, &relationships).await?;
    for (number, name) in TYPES.iter().enumerate() {
        let kind = relationship_type(name)?;
        let (entity, one) = (format!("e{number:02}"), format!("r{number:02}"));
        let found = find_entities(&*b, &EntityQuery::default().with_type(EntityType::new(name)?), 10).await?;
        let found = names(&found, |one| one.id.to_string());
        expect::equal(&format!("entities of type {name:?}"), &found, &vec![entity.clone()])?;
        let query = RelationshipQuery::default().with_type(kind.clone());
        let found = names(&find_relationships(&*b, &query, 10).await?, |one| one.id.to_string());
        expect::equal(&format!("relationships of type {name:?}"), &found, &vec![one.clone()])?;
        for depth in [1, 2] {
            let query = NeighborQuery::depth(depth).with_types([kind.clone()]);
            let reached = b.neighbors(&entity_id("hub")?, &query).await?;
            let found = names(&reached.relationships, |one| one.id.to_string());
            expect::equal(&format!("a walk by type {name:?}"), &found, &vec![one.clone()])?;
            let found = names(&reached.entities, |one| one.entity.id.to_string());
            let expected = vec!["hub".to_owned(), entity.clone()];
            expect::equal(&format!("a walk by type {name:?}"), &found, &expected)?;
        }
    }
    Ok(())
}

/// Writes an entity and returns its revision.
async fn written(store: &dyn GraphStore, id: &str) -> CaseResult<Revision> {
    let written = store.write_entities(vec![EntityWrite::replace(node(id)?)]).await?;
    Ok(expect::some("the result", written.first())?.revision)
}

async fn writes_follow_the_table_of_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let older = written(&*a, "present").await?;
    let current = written(&*a, "present").await?;
    let mut newer = written(&*a, "newer").await?;
    while newer <= current {
        newer = written(&*a, "newer").await?;
    }
    let deleted = written(&*a, "deleted").await?;
    let _ = a.delete_entity(&entity_id("deleted")?).await?;
    let again = written(&*a, "again").await?;
    let _ = a.delete_entity(&entity_id("again")?).await?;
    let now = written(&*a, "again").await?;
    let table = [
        ("an older revision", "present", older),
        ("a newer revision", "present", newer),
        ("revision 0", "present", Revision::ZERO),
        ("a revision of another entity", "absent", current),
        ("revision 0 of an absent entity", "absent", Revision::ZERO),
        ("the last revision of a deleted entity", "deleted", deleted),
        ("the revision before a deletion", "again", again),
    ];
    let ids = ["present", "absent", "deleted", "again"].map(entity_id);
    let ids = ids.into_iter().collect::<CaseResult<Vec<_>>>()?;
    let before = b.get_stored_entities(&ids).await?;
    for (what, id, revision) in table {
        for mode in [GraphMode::Replace, GraphMode::Merge] {
            let lost = typed(id, "lost", Metadata::new().with("lost", true))?;
            let write = EntityWrite::replace(lost).with_mode(mode);
            let write = write.with_condition(GraphCondition::AtRevision(revision));
            let result = a.write_entities(vec![write]).await;
            expect::error(&format!("{mode:?} at {what}"), result, ErrorKind::Conflict)?;
            expect::equal(
                &format!("after {mode:?} at {what}"),
                &b.get_stored_entities(&ids).await?,
                &before,
            )?;
        }
    }
    for (id, revision) in [("present", current), ("again", now)] {
        let write = EntityWrite::merge(node(id)?).with_condition(GraphCondition::AtRevision(revision));
        a.write_entities(vec![write]).await?;
    }
    Ok(())
}
