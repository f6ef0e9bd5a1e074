//! Conditional and merging writes of relationships.

use serde::{Deserialize, Serialize};

use super::{GraphCondition, GraphMode, Violation, merged};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::position::Revision;
use crate::storage::graph::types::Relationship;
use crate::storage::options::{OptionSet, RequestOption};

pub(in crate::storage::graph) const OPERATION: &str = "graph.write_relationships";

/// The write of a relationship.
///
/// ```
/// use larder_kernel::{
///     EntityId, GraphCondition, Relationship, RelationshipId, RelationshipType, RelationshipWrite, Revision,
/// };
///
/// let (ada, tea) = (EntityId::new("ada")?, EntityId::new("tea")?);
/// let likes = Relationship::new(RelationshipId::new("r1")?, RelationshipType::new("likes")?, ada, tea);
/// let write = RelationshipWrite::merge(likes).with_condition(GraphCondition::AtRevision(Revision::new(7)));
/// # let _ = write;
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RelationshipWrite {
    /// The relationship.
    pub relationship: Relationship,
    /// The condition of the write.
    #[serde(default)]
    pub condition: GraphCondition,
    /// The effect on the properties of an existing relationship.
    #[serde(default)]
    pub mode: GraphMode,
}

impl RelationshipWrite {
    /// Creates an unconditional write that replaces the relationship.
    #[must_use]
    pub fn replace(relationship: Relationship) -> Self {
        Self { relationship, condition: GraphCondition::None, mode: GraphMode::Replace }
    }

    /// Creates a write that fails if the relationship exists.
    #[must_use]
    pub fn create(relationship: Relationship) -> Self {
        Self::replace(relationship).with_condition(GraphCondition::Absent)
    }

    /// Creates an unconditional write that keeps the properties it does not name.
    #[must_use]
    pub fn merge(relationship: Relationship) -> Self {
        Self::replace(relationship).with_mode(GraphMode::Merge)
    }

    /// Sets the condition of the write.
    #[must_use]
    pub fn with_condition(mut self, condition: GraphCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets the effect on the properties of an existing relationship.
    #[must_use]
    pub fn with_mode(mut self, mode: GraphMode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { relationship: _, condition, mode } = self;
        OptionSet::NONE
            .with_if(*condition != GraphCondition::None, RequestOption::RelationshipCondition)
            .with_if(*mode != GraphMode::Replace, RequestOption::RelationshipMode)
    }

    /// Returns the relationship to store. `stored` is the revision and the properties of the existing
    /// relationship. Every backend calls this function inside the step that writes, so that all decide the
    /// same way.
    ///
    /// # Errors
    /// `Conflict` if the condition does not hold; `InvalidInput` if the merged properties exceed a limit.
    pub fn apply(&self, stored: Option<(Revision, &Metadata)>) -> Result<Relationship> {
        self.check_condition(stored.map(|(revision, _)| revision))?;
        let (GraphMode::Merge, Some((_, stored))) = (self.mode, stored) else {
            return Ok(self.relationship.clone());
        };
        let merged = merged(stored, &self.relationship.properties);
        merged.check(OPERATION, "relationship.properties")?;
        Ok(self.relationship.clone().with_properties(merged))
    }

    /// Checks the condition against the revision of the existing relationship.
    ///
    /// # Errors
    /// `Conflict` if the condition does not hold.
    pub fn check_condition(&self, stored: Option<Revision>) -> Result<()> {
        let Some(violation) = self.condition.violation(stored) else { return Ok(()) };
        let message = match violation {
            Violation::Exists => {
                "a relationship of the batch exists; read it, and write it at its revision or merge into it"
            }
            Violation::Differs => {
                "a relationship of the batch has another revision; read it again and repeat the change"
            }
            Violation::Missing => {
                "a relationship of the batch does not exist; write it with the condition `Absent`"
            }
        };
        Err(Error::new(ErrorKind::Conflict, OPERATION, message).with_field("relationship.condition"))
    }
}

impl From<Relationship> for RelationshipWrite {
    fn from(relationship: Relationship) -> Self {
        Self::replace(relationship)
    }
}

/// A relationship with its revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredRelationship {
    /// The relationship.
    pub relationship: Relationship,
    /// The revision of the last write.
    pub revision: Revision,
}

impl StoredRelationship {
    /// Creates a relationship with its revision.
    #[must_use]
    pub fn new(relationship: Relationship, revision: Revision) -> Self {
        Self { relationship, revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{EntityId, RelationshipId, RelationshipType};
    use crate::limits::METADATA_BYTES_MAX;

    fn relationship(properties: Metadata) -> Relationship {
        let (source, target) = (EntityId::new("a").unwrap(), EntityId::new("b").unwrap());
        let (id, kind) = (RelationshipId::new("r").unwrap(), RelationshipType::new("t").unwrap());
        Relationship::new(id, kind, source, target).with_properties(properties)
    }

    #[test]
    fn a_merge_takes_the_ends_and_keeps_the_properties_that_it_does_not_name() {
        let stored = Metadata::new().with("kept", 1).with("replaced", 1);
        let given = Metadata::new().with("replaced", 2);
        let at = Revision::new(3);
        let write = RelationshipWrite::merge(relationship(given.clone()));
        let merged = write.apply(Some((at, &stored))).unwrap();
        assert_eq!(merged, relationship(Metadata::new().with("kept", 1).with("replaced", 2)));
        assert_eq!(write.apply(None).unwrap().properties, given);
        let conflict = write.clone().with_condition(GraphCondition::Absent).apply(Some((at, &stored)));
        assert_eq!(conflict.unwrap_err().field(), Some("relationship.condition"));
        let half = |name: &str| Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
        let write = RelationshipWrite::merge(relationship(half("a")));
        let refused = write.apply(Some((at, &half("b")))).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.field()),
            (ErrorKind::InvalidInput, Some("relationship.properties"))
        );
    }
}
