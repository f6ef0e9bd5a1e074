//! The ids of a graph's entities by number, and the results of traversals that contain ids.

use std::fmt;
use std::sync::Arc;

use larder_kernel::EntityId;
use petgraph::graph::NodeIndex;

/// The number of ids that are copied together if one of them changes while a result still reads them.
const CHUNK_IDS: usize = 1024;

/// Every entity's id by its number. A clone shares the ids, so a result holds one reference instead of one
/// for each id. Those ids are scattered over memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Ids(Arc<Vec<Arc<Vec<Option<EntityId>>>>>);

impl Ids {
    pub(super) fn get(&self, node: NodeIndex) -> Option<&EntityId> {
        self.0.get(node.index() / CHUNK_IDS)?.get(node.index() % CHUNK_IDS)?.as_ref()
    }

    pub(super) fn set(&mut self, node: NodeIndex, id: Option<EntityId>) {
        let (chunk, at) = (node.index() / CHUNK_IDS, node.index() % CHUNK_IDS);
        let chunks = Arc::make_mut(&mut self.0);
        if chunks.len() <= chunk {
            chunks.resize_with(chunk + 1, Arc::default);
        }
        let ids = Arc::make_mut(&mut chunks[chunk]);
        if ids.len() <= at {
            ids.resize(at + 1, None);
        }
        ids[at] = id;
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.iter().flat_map(|ids| ids.iter()).flatten().count()
    }
}

/// The entities that a traversal reached, by id.
/// [`InMemoryGraphStore::reach`](super::InMemoryGraphStore::reach) returns it.
///
/// The result is a snapshot of the graph at the time of the traversal. It holds 8 bytes for each entity and
/// shares the ids with the store. A write that changes ids while results exist copies up to 1,024 of them.
///
/// ```
/// use larder_agents::storage::InMemoryGraphStore;
/// use larder_kernel::{Entity, EntityId, EntityType, GraphStore, NeighborQuery};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryGraphStore::new();
/// let ada = EntityId::new("ada")?;
/// store.upsert_entities(vec![Entity::new(ada.clone(), EntityType::new("person")?)]).await?;
///
/// let reached = store.reach(&ada, &NeighborQuery::depth(3)).await?;
/// assert_eq!(reached.iter().collect::<Vec<_>>(), [(&ada, 0)]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ReachedIds {
    ids: Ids,
    nodes: Vec<(NodeIndex, u32)>,
}

impl ReachedIds {
    pub(super) fn new(ids: Ids, nodes: Vec<(NodeIndex, u32)>) -> Self {
        Self { ids, nodes }
    }

    /// Returns the number of entities, including the first.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if the first entity does not exist or the limit excludes it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns each id with its hops from the first, nearest first. Ids with the same hops are in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&EntityId, u32)> {
        // Every reached entity has a number, and every number has an id.
        self.nodes.iter().filter_map(|(node, hops)| Some((self.ids.get(*node)?, *hops)))
    }
}

impl fmt::Debug for ReachedIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_its_state() {
        let id = |text: &str| Some(EntityId::new(text).unwrap());
        let (near, far) = (NodeIndex::new(0), NodeIndex::new(5_000));
        let mut ids = Ids::default();
        ids.set(near, id("near"));
        ids.set(far, id("far"));
        let seen = ids.clone();
        ids.set(far, None);
        ids.set(near, id("nearer"));
        assert_eq!((seen.get(near).cloned(), seen.get(far).cloned()), (id("near"), id("far")));
        assert_eq!((ids.get(near).cloned(), ids.get(far)), (id("nearer"), None));
        assert_eq!((ids.get(NodeIndex::new(4_999)), ids.get(NodeIndex::new(9_999))), (None, None));
        assert_eq!((seen.count(), ids.count()), (2, 1));
    }
}
