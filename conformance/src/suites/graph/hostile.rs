//! Names that backends confuse must stay distinct.

use larder_kernel::{EntityQuery, EntityType, Filter, Metadata, NeighborQuery, RelationshipQuery};

use super::support::{
    all_entities, all_relationships, edge, entity_id, find_entities, find_relationships, graph_is, node,
    nodes, outline, read, relationship_type, store_all, typed,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::ids;

fn sorted_names() -> Vec<String> {
    let mut names = ids::hostile();
    names.sort();
    names
}

pub(super) async fn entity_ids_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names = sorted_names();
    let stored = |name: &String| typed(name, "node", Metadata::new().with("name", name.clone()));
    let mut entities = names.iter().map(stored).collect::<CaseResult<Vec<_>>>()?;
    // Half in one batch, half in single writes; each with a separate loop.
    let (batch, single) = entities.split_at(entities.len() / 2);
    store_all(&*a, batch, &[]).await?;
    for one in single {
        let report = a.upsert_entities(vec![one.clone()]).await?;
        expect::equal(&format!("{} is new", one.id), &report.created, &1)?;
    }
    let loops = names.iter().map(|name| edge(name, "t", name, name)).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &[], &loops).await?;
    expect::equal("listed in byte order", &all_entities(&*b).await?, &entities)?;
    for (one, own) in entities.iter().zip(&loops) {
        expect::equal("read by id", &read(&*b, one.id.as_str()).await?, one)?;
        let reached = b.neighbors(&one.id, &NeighborQuery::depth(2)).await?;
        let expected = (vec![(one.id.as_str(), 0)], vec![own.id.as_str()]);
        expect::equal("its walk", &outline(&reached), &expected)?;
    }
    let gone: Vec<_> = entities.iter().step_by(2).map(|one| one.id.clone()).collect();
    for id in &gone {
        let answer = a.delete_entity(id).await?;
        expect::equal(
            &format!("deleted {id} and its loop"),
            &(answer.existed, answer.relationships),
            &(true, 1),
        )?;
    }
    entities.retain(|one| !gone.contains(&one.id));
    let left: Vec<_> = loops.into_iter().filter(|one| !gone.contains(&one.source)).collect();
    graph_is("left in the end", &*b, &entities, &left).await
}

pub(super) async fn relationship_ids_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["x", "y"])?;
    let mut all =
        sorted_names().iter().map(|name| edge(name, "t", "x", "y")).collect::<CaseResult<Vec<_>>>()?;
    let (batch, single) = all.split_at(all.len() / 2);
    store_all(&*a, &entities, batch).await?;
    for one in single {
        let report = a.upsert_relationships(vec![one.clone()]).await?;
        expect::equal(&format!("{} is new", one.id), &report.created, &1)?;
    }
    for one in &all {
        let found = b.get_relationships(std::slice::from_ref(&one.id)).await?;
        expect::equal("read by id", &found, &vec![Some(one.clone())])?;
    }
    expect::equal("listed in byte order", &all_relationships(&*b).await?, &all)?;
    let reached = b.neighbors(&entity_id("x")?, &NeighborQuery::depth(1)).await?;
    expect::equal("walked in byte order", &reached.relationships, &all)?;
    let gone: Vec<_> = all.iter().step_by(2).map(|one| one.id.clone()).collect();
    for id in &gone {
        expect::equal(&format!("deleted {id}"), &a.delete_relationship(id).await?, &true)?;
    }
    all.retain(|one| !gone.contains(&one.id));
    graph_is("left in the end", &*b, &entities, &all).await
}

pub(super) async fn types_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names = sorted_names();
    let mut entities = vec![node("~hub")?];
    let mut relationships = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let id = format!("{number:03}");
        entities.push(typed(&id, name, Metadata::new())?);
        relationships.push(edge(&id, name, "~hub", &id)?);
    }
    store_all(&*a, &entities, &relationships).await?;
    for (number, name) in names.iter().enumerate() {
        let query = EntityQuery::default().with_type(EntityType::new(name)?);
        let found = find_entities(&*b, &query, 100).await?;
        expect::equal(
            &format!("entities of the type {name:?}"),
            &found,
            &vec![entities[number + 1].clone()],
        )?;
        let kind = relationship_type(name)?;
        let query = RelationshipQuery::default().with_type(kind.clone());
        let found = find_relationships(&*b, &query, 100).await?;
        let expected = vec![relationships[number].clone()];
        expect::equal(&format!("relationships of the type {name:?}"), &found, &expected)?;
        let reached = b.neighbors(&entity_id("~hub")?, &NeighborQuery::depth(2).with_types([kind])).await?;
        let id = format!("{number:03}");
        let expected = (vec![("~hub", 0), (id.as_str(), 1)], vec![id.as_str()]);
        expect::equal(&format!("a walk by the type {name:?}"), &outline(&reached), &expected)?;
    }
    Ok(())
}

pub(super) async fn source_and_target_do_not_merge(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let pairs = ids::hostile_pairs();
    let ends: std::collections::BTreeSet<_> =
        pairs.iter().flat_map(|(source, target)| [source, target]).collect();
    store_all(&*a, &ends.iter().map(|end| node(end)).collect::<CaseResult<Vec<_>>>()?, &[]).await?;
    let numbered = pairs.iter().enumerate();
    let relationships = numbered
        .map(|(number, (source, target))| edge(&format!("{number:03}"), "t", source, target))
        .collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &[], &relationships).await?;
    for gone in [false, true] {
        for (number, one) in relationships.iter().enumerate() {
            let query =
                RelationshipQuery::default().with_source(one.source.clone()).with_target(one.target.clone());
            let expected = if gone && number % 2 == 0 { Vec::new() } else { vec![one.clone()] };
            let what = format!("from {} to {}", one.source, one.target);
            expect::equal(&what, &find_relationships(&*b, &query, 10).await?, &expected)?;
        }
        for one in relationships.iter().step_by(2) {
            expect::equal("deleted the first time only", &a.delete_relationship(&one.id).await?, &!gone)?;
        }
    }
    Ok(())
}

pub(super) async fn type_and_end_do_not_merge(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let pairs = ids::hostile_pairs();
    let ends: std::collections::BTreeSet<_> = pairs.iter().map(|(_, end)| end).collect();
    store_all(&*a, &ends.iter().map(|end| node(end)).collect::<CaseResult<Vec<_>>>()?, &[]).await?;
    let numbered = pairs.iter().enumerate();
    let relationships = numbered
        .map(|(number, (kind, end))| edge(&format!("{number:03}"), kind, end, end))
        .collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &[], &relationships).await?;
    for one in &relationships {
        let typed = RelationshipQuery::default().with_type(one.relationship_type.clone());
        for query in [typed.clone().with_source(one.source.clone()), typed.with_target(one.target.clone())] {
            let what = format!("{} from {}", one.relationship_type, one.source);
            expect::equal(&what, &find_relationships(&*b, &query, 10).await?, &vec![one.clone()])?;
        }
    }
    Ok(())
}

pub(super) async fn an_entity_and_a_relationship_share_an_id(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names = sorted_names();
    let entities = names.iter().map(|name| node(name)).collect::<CaseResult<Vec<_>>>()?;
    let first = entities[0].id.as_str();
    let relationships =
        names.iter().map(|name| edge(name, "t", name, first)).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &entities, &relationships).await?;
    let ids: Vec<_> = relationships.iter().map(|one| one.id.clone()).collect();
    for id in ids.iter().step_by(2) {
        expect::equal("the reported existence", &a.delete_relationship(id).await?, &true)?;
    }
    let found = find_entities(&*b, &EntityQuery::default(), 1_000).await?;
    expect::equal("the entities", &found, &entities)?;
    let left: Vec<_> = relationships.into_iter().skip(1).step_by(2).collect();
    let found = find_relationships(&*b, &RelationshipQuery::default(), 1_000).await?;
    expect::equal("the relationships", &found, &left)
}

pub(super) async fn property_keys_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let names = sorted_names();
    let entity = |(number, name): (usize, &String)| {
        typed(&format!("{number:03}"), "node", Metadata::new().with(name.clone(), name.clone()))
    };
    let entities = names.iter().enumerate().map(entity).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &entities, &[]).await?;
    for (name, own) in names.iter().zip(&entities) {
        for filter in [Filter::exists(name.clone()), Filter::eq(name.clone(), name.clone())] {
            let query = EntityQuery::default().with_filter(filter);
            let found = find_entities(&*b, &query, 100).await?;
            expect::equal(&format!("found by {name:?}"), &found, &vec![own.clone()])?;
        }
    }
    Ok(())
}

pub(super) async fn property_texts_are_data(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut texts = ids::hostile();
    texts.extend(
        [
            "$$",
            "$$) AS (x) $$",
            "'",
            "\"",
            "`",
            "\\",
            "\\u0041",
            "}) DETACH DELETE n //",
            "1::numeric",
            "{}::vertex",
            "\u{1}",
        ]
        .map(str::to_owned),
    );
    texts.sort();
    texts.dedup();
    let mut entities = Vec::new();
    let mut loops = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let id = format!("{number:03}");
        let properties = Metadata::new().with("text", text.clone()).with(text.clone(), vec![text.clone()]);
        entities.push(typed(&id, "node", properties.clone())?);
        loops.push(edge(&id, "t", &id, &id)?.with_properties(properties));
    }
    store_all(&*a, &entities, &loops).await?;
    graph_is("read back", &*b, &entities, &loops).await?;
    for (text, own) in texts.iter().zip(&entities) {
        let query = EntityQuery::default().with_filter(Filter::eq("text", text.clone()));
        let found = find_entities(&*b, &query, 100).await?;
        expect::equal(&format!("found by {text:?}"), &found, &vec![own.clone()])?;
    }
    Ok(())
}
