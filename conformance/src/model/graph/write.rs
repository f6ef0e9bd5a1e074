//! Conditional and merging writes of entities.

use larder_kernel::storage::graph::check_entity_writes;
use larder_kernel::{Entity, EntityWrite, GraphCondition, GraphMode, GraphStore, Revision};

use super::Graph;
use super::operation::{Condition, Write};
use crate::model::compare::{Checked, Expected, answered, holds};
use crate::model::recorder::{Recorder, json};

/// A revision that no store assigns.
pub(super) const FAR: Revision = Revision::new(1 << 62);

fn name(entity: &Entity, revision: Revision) -> String {
    format!("{}#{revision}", entity.id)
}

/// Returns the write as an expression.
fn shown(recorder: &Recorder, write: &EntityWrite) -> String {
    let GraphCondition::AtRevision(revision) = write.condition else { return json(write) };
    let plain = json(&write.clone().with_condition(GraphCondition::None));
    let revision = recorder.named(&name(&write.entity, revision), || format!("Revision::new({revision})"));
    format!("EntityWrite::with_condition({plain}, GraphCondition::AtRevision({revision}))")
}

impl Graph {
    /// Returns the write with the revision that its condition names.
    fn resolved(&self, write: &Write) -> EntityWrite {
        let condition = match write.condition {
            Condition::None => GraphCondition::None,
            Condition::Absent => GraphCondition::Absent,
            Condition::Far => GraphCondition::AtRevision(FAR),
            Condition::Current => {
                GraphCondition::AtRevision(self.revisions.get(&write.entity.id).copied().unwrap_or(FAR))
            }
        };
        EntityWrite::replace(write.entity.clone()).with_condition(condition).with_mode(write.mode)
    }

    /// Returns the entities that the writes store.
    fn written(&self, writes: &[EntityWrite]) -> larder_kernel::Result<Vec<Entity>> {
        check_entity_writes(writes)?;
        let one = |write: &EntityWrite| {
            let known = self.revisions.get(&write.entity.id).copied().unwrap_or_default();
            write.apply(self.entities.get(&write.entity.id).map(|there| (known, &there.properties)))
        };
        writes.iter().map(one).collect()
    }

    pub(super) async fn write_entities(
        &mut self,
        store: &dyn GraphStore,
        batch: &[Write],
        recorder: &mut Recorder,
    ) -> Checked {
        let writes: Vec<_> = batch.iter().map(|write| self.resolved(write)).collect();
        let clause = match writes.iter().find(|write| write.condition != GraphCondition::None) {
            Some(write) if write.condition == GraphCondition::Absent => "GRAPH-046",
            Some(_) => "GRAPH-047",
            None if writes.iter().any(|write| write.mode == GraphMode::Merge) => "GRAPH-048",
            None => "GRAPH-045",
        };
        recorder.call(clause, |recorder| {
            let shown: Vec<_> = writes.iter().map(|write| shown(recorder, write)).collect();
            format!("write_entities(vec![{}])", shown.join(", "))
        });
        let stored = self.written(&writes);
        let expected: Expected<()> = stored.as_ref().map(drop).map_err(|error| error.clone().into());
        let got = store.write_entities(writes).await;
        let (Some(got), Ok(stored)) = (answered(recorder, clause, got, &expected)?, stored) else {
            return Ok(());
        };
        let created: Vec<bool> = stored.iter().map(|one| !self.entities.contains_key(&one.id)).collect();
        let same = got.iter().map(|one| one.created).eq(created.iter().copied());
        let assertion = || {
            let created = format!("{}.unwrap().iter().map(|one| one.created)", recorder.answer());
            format!("assert!({created}.eq({created:?}));")
        };
        holds("GRAPH-045", same, || format!("created: {created:?}"), &got, assertion)?;
        for (at, (entity, written)) in stored.into_iter().zip(&got).enumerate() {
            let before = self.revisions.get(&entity.id).copied().unwrap_or_default();
            let greater = || {
                format!("assert!({}.unwrap()[{at}].revision > Revision::new({before}));", recorder.answer())
            };
            let above = || format!("a revision above {before}");
            holds("GRAPH-045", written.revision > before, above, written, greater)?;
            let expression = format!("{{s}}.as_ref().unwrap()[{at}].revision");
            recorder.name(|| name(&entity, written.revision), &expression);
            self.revisions.insert(entity.id.clone(), written.revision);
            self.entities.insert(entity.id.clone(), entity);
        }
        Ok(())
    }
}
