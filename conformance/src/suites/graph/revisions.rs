//! Conditional and merging writes of entities, and their revisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_kernel::limits::METADATA_BYTES_MAX;
use larder_kernel::{
    Entity, EntityWrite, Error, ErrorKind, GraphCondition, GraphStore, GraphWritten, Metadata, Revision,
    StoredEntity,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::support::{
    WORKERS, edges, entity_id, entity_ids, graph_is, node, nodes, read, relationship_id, typed, winner,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::support::joined;

fn with(id: &str, kind: &str, name: &str, value: i64) -> CaseResult<Entity> {
    typed(id, kind, Metadata::new().with(name, value))
}

/// Writes one entity that must be accepted.
async fn write(store: &dyn GraphStore, write: EntityWrite) -> CaseResult<GraphWritten> {
    let written = store.write_entities(vec![write]).await?;
    expect::equal("results of one write", &written.len(), &1)?;
    expect::some("the result", written.first().copied())
}

async fn stored(store: &dyn GraphStore, id: &str) -> CaseResult<StoredEntity> {
    let mut found = store.get_stored_entities(&[entity_id(id)?]).await?;
    expect::equal("places in the answer", &found.len(), &1)?;
    expect::some(&format!("the entity {id:?}"), found.pop().flatten())
}

fn at(entity: Entity, revision: Revision) -> EntityWrite {
    EntityWrite::replace(entity).with_condition(GraphCondition::AtRevision(revision))
}

/// Checks that a write lost, and that the entity `e` is as before.
async fn lost(
    what: &str,
    stores: &Handles<dyn GraphStore>,
    write: EntityWrite,
    before: &StoredEntity,
) -> CaseResult {
    expect::error(what, stores.a.write_entities(vec![write]).await, ErrorKind::Conflict)?;
    expect::equal(&format!("{what}: the entity"), &stored(&*stores.b, "e").await?, before)
}

pub(super) async fn each_write_raises_the_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let first = write(&*a, EntityWrite::replace(with("e", "t", "n", 1)?)).await?;
    expect::equal("created", &first.created, &true)?;
    let mut last = first.revision;
    for (round, store) in [&b, &a, &b].into_iter().enumerate() {
        let number = i64::try_from(round).unwrap_or(i64::MAX);
        let again = write(&**store, EntityWrite::replace(with("e", "t", "n", number)?)).await?;
        expect::equal("created again", &again.created, &false)?;
        expect::that(again.revision > last, format!("a revision greater than {last}"), again)?;
        expect::equal("the revision read", &stored(&*a, "e").await?.revision, &again.revision)?;
        // The other method raises the revision too, even if nothing changes.
        a.upsert_entities(vec![with("e", "t", "n", number)?]).await?;
        let upserted = stored(&*b, "e").await?.revision;
        expect::that(upserted > again.revision, format!("more than {}", again.revision), upserted)?;
        last = upserted;
    }
    let batch: Vec<_> = ["z", "e", "a"].iter().map(|id| node(id).map(EntityWrite::replace)).collect();
    let written = a.write_entities(batch.into_iter().collect::<CaseResult<_>>()?).await?;
    let created: Vec<_> = written.iter().map(|one| one.created).collect();
    expect::equal("which of z, e and a were created", &created, &vec![true, false, true])?;
    for (id, written) in ["z", "e", "a"].into_iter().zip(&written) {
        let read = stored(&*b, id).await?.revision;
        expect::equal(&format!("the revision of {id}"), &read, &written.revision)?;
    }
    Ok(())
}

pub(super) async fn creating_an_existing_entity_conflicts(context: Context) -> CaseResult {
    let stores = context.graph().await?;
    let created = write(&*stores.a, EntityWrite::create(with("e", "t", "n", 1)?)).await?;
    expect::equal("created", &created.created, &true)?;
    let before = stored(&*stores.b, "e").await?;
    expect::equal("the entity", &before, &StoredEntity::new(with("e", "t", "n", 1)?, created.revision))?;
    let create = EntityWrite::create(with("e", "u", "n", 2)?);
    lost("creating it again", &stores, create, &before).await?;
    let merge = EntityWrite::merge(with("e", "u", "m", 2)?).with_condition(GraphCondition::Absent);
    lost("creating it by a merge", &stores, merge, &before).await?;
    let _ = stores.a.delete_entity(&entity_id("e")?).await?;
    let again = write(&*stores.b, EntityWrite::create(with("e", "u", "n", 3)?)).await?;
    expect::equal("created after the deletion", &again.created, &true)
}

pub(super) async fn a_write_at_another_revision_conflicts(context: Context) -> CaseResult {
    let stores = context.graph().await?;
    let absent = at(with("e", "t", "n", 0)?, Revision::new(1));
    let refused = stores.a.write_entities(vec![absent]).await;
    expect::error("at a revision of an absent entity", refused, ErrorKind::Conflict)?;
    expect::equal("places", &stores.b.get_entities(&[entity_id("e")?]).await?, &vec![None])?;
    let first = write(&*stores.a, EntityWrite::replace(with("e", "t", "n", 1)?)).await?;
    let second = write(&*stores.b, at(with("e", "u", "m", 2)?, first.revision)).await?;
    let before = stored(&*stores.a, "e").await?;
    expect::equal("the entity", &before, &StoredEntity::new(with("e", "u", "m", 2)?, second.revision))?;
    let next = Revision::new(second.revision.get() + 1);
    for revision in [first.revision, Revision::new(0), next, Revision::new(1 << 62)] {
        lost("at another revision", &stores, at(with("e", "v", "n", 3)?, revision), &before).await?;
        let merge =
            EntityWrite::merge(with("e", "v", "n", 3)?).with_condition(GraphCondition::AtRevision(revision));
        lost("a merge at another revision", &stores, merge, &before).await?;
    }
    let merge = EntityWrite::merge(with("e", "v", "n", 3)?)
        .with_condition(GraphCondition::AtRevision(second.revision));
    write(&*stores.a, merge).await?;
    let expected = typed("e", "v", Metadata::new().with("m", 2).with("n", 3))?;
    expect::equal("after a merge at the revision", &read(&*stores.b, "e").await?, &expected)
}

pub(super) async fn a_merge_keeps_the_properties_that_it_does_not_name(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let made = write(&*a, EntityWrite::merge(with("e", "t", "n", 1)?)).await?;
    expect::equal("created by a merge", &made.created, &true)?;
    a.upsert_entities(nodes(&["b"])?).await?;
    let relationships = edges(&[("r1", "knows", "e", "b"), ("r2", "knows", "b", "e")])?;
    a.upsert_relationships(relationships.clone()).await?;
    let first = Metadata::new()
        .with("kept", json!([1.5, u64::MAX, { "x": null }]))
        .with("nested", json!({ "old": 1 }))
        .with("", "empty")
        .with("a.b", 1);
    a.upsert_entities(vec![typed("e", "t", first)?]).await?;
    let given = Metadata::new().with("nested", json!({ "new": 2 })).with("a.b", json!(null)).with("é", "x");
    let merged = write(&*b, EntityWrite::merge(typed("e", "u", given)?)).await?;
    expect::equal("created by the second merge", &merged.created, &false)?;
    let expected = Metadata::new()
        .with("kept", json!([1.5, u64::MAX, { "x": null }]))
        .with("nested", json!({ "new": 2 }))
        .with("", "empty")
        .with("a.b", json!(null))
        .with("é", "x");
    let expected = typed("e", "u", expected)?;
    graph_is("after the merge", &*a, &[node("b")?, expected.clone()], &relationships).await?;
    write(&*a, EntityWrite::merge(typed("e", "u", Metadata::new())?)).await?;
    expect::equal("after a merge of nothing", &read(&*b, "e").await?, &expected)?;
    write(&*a, EntityWrite::replace(with("e", "u", "n", 9)?)).await?;
    expect::equal("after a replacement", &read(&*b, "e").await?, &with("e", "u", "n", 9)?)
}

pub(super) async fn a_failed_condition_stores_nothing_of_its_batch(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let e = write(&*a, EntityWrite::replace(with("e", "t", "n", 1)?)).await?;
    let f = write(&*a, EntityWrite::replace(with("f", "t", "n", 1)?)).await?;
    let ids = entity_ids(&["e", "f", "new", "0", "z"])?;
    let before = b.get_stored_entities(&ids).await?;
    let bad = [
        EntityWrite::create(with("f", "u", "n", 2)?),
        at(with("f", "u", "n", 2)?, e.revision),
        at(with("z", "u", "n", 2)?, f.revision),
    ];
    for bad in bad {
        for place in 0..3 {
            let mut batch = vec![
                EntityWrite::replace(with("0", "u", "n", 2)?),
                EntityWrite::merge(with("e", "u", "m", 2)?),
                EntityWrite::create(with("new", "u", "n", 2)?),
            ];
            batch.insert(place, bad.clone());
            expect::error(
                "a batch with a failed condition",
                a.write_entities(batch).await,
                ErrorKind::Conflict,
            )?;
            expect::equal("the data", &b.get_stored_entities(&ids).await?, &before)?;
        }
    }
    Ok(())
}

/// Runs the same kind of write in several workers, and checks that one of them won.
async fn one_wins(
    stores: &Handles<dyn GraphStore>,
    of: impl Fn(Entity) -> EntityWrite + Copy + Send + 'static,
) -> CaseResult {
    let (number, revision) = winner(stores, |store, number| async move {
        Ok(store.write_entities(vec![of(with("e", "t", "n", number)?)]).await)
    })
    .await?;
    let expected = StoredEntity::new(with("e", "t", "n", number)?, revision);
    expect::equal("what the winner wrote", &stored(&*stores.a, "e").await?, &expected)
}

pub(super) async fn one_of_concurrent_writes_at_a_revision_succeeds(context: Context) -> CaseResult {
    let stores = context.graph().await?;
    for _ in 0..3 {
        let start = write(&*stores.a, EntityWrite::replace(with("e", "t", "n", -1)?)).await?.revision;
        one_wins(&stores, move |entity| at(entity, start)).await?;
    }
    Ok(())
}

pub(super) async fn one_of_concurrent_creations_succeeds(context: Context) -> CaseResult {
    let stores = context.graph().await?;
    for _ in 0..3 {
        one_wins(&stores, EntityWrite::create).await?;
        let _ = stores.a.delete_entity(&entity_id("e")?).await?;
    }
    Ok(())
}

pub(super) async fn concurrent_merges_lose_no_property(context: Context) -> CaseResult {
    const ROUNDS: usize = 5;
    let Handles { a, b } = context.graph().await?;
    let mut workers: JoinSet<CaseResult<Vec<Revision>>> = JoinSet::new();
    for worker in 0..WORKERS {
        let store = Arc::clone(if worker % 2 == 0 { &a } else { &b });
        workers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..ROUNDS {
                // The second entity is merged in the other order by every other worker.
                let name = format!("{worker}-{round}");
                let mut batch = vec![
                    EntityWrite::merge(with("e", "t", &name, 1)?),
                    EntityWrite::merge(with("f", "t", &name, 2)?),
                ];
                batch.rotate_left(worker % 2);
                let written = store.write_entities(batch).await?;
                revisions.extend(written.get(worker % 2).map(|one| one.revision));
            }
            Ok(revisions)
        });
    }
    let seen: Vec<Revision> = joined(workers).await?.into_iter().flatten().collect();
    let different: BTreeSet<_> = seen.iter().collect();
    expect::equal("different revisions of one entity", &different.len(), &(WORKERS * ROUNDS))?;
    for id in ["e", "f"] {
        let found = stored(&*b, id).await?;
        expect::equal(&format!("properties of {id}"), &found.entity.properties.len(), &(WORKERS * ROUNDS))?;
    }
    Ok(())
}

/// Programs that read an entity and write it back at its revision until that succeeds.
pub(super) async fn lists_kept_at_the_revision_lose_no_item(context: Context) -> CaseResult {
    const ROUNDS: i64 = 5;
    let Handles { a, b } = context.graph().await?;
    write(&*a, EntityWrite::create(typed("e", "t", Metadata::new().with("seen", json!([])))?)).await?;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..4 {
        let store = Arc::clone(if worker % 2 == 0 { &a } else { &b });
        workers.spawn(async move {
            for round in 0..ROUNDS {
                loop {
                    let StoredEntity { mut entity, revision, .. } = stored(&*store, "e").await?;
                    let mut seen = entity.properties.get("seen").cloned().unwrap_or_default();
                    seen.as_array_mut().into_iter().for_each(|seen| seen.push(json!([worker, round])));
                    entity.properties.insert("seen", seen);
                    match store.write_entities(vec![at(entity, revision)]).await {
                        Ok(_) => break,
                        Err(error) if error.kind() == ErrorKind::Conflict => tokio::task::yield_now().await,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Ok(())
        });
    }
    joined(workers).await?;
    let kept = stored(&*b, "e").await?.entity;
    let kept = kept.properties.get("seen").and_then(|seen| seen.as_array()).map_or(0, Vec::len);
    expect::equal("items", &kept, &20)
}

pub(super) async fn a_merge_over_the_limit_is_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let large = |name: &str| Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
    write(&*a, EntityWrite::replace(typed("e", "t", large("first"))?)).await?;
    let before = stored(&*b, "e").await?;
    let batch =
        vec![EntityWrite::replace(node("other")?), EntityWrite::merge(typed("e", "t", large("second"))?)];
    expect::invalid("a merge over the limit", a.write_entities(batch).await, "entity.properties")?;
    expect::equal("the entity", &stored(&*b, "e").await?, &before)?;
    expect::equal("the other entity", &b.get_entities(&[entity_id("other")?]).await?, &vec![None])?;
    write(&*a, EntityWrite::merge(typed("e", "t", large("first"))?)).await.map(drop)
}

pub(super) async fn stored_entities_are_read_in_the_order_of_ids(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut revisions = Vec::new();
    for id in ["a", "b", "c"] {
        revisions.push(write(&*a, EntityWrite::replace(with(id, id, "n", 1)?)).await?.revision);
    }
    let [a_at, b_at, c_at] = revisions[..] else { return Err(expect::broken("three revisions", "fewer")) };
    let asked = [
        ("c", Some(c_at)),
        ("missing", None),
        ("a", Some(a_at)),
        ("B", None),
        ("b", Some(b_at)),
        ("c", Some(c_at)),
    ];
    let found = b.get_stored_entities(&entity_ids(&asked.map(|(id, _)| id))?).await?;
    expect::equal("places", &found.len(), &asked.len())?;
    for ((id, revision), found) in asked.into_iter().zip(found) {
        let expected = match revision {
            Some(revision) => Some(StoredEntity::new(with(id, id, "n", 1)?, revision)),
            None => None,
        };
        expect::equal(&format!("the place of {id:?}"), &found, &expected)?;
    }
    expect::equal("the answer to no ids", &b.get_stored_entities(&[]).await?, &Vec::new())
}

pub(super) async fn a_new_entity_has_a_revision_that_the_id_never_had(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let store = if round % 2 == 0 { &a } else { &b };
        let created = write(&**store, EntityWrite::create(node("e")?)).await?;
        let changed = write(&**store, EntityWrite::replace(node("e")?)).await?;
        for revision in [created.revision, changed.revision] {
            expect::that(seen.insert(revision), format!("a revision other than {seen:?}"), revision)?;
        }
        let _ = store.delete_entity(&entity_id("e")?).await?;
        let stale = a.write_entities(vec![at(node("e")?, changed.revision)]).await;
        expect::error("at the revision of a deleted entity", stale, ErrorKind::Conflict)?;
    }
    Ok(())
}

pub(super) async fn relationships_do_not_change_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    for id in ["a", "b"] {
        write(&*a, EntityWrite::replace(node(id)?)).await?;
    }
    let ids = entity_ids(&["a", "b"])?;
    let before = b.get_stored_entities(&ids).await?;
    let loops = edges(&[("r1", "t", "a", "b"), ("r2", "t", "b", "b")])?;
    for relationships in [loops.clone(), loops, edges(&[("r1", "u", "b", "a")])?] {
        b.upsert_relationships(relationships).await?;
        expect::equal("after a write", &a.get_stored_entities(&ids).await?, &before)?;
    }
    let deleted: Result<bool, Error> = b.delete_relationship(&relationship_id("r1")?).await;
    expect::equal("deleted", &deleted?, &true)?;
    expect::equal("after a deletion", &a.get_stored_entities(&ids).await?, &before)
}
