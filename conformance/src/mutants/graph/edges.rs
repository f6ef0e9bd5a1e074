//! The defects of conditional and merging writes of relationships, and of their revisions.

use larder_kernel::{
    GraphCondition, GraphMode, GraphStore, GraphWritten, RelationshipId, RelationshipWrite, Result, Store,
    StoredRelationship,
};

use super::{Defect, Wrong};
use crate::mutants::serve::lock;

impl Wrong {
    pub(super) async fn write_edges_wrongly(
        &self,
        mut writes: Vec<RelationshipWrite>,
    ) -> Result<Vec<GraphWritten>> {
        match self.defect {
            Defect::EdgeConditionSkips => return self.write_edges_one_by_one(writes).await,
            Defect::EdgeRevisionStays => return self.write_edges_with_first_revisions(writes).await,
            _ => {}
        }
        for write in &mut writes {
            match (self.defect, write.condition) {
                (Defect::EdgeCreatingOverwrites, GraphCondition::Absent)
                | (Defect::EdgeRevisionIgnored, GraphCondition::AtRevision(_)) => {
                    write.condition = GraphCondition::None;
                }
                (Defect::EdgeConditionChecked, _) => {
                    let stored = self.inner_edge(&write.relationship.id).await?;
                    write.check_condition(stored.map(|stored| stored.revision))?;
                    write.condition = GraphCondition::None;
                    // Every store that checks first and then writes waits in between.
                    tokio::task::yield_now().await;
                }
                _ => {}
            }
            if write.mode == GraphMode::Merge {
                self.merge_edge_wrongly(write).await?;
            }
        }
        self.inner.write_relationships(writes).await
    }

    async fn inner_edge(&self, id: &RelationshipId) -> Result<Option<StoredRelationship>> {
        Ok(self.inner.get_stored_relationships(std::slice::from_ref(id)).await?.pop().flatten())
    }

    async fn merge_edge_wrongly(&self, write: &mut RelationshipWrite) -> Result<()> {
        let Some(stored) = self.inner_edge(&write.relationship.id).await? else { return Ok(()) };
        let StoredRelationship { relationship: stored, revision, .. } = stored;
        match self.defect {
            Defect::EdgeMergeReplaces => write.mode = GraphMode::Replace,
            Defect::EdgeMergeKeepsEnds => {
                (write.relationship.source, write.relationship.target) = (stored.source, stored.target);
            }
            Defect::EdgeMergeReads => {
                write.relationship = write.apply(Some((revision, &stored.properties)))?;
                write.mode = GraphMode::Replace;
                tokio::task::yield_now().await;
            }
            Defect::EdgeMergeUnlimited if write.apply(Some((revision, &stored.properties))).is_err() => {
                write.mode = GraphMode::Replace;
            }
            _ => {}
        }
        Ok(())
    }

    async fn write_edges_one_by_one(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        let (mut written, mut failed) = (Vec::new(), None);
        for write in writes {
            match self.inner.write_relationships(vec![write]).await {
                Ok(one) => written.extend(one),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(written), Err)
    }

    /// Keeps the first revision of each id.
    async fn write_edges_with_first_revisions(
        &self,
        mut writes: Vec<RelationshipWrite>,
    ) -> Result<Vec<GraphWritten>> {
        let key = |id: &RelationshipId| (self.inner.namespace().clone(), id.clone());
        for write in &mut writes {
            let Some(inner) = self.inner_edge(&write.relationship.id).await? else { continue };
            let first = lock(&self.memory.edges).get(&key(&write.relationship.id)).copied();
            if write.condition == GraphCondition::AtRevision(first.unwrap_or(inner.revision)) {
                write.condition = GraphCondition::AtRevision(inner.revision);
            }
        }
        let ids: Vec<_> = writes.iter().map(|write| write.relationship.id.clone()).collect();
        let mut written = self.inner.write_relationships(writes).await?;
        let mut edges = lock(&self.memory.edges);
        for (id, written) in ids.iter().zip(&mut written) {
            written.revision = *edges.entry(key(id)).or_insert(written.revision);
        }
        Ok(written)
    }

    pub(super) async fn stored_edges_wrongly(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        let mut found = self.inner.get_stored_relationships(ids).await?;
        match self.defect {
            Defect::EdgeStoredGapsClosed => found.retain(Option::is_some),
            Defect::EdgeRevisionStays => {
                let edges = lock(&self.memory.edges);
                for stored in found.iter_mut().flatten() {
                    let key = (self.inner.namespace().clone(), stored.relationship.id.clone());
                    stored.revision = edges.get(&key).copied().unwrap_or(stored.revision);
                }
            }
            _ => {}
        }
        Ok(found)
    }
}
