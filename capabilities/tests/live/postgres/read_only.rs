//! A database that accepts no writes, such as a standby. Reads skip their optional writes and succeed.

use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{
    BoardId, BucketName, ChatMessage, CollectionName, Document, DocumentId, Embedding, Entity, EntityId,
    EntityType, ErrorKind, GraphStore, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, NeighborQuery, NewBoard, NewTask, PageRequest, PutMode, Revision, SearchRequest, Seq,
    TaskId, TaskQuery, TaskStore, Thread, Ttl, VectorStore, WorkerId,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::outage::{CANARY, namespace, says};
use super::{open, with_database};

async fn make_read_only(url: &str) {
    let mut admin = PgConnection::connect(url).await.unwrap();
    let database = url.rsplit_once('/').unwrap().1;
    let set = format!("ALTER DATABASE {database} SET default_transaction_read_only = on");
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.unwrap();
}

/// Once, a read of a thread with a sliding time to live failed, because it tried to renew the expiry.
pub(crate) async fn a_read_only_database_reads_and_refuses_to_write() {
    with_database("readonly", async |url: String| {
        let thread = Thread::new("a", "s").unwrap();
        let postgres = open(&url).await.unwrap();
        let (ended, renewed) = (Thread::new("a", "ended").unwrap(), Thread::new("a", "renewed").unwrap());
        for thread in [&thread, &ended, &renewed] {
            postgres.history(namespace()).append(thread, ChatMessage::user("Hello")).await.unwrap();
        }
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let expire = "UPDATE larder.threads SET ttl_ms = 1, expires_ms = 1 WHERE session = 'ended'";
        sqlx::raw_sql(expire).execute(&mut admin).await.unwrap();
        let ttl = Ttl::sliding(Duration::from_secs(60));
        postgres.history(namespace()).set_ttl(&renewed, Some(ttl), None).await.unwrap();
        make_read_only(&url).await;
        let history = open(&url).await.unwrap().history(namespace());
        let error = history.append(&thread, ChatMessage::user(CANARY)).await.unwrap_err();
        says(&error, ErrorKind::PermissionDenied, &["read-only", "primary"]);
        // The read can write neither the removal of an expired item nor the renewal of a sliding time to
        // live.
        for (thread, messages) in [(&thread, 1), (&ended, 0), (&renewed, 1)] {
            assert_eq!(history.tail(thread, None, 10).await.unwrap().messages.len(), messages);
            assert_eq!(history.page_after(thread, Seq::ZERO, 10).await.unwrap().messages.len(), messages);
        }
        let info = history.thread_info(&ended).await.unwrap();
        // The expiry counts, although it cannot be recorded.
        assert_eq!((info.messages, info.bytes, info.last), (0, 0, Seq::new(2)));
        assert_eq!(history.page_after(&ended, info.last, 10).await.unwrap().messages.len(), 0);
        // A subscription polls, because it can receive no notifications.
        let mut events = history.subscribe(&thread, Seq::ZERO).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
        let next = tokio::time::timeout(Duration::from_millis(1_500), events.next()).await;
        assert!(next.is_err(), "{next:?}");
    })
    .await;
    with_database("readonly_new", async |url: String| {
        make_read_only(&url).await;
        let error = open(&url).await.unwrap_err();
        says(&error, ErrorKind::PermissionDenied, &["read-only", "primary"]);
    })
    .await;
}

pub(crate) async fn every_store_reads_from_a_read_only_database() {
    with_database("readonly_all", async |url: String| {
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        let (board, task) = (BoardId::new("c", "a").unwrap(), TaskId::new("t").unwrap());
        let space = CollectionName::new("s").unwrap();
        let entity = EntityId::new("e").unwrap();
        let embedding = Embedding::new(vec![1.0, 0.0]).unwrap();
        let postgres = open(&url).await.unwrap();
        postgres.key_value(namespace()).set(&bucket, &key, "v".into()).await.unwrap();
        let tasks = postgres.tasks(namespace());
        tasks.create_task_list(&board, NewBoard::default()).await.unwrap();
        tasks.add_tasks(&board, vec![NewTask::new(task.clone(), "Do it")]).await.unwrap();
        // Reads see that a lease has expired, but do not release the task.
        let worker = WorkerId::new("w").unwrap();
        tasks.claim(&board, &worker, Duration::from_millis(1)).await.unwrap().unwrap();
        let document = Document::new(DocumentId::new("d").unwrap(), "text").with_embedding(embedding.clone());
        let vectors = postgres.vectors(namespace(), None).await.unwrap();
        vectors.put(&space, vec![document], PutMode::Upsert).await.unwrap();
        let graph = postgres.graph(namespace());
        graph
            .upsert_entities(vec![Entity::new(entity.clone(), EntityType::new("person").unwrap())])
            .await
            .unwrap();
        make_read_only(&url).await;

        let postgres = open(&url).await.unwrap();
        let values = postgres.key_value(namespace());
        assert!(values.get(&bucket, &key).await.unwrap().is_some());
        let mut events = values.watch(&bucket, "", Revision::ZERO).await.unwrap();
        events.next().await.unwrap().unwrap();
        let tasks = postgres.tasks(namespace());
        assert!(tasks.get_board(&board).await.unwrap().is_some());
        assert!(tasks.get_task(&board, &task).await.unwrap().is_some());
        let all = TaskQuery::default();
        assert_eq!(tasks.list_tasks(&board, &all, PageRequest::first(10)).await.unwrap().items.len(), 1);
        let vectors = postgres.vectors(namespace(), None).await.unwrap();
        assert_eq!(vectors.count(&space, None).await.unwrap(), 1);
        assert_eq!(vectors.search(&space, &SearchRequest::new(embedding)).await.unwrap().len(), 1);
        let graph = postgres.graph(namespace());
        let near = graph.neighbors(&entity, &NeighborQuery::default()).await.unwrap();
        assert_eq!(near.entities.len(), 1);
    })
    .await;
}

/// Once, an opening that only reads failed, so that `dump` and `copy` of such a database did.
pub(crate) async fn a_database_that_never_held_vectors_reads_as_empty() {
    with_database("readonly_bare", async |url: String| {
        open(&url).await.unwrap().close().await;
        let postgres = open(&format!("{url}?migrate=check")).await.unwrap();
        let vectors = postgres.vectors(namespace(), None).await.unwrap();
        let (space, id) = (CollectionName::new("s").unwrap(), DocumentId::new("d").unwrap());
        let embedding = Embedding::new(vec![1.0, 0.0]).unwrap();
        let search = SearchRequest::new(embedding.clone());
        assert_eq!(vectors.list_collections(PageRequest::first(10)).await.unwrap().items, []);
        assert_eq!(vectors.get(&space, std::slice::from_ref(&id)).await.unwrap(), [None]);
        assert_eq!(vectors.count(&space, None).await.unwrap(), 0);
        assert_eq!(vectors.search_batch(&space, &[search.clone(), search.clone()]).await.unwrap().len(), 2);
        let document = || vec![Document::new(id.clone(), "text").with_embedding(embedding.clone())];
        let error = vectors.put(&space, document(), PutMode::Upsert).await.unwrap_err();
        says(&error, ErrorKind::Unsupported, &["migrate=auto"]);
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let extensions = "SELECT count(*) FROM pg_extension WHERE extname = 'vector'";
        assert_eq!(sqlx::query_scalar::<_, i64>(extensions).fetch_one(&mut admin).await.unwrap(), 0);

        let writer = open(&url).await.unwrap().vectors(namespace(), None).await.unwrap();
        assert_eq!(vectors.search(&space, &search).await.unwrap().len(), 0);
        writer.put(&space, document(), PutMode::Upsert).await.unwrap();
        let error = vectors.search(&space, &search).await.unwrap_err();
        says(&error, ErrorKind::Unavailable, &["open it again"]);
        // Without pgvector, documents that exist cannot be read in full, so they are not called empty.
        sqlx::raw_sql("DROP EXTENSION vector CASCADE").execute(&mut admin).await.unwrap();
        let postgres = open(&format!("{url}?migrate=check")).await.unwrap();
        let error = postgres.vectors(namespace(), None).await.unwrap_err();
        says(&error, ErrorKind::Unsupported, &["migrate=auto"]);
    })
    .await;
}
