//! The versions of the schema: the objects of the baseline, and databases of other versions.

use larder_capabilities::diagnose::{CheckStatus, Findings};
use larder_capabilities::driver::Location;
use larder_capabilities::postgres::PostgresConfig;
use larder_kernel::{
    AppendOptions, ChatMessage, ErrorKind, FencingToken, GraphCondition, GraphStore, HistoryProvider,
    HistoryProviderExt, Namespace, Outcome, RelationshipId, RelationshipWrite, StoredRelationship, Thread,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{open, with_database};

/// The version that the baseline creates.
const BASELINE: i64 = 12;
/// All objects of the newest version: one line for each table, column, constraint, index, trigger and
/// function.
const LISTING: &str = include_str!("schema.txt");

/// Lists the schema from the catalogs. The number of a column counts the existing columns.
const CATALOGS: &str = "
    SELECT format('%s %s%s', CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname,
            ' with ' || array_to_string(c.reloptions, ', '))
        FROM pg_class c WHERE c.relnamespace = 'larder'::regnamespace AND c.relkind NOT IN ('i', 'c')
    UNION ALL
    SELECT format('column %s.%s %s %s%s%s%s%s storage %s%s', c.relname, lpad(row_number() OVER (
                PARTITION BY c.oid ORDER BY a.attnum)::text, 2, '0'), a.attname, format_type(a.atttypid, \
                a.atttypmod),
            ' collate ' || quote_ident(nullif(l.collname, 'default')), CASE WHEN a.attnotnull THEN ' not \
            null' END,
            ' default ' || pg_get_expr(d.adbin, d.adrelid), ' identity ' || nullif(a.attidentity::text, ''), \
            a.attstorage,
            CASE a.attcompression WHEN 'l' THEN ' lz4' END)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            LEFT JOIN pg_collation l ON l.oid = a.attcollation
            LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'larder'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT \
        a.attisdropped
    UNION ALL
    -- From version 18 on, NOT NULL is a constraint as well; the columns have it.
    SELECT format('constraint %s.%s %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid))
        FROM pg_constraint k WHERE k.connamespace = 'larder'::regnamespace AND k.contype <> 'n'
    UNION ALL
    SELECT format('index %s%s', pg_get_indexdef(x.indexrelid), CASE WHEN NOT x.indisvalid THEN ' invalid' END)
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE c.relnamespace = 'larder'::regnamespace
    UNION ALL
    SELECT format('trigger %s', pg_get_triggerdef(t.oid)) FROM pg_trigger t JOIN pg_class c ON c.oid = \
    t.tgrelid
        WHERE c.relnamespace = 'larder'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT format('function %s(%s) returns %s %s volatility %s parallel %s%s%s%s body %s', p.proname,
            pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname, p.provolatile, \
            p.proparallel,
            CASE WHEN p.proisstrict THEN ' strict' END, CASE WHEN p.prosecdef THEN ' security definer' END,
            ' set ' || array_to_string(p.proconfig, ', '), md5(p.prosrc))
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'larder'::regnamespace
    ORDER BY 1";

async fn listing(connection: &mut PgConnection) -> String {
    // Names include their schema, independent of the user.
    run(connection, "SET search_path = pg_catalog".to_owned()).await;
    let mut lines: Vec<String> = sqlx::query_scalar(CATALOGS).fetch_all(connection).await.unwrap();
    // Otherwise texts sort by the database's collation.
    lines.sort_unstable();
    lines.join("\n") + "\n"
}

async fn run(connection: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

/// A change of this listing changes new databases, so the existing ones need a migration step. Run with
/// `LARDER_TEST_LISTING=1` to record it.
pub(crate) async fn a_new_database_has_the_recorded_schema() {
    with_database("listing", async |url: String| {
        open(&url).await.unwrap().close().await;
        let mut admin = PgConnection::connect(&url).await.unwrap();
        if std::env::var_os("LARDER_TEST_LISTING").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/postgres/schema.txt");
            std::fs::write(file, listing(&mut admin).await).unwrap();
            return;
        }
        assert_recorded(&mut admin).await;
    })
    .await;
}

async fn assert_recorded(admin: &mut PgConnection) {
    let lz4: bool = sqlx::query_scalar(
        "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'",
    )
    .fetch_one(&mut *admin)
    .await
    .unwrap();
    let expected = if lz4 { LISTING.to_owned() } else { LISTING.replace(" lz4", "") };
    let found = listing(admin).await;
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// An upgrade that this release no longer has must not be mistaken for one that it has.
pub(crate) async fn an_older_schema_is_refused_by_name_and_not_changed() {
    with_database("older", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let make = "CREATE SCHEMA larder;
             CREATE TABLE larder.schema_version (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
                version bigint NOT NULL);
             INSERT INTO larder.schema_version (version) VALUES (1);
             CREATE TABLE larder.threads (namespace text PRIMARY KEY)";
        run(&mut admin, make.to_owned()).await;
        for version in 1..BASELINE {
            run(&mut admin, format!("UPDATE larder.schema_version SET version = {version}")).await;
            let before = listing(&mut admin).await;
            for parameters in ["", "?migrate=check"] {
                let url = format!("{url}{parameters}");
                let error = open(&url).await.unwrap_err();
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
                for way in ["`larder dump` of the release before", "`larder load` into a new database"] {
                    assert!(error.message().contains(way), "{error}");
                }
                let context = format!("{:?}", error.context());
                assert!(context.contains("format_oldest_supported"), "{context}");
                let findings = Findings::default();
                PostgresConfig::from_url(&url).unwrap().diagnose(&findings).await;
                let checks = findings.take();
                let schema = checks.iter().find(|check| check.name == "schema").unwrap();
                assert_eq!(
                    (schema.status, schema.advice.as_deref()),
                    (CheckStatus::Fail, Some(error.message()))
                );
                assert!(schema.seen.starts_with(&format!("version {version} of ")), "{schema:?}");
            }
            assert_eq!(listing(&mut admin).await, before);
            let left: i64 = sqlx::query_scalar("SELECT version FROM larder.schema_version")
                .fetch_one(&mut admin)
                .await
                .unwrap();
            assert_eq!(left, version);
        }
    })
    .await;
}

/// Every format that this release opens, with a thread and a relationship.
pub(crate) async fn a_database_of_each_older_format_is_upgraded_to_the_recorded_schema() {
    let mut steps = super::schema::BASELINE.split("-- Version ");
    let baseline = steps.next().unwrap();
    let steps: Vec<String> = steps.map(|step| format!("-- {step}")).collect();
    for done in 0..steps.len() {
        with_database(&format!("from{done}"), async |url: String| {
            let mut admin = PgConnection::connect(&url).await.unwrap();
            let version = BASELINE + i64::try_from(done).unwrap();
            let make = format!(
                "CREATE SCHEMA larder;
                 CREATE TABLE larder.schema_version (
                    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), version bigint NOT NULL);
                 INSERT INTO larder.schema_version (version) VALUES ({version});"
            );
            run(&mut admin, make).await;
            run(&mut admin, baseline.to_owned()).await;
            for step in &steps[..done] {
                run(&mut admin, step.clone()).await;
            }
            let rows = "INSERT INTO larder.threads (namespace, agent, session) VALUES ('n', 'a', 's');
                 INSERT INTO larder.entities (namespace, id, entity_type, properties)
                 VALUES ('n', 'e', 't', '{}');
                 INSERT INTO larder.relationships
                    (namespace, id, relationship_type, source, target, properties)
                 VALUES ('n', 'r', 't', 'e', 'e', '{}'), ('n', 's', 't', 'e', 'e', '{}')";
            run(&mut admin, rows.to_owned()).await;
            let checked = open(&format!("{url}?migrate=check")).await.unwrap_err();
            assert_eq!(checked.kind(), ErrorKind::Unsupported);
            let postgres = open(&url).await.unwrap();
            assert_recorded(&mut admin).await;
            let namespace = Namespace::new("n").unwrap();
            let (history, thread) = (postgres.history(namespace.clone()), Thread::new("a", "s").unwrap());
            let fenced = AppendOptions::default().with_fence(FencingToken::new(3));
            history.append_many(&thread, vec![ChatMessage::user("1")], fenced).await.unwrap();
            let refused = history.append(&thread, ChatMessage::user("2")).await.unwrap_err();
            assert_eq!((refused.kind(), refused.field()), (ErrorKind::Conflict, Some("fence")), "{version}");
            let graph = postgres.graph(namespace);
            let ids = ["r", "s"].map(|id| RelationshipId::new(id).unwrap());
            for stored in graph.get_stored_relationships(&ids).await.unwrap() {
                let StoredRelationship { relationship, revision, .. } = stored.unwrap();
                let write = RelationshipWrite::merge(relationship);
                let write = write.with_condition(GraphCondition::AtRevision(revision));
                assert!(graph.write_relationships(vec![write]).await.unwrap()[0].revision > revision);
            }
            postgres.close().await;
        })
        .await;
    }
}

/// The files of the baseline, as this release creates it.
const BASELINE_TABLES: [&str; 4] = [
    include_str!("../../../migrations/postgres/0012_baseline_1_threads.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_2_messages.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_3_key_value.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_4_vectors_graph_tasks.sql"),
];

pub(crate) async fn an_upgrade_draws_a_generation_for_each_thread_bucket_and_board() {
    with_database("generations", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let make = "CREATE SCHEMA larder;
             CREATE TABLE larder.schema_version (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
                version bigint NOT NULL);
             INSERT INTO larder.schema_version (version) VALUES (12);";
        run(&mut admin, make.to_owned()).await;
        for tables in BASELINE_TABLES {
            run(&mut admin, tables.to_owned()).await;
        }
        let rows =
            "INSERT INTO larder.threads (namespace, agent, session) VALUES ('n', 'a', 's'), ('n', 'a', 't');
             INSERT INTO larder.kv_buckets (namespace, bucket) VALUES ('n', 'b'), ('n', 'c');
             INSERT INTO larder.boards (namespace, conversation, agent, live, last_position, last_revision,
                last_token) VALUES ('n', 'c', 'a', true, 0, 1, 0)";
        run(&mut admin, rows.to_owned()).await;
        open(&url).await.unwrap().close().await;
        let mut drawn: Vec<i64> = sqlx::query_scalar(
            "SELECT generation FROM larder.threads UNION ALL SELECT generation FROM larder.kv_buckets
             UNION ALL SELECT generation FROM larder.boards",
        )
        .fetch_all(&mut admin)
        .await
        .unwrap();
        assert!(drawn.iter().all(|drawn| (1..1 << 62).contains(drawn)), "{drawn:?}");
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 5);
    })
    .await;
}
