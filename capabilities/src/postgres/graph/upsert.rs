//! The shared parts of the upserts of both graphs: the ends of relationships, and the report.

use std::collections::{HashMap, HashSet};

use larder_kernel::{
    Entity, EntityWrite, Error, ErrorKind, GraphWritten, Metadata, Relationship, Revision, UpsertReport,
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

/// Checks the condition of each write, and returns the existing entities as the writes leave them. `stored`
/// has the properties of the existing ones.
pub(crate) fn changed(
    writes: &[EntityWrite],
    written: &HashMap<&str, GraphWritten>,
    stored: &HashMap<&str, Metadata>,
) -> Fallible<Vec<Entity>> {
    let mut changed = Vec::new();
    for write in writes {
        let id = write.entity.id.as_str();
        let held = written.get(id).filter(|one| !one.created);
        let entity = write.apply(held.and_then(|one| Some((one.revision, stored.get(id)?))))?;
        if held.is_some() {
            changed.push(entity);
        }
    }
    Ok(changed)
}

/// Returns the results in the order of the writes.
pub(crate) fn in_order(
    operation: &'static str,
    writes: &[EntityWrite],
    written: &HashMap<&str, GraphWritten>,
) -> Fallible<Vec<GraphWritten>> {
    let of = |write: &EntityWrite| written.get(write.entity.id.as_str()).copied();
    Ok(writes.iter().map(of).collect::<Option<_>>().ok_or_else(|| corrupt(operation))?)
}

/// Counts rows that state for each item whether it was created.
pub(crate) fn report(rows: &[PgRow]) -> Fallible<UpsertReport> {
    let mut report = UpsertReport::default();
    for row in rows {
        if row.try_get(0)? {
            report.created += 1;
        } else {
            report.replaced += 1;
        }
    }
    Ok(report)
}

/// Returns the ids of the entities at the ends, each once.
pub(crate) fn ends(relationships: &[Relationship]) -> Vec<&str> {
    let ends: HashSet<&str> = relationships
        .iter()
        .flat_map(|relationship| [relationship.source.as_str(), relationship.target.as_str()])
        .collect();
    ends.into_iter().collect()
}

/// Rejects relationships with an end that is not among the found rows of entities.
pub(crate) fn check_ends(relationships: &[Relationship], found: &[PgRow]) -> Fallible<()> {
    let found = found.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<&str>, sqlx::Error>>()?;
    for relationship in relationships {
        for (end, field) in
            [(&relationship.source, "relationship.source"), (&relationship.target, "relationship.target")]
        {
            if !found.contains(end.as_str()) {
                return Err(missing_end(field).into());
            }
        }
    }
    Ok(())
}

fn missing_end(field: &'static str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "graph.upsert_relationships",
        "the source or target entity does not exist; write the entities first",
    )
    .with_field(field)
}
