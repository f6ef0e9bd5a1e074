//! The shared parts of the writes of both graphs: conditions, the ends of relationships, and the results.

use std::collections::{HashMap, HashSet};

use larder_kernel::{
    Entity, EntityWrite, Error, ErrorKind, GraphWritten, Metadata, OptionSet, Relationship,
    RelationshipWrite, Result, Revision,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::postgres::decode;
use crate::postgres::failure::{Fallible, corrupt};

/// Collects rows of an id, a revision and whether the entity was created.
pub(crate) fn written(rows: &[PgRow]) -> Fallible<HashMap<&str, GraphWritten>> {
    let one = |row| -> Fallible<_> {
        let revision = Revision::new(decode::unsigned(row, 1)?);
        Ok((PgRow::try_get(row, 0)?, GraphWritten::new(revision, row.try_get(2)?)))
    };
    rows.iter().map(one).collect()
}

/// The treatment of existing items by an insertion: the columns to set, and the columns to return after the
/// id, the revision and whether the item was created.
pub(crate) type Existing = (&'static str, &'static str);

/// The write of an entity or a relationship.
pub(crate) trait Write {
    type Item;

    fn id(&self) -> &str;
    fn options(&self) -> OptionSet;
    /// Returns the item to store, if the condition holds.
    fn applied(&self, stored: Option<(Revision, &Metadata)>) -> Result<Self::Item>;
}

impl Write for EntityWrite {
    type Item = Entity;

    fn id(&self) -> &str {
        self.entity.id.as_str()
    }

    fn options(&self) -> OptionSet {
        Self::options(self)
    }

    fn applied(&self, stored: Option<(Revision, &Metadata)>) -> Result<Entity> {
        self.apply(stored)
    }
}

impl Write for RelationshipWrite {
    type Item = Relationship;

    fn id(&self) -> &str {
        self.relationship.id.as_str()
    }

    fn options(&self) -> OptionSet {
        Self::options(self)
    }

    fn applied(&self, stored: Option<(Revision, &Metadata)>) -> Result<Relationship> {
        self.apply(stored)
    }
}

/// Returns true if every write replaces its item without a condition.
pub(crate) fn are_plain<W: Write>(writes: &[W]) -> bool {
    writes.iter().all(|write| write.options() == OptionSet::NONE)
}

/// Checks the condition of each write, and returns the existing items as the writes leave them. `stored` has
/// the properties of the existing ones.
pub(crate) fn changed<W: Write>(
    writes: &[W],
    written: &HashMap<&str, GraphWritten>,
    stored: &HashMap<&str, Metadata>,
) -> Fallible<Vec<W::Item>> {
    let mut changed = Vec::new();
    for write in writes {
        let id = write.id();
        let held = written.get(id).filter(|one| !one.created);
        let item = write.applied(held.and_then(|one| Some((one.revision, stored.get(id)?))))?;
        if held.is_some() {
            changed.push(item);
        }
    }
    Ok(changed)
}

/// Returns the results in the order of the writes.
pub(crate) fn in_order<W: Write>(
    operation: &'static str,
    writes: &[W],
    written: &HashMap<&str, GraphWritten>,
) -> Fallible<Vec<GraphWritten>> {
    let of = |write: &W| written.get(write.id()).copied();
    Ok(writes.iter().map(of).collect::<Option<_>>().ok_or_else(|| corrupt(operation))?)
}

/// Returns the ids of the entities at the ends, each once.
pub(crate) fn ends<'r>(relationships: &[&'r Relationship]) -> Vec<&'r str> {
    let ends: HashSet<&str> = relationships
        .iter()
        .flat_map(|relationship| [relationship.source.as_str(), relationship.target.as_str()])
        .collect();
    ends.into_iter().collect()
}

/// Rejects relationships with an end that is not among the found rows of entities.
pub(crate) fn check_ends(
    operation: &'static str,
    relationships: &[&Relationship],
    found: &[PgRow],
) -> Fallible<()> {
    let found = found
        .iter()
        .map(|row| row.try_get(0))
        .collect::<std::result::Result<HashSet<&str>, sqlx::Error>>()?;
    for relationship in relationships {
        for (end, field) in
            [(&relationship.source, "relationship.source"), (&relationship.target, "relationship.target")]
        {
            if !found.contains(end.as_str()) {
                return Err(missing_end(operation, field).into());
            }
        }
    }
    Ok(())
}

fn missing_end(operation: &'static str, field: &'static str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        operation,
        "the source or target entity does not exist; write the entities first",
    )
    .with_field(field)
}
