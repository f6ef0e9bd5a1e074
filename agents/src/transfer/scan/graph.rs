//! All entities and then all relationships, so that the ends of a relationship exist before it.

use std::sync::Arc;

use larder_kernel::{
    Contract, Entity, EntityId, EntityQuery, GraphStore, Relationship, RelationshipId, RelationshipQuery,
    Result,
};

use super::pages::Pages;
use crate::transfer::missing::Skips;
use crate::transfer::record::Record;

/// The number of items in memory; each may have 64 KiB.
const ITEMS: usize = 500;

pub(crate) struct GraphScan {
    entities: Pages<Entity, EntityId>,
    relationships: Pages<Relationship, RelationshipId>,
}

impl GraphScan {
    pub(super) fn new(store: &Arc<dyn GraphStore>, skips: &Skips) -> Self {
        let nodes = Arc::clone(store);
        let entities = Pages::new(ITEMS, move |page| {
            let store = Arc::clone(&nodes);
            Box::pin(async move { store.find_entities(&EntityQuery::default(), page).await })
        });
        let edges = Arc::clone(store);
        let relationships = Pages::new(ITEMS, move |page| {
            let store = Arc::clone(&edges);
            Box::pin(async move { store.find_relationships(&RelationshipQuery::default(), page).await })
        });
        let entities = entities.skipping(skips, Contract::Graph, |after: Option<&EntityId>| match after {
            Some(id) => format!("the entities after {id}"),
            None => "all entities".to_owned(),
        });
        let place = |after: Option<&RelationshipId>| match after {
            Some(id) => format!("the relationships after {id}"),
            None => "all relationships".to_owned(),
        };
        Self { entities, relationships: relationships.skipping(skips, Contract::Graph, place) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        if let Some(entity) = self.entities.next().await? {
            return Ok(Some(Record::Entity(entity)));
        }
        Ok(self.relationships.next().await?.map(Record::Relationship))
    }
}
