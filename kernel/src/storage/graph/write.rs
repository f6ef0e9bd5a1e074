//! Conditional and merging writes of entities and relationships.

mod relationship;

use serde::{Deserialize, Serialize};

use super::types::{Entity, UpsertReport};
use crate::check::size;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Metadata;
use crate::position::Revision;
use crate::storage::options::{OptionSet, RequestOption};

pub(super) use relationship::OPERATION as RELATIONSHIPS_OPERATION;
pub use relationship::{RelationshipWrite, StoredRelationship};

pub(super) const OPERATION: &str = "graph.write_entities";

/// The condition of a write of an entity or a relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphCondition {
    /// The write is unconditional.
    #[default]
    None,
    /// The item does not exist.
    Absent,
    /// The item is at this revision.
    AtRevision(Revision),
}

/// The reason for which a condition does not hold.
enum Violation {
    /// The item exists.
    Exists,
    /// The item is at another revision.
    Differs,
    /// The item does not exist.
    Missing,
}

impl GraphCondition {
    fn violation(self, stored: Option<Revision>) -> Option<Violation> {
        match (self, stored) {
            (Self::None, _) | (Self::Absent, None) => None,
            (Self::AtRevision(wanted), Some(stored)) if wanted == stored => None,
            (Self::Absent, Some(_)) => Some(Violation::Exists),
            (Self::AtRevision(_), Some(_)) => Some(Violation::Differs),
            (Self::AtRevision(_), None) => Some(Violation::Missing),
        }
    }
}

/// Returns the stored properties with the given ones added or replaced.
fn merged(stored: &Metadata, given: &Metadata) -> Metadata {
    let mut merged = stored.clone();
    for (name, value) in given.iter() {
        merged.insert(name, value.clone());
    }
    merged
}

/// The effect of a write on the properties of an existing entity or relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphMode {
    /// The given properties replace all properties.
    #[default]
    Replace,
    /// The given properties replace the ones of the same name, and the others are kept.
    Merge,
}

/// The write of an entity.
///
/// ```
/// use larder_kernel::{Entity, GraphCondition, EntityId, EntityType, EntityWrite, Revision};
///
/// let ada = Entity::new(EntityId::new("ada")?, EntityType::new("person")?);
/// let write = EntityWrite::merge(ada).with_condition(GraphCondition::AtRevision(Revision::new(7)));
/// # let _ = write;
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntityWrite {
    /// The entity.
    pub entity: Entity,
    /// The condition of the write.
    #[serde(default)]
    pub condition: GraphCondition,
    /// The effect on the properties of an existing entity.
    #[serde(default)]
    pub mode: GraphMode,
}

impl EntityWrite {
    /// Creates an unconditional write that replaces the entity.
    #[must_use]
    pub fn replace(entity: Entity) -> Self {
        Self { entity, condition: GraphCondition::None, mode: GraphMode::Replace }
    }

    /// Creates a write that fails if the entity exists.
    #[must_use]
    pub fn create(entity: Entity) -> Self {
        Self::replace(entity).with_condition(GraphCondition::Absent)
    }

    /// Creates an unconditional write that keeps the properties it does not name.
    #[must_use]
    pub fn merge(entity: Entity) -> Self {
        Self::replace(entity).with_mode(GraphMode::Merge)
    }

    /// Sets the condition of the write.
    #[must_use]
    pub fn with_condition(mut self, condition: GraphCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets the effect on the properties of an existing entity.
    #[must_use]
    pub fn with_mode(mut self, mode: GraphMode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { entity: _, condition, mode } = self;
        OptionSet::NONE
            .with_if(*condition != GraphCondition::None, RequestOption::EntityCondition)
            .with_if(*mode != GraphMode::Replace, RequestOption::EntityMode)
    }

    /// Returns the entity to store. `stored` is the revision and the properties of the existing entity. Every
    /// backend calls this function inside the step that writes, so that all decide the same way.
    ///
    /// # Errors
    /// `Conflict` if the condition does not hold; `InvalidInput` if the merged properties exceed a limit.
    pub fn apply(&self, stored: Option<(Revision, &Metadata)>) -> Result<Entity> {
        self.check_condition(stored.map(|(revision, _)| revision))?;
        let (GraphMode::Merge, Some((_, stored))) = (self.mode, stored) else {
            return Ok(self.entity.clone());
        };
        let merged = merged(stored, &self.entity.properties);
        merged.check(OPERATION, "entity.properties")?;
        Ok(Entity::new(self.entity.id.clone(), self.entity.entity_type.clone()).with_properties(merged))
    }

    /// Checks the condition against the revision of the existing entity.
    ///
    /// # Errors
    /// `Conflict` if the condition does not hold.
    pub fn check_condition(&self, stored: Option<Revision>) -> Result<()> {
        let Some(violation) = self.condition.violation(stored) else { return Ok(()) };
        let message = match violation {
            Violation::Exists => {
                "an entity of the batch exists; read it, and write it at its revision or merge into it"
            }
            Violation::Differs => {
                "an entity of the batch has another revision; read it again and repeat the change"
            }
            Violation::Missing => {
                "an entity of the batch does not exist; write it with the condition `Absent`"
            }
        };
        Err(Error::new(ErrorKind::Conflict, OPERATION, message).with_field("entity.condition"))
    }
}

impl From<Entity> for EntityWrite {
    fn from(entity: Entity) -> Self {
        Self::replace(entity)
    }
}

/// The result of the write of an entity or a relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphWritten {
    /// The new revision.
    pub revision: Revision,
    /// `true` if the write created the item.
    pub created: bool,
}

impl UpsertReport {
    /// Counts the results of writes.
    #[must_use]
    pub fn of(written: &[GraphWritten]) -> Self {
        let created = size(written.iter().filter(|one| one.created).count());
        Self::new(created, size(written.len()) - created)
    }
}

impl GraphWritten {
    /// Creates the result of a write.
    #[must_use]
    pub fn new(revision: Revision, created: bool) -> Self {
        Self { revision, created }
    }
}

/// An entity with its revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredEntity {
    /// The entity.
    pub entity: Entity,
    /// The revision of the last write.
    pub revision: Revision,
}

impl StoredEntity {
    /// Creates an entity with its revision.
    #[must_use]
    pub fn new(entity: Entity, revision: Revision) -> Self {
        Self { entity, revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{EntityId, EntityType};
    use crate::limits::METADATA_BYTES_MAX;

    fn entity(properties: Metadata) -> Entity {
        Entity::new(EntityId::new("a").unwrap(), EntityType::new("t").unwrap()).with_properties(properties)
    }

    #[test]
    fn a_condition_is_checked_against_the_stored_revision() {
        let (one, two) = (Revision::new(1), Revision::new(2));
        for (condition, stored, holds) in [
            (GraphCondition::None, None, true),
            (GraphCondition::None, Some(one), true),
            (GraphCondition::Absent, None, true),
            (GraphCondition::Absent, Some(one), false),
            (GraphCondition::AtRevision(one), None, false),
            (GraphCondition::AtRevision(one), Some(one), true),
            (GraphCondition::AtRevision(one), Some(two), false),
        ] {
            let write = EntityWrite::replace(entity(Metadata::new())).with_condition(condition);
            let checked = write.check_condition(stored);
            assert_eq!(checked.is_ok(), holds, "{condition:?} {stored:?}");
            assert!(holds || checked.unwrap_err().kind() == ErrorKind::Conflict);
        }
    }

    #[test]
    fn a_merge_keeps_the_properties_that_it_does_not_name() {
        let stored = Metadata::new().with("kept", 1).with("replaced", 1);
        let given = Metadata::new().with("replaced", 2).with("new", 2);
        let at = Revision::new(1);
        let merged = EntityWrite::merge(entity(given.clone())).apply(Some((at, &stored))).unwrap();
        assert_eq!(merged.properties, Metadata::new().with("kept", 1).with("replaced", 2).with("new", 2));
        let replaced = EntityWrite::replace(entity(given.clone())).apply(Some((at, &stored))).unwrap();
        assert_eq!(replaced.properties, given);
        assert_eq!(EntityWrite::merge(entity(given.clone())).apply(None).unwrap().properties, given);
        let half = |name: &str| Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
        let refused = EntityWrite::merge(entity(half("a"))).apply(Some((at, &half("b")))).unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidInput, Some("entity.properties")));
    }
}
