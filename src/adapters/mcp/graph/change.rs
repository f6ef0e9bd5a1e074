//! Changes of entities that lose no change of another program.

use std::time::Duration;

use larder_kernel::storage::graph::check_entities;
use larder_kernel::{
    Entity, EntityId, EntityWrite, Error, ErrorKind, GraphCondition, Metadata, Outcome, Result, StoredEntity,
    UpsertReport,
};

use super::view::{self, OBSERVATIONS};
use crate::adapters::mcp::registry::Shared;

/// The maximum number of attempts. Each failed attempt means that another program changed the entity.
const ATTEMPTS_MAX: u32 = 100;
/// The longest wait between two attempts, in milliseconds.
const WAIT_MAX_MS: u32 = 20;

/// Adds the texts that are not yet in the list.
pub(super) fn add(known: &mut Vec<String>, texts: &[String]) {
    for text in texts {
        if !known.contains(text) {
            known.push(text.clone());
        }
    }
}

/// Writes entities and keeps what existing ones hold: the properties that are not given, and all
/// observations.
pub(super) async fn merge(
    operation: &'static str,
    shared: &Shared,
    entities: Vec<Entity>,
) -> Result<UpsertReport> {
    let graph = shared.stores.graph()?;
    if entities.iter().all(|entity| entity.properties.get(OBSERVATIONS).is_none()) {
        let writes = entities.into_iter().map(EntityWrite::merge).collect();
        return Ok(UpsertReport::of(&graph.write_entities(writes).await?));
    }
    let ids: Vec<EntityId> = entities.iter().map(|entity| entity.id.clone()).collect();
    let _alone = shared.entities.lock().await;
    for attempt in 0..ATTEMPTS_MAX {
        let stored = graph.get_stored_entities(&ids).await?;
        let writes = entities.iter().zip(stored).map(|(entity, stored)| merged(operation, entity, stored));
        match graph.write_entities(writes.collect::<Result<_>>()?).await {
            Err(error) if error.kind() == ErrorKind::Conflict => wait(attempt).await,
            written => return Ok(UpsertReport::of(&written?)),
        }
    }
    Err(changed_again_and_again(operation))
}

/// Returns the write of an entity with the observations that it holds and the given ones.
fn merged(operation: &'static str, entity: &Entity, stored: Option<StoredEntity>) -> Result<EntityWrite> {
    let mut entity = entity.clone();
    let Some(stored) = stored else { return Ok(EntityWrite::create(entity)) };
    if let Some(given) = view::observations(&entity.properties) {
        let mut known = known(operation, &stored.entity.properties)?;
        add(&mut known, &given);
        entity.properties.insert(OBSERVATIONS, known);
    }
    Ok(EntityWrite::merge(entity).with_condition(GraphCondition::AtRevision(stored.revision)))
}

/// Changes the observations of an entity, and returns the entity.
pub(super) async fn observations(
    operation: &'static str,
    shared: &Shared,
    id: &EntityId,
    change: impl Fn(&mut Vec<String>) + Send + Sync,
) -> Result<Entity> {
    let graph = shared.stores.graph()?;
    let _alone = shared.entities.lock().await;
    for attempt in 0..ATTEMPTS_MAX {
        let found = graph.get_stored_entities(std::slice::from_ref(id)).await?.pop().flatten();
        let Some(StoredEntity { mut entity, revision, .. }) = found else {
            let message = "the entity does not exist; write it first";
            return Err(Error::new(ErrorKind::NotFound, operation, message).with_field("entity"));
        };
        let before = known(operation, &entity.properties)?;
        let mut known = before.clone();
        change(&mut known);
        if known == before {
            return Ok(entity);
        }
        entity.properties.insert(OBSERVATIONS, known);
        check_entities(std::slice::from_ref(&entity))?;
        let at = GraphCondition::AtRevision(revision);
        let write = EntityWrite::replace(entity.clone()).with_condition(at);
        match graph.write_entities(vec![write]).await {
            Err(error) if error.kind() == ErrorKind::Conflict => wait(attempt).await,
            written => return written.map(|_| entity),
        }
    }
    Err(changed_again_and_again(operation))
}

/// Returns the observations among the properties.
fn known(operation: &'static str, properties: &Metadata) -> Result<Vec<String>> {
    match view::observations(properties) {
        Some(known) => Ok(known),
        None if properties.get(OBSERVATIONS).is_none() => Ok(Vec::new()),
        None => {
            let message = "the entity's property `observations` is not a list of strings; replace it";
            Err(Error::new(ErrorKind::Conflict, operation, message))
        }
    }
}

/// Waits for a different time in each server, so that they do not meet again.
async fn wait(attempt: u32) {
    let spread = std::process::id().wrapping_mul(31).wrapping_add(attempt.wrapping_mul(7));
    let most = WAIT_MAX_MS.min(attempt + 1);
    tokio::time::sleep(Duration::from_millis(u64::from(spread % (most + 1)))).await;
}

fn changed_again_and_again(operation: &'static str) -> Error {
    let message = "other programs changed the entity during every attempt; try again later";
    Error::new(ErrorKind::Conflict, operation, message)
        .with_limit(u64::from(ATTEMPTS_MAX), u64::from(ATTEMPTS_MAX))
        .with_outcome(Outcome::NotApplied)
}
