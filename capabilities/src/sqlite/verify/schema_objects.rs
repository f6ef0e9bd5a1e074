//! The tables and indexes of the file, compared with the schema of this program.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::super::failure::Fallible;
use super::super::schema::Schema;
use crate::verify::{Fault, FaultKind, Faults};

/// The kind and the statement of each object, by name.
type Objects = BTreeMap<String, (String, Option<String>)>;

/// Adds the differences.
pub(super) fn check(connection: &Connection, faults: &Faults) -> Fallible<()> {
    let (expected, found) = (expected()?, objects(connection)?);
    for (name, (kind, sql)) in &expected {
        match found.get(name) {
            Some((_, there)) if there.as_deref().map(words) == sql.as_deref().map(words) => {}
            Some(_) => {
                let seen = "differs from the schema of this program";
                faults.add(Fault::new(FaultKind::Format, format!("{kind} {name}"), seen));
            }
            None if kind == "index" => {
                let fault = Fault::new(FaultKind::Index, format!("index {name}"), "is missing");
                faults.add(fault.with_repair(Some("create the index")));
            }
            None => faults.add(Fault::new(FaultKind::Format, format!("{kind} {name}"), "is missing")),
        }
    }
    for (name, (kind, _)) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
        let seen = "is not part of the schema of this program";
        faults.add(Fault::new(FaultKind::Foreign, format!("{kind} {name}"), seen));
    }
    Ok(())
}

/// Returns the statements of the indexes that are missing.
pub(super) fn missing_indexes(connection: &Connection) -> Fallible<Vec<String>> {
    let found = objects(connection)?;
    let missing =
        expected()?.into_iter().filter(|(name, (kind, _))| kind == "index" && !found.contains_key(name));
    Ok(missing.filter_map(|(_, (_, sql))| sql).collect())
}

fn expected() -> Fallible<Objects> {
    let mut new = Connection::open_in_memory()?;
    Schema::CURRENT.migrate(&mut new)?;
    objects(&new)
}

/// Returns the objects with a statement: SQLite makes and checks the others.
fn objects(connection: &Connection) -> Fallible<Objects> {
    let mut statement = connection
        .prepare("SELECT name, type, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    let objects = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    Ok(objects.collect::<Result<_, _>>()?)
}

/// Returns the statement without line breaks, quotes and comments, which a migration may change.
fn words(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join(" ").replace('"', "");
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")")
}
