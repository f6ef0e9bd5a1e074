//! Conditional and merging writes of relationships.

use larder_kernel::storage::graph::check_relationship_writes;
use larder_kernel::{
    ErrorKind, GraphCondition, GraphMode, GraphStore, Relationship, RelationshipWrite, Revision,
};

use super::Graph;
use super::operation::{Condition, EdgeWrite};
use super::write::FAR;
use crate::model::compare::{Checked, Expected, answered, holds};
use crate::model::recorder::{Recorder, json};

fn name(relationship: &Relationship, revision: Revision) -> String {
    format!("{}~{revision}", relationship.id)
}

/// Returns the write as an expression.
fn shown(recorder: &Recorder, write: &RelationshipWrite) -> String {
    let GraphCondition::AtRevision(revision) = write.condition else { return json(write) };
    let plain = json(&write.clone().with_condition(GraphCondition::None));
    let name = name(&write.relationship, revision);
    let revision = recorder.named(&name, || format!("Revision::new({revision})"));
    format!("RelationshipWrite::with_condition({plain}, GraphCondition::AtRevision({revision}))")
}

impl Graph {
    /// Returns the write with the revision that its condition names.
    fn resolved_edge(&self, write: &EdgeWrite) -> RelationshipWrite {
        let known = self.edge_revisions.get(&write.relationship.id).copied();
        let condition = match write.condition {
            Condition::None => GraphCondition::None,
            Condition::Absent => GraphCondition::Absent,
            Condition::Far => GraphCondition::AtRevision(FAR),
            Condition::Current => GraphCondition::AtRevision(known.unwrap_or(FAR)),
        };
        let plain = RelationshipWrite::replace(write.relationship.clone());
        plain.with_condition(condition).with_mode(write.mode)
    }

    /// Returns the relationships that the writes store. A missing end counts only if every condition holds; a
    /// batch with both failures may be refused for either.
    fn written_edges(&self, writes: &[RelationshipWrite]) -> larder_kernel::Result<Vec<Relationship>> {
        check_relationship_writes(writes)?;
        let one = |write: &RelationshipWrite| {
            let id = &write.relationship.id;
            let known = self.edge_revisions.get(id).copied().unwrap_or_default();
            write.apply(self.relationships.get(id).map(|there| (known, &there.properties)))
        };
        writes.iter().map(one).collect()
    }

    pub(super) async fn write_relationships(
        &mut self,
        store: &dyn GraphStore,
        batch: &[EdgeWrite],
        recorder: &mut Recorder,
    ) -> Checked {
        let writes: Vec<_> = batch.iter().map(|write| self.resolved_edge(write)).collect();
        let clause = match writes.iter().find(|write| write.condition != GraphCondition::None) {
            Some(write) if write.condition == GraphCondition::Absent => "GRAPH-057",
            Some(_) => "GRAPH-058",
            None if writes.iter().any(|write| write.mode == GraphMode::Merge) => "GRAPH-059",
            None => "GRAPH-056",
        };
        recorder.call(clause, |recorder| {
            let shown: Vec<_> = writes.iter().map(|write| shown(recorder, write)).collect();
            format!("write_relationships(vec![{}])", shown.join(", "))
        });
        let mut stored: Expected<Vec<Relationship>> = self.written_edges(&writes).map_err(Into::into);
        let has_ends = |write: &RelationshipWrite| {
            let Relationship { source, target, .. } = &write.relationship;
            self.entities.contains_key(source) && self.entities.contains_key(target)
        };
        let homeless = check_relationship_writes(&writes).is_ok() && !writes.iter().all(has_ends);
        let got = store.write_relationships(writes).await;
        if homeless {
            let refused = got.as_ref().err().map(larder_kernel::Error::kind);
            let by_ends = stored.is_ok() || refused == Some(ErrorKind::NotFound);
            stored = if by_ends { Err(ErrorKind::NotFound.into()) } else { stored };
        }
        let expected: Expected<()> = stored.as_ref().map(drop).map_err(|refusal| *refusal);
        let (Some(got), Ok(stored)) = (answered(recorder, clause, got, &expected)?, stored) else {
            return Ok(());
        };
        let created: Vec<bool> = stored.iter().map(|one| !self.relationships.contains_key(&one.id)).collect();
        let same = got.iter().map(|one| one.created).eq(created.iter().copied());
        let assertion = || {
            let created = format!("{}.unwrap().iter().map(|one| one.created)", recorder.answer());
            format!("assert!({created}.eq({created:?}));")
        };
        holds("GRAPH-056", same, || format!("created: {created:?}"), &got, assertion)?;
        for (at, (relationship, written)) in stored.into_iter().zip(&got).enumerate() {
            let before = self.edge_revisions.get(&relationship.id).copied().unwrap_or_default();
            let greater = || {
                format!("assert!({}.unwrap()[{at}].revision > Revision::new({before}));", recorder.answer())
            };
            let above = || format!("a revision above {before}");
            holds("GRAPH-056", written.revision > before, above, written, greater)?;
            let expression = format!("{{s}}.as_ref().unwrap()[{at}].revision");
            recorder.name(|| name(&relationship, written.revision), &expression);
            self.edge_revisions.insert(relationship.id.clone(), written.revision);
            self.relationships.insert(relationship.id.clone(), relationship);
        }
        Ok(())
    }
}
