//! The schema: the objects of the baseline, and files of other versions.

mod format;

use std::path::Path;

use larder_kernel::{
    ErrorKind, GraphCondition, GraphStore, Namespace, Outcome, RelationshipId, RelationshipWrite, Revision,
    StoredRelationship,
};
use tempfile::TempDir;

use super::super::{Sqlite, SqliteConfig};
use super::*;
use crate::diagnose::{CheckStatus, Findings};

/// The recorded objects of the newest version.
const LISTING: &str = include_str!("listing.txt");

/// Lists the objects of a file as SQLite reports them: statements in one line and without quotes, then their
/// interpretation by SQLite.
fn listing(connection: &Connection) -> String {
    let mut lines = Vec::new();
    let mut add = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        let found = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        lines.extend(found.map(|line| {
            let unquoted = line.unwrap().replace('"', "");
            let words: Vec<&str> = unquoted.split_whitespace().collect();
            words.join(" ").replace("( ", "(").replace(" )", ")")
        }));
    };
    for pragma in ["application_id", "user_version", "encoding"] {
        add(&format!("SELECT '{pragma} ' || {pragma} FROM pragma_{pragma}"));
    }
    add("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name");
    add("SELECT 'table ' || t.name || iif(t.wr, ' without rowid', '') || iif(t.strict, ' strict', '')
         FROM pragma_table_list t WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name");
    add("SELECT 'column ' || m.name || '.' || printf('%02d', c.cid) || ' ' || c.name || ' ' || c.type ||
            iif(c.\"notnull\", ' not null', '') || ifnull(' default ' || c.dflt_value, '') ||
            iif(c.pk, ' key ' || c.pk, '') || iif(c.hidden, ' hidden', '')
         FROM sqlite_schema m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid");
    add("SELECT 'foreign key ' || m.name || '.' || f.\"from\" || ' to ' || f.\"table\" || '.' || f.\"to\" ||
            ' on delete ' || f.on_delete || ' on update ' || f.on_update
         FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY 1");
    add(
        "SELECT 'index ' || i.name || iif(i.\"unique\", ' unique', '') || iif(i.partial, ' partial', '') || \
         ' ' ||
            (SELECT group_concat(ifnull(c.name, 'rowid') || ' ' || c.coll || iif(c.\"desc\", ' desc', '') ||
                iif(c.key, '', ' stored'), ', ') FROM pragma_index_xinfo(i.name) c)
         FROM sqlite_schema m, pragma_index_list(m.name) i WHERE m.type = 'table' ORDER BY i.name",
    );
    lines.join("\n") + "\n"
}

async fn open(path: &Path) -> larder_kernel::Result<Sqlite> {
    Sqlite::open(SqliteConfig::new(path)).await
}

/// A change of this listing changes the schema of new files, so existing files need a migration. Run with
/// `LARDER_TEST_LISTING=1` to record it.
#[tokio::test]
async fn a_new_file_has_the_recorded_schema() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    open(&path).await.unwrap().close().await;
    let found = listing(&Connection::open(&path).unwrap());
    if std::env::var_os("LARDER_TEST_LISTING").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/schema/listing.txt");
        std::fs::write(file, &found).unwrap();
        return;
    }
    for (found, expected) in found.lines().zip(LISTING.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), LISTING.lines().count());
}

#[tokio::test]
async fn an_upgrade_draws_a_generation_for_each_thread_bucket_and_board() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(BASELINE_TABLES).unwrap();
    old.execute_batch(
        "INSERT INTO threads (namespace, agent, session, live, last_seq, changed_seq, messages, bytes, \
         ttl_refresh)
         VALUES ('n', 'a', 's', 0, 7, 7, 0, 0, 0), ('n', 'a', 't', 0, 1, 1, 0, 0, 0);
         INSERT INTO kv_buckets (namespace, bucket, last_revision, forgotten_revision)
         VALUES ('n', 'b', 3, 0), ('n', 'c', 3, 0);
         INSERT INTO boards (namespace, conversation, agent, live, last_position, last_revision, last_token)
         VALUES ('n', 'c', 'a', 1, 0, 1, 0)",
    )
    .unwrap();
    old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    old.pragma_update(None, "user_version", BASELINE).unwrap();
    drop(old);
    open(&path).await.unwrap().close().await;
    let new = Connection::open(&path).unwrap();
    assert_eq!(version(&new).unwrap(), Schema::CURRENT.formats().newest);
    let mut drawn = new
        .prepare(
            "SELECT generation FROM threads UNION ALL SELECT generation FROM kv_buckets
             UNION ALL SELECT generation FROM boards",
        )
        .unwrap();
    let drawn: rusqlite::Result<Vec<i64>> = drawn.query_map([], |row| row.get(0)).unwrap().collect();
    let mut drawn = drawn.unwrap();
    assert!(drawn.iter().all(|drawn| (1..1 << 62).contains(drawn)), "{drawn:?}");
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 5);
}

#[tokio::test]
async fn an_upgrade_gives_each_relationship_a_revision() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("larder.db");
    let old = Connection::open(&path).unwrap();
    old.execute_batch(BASELINE_TABLES).unwrap();
    old.execute_batch(
        "UPDATE entity_revisions SET last_revision = 7;
         INSERT INTO entities (key, namespace, id, entity_type, revision, properties)
         VALUES (1, 'n', 'e', 't', 7, '{}');
         INSERT INTO relationships (namespace, id, relationship_type, source, target, properties)
         VALUES ('n', 'r', 't', 1, 1, '{}'), ('n', 's', 't', 1, 1, '{}')",
    )
    .unwrap();
    old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    old.pragma_update(None, "user_version", BASELINE).unwrap();
    drop(old);
    let sqlite = open(&path).await.unwrap();
    let graph = sqlite.graph(Namespace::new("n").unwrap());
    let ids = ["r", "s"].map(|id| RelationshipId::new(id).unwrap());
    for stored in graph.get_stored_relationships(&ids).await.unwrap() {
        let StoredRelationship { relationship, revision, .. } = stored.unwrap();
        assert_eq!(revision, Revision::new(8));
        let at = GraphCondition::AtRevision(revision);
        let write = RelationshipWrite::replace(relationship).with_condition(at);
        assert!(graph.write_relationships(vec![write]).await.unwrap()[0].revision > revision);
    }
    sqlite.close().await;
}

#[tokio::test]
async fn an_older_file_is_refused_by_name_and_not_changed() {
    let folder = TempDir::new().unwrap();
    for version in 1..BASELINE {
        let path = folder.path().join(format!("{version}.db"));
        let old = Connection::open(&path).unwrap();
        old.execute_batch("CREATE TABLE threads (id INTEGER PRIMARY KEY); INSERT INTO threads VALUES (7)")
            .unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.pragma_update(None, "user_version", version).unwrap();
        drop(old);
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Unsupported, Some("path")));
        assert_eq!(error.outcome(), Outcome::NotApplied);
        for way in ["`larder dump` of the release before", "`larder load` into a new file"] {
            assert!(error.message().contains(way), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);

        let (config, findings) = (SqliteConfig::new(&path), Findings::default());
        super::super::diagnose::diagnose(&config, &findings).await;
        let checks = findings.take();
        let schema = checks.iter().find(|check| check.name == "schema").unwrap();
        assert_eq!((schema.status, schema.advice.as_deref()), (CheckStatus::Fail, Some(error.message())));
        assert!(schema.seen.starts_with(&format!("version {version} of ")), "{schema:?}");
        assert_eq!(super::super::diagnose::opening_changes(&config), None);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
