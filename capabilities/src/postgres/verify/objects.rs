//! The tables, indexes, functions and constraints of the schema, compared with the objects that this
//! program creates.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, Row};

use super::super::failure::Fallible;
use super::super::schema::Schema;
use crate::verify::{Fault, FaultKind, Faults};

/// An object of the schema.
pub(super) struct Object {
    kind: &'static str,
    name: String,
    /// The statement that creates it.
    pub(super) sql: String,
}

/// The words with which a statement creates an object, and its kind.
const CREATES: [(&str, &str); 5] = [
    ("CREATE TABLE larder.", "table"),
    ("CREATE SEQUENCE larder.", "sequence"),
    ("CREATE FUNCTION larder.", "function"),
    ("CREATE INDEX ", "index"),
    ("CREATE UNIQUE INDEX ", "index"),
];
/// The tables that no migration creates: the first opening does, and one with AGE.
const OTHERS: [&str; 2] = ["schema_version", "age_graphs"];

/// Adds the differences.
pub(super) async fn check(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    let found = found(sql).await?;
    for Object { kind, name, .. } in objects() {
        match found.get(&(kind, name.clone())) {
            Some(true) => {}
            Some(false) => faults.add(unusable(kind, &name)),
            None if kind == "index" => {
                let fault = Fault::new(FaultKind::Index, format!("index {name}"), "is missing");
                faults.add(fault.with_repair(Some("create the index")));
            }
            None => faults.add(Fault::new(FaultKind::Format, format!("{kind} {name}"), "is missing")),
        }
    }
    let expected: BTreeSet<String> = objects().into_iter().map(|object| object.name).collect();
    for ((kind, name), is_usable) in &found {
        if *kind == "table" && !expected.contains(name) && !OTHERS.contains(&name.as_str()) {
            let seen = "is not part of the schema of this program";
            faults.add(Fault::new(FaultKind::Foreign, format!("table {name}"), seen));
        }
        if *kind == "index" && name.ends_with("_pkey") && !is_usable {
            faults.add(unusable(kind, name));
        }
    }
    Ok(())
}

fn unusable(kind: &str, name: &str) -> Fault {
    let fault = Fault::new(FaultKind::Index, format!("{kind} {name}"), "is not valid");
    fault.with_repair((kind == "index").then_some("rebuild the index"))
}

/// Returns the statements that create missing indexes, and rebuild unusable ones.
pub(super) async fn index_repairs(sql: &mut PgConnection) -> Fallible<Vec<String>> {
    let found = found(sql).await?;
    let repairs = objects().into_iter().filter(|object| object.kind == "index").filter_map(|object| {
        match found.get(&("index", object.name.clone())) {
            None => Some(object.sql),
            Some(false) => Some(format!("REINDEX INDEX larder.{}", object.name)),
            Some(true) => None,
        }
    });
    let keys = found
        .iter()
        .filter(|((kind, name), usable)| *kind == "index" && name.ends_with("_pkey") && !**usable);
    let keys = keys.map(|((_, name), _)| format!("REINDEX INDEX larder.{name}"));
    Ok(repairs.chain(keys).collect())
}

/// Returns whether each object of the schema is usable, by kind and name. The parts of partitioned tables are
/// left out.
async fn found(sql: &mut PgConnection) -> Fallible<BTreeMap<(&'static str, String), bool>> {
    let rows = sqlx::query(
        "SELECT CASE WHEN c.relkind IN ('i', 'I') THEN 'index' WHEN c.relkind = 'S' THEN 'sequence' ELSE \
         'table' END,
            c.relname::text, coalesce(i.indisvalid AND i.indisready, true)
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
         WHERE n.nspname = 'larder' AND c.relkind IN ('r', 'p', 'f', 'i', 'I', 'S') AND NOT c.relispartition
         UNION ALL
         SELECT DISTINCT 'function', p.proname::text, true
         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'larder'
         UNION ALL
         SELECT 'constraint', k.conname::text, bool_and(k.convalidated)
         FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_namespace n ON n.oid = k.connamespace
         WHERE n.nspname = 'larder' GROUP BY k.conname",
    )
    .persistent(false)
    .fetch_all(sql)
    .await?;
    let kinds = ["table", "index", "sequence", "function", "constraint"];
    let mut found = BTreeMap::new();
    for row in &rows {
        let kind: &str = row.try_get(0)?;
        if let Some(kind) = kinds.into_iter().find(|known| *known == kind) {
            found.insert((kind, row.try_get(1)?), row.try_get(2)?);
        }
    }
    Ok(found)
}

/// Returns the objects that the migrations create.
fn objects() -> Vec<Object> {
    let mut objects = Vec::new();
    for statement in Schema::CURRENT.statements().flat_map(statements) {
        let created = CREATES.iter().find_map(|(words, kind)| {
            Some((*kind, statement.strip_prefix(words)?.split([' ', '(', '\n', ';']).next()?.to_owned()))
        });
        let Some((kind, name)) = created else { continue };
        if kind == "table" {
            let constraints =
                statement.split("CONSTRAINT ").skip(1).filter_map(|rest| rest.split(' ').next());
            for name in constraints {
                objects.push(Object { kind: "constraint", name: name.to_owned(), sql: String::new() });
            }
        }
        objects.push(Object { kind, name, sql: statement });
    }
    objects
}

/// Returns the statements of a migration, without comments. A function body between `$$` is part of its
/// statement.
fn statements(migration: &str) -> Vec<String> {
    let lines = migration.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut statements = vec![String::new()];
    for (number, part) in text.split("$$").enumerate() {
        let mut pieces = if number % 2 == 0 { part.split(';').collect() } else { vec![part] }.into_iter();
        if let (Some(first), Some(last)) = (pieces.next(), statements.last_mut()) {
            last.push_str(first);
        }
        statements.extend(pieces.map(str::to_owned));
    }
    statements.iter().map(|statement| statement.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_the_schema_are_read_from_its_migrations() {
        let objects = objects();
        let has = |kind, name: &str| objects.iter().any(|object| object.kind == kind && object.name == name);
        for (kind, name) in [
            ("table", "threads"),
            ("table", "tasks"),
            ("index", "messages_by_author"),
            ("index", "tasks_in_progress"),
            ("sequence", "entity_revisions"),
            ("function", "append_together"),
            ("function", "at_format"),
            ("constraint", "relationships_source"),
            ("constraint", "tasks_place"),
        ] {
            assert!(has(kind, name), "{kind} {name}");
        }
        let index = objects.iter().find(|object| object.name == "threads_to_sweep").unwrap();
        let sql = "CREATE INDEX threads_to_sweep ON larder.threads (sweep_ms) WHERE sweep_ms IS NOT NULL";
        assert_eq!(index.sql, sql);
        assert!(objects.len() > 50, "{}", objects.len());
    }
}
