//! Conditional and merging writes of relationships, and their revisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_kernel::limits::METADATA_BYTES_MAX;
use larder_kernel::{
    ErrorKind, GraphCondition, GraphStore, GraphWritten, Metadata, Relationship, RelationshipWrite, Revision,
    StoredRelationship,
};
use serde_json::json;
use tokio::task::JoinSet;

use super::support::{WORKERS, edge, entity_id, nodes, relationship_id, relationship_ids, winner};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::support::joined;

/// Returns a relationship from `a` to `b` with one property.
fn with(id: &str, kind: &str, name: &str, value: i64) -> CaseResult<Relationship> {
    Ok(edge(id, kind, "a", "b")?.with_properties(Metadata::new().with(name, value)))
}

/// Opens stores with the entities `a`, `b` and `c`.
async fn opened(context: &Context) -> CaseResult<Handles<dyn GraphStore>> {
    let stores = context.graph().await?;
    stores.a.upsert_entities(nodes(&["a", "b", "c"])?).await?;
    Ok(stores)
}

/// Writes one relationship that must be accepted.
async fn write(store: &dyn GraphStore, write: RelationshipWrite) -> CaseResult<GraphWritten> {
    let written = store.write_relationships(vec![write]).await?;
    expect::equal("results of one write", &written.len(), &1)?;
    expect::some("the result", written.first().copied())
}

async fn stored(store: &dyn GraphStore, id: &str) -> CaseResult<StoredRelationship> {
    let mut found = store.get_stored_relationships(&[relationship_id(id)?]).await?;
    expect::equal("places in the answer", &found.len(), &1)?;
    expect::some(&format!("the relationship {id:?}"), found.pop().flatten())
}

fn at(relationship: Relationship, revision: Revision) -> RelationshipWrite {
    RelationshipWrite::replace(relationship).with_condition(GraphCondition::AtRevision(revision))
}

/// Checks that a write lost, and that the relationship `r` is as before.
async fn lost(
    what: &str,
    stores: &Handles<dyn GraphStore>,
    write: RelationshipWrite,
    before: &StoredRelationship,
) -> CaseResult {
    expect::error(what, stores.a.write_relationships(vec![write]).await, ErrorKind::Conflict)?;
    expect::equal(&format!("{what}: the relationship"), &stored(&*stores.b, "r").await?, before)
}

pub(super) async fn each_write_of_a_relationship_raises_its_revision(context: Context) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let first = write(&*a, RelationshipWrite::replace(with("r", "t", "n", 1)?)).await?;
    expect::equal("created", &first.created, &true)?;
    let mut last = first.revision;
    for (round, store) in [&b, &a, &b].into_iter().enumerate() {
        let number = i64::try_from(round).unwrap_or(i64::MAX);
        // Every other write moves the target, so that a store that links it again must keep counting.
        let target = if round % 2 == 0 { "c" } else { "b" };
        let moved = edge("r", "t", "a", target)?.with_properties(Metadata::new().with("n", number));
        let again = write(&**store, RelationshipWrite::replace(moved.clone())).await?;
        expect::equal("created again", &again.created, &false)?;
        expect::that(again.revision > last, format!("a revision greater than {last}"), again)?;
        let read = stored(&*a, "r").await?;
        expect::equal(
            "the relationship read",
            &read,
            &StoredRelationship::new(moved.clone(), again.revision),
        )?;
        // The other method raises the revision too, even if nothing changes.
        a.upsert_relationships(vec![moved]).await?;
        let upserted = stored(&*b, "r").await?.revision;
        expect::that(upserted > again.revision, format!("more than {}", again.revision), upserted)?;
        last = upserted;
    }
    let batch: Vec<_> = ["z", "r", "0"].iter().map(|id| edge(id, "t", "a", "b")).collect();
    let batch: Vec<_> = batch.into_iter().collect::<CaseResult<_>>()?;
    let written = a.write_relationships(batch.into_iter().map(RelationshipWrite::replace).collect()).await?;
    let created: Vec<_> = written.iter().map(|one| one.created).collect();
    expect::equal("which of z, r and 0 were created", &created, &vec![true, false, true])?;
    for (id, written) in ["z", "r", "0"].into_iter().zip(&written) {
        let read = stored(&*b, id).await?.revision;
        expect::equal(&format!("the revision of {id}"), &read, &written.revision)?;
    }
    Ok(())
}

pub(super) async fn creating_an_existing_relationship_conflicts(context: Context) -> CaseResult {
    let stores = opened(&context).await?;
    let created = write(&*stores.a, RelationshipWrite::create(with("r", "t", "n", 1)?)).await?;
    expect::equal("created", &created.created, &true)?;
    let before = stored(&*stores.b, "r").await?;
    let expected = StoredRelationship::new(with("r", "t", "n", 1)?, created.revision);
    expect::equal("the relationship", &before, &expected)?;
    let create = RelationshipWrite::create(with("r", "u", "n", 2)?);
    lost("creating it again", &stores, create, &before).await?;
    let merge = RelationshipWrite::merge(with("r", "u", "m", 2)?).with_condition(GraphCondition::Absent);
    lost("creating it by a merge", &stores, merge, &before).await?;
    stores.a.delete_relationship(&relationship_id("r")?).await?;
    let again = write(&*stores.b, RelationshipWrite::create(with("r", "u", "n", 3)?)).await?;
    expect::equal("created after the deletion", &again.created, &true)
}

pub(super) async fn a_relationship_at_another_revision_conflicts(context: Context) -> CaseResult {
    let stores = opened(&context).await?;
    let refused = stores.a.write_relationships(vec![at(with("r", "t", "n", 0)?, Revision::new(1))]).await;
    expect::error("at a revision of an absent relationship", refused, ErrorKind::Conflict)?;
    let found = stores.b.get_relationships(&[relationship_id("r")?]).await?;
    expect::equal("the absent relationship", &found, &vec![None])?;
    let first = write(&*stores.a, RelationshipWrite::replace(with("r", "t", "n", 1)?)).await?;
    let second = write(&*stores.b, at(with("r", "u", "m", 2)?, first.revision)).await?;
    let before = stored(&*stores.a, "r").await?;
    let expected = StoredRelationship::new(with("r", "u", "m", 2)?, second.revision);
    expect::equal("the relationship", &before, &expected)?;
    let next = Revision::new(second.revision.get() + 1);
    for revision in [first.revision, Revision::new(0), next, Revision::new(1 << 62)] {
        lost("at another revision", &stores, at(with("r", "v", "n", 3)?, revision), &before).await?;
        let condition = GraphCondition::AtRevision(revision);
        let merge = RelationshipWrite::merge(with("r", "v", "n", 3)?).with_condition(condition);
        lost("a merge at another revision", &stores, merge, &before).await?;
    }
    let condition = GraphCondition::AtRevision(second.revision);
    let merge = RelationshipWrite::merge(with("r", "v", "n", 3)?).with_condition(condition);
    write(&*stores.a, merge).await?;
    let expected = edge("r", "v", "a", "b")?.with_properties(Metadata::new().with("m", 2).with("n", 3));
    expect::equal("after a merge", &stored(&*stores.b, "r").await?.relationship, &expected)
}

pub(super) async fn a_merge_replaces_type_and_ends_and_keeps_other_properties(
    context: Context,
) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let made = write(&*a, RelationshipWrite::merge(with("r", "t", "n", 1)?)).await?;
    expect::equal("created by a merge", &made.created, &true)?;
    let first = Metadata::new()
        .with("kept", json!([1.5, u64::MAX, { "x": null }]))
        .with("nested", json!({ "old": 1 }))
        .with("", "empty")
        .with("a.b", 1);
    a.upsert_relationships(vec![edge("r", "t", "a", "b")?.with_properties(first.clone())]).await?;
    let given = Metadata::new().with("nested", json!({ "new": 2 })).with("a.b", json!(null)).with("é", "x");
    let merge = RelationshipWrite::merge(edge("r", "u", "c", "c")?.with_properties(given));
    let merged = write(&*b, merge).await?;
    expect::equal("created by the second merge", &merged.created, &false)?;
    let expected = first.with("nested", json!({ "new": 2 })).with("a.b", json!(null)).with("é", "x");
    let expected = edge("r", "u", "c", "c")?.with_properties(expected);
    let read = async |store: &dyn GraphStore| -> CaseResult<Relationship> {
        let mut found = store.get_relationships(&[relationship_id("r")?]).await?;
        expect::some("the relationship", found.pop().flatten())
    };
    expect::equal("after the merge", &read(&*a).await?, &expected)?;
    write(&*a, RelationshipWrite::merge(edge("r", "u", "c", "c")?)).await?;
    expect::equal("after a merge of nothing", &read(&*b).await?, &expected)?;
    write(&*a, RelationshipWrite::replace(with("r", "u", "n", 9)?)).await?;
    expect::equal("after a replacement", &read(&*b).await?, &with("r", "u", "n", 9)?)
}

pub(super) async fn a_failed_write_stores_nothing_of_its_batch(context: Context) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let r = write(&*a, RelationshipWrite::replace(with("r", "t", "n", 1)?)).await?;
    let s = write(&*a, RelationshipWrite::replace(with("s", "t", "n", 1)?)).await?;
    let ids = relationship_ids(&["r", "s", "new", "0", "z"])?;
    let before = b.get_stored_relationships(&ids).await?;
    let bad = [
        (RelationshipWrite::create(with("s", "u", "n", 2)?), ErrorKind::Conflict),
        (at(with("s", "u", "n", 2)?, r.revision), ErrorKind::Conflict),
        (at(with("z", "u", "n", 2)?, s.revision), ErrorKind::Conflict),
        (RelationshipWrite::replace(edge("z", "u", "a", "missing")?), ErrorKind::NotFound),
        (RelationshipWrite::merge(edge("s", "u", "missing", "b")?), ErrorKind::NotFound),
    ];
    for (bad, kind) in bad {
        for place in 0..3 {
            let mut batch = vec![
                RelationshipWrite::replace(with("0", "u", "n", 2)?),
                RelationshipWrite::merge(with("r", "u", "m", 2)?),
                RelationshipWrite::create(with("new", "u", "n", 2)?),
            ];
            batch.insert(place, bad.clone());
            expect::error("a batch with a failed write", a.write_relationships(batch).await, kind)?;
            expect::equal("the data", &b.get_stored_relationships(&ids).await?, &before)?;
        }
    }
    Ok(())
}

/// Runs the same kind of write in several workers, and checks that one of them won.
async fn one_wins(
    stores: &Handles<dyn GraphStore>,
    of: impl Fn(Relationship) -> RelationshipWrite + Copy + Send + 'static,
) -> CaseResult {
    let (number, revision) = winner(stores, |store, number| async move {
        Ok(store.write_relationships(vec![of(with("r", "t", "n", number)?)]).await)
    })
    .await?;
    let expected = StoredRelationship::new(with("r", "t", "n", number)?, revision);
    expect::equal("what the winner wrote", &stored(&*stores.a, "r").await?, &expected)
}

pub(super) async fn one_of_concurrent_writes_succeeds(context: Context) -> CaseResult {
    let stores = opened(&context).await?;
    for _ in 0..3 {
        one_wins(&stores, RelationshipWrite::create).await?;
        let start = stored(&*stores.a, "r").await?.revision;
        one_wins(&stores, move |relationship| at(relationship, start)).await?;
        stores.a.delete_relationship(&relationship_id("r")?).await?;
    }
    Ok(())
}

pub(super) async fn concurrent_merges_of_a_relationship_lose_no_property(context: Context) -> CaseResult {
    const ROUNDS: usize = 5;
    let Handles { a, b } = opened(&context).await?;
    let mut workers: JoinSet<CaseResult<Vec<Revision>>> = JoinSet::new();
    for worker in 0..WORKERS {
        let store = Arc::clone(if worker % 2 == 0 { &a } else { &b });
        workers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..ROUNDS {
                // The second relationship is merged in the other order by every other worker.
                let name = format!("{worker}-{round}");
                let mut batch = vec![
                    RelationshipWrite::merge(with("r", "t", &name, 1)?),
                    RelationshipWrite::merge(with("s", "t", &name, 2)?),
                ];
                batch.rotate_left(worker % 2);
                let written = store.write_relationships(batch).await?;
                revisions.extend(written.get(worker % 2).map(|one| one.revision));
            }
            Ok(revisions)
        });
    }
    let seen: Vec<Revision> = joined(workers).await?.into_iter().flatten().collect();
    let different: BTreeSet<_> = seen.iter().collect();
    expect::equal("different revisions of one relationship", &different.len(), &(WORKERS * ROUNDS))?;
    for id in ["r", "s"] {
        let found = stored(&*b, id).await?.relationship;
        expect::equal(&format!("properties of {id}"), &found.properties.len(), &(WORKERS * ROUNDS))?;
    }
    Ok(())
}

pub(super) async fn a_merge_of_a_relationship_over_the_limit_is_refused(context: Context) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let large = |name: &str| -> CaseResult<Relationship> {
        let properties = Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
        Ok(edge("r", "t", "a", "b")?.with_properties(properties))
    };
    write(&*a, RelationshipWrite::replace(large("first")?)).await?;
    let before = stored(&*b, "r").await?;
    let batch = vec![
        RelationshipWrite::replace(edge("other", "t", "a", "b")?),
        RelationshipWrite::merge(large("second")?),
    ];
    let refused = a.write_relationships(batch).await;
    expect::invalid("a merge over the limit", refused, "relationship.properties")?;
    expect::equal("the relationship", &stored(&*b, "r").await?, &before)?;
    let other = b.get_relationships(&[relationship_id("other")?]).await?;
    expect::equal("the other relationship", &other, &vec![None])?;
    write(&*a, RelationshipWrite::merge(large("first")?)).await.map(drop)
}

pub(super) async fn stored_relationships_are_read_in_the_order_of_ids(context: Context) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let mut expected = Vec::new();
    for id in ["x", "y", "z"] {
        let revision = write(&*a, RelationshipWrite::replace(with(id, id, "n", 1)?)).await?.revision;
        expected.push(StoredRelationship::new(with(id, id, "n", 1)?, revision));
    }
    let asked = relationship_ids(&["z", "missing", "x", "Y", "y", "z"])?;
    let found = b.get_stored_relationships(&asked).await?;
    let [x, y, z] = &expected[..] else { return Err(expect::broken("three relationships", "fewer")) };
    let expected = [Some(z.clone()), None, Some(x.clone()), None, Some(y.clone()), Some(z.clone())];
    expect::equal("the places", &found, &expected.to_vec())?;
    expect::equal("the answer to no ids", &b.get_stored_relationships(&[]).await?, &Vec::new())
}

pub(super) async fn a_new_relationship_has_a_revision_that_the_id_never_had(context: Context) -> CaseResult {
    let Handles { a, b } = opened(&context).await?;
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let store = if round % 2 == 0 { &a } else { &b };
        let created = write(&**store, RelationshipWrite::create(edge("r", "t", "a", "b")?)).await?;
        let changed = write(&**store, RelationshipWrite::replace(edge("r", "t", "b", "a")?)).await?;
        for revision in [created.revision, changed.revision] {
            expect::that(seen.insert(revision), format!("a revision other than {seen:?}"), revision)?;
        }
        if round % 2 == 0 {
            store.delete_relationship(&relationship_id("r")?).await?;
        } else {
            // The deletion of an end deletes the relationship.
            let _ = store.delete_entity(&entity_id("a")?).await?;
            store.upsert_entities(nodes(&["a"])?).await?;
        }
        let stale = a.write_relationships(vec![at(edge("r", "t", "a", "b")?, changed.revision)]).await;
        expect::error("at the revision of a deleted relationship", stale, ErrorKind::Conflict)?;
    }
    Ok(())
}
