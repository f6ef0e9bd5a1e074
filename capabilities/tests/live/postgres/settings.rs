//! The settings of a role: none changes what the stores do.
#![allow(clippy::print_stderr, clippy::large_futures)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use larder_kernel::{
    AgentId, BlobCondition, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, BoardId, BucketName,
    ChatMessage, CollectionName, Direction, Document, DocumentId, Embedding, Entity, EntityId, EntityType,
    ErrorKind, Filter, GraphStore, HistoryProvider, HistoryProviderExt, Key, KeyValueStore, KeyValueStoreExt,
    Metadata, Namespace, NeighborQuery, NewBoard, NewTask, PageRequest, PutMode, Relationship,
    RelationshipId, RelationshipType, RenameMode, SearchRequest, Seq, Store, TaskId, TaskQuery, TaskStore,
    Thread, VectorStore, WorkerId,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::connections::{run, user};
use super::outage::{drop_role, says};
use super::{Postgres, open, with_database};

/// Settings that decide whether a session begins, may write or where tables are, as their names say. The one
/// for debugging runs each statement in a worker, which begins with the role's time limits, of 1 ms here.
const DELIBERATE: &[&str] = &[
    "debug_parallel_query",
    "default_table_access_method",
    "default_tablespace",
    "default_transaction_read_only",
    "local_preload_libraries",
    "session_preload_libraries",
    "session_replication_role",
    "temp_tablespaces",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
];

/// Text values that differ from the defaults.
const TEXTS: &[(&str, &str)] = &[
    ("DateStyle", "'German, DMY'"),
    ("TimeZone", "'Asia/Kolkata'"),
    ("client_encoding", "'LATIN1'"),
    ("search_path", "''"),
    ("search_path", "decoys, pg_catalog"),
    ("plpgsql.extra_errors", "'all'"),
    ("plpgsql.extra_warnings", "'all'"),
    ("plpgsql.print_strict_params", "on"),
    ("restrict_nonsystem_relation_kind", "'view, foreign-table'"),
];

/// Functions, an operator and a table with names that the statements use, too.
const DECOYS: &str = "CREATE SCHEMA decoys; GRANT USAGE ON SCHEMA decoys TO PUBLIC;
    CREATE FUNCTION decoys.floor(numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 1.0';
    CREATE FUNCTION decoys.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
    CREATE FUNCTION decoys.starts_with(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE FUNCTION decoys.length(text) RETURNS integer LANGUAGE sql AS 'SELECT 7';
    CREATE FUNCTION decoys.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE OPERATOR decoys.= (LEFTARG = text, RIGHTARG = text, FUNCTION = decoys.no);
    CREATE TABLE decoys.pg_extension (extname name, extversion text)";

macro_rules! say {
    ($said:ident, $what:expr) => {
        writeln!($said, "{:?}", $what).unwrap()
    };
}

/// Uses every contract, and returns what the stores said.
pub(super) async fn exercise(url: &str, namespace: &str) -> larder_kernel::Result<String> {
    let (mut said, namespace) = (String::new(), Namespace::new(namespace)?);
    let postgres = open(url).await?;
    let (history, thread) = (postgres.history(namespace.clone()), Thread::new("a", "s")?);
    for text in [r"back\slash", "it's", "NULL", "{}", "日本", ""] {
        say!(said, history.append(&thread, ChatMessage::user(text)).await?);
    }
    history.append(&Thread::new("ä", "S")?, ChatMessage::user("other")).await?;
    say!(
        said,
        history
            .tail(&thread, None, 10)
            .await?
            .messages
            .iter()
            .map(|m| m.message.text.clone())
            .collect::<Vec<_>>()
    );
    say!(said, history.fork(&thread, &Thread::new("b", "s")?, Some(Seq::new(3)), None).await?);
    say!(said, history.list_threads(None, PageRequest::first(10)).await?.items.len());
    say!(said, history.list_threads(Some(&AgentId::new("ä")?), PageRequest::first(10)).await?.items.len());
    let (values, bucket) = (postgres.key_value(namespace.clone()), BucketName::new("b")?);
    for key in ["a", "A", "ä", r"\x41", "NULL"] {
        say!(said, values.set(&bucket, &Key::new(key)?, key.to_owned().into()).await?);
    }
    let listed = values.list(&bucket, "", PageRequest::first(10)).await?;
    say!(said, listed.items.iter().map(|item| (item.key.clone(), item.revision)).collect::<Vec<_>>());
    say!(said, values.get(&bucket, &Key::new(r"\x41")?).await?.map(|entry| entry.value));
    say!(said, values.list(&bucket, "\\", PageRequest::first(10)).await?.items.len());
    say!(said, values.delete(&bucket, &Key::new("A")?, None).await?);
    let (tasks, board) = (postgres.tasks(namespace.clone()), BoardId::new("c", "a")?);
    tasks.create_task_list(&board, NewBoard::default()).await?;
    let metadata = Metadata::new().with("n", 1.5e300).with("s", r"\n");
    let new =
        ["t1", "t2"].map(|id| Ok(NewTask::new(TaskId::new(id)?, "Do it").with_metadata(metadata.clone())));
    tasks.add_tasks(&board, new.into_iter().collect::<larder_kernel::Result<_>>()?).await?;
    let worker = WorkerId::new("w")?;
    say!(said, tasks.claim(&board, &worker, Duration::from_secs(60)).await?.map(|claim| claim.task.id));
    let all = tasks.list_tasks(&board, &TaskQuery::default(), PageRequest::first(10)).await?.items;
    say!(said, all.iter().map(|task| (&task.id, task.status, &task.metadata)).collect::<Vec<_>>());
    say!(said, tasks.delete_board(&board).await?);
    say!(said, tasks.get_task(&board, &TaskId::new("t2")?).await.map_err(|error| error.kind()));
    let (graph, kind) = (postgres.graph(namespace.clone()), EntityType::new("person")?);
    let ids = [EntityId::new("e")?, EntityId::new("E")?];
    graph.upsert_entities(ids.iter().map(|id| Entity::new(id.clone(), kind.clone())).collect()).await?;
    let knows = RelationshipType::new("knows")?;
    let relationship = Relationship::new(RelationshipId::new("r")?, knows, ids[0].clone(), ids[1].clone());
    graph.upsert_relationships(vec![relationship]).await?;
    let query = NeighborQuery::default().with_direction(Direction::Both);
    say!(said, graph.neighbors(&ids[1], &query).await?.entities.len());
    say!(said, graph.delete_entity(&ids[0]).await?);
    say!(said, graph.neighbors(&ids[1], &query).await?.entities.len());
    exercise_blobs(&postgres, &namespace, &mut said).await?;
    exercise_vectors(&postgres, &namespace, &mut said).await?;
    for erased in [history.erase().await, values.erase().await, tasks.erase().await, graph.erase().await] {
        erased?;
    }
    postgres.close().await;
    Ok(said)
}

async fn exercise_blobs(
    postgres: &Postgres,
    namespace: &Namespace,
    said: &mut String,
) -> larder_kernel::Result<()> {
    let blobs = postgres.blobs(namespace.clone());
    for name in ["a/b", r"\x41", "ä", "NULL"] {
        let options = BlobPutOptions::default().with_metadata("name", "NULL").with_content_type(r"\x41");
        say!(said, blobs.put(&BlobKey::new(name)?, name.to_owned().into_bytes().into(), options).await?.size);
    }
    let [large, other] = [BlobKey::new("large")?, BlobKey::new("other")?];
    let bytes: Vec<u8> = (0..=250).cycle().take(600_000).collect();
    blobs.put_bytes(&large, bytes.clone().into()).await?;
    blobs.copy(&large, &other).await?;
    let absent = BlobPutOptions::default().with_condition(BlobCondition::Absent);
    say!(said, blobs.put(&other, "refused".into(), absent).await.map_err(|error| error.kind()));
    say!(said, blobs.rename(&other, &BlobKey::new("ä")?, RenameMode::Replace).await?.size);
    say!(said, blobs.get_bytes(&BlobKey::new("ä")?).await? == bytes);
    let info = blobs.head(&BlobKey::new(r"\x41")?).await?;
    say!(said, (info.content_type, info.metadata));
    let listed = blobs.list("", None).await?.map_ok(|entry| (entry.key, entry.size));
    say!(said, listed.try_collect::<Vec<_>>().await?);
    say!(said, blobs.delete(&large).await?);
    blobs.erase().await
}

async fn exercise_vectors(
    postgres: &Postgres,
    namespace: &Namespace,
    said: &mut String,
) -> larder_kernel::Result<()> {
    let vectors = postgres.vectors(namespace.clone(), None).await?;
    let space = CollectionName::new("space")?;
    let documents = (0_u8..20).map(|number| {
        let embedding = Embedding::new(vec![f32::from(number) + 0.1, 7.3])?;
        let metadata = Metadata::new().with("even", number % 2 == 0).with("n", f64::from(number) / 3.0);
        Ok(Document::new(DocumentId::new(number.to_string())?, r"\text")
            .with_embedding(embedding)
            .with_metadata(metadata))
    });
    let documents = documents.collect::<larder_kernel::Result<_>>()?;
    vectors.put(&space, documents, PutMode::Upsert).await?;
    let request = SearchRequest::new(Embedding::new(vec![0.6, 0.8])?).with_limit(5);
    let hits = vectors.search(&space, &request).await?;
    say!(said, hits.iter().map(|hit| (&hit.id, hit.score, &hit.metadata)).collect::<Vec<_>>());
    let filtered = request.clone().with_filter(Filter::eq("even", true));
    say!(said, vectors.search(&space, &filtered).await?.iter().map(|hit| hit.id.clone()).collect::<Vec<_>>());
    vectors.erase().await
}

/// Returns values other than the default for each setting of the server that a role may have.
async fn values(admin: &mut PgConnection) -> Vec<Vec<(String, String)>> {
    let rows: Vec<(String, Vec<String>)> = sqlx::query_as(
        "SELECT name, ARRAY(SELECT value FROM unnest(CASE vartype
                WHEN 'bool' THEN ARRAY['on', 'off']
                WHEN 'enum' THEN enumvals
                WHEN 'integer' THEN ARRAY[min_val, max_val,
                    CASE WHEN 1 BETWEEN min_val::numeric AND max_val::numeric THEN '1' END]
                WHEN 'real' THEN ARRAY[min_val, max_val] END) value
            WHERE value <> setting)
         FROM pg_settings WHERE context IN ('user', 'superuser') ORDER BY name",
    )
    .fetch_all(admin)
    .await
    .unwrap();
    let mut groups: Vec<Vec<(String, String)>> = Vec::new();
    for (name, values) in rows {
        let free = !DELIBERATE.contains(&name.as_str());
        for (at, value) in values.into_iter().enumerate().filter(|_| free) {
            groups.resize(groups.len().max(at + 1), Vec::new());
            groups[at].push((name.clone(), format!("'{value}'")));
        }
    }
    let texts = TEXTS.iter().map(|(name, value)| vec![((*name).to_owned(), (*value).to_owned())]);
    groups.extend(texts);
    groups
}

/// Gives the settings to the role, and returns the number that it took.
async fn give(admin: &mut PgConnection, role: &str, settings: &[(String, String)]) -> usize {
    run(admin, &format!("ALTER ROLE {role} RESET ALL")).await;
    let mut given = 0;
    for (name, value) in settings {
        let set = format!("ALTER ROLE {role} SET {name} = {value}");
        given += usize::from(sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *admin).await.is_ok());
    }
    given
}

pub(crate) async fn no_setting_of_a_role_changes_what_the_stores_do() {
    with_database("settings", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        open(&url).await.unwrap().vectors(super::outage::namespace(), None).await.unwrap();
        run(&mut admin, DECOYS).await;
        let user = user(&url, "settings").await;
        let role = format!("larder_test_settings_{}", std::process::id());
        let expected = exercise(&user, "n").await.unwrap();
        let (mut given, mut different, began) = (0, Vec::new(), Instant::now());
        let same = async |admin: &mut PgConnection, settings: &[(String, String)]| {
            let count = give(admin, &role, settings).await;
            let said = tokio::time::timeout(Duration::from_secs(60), exercise(&user, "n")).await;
            // A failure may leave some of its data.
            let erase = "TRUNCATE larder.threads, larder.messages, larder.thread_events, larder.append_keys,
                larder.removal_keys, larder.popped_messages, larder.kv_buckets, larder.kv_entries,
                larder.kv_tombstones, larder.boards, larder.tasks, larder.entities, larder.relationships,
                larder.collections, larder.documents";
            let said =
                said.map_or_else(|_| "too slow".to_owned(), |said| said.unwrap_or_else(|e| e.to_string()));
            if said != expected {
                run(admin, erase).await;
            }
            (count, (said != expected).then_some(said))
        };
        for group in values(&mut admin).await {
            let (count, said) = same(&mut admin, &group).await;
            given += count;
            let Some(said) = said else { continue };
            let mut found = false;
            for setting in &group {
                if same(&mut admin, std::slice::from_ref(setting)).await.1.is_some() {
                    found = true;
                    different.push(format!("{setting:?}"));
                }
            }
            if !found {
                different.push(format!("together, {group:?}: {said}"));
            }
        }
        assert!(different.is_empty(), "{different:#?}");
        assert!(given > 300, "only {given} values");
        eprintln!("{given} values of settings in {:?}", began.elapsed());
        run(&mut admin, &format!("ALTER ROLE {role} RESET ALL")).await;
        // A setting that only a superuser can reset, and that would leave rows behind.
        run(&mut admin, &format!("ALTER ROLE {role} SET session_replication_role = replica")).await;
        let error = open(&user).await.unwrap_err();
        says(&error, ErrorKind::Unsupported, &["`session_replication_role`", "reset it"]);
        drop_role(&mut admin, "settings").await;
    })
    .await;
}
