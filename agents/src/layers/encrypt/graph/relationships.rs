//! Conditional and merging writes of relationships with encrypted properties.

use larder_kernel::{
    ErrorKind, GraphMode, GraphStore, GraphWritten, RelationshipWrite, Result, StoredRelationship,
};

use super::{MERGES_MAX, Sealed, unchanged};

const OPERATION: &str = "graph.write_relationships";

impl Sealed<dyn GraphStore> {
    /// Writes relationships. The inner store merges only what it can read, so this layer merges and writes at
    /// the revision.
    pub(super) async fn write_sealed(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        if writes.iter().all(|write| write.mode == GraphMode::Replace) {
            return self.inner.write_relationships(self.seal_relationships(writes)?).await;
        }
        let ids: Vec<_> = writes.iter().map(|write| write.relationship.id.clone()).collect();
        let mut attempt = 1;
        loop {
            let stored = self.get_stored_relationships(&ids).await?;
            let merged = writes.iter().zip(stored).map(|(write, stored)| merged(write, stored.as_ref()));
            let merged = self.seal_relationships(merged.collect::<Result<_>>()?)?;
            match self.inner.write_relationships(merged).await {
                Err(error) if error.kind() == ErrorKind::Conflict && attempt < MERGES_MAX => {
                    attempt += 1;
                    tokio::task::yield_now().await;
                }
                written => return written,
            }
        }
    }

    fn seal_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<RelationshipWrite>> {
        let seal = |mut write: RelationshipWrite| {
            let place = self.relationship_place(&write.relationship);
            write.relationship.properties = self.seal(OPERATION, &place, &write.relationship.properties)?;
            Ok(write)
        };
        writes.into_iter().map(seal).collect()
    }
}

/// Returns the write of the merged relationship, which fails if the stored relationship has changed in
/// between.
fn merged(write: &RelationshipWrite, stored: Option<&StoredRelationship>) -> Result<RelationshipWrite> {
    let relationship =
        write.apply(stored.map(|stored| (stored.revision, &stored.relationship.properties)))?;
    let condition = unchanged(write.mode, write.condition, stored.map(|stored| stored.revision));
    Ok(RelationshipWrite::replace(relationship).with_condition(condition))
}
