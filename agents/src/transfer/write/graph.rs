//! Writes of entities or relationships, in one call.

use std::sync::Arc;

use larder_kernel::{GraphStore, Result};

use super::Change;
use crate::transfer::record::Record;

pub(super) async fn write(store: &Arc<dyn GraphStore>, batch: Vec<(Change, Record)>) -> Result<()> {
    let (mut entities, mut relationships) = (Vec::new(), Vec::new());
    for (_, record) in batch {
        match record {
            Record::Entity(entity) => entities.push(entity),
            Record::Relationship(relationship) => relationships.push(relationship),
            _ => {}
        }
    }
    if !entities.is_empty() {
        store.upsert_entities(entities).await?;
    }
    if !relationships.is_empty() {
        store.upsert_relationships(relationships).await?;
    }
    Ok(())
}
