//! The defects of conditional and merging writes, and of revisions.

use larder_kernel::{
    Entity, EntityId, EntityWrite, GraphCondition, GraphMode, GraphStore, GraphWritten, Result, Revision,
    Store, StoredEntity,
};
use serde_json::Value;

use super::{Defect, Wrong};
use crate::mutants::serve::lock;

/// Copies the members that nested objects of `into` lack.
fn nest(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (name, value) in from {
            into.entry(name).or_insert_with(|| value.clone());
        }
    }
}

impl Wrong {
    pub(super) async fn write_wrongly(&self, mut writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        if self.defect == Defect::ConditionSkips {
            return self.write_one_by_one(writes).await;
        }
        if matches!(self.defect, Defect::RevisionStays | Defect::RevisionsRestart) {
            return self.write_with_own_revisions(writes).await;
        }
        for write in &mut writes {
            match (self.defect, write.condition) {
                (Defect::CreatingOverwrites, GraphCondition::Absent)
                | (Defect::RevisionIgnored, GraphCondition::AtRevision(_)) => {
                    write.condition = GraphCondition::None;
                }
                (Defect::ConditionChecked, _) => {
                    let stored = self.inner_stored(&write.entity.id).await?;
                    write.check_condition(stored.map(|stored| stored.revision))?;
                    write.condition = GraphCondition::None;
                    // Every store that checks first and then writes waits in between.
                    tokio::task::yield_now().await;
                }
                _ => {}
            }
            if write.mode == GraphMode::Merge {
                self.merge_wrongly(write).await?;
            }
        }
        self.inner.write_entities(writes).await
    }

    async fn inner_stored(&self, id: &EntityId) -> Result<Option<StoredEntity>> {
        Ok(self.inner.get_stored_entities(std::slice::from_ref(id)).await?.pop().flatten())
    }

    async fn merge_wrongly(&self, write: &mut EntityWrite) -> Result<()> {
        let stored = self.inner_stored(&write.entity.id).await?;
        let given = &mut write.entity.properties;
        match self.defect {
            Defect::MergeReplaces => write.mode = GraphMode::Replace,
            Defect::MergeNests => {
                for (name, old) in stored.into_iter().flat_map(|stored| stored.entity.properties.into_map()) {
                    if let Some(mut new) = given.get(&name).cloned() {
                        nest(&mut new, &old);
                        given.insert(name, new);
                    }
                }
            }
            Defect::MergeReads => {
                if let Some(stored) = stored {
                    write.entity = write.apply(Some((stored.revision, &stored.entity.properties)))?;
                }
                write.mode = GraphMode::Replace;
                tokio::task::yield_now().await;
            }
            // The merged properties are cut to the limit.
            Defect::MergeUnlimited => {
                let old = stored.map(|stored| (stored.revision, stored.entity.properties));
                if write.apply(old.as_ref().map(|(revision, old)| (*revision, old))).is_err() {
                    write.mode = GraphMode::Replace;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn write_one_by_one(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        let (mut written, mut failed) = (Vec::new(), None);
        for write in writes {
            match self.inner.write_entities(vec![write]).await {
                Ok(one) => written.extend(one),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(written), Err)
    }

    /// Counts revisions for each entity: from 1 after a deletion, or only its creations.
    async fn write_with_own_revisions(&self, mut writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        let ids: Vec<_> = writes.iter().map(|write| write.entity.id.clone()).collect();
        let inner = self.inner.get_stored_entities(&ids).await?;
        for (write, inner) in writes.iter_mut().zip(inner) {
            let shown = self.own_revision(&write.entity.id, inner.is_some());
            write.check_condition(shown)?;
            if let (GraphCondition::AtRevision(_), Some(inner)) = (write.condition, inner) {
                write.condition = GraphCondition::AtRevision(inner.revision);
            }
        }
        let mut written = self.inner.write_entities(writes).await?;
        let mut revisions = lock(&self.memory.revisions);
        for (id, written) in ids.into_iter().zip(&mut written) {
            let count = revisions.entry((self.inner.namespace().clone(), id)).or_insert(0);
            match (self.defect, written.created) {
                (Defect::RevisionsRestart, true) => *count = 1,
                (Defect::RevisionStays, false) => {}
                _ => *count += 1,
            }
            written.revision = Revision::new(*count);
        }
        Ok(written)
    }

    fn own_revision(&self, id: &EntityId, exists: bool) -> Option<Revision> {
        let revisions = lock(&self.memory.revisions);
        let count = revisions.get(&(self.inner.namespace().clone(), id.clone())).copied();
        exists.then(|| Revision::new(count.unwrap_or(0)))
    }

    pub(super) async fn stored_wrongly(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        let mut found = self.inner.get_stored_entities(ids).await?;
        match self.defect {
            Defect::StoredGapsClosed => found.retain(Option::is_some),
            Defect::RevisionStays | Defect::RevisionsRestart => {
                for stored in found.iter_mut().flatten() {
                    let revision = self.own_revision(&stored.entity.id, true);
                    stored.revision = revision.unwrap_or(stored.revision);
                }
            }
            _ => {}
        }
        Ok(found)
    }

    /// Returns the number of upserts as revisions of a store that counts its own.
    pub(super) fn count_upserts(&self, entities: &[Entity]) {
        if self.defect == Defect::RevisionsRestart {
            let mut revisions = lock(&self.memory.revisions);
            for entity in entities {
                *revisions.entry((self.inner.namespace().clone(), entity.id.clone())).or_insert(0) += 1;
            }
        }
    }
}
