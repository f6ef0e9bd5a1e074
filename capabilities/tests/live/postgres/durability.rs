//! The durability of each write: the one that the store declares.

use std::time::Duration;

use larder_capabilities::postgres::Postgres;
use larder_kernel::{
    AppendOptions, BlobKey, BlobStore, BlobStoreExt, BoardId, BucketName, ChatMessage, Durability, Entity,
    EntityId, EntityType, GraphStore, HistoryProvider, HistoryProviderExt, IdempotencyKey, Key,
    KeyValueStore, KeyValueStoreExt, NewBoard, NewTask, RenameMode, Seq, TaskId, TaskStore, Thread, Ttl,
    WorkerId,
};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use super::connections::run;
use super::outage::namespace;
use super::{open, with_database};

/// Writes with every contract of the schema that has its own statements.
pub(super) async fn write(postgres: &Postgres, number: u32) {
    let history = postgres.history(namespace());
    let thread = Thread::new("a", format!("{number}")).unwrap();
    history.append(&thread, ChatMessage::user("first")).await.unwrap();
    history.append(&thread, ChatMessage::user("second")).await.unwrap();
    let key = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k").unwrap());
    history.append_many(&thread, vec![ChatMessage::user("third")], key).await.unwrap();
    let mut appends = JoinSet::new();
    for caller in 0..16 {
        let history = postgres.history(namespace());
        let thread = Thread::new("a", format!("{number}-{}", caller % 4)).unwrap();
        appends.spawn(async move { history.append(&thread, ChatMessage::user("x")).await.unwrap() });
    }
    appends.join_all().await;
    history.set_ttl(&thread, Some(Ttl::sliding(Duration::from_secs(60))), None).await.unwrap();
    history.append(&thread, ChatMessage::user("renewed")).await.unwrap();
    let fork = Thread::new("a", format!("fork-{number}")).unwrap();
    history.fork(&thread, &fork, Some(Seq::new(2)), None).await.unwrap();
    history.clear(&fork, None).await.unwrap();
    let values = postgres.key_value(namespace());
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new(format!("{number}")).unwrap());
    values.set(&bucket, &key, "v".into()).await.unwrap();
    values.delete(&bucket, &key, None).await.unwrap();
    let (tasks, board) = (postgres.tasks(namespace()), BoardId::new("c", format!("{number}")).unwrap());
    tasks.create_task_list(&board, NewBoard::default()).await.unwrap();
    let task = TaskId::new("t").unwrap();
    tasks.add_tasks(&board, vec![NewTask::new(task.clone(), "Do it")]).await.unwrap();
    let worker = WorkerId::new("w").unwrap();
    tasks.claim(&board, &worker, Duration::from_secs(9)).await.unwrap().unwrap();
    let (blobs, blob) = (postgres.blobs(namespace()), |text: &str| BlobKey::new(text).unwrap());
    blobs.put_bytes(&blob("a"), "text".into()).await.unwrap();
    blobs.copy(&blob("a"), &blob("b")).await.unwrap();
    blobs.rename(&blob("a"), &blob("b"), RenameMode::Replace).await.unwrap();
    blobs.delete(&blob("b")).await.unwrap();
    let entity = Entity::new(EntityId::new("e").unwrap(), EntityType::new("person").unwrap());
    postgres.graph(namespace()).upsert_entities(vec![entity]).await.unwrap();
}

/// Makes each commit of the schema's tables record the setting under which it is flushed.
const RECORD_COMMITS: &str = "CREATE TABLE public.commits (relation text, setting text);
    CREATE FUNCTION public.record_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.commits VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    DO $$
    DECLARE
        r record;
    BEGIN
        FOR r IN SELECT relname FROM pg_class
            WHERE relnamespace = 'larder'::regnamespace AND relkind = 'r'
        LOOP
            EXECUTE format('CREATE CONSTRAINT TRIGGER record_commit AFTER INSERT OR UPDATE OR DELETE ON
                larder.%I DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                EXECUTE FUNCTION public.record_commit()', r.relname);
        END LOOP;
    END $$";

/// Returns the settings of the commits since the last call, and the number of written tables.
async fn commits(admin: &mut PgConnection) -> (Vec<String>, i64) {
    let settings = sqlx::query_scalar("SELECT DISTINCT setting FROM public.commits ORDER BY 1");
    let settings = settings.fetch_all(&mut *admin).await.unwrap();
    let tables = sqlx::query_scalar("SELECT count(DISTINCT relation) FROM public.commits");
    let tables = tables.fetch_one(&mut *admin).await.unwrap();
    run(admin, "TRUNCATE public.commits").await;
    (settings, tables)
}

/// Once, sessions that began after `synchronous_commit` was switched off used it, while the store went on
/// declaring what it had read at opening: 811 of 1,630 acknowledged appends were lost in a kill.
pub(crate) async fn each_write_is_flushed_as_the_store_declares() {
    with_database("durability", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let database = url.rsplit_once('/').unwrap().1;
        let switch = async |admin: &mut PgConnection, to: &str| {
            let set = format!("ALTER DATABASE {database} SET synchronous_commit = {to}");
            run(admin, &set).await;
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()";
            run(admin, end).await;
        };
        let settle = async |postgres: &Postgres| {
            // The first call finds the ended connection.
            let _ = postgres
                .key_value(namespace())
                .get(&BucketName::new("b").unwrap(), &Key::new("k").unwrap())
                .await;
        };
        let durable = open(&url).await.unwrap();
        assert_eq!(durable.capabilities().durability, Durability::Power);
        run(&mut admin, RECORD_COMMITS).await;
        switch(&mut admin, "off").await;
        settle(&durable).await;
        write(&durable, 1).await;
        let (settings, tables) = commits(&mut admin).await;
        assert_eq!(settings, ["on"]);
        assert!(tables >= 10, "{tables} tables");
        assert_eq!(durable.capabilities().durability, Durability::Power);
        // A database that was opened with less keeps and declares less.
        let fast = open(&url).await.unwrap();
        assert_eq!(fast.capabilities().durability, Durability::None);
        switch(&mut admin, "on").await;
        settle(&fast).await;
        write(&fast, 2).await;
        assert_eq!(commits(&mut admin).await.0, ["off"]);
        assert_eq!(fast.capabilities().durability, Durability::None);
        switch(&mut admin, "local").await;
        let local = open(&url).await.unwrap();
        write(&local, 3).await;
        assert_eq!(commits(&mut admin).await.0, ["local"]);
        // No session keeps a setting: `local` is the database's.
        let left: String = sqlx::query_scalar("SHOW synchronous_commit")
            .fetch_one(&mut PgConnection::connect(&url).await.unwrap())
            .await
            .unwrap();
        assert_eq!(left, "local");
    })
    .await;
}
