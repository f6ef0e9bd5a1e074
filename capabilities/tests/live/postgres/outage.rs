//! Failures around a database: each is an error of the right kind, in time, and reveals no secret.

use std::error::Error as _;
use std::time::{Duration, Instant};

use larder_kernel::{
    ChatMessage, CollectionName, Document, DocumentId, Embedding, Error, ErrorKind, Filter, HistoryProvider,
    HistoryProviderExt, Metadata, Namespace, PutMode, SearchRequest, Thread, VectorStore,
};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::{open, server, url_of, with_database};

pub(crate) const CANARY: &str = "c4nary";

/// Asserts that no text of an error contains the password.
fn keeps_the_secret(error: &Error) {
    let mut said = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(inner) = source {
        said += &format!("{inner} {inner:?}");
        source = inner.source();
    }
    assert!(!said.contains(CANARY), "the password shows");
}

fn host() -> String {
    let server = server();
    let location = server.split('?').next().unwrap_or_default();
    location.rsplit_once('@').unwrap().1.split('/').next().unwrap().to_owned()
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

/// Creates a role whose password is the canary, and returns the URL with which the role opens the database.
pub(crate) async fn role(url: &str, name: &str, rights: &str) -> String {
    let role = format!("larder_test_{name}_{}", std::process::id());
    let database = url.rsplit_once('/').unwrap().1;
    let make = format!("CREATE ROLE {role} LOGIN PASSWORD '{CANARY}'; {}", rights.replace("ROLE", &role));
    // Only this statement contains the canary, so only this statement is not logged.
    let unlogged: PgConnectOptions = url.parse().unwrap();
    let mut admin = unlogged.disable_statement_logging().connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
    format!("postgres://{role}:{CANARY}@{}/{database}", host())
}

pub(crate) async fn drop_role(admin: &mut PgConnection, name: &str) {
    let role = format!("larder_test_{name}_{}", std::process::id());
    let remove = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    sqlx::raw_sql(AssertSqlSafe(remove)).execute(admin).await.unwrap();
}

pub(crate) async fn an_unreachable_server_is_a_typed_error_without_the_password() {
    let no_database = url_of("larder_is_not_there");
    let host = host();
    let no_tls = ["trusted TLS", "`sslrootcert`"];
    let refused = ["user or the password", "check the URL"];
    let away = ["check host and port", "runs"];
    for (url, kind, parts) in [
        (format!("postgres://u:{CANARY}@127.0.0.1:1/x"), ErrorKind::Unavailable, away),
        (format!("postgres://u:{CANARY}@larder.invalid/x?sslmode=disable"), ErrorKind::Unavailable, away),
        (no_database, ErrorKind::NotFound, ["database of the URL", "`CREATE DATABASE`"]),
        (format!("postgres://larder_nobody:{CANARY}@{host}/larder"), ErrorKind::PermissionDenied, refused),
        (format!("postgres://larder:{CANARY}@{host}/larder"), ErrorKind::PermissionDenied, refused),
        // The test server has no certificate, so nothing may be sent to it.
        (
            format!("postgres://larder:{CANARY}@{host}/larder?sslmode=verify-full"),
            ErrorKind::Unavailable,
            no_tls,
        ),
        (format!("postgres://larder:{CANARY}@{host}/larder?sslmode=require"), ErrorKind::Unavailable, no_tls),
    ] {
        let began = Instant::now();
        let error = open(&url).await.unwrap_err();
        says(&error, kind, &parts);
        assert!(began.elapsed() < Duration::from_secs(12));
    }
}

/// Asserts the kind of an error, and that its message contains each part and no secret.
pub(crate) fn says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    keeps_the_secret(error);
}

/// Simulates an address where packets are lost, with a listener that never replies.
pub(crate) async fn a_server_that_is_silent_is_given_up_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let times = "acquire_timeout_ms=300&statement_timeout_ms=300";
    let began = Instant::now();
    let error = open(&format!("postgres://u:{CANARY}@127.0.0.1:{port}/x?{times}")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    keeps_the_secret(&error);
}

pub(crate) async fn rights_that_are_missing_are_named() {
    with_database("rights", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        // In a new database the user may not create the schema.
        let nobody = role(&url, "nobody", "").await;
        let error = open(&nobody).await.unwrap_err();
        says(&error, ErrorKind::PermissionDenied, &["grant", "`CREATE` on the database"]);
        open(&url).await.unwrap();
        let error = open(&nobody).await.unwrap_err();
        says(&error, ErrorKind::PermissionDenied, &["grant", "`USAGE` on the schema `larder`"]);
        // With every permission on the tables, the user may still not create pgvector.
        let rights = "GRANT USAGE ON SCHEMA larder TO ROLE;
             GRANT ALL ON ALL TABLES IN SCHEMA larder TO ROLE; GRANT ALL ON ALL SEQUENCES IN SCHEMA larder \
             TO ROLE";
        let user = role(&url, "user", rights).await;
        let postgres = open(&user).await.unwrap();
        let thread = Thread::new("a", "s").unwrap();
        postgres.history(namespace()).append(&thread, ChatMessage::user("Hello")).await.unwrap();
        let error = postgres.vectors(namespace(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("CREATE EXTENSION vector"), "{error}");
        keeps_the_secret(&error);
        // Once pgvector exists, the user can work with it; only an index needs more permissions.
        open(&url).await.unwrap().vectors(namespace(), None).await.unwrap();
        let postgres = open(&format!("{user}?vector_index=hnsw")).await.unwrap();
        let vectors = postgres.vectors(namespace(), None).await.unwrap();
        let space = CollectionName::new("space").unwrap();
        let document = Document::new(DocumentId::new("d").unwrap(), "")
            .with_embedding(Embedding::new(vec![1.0]).unwrap());
        VectorStore::put(&vectors, &space, vec![document], PutMode::Upsert).await.unwrap();
        let error = vectors.build_index(&space).await.unwrap_err();
        says(&error, ErrorKind::PermissionDenied, &["own"]);
        postgres.close().await;
        drop_role(&mut admin, "nobody").await;
        drop_role(&mut admin, "user").await;
    })
    .await;
}

pub(crate) async fn an_old_pgvector_is_refused_and_its_schema_does_not_matter() {
    with_database("extension", async |url: String| {
        open(&url).await.unwrap().vectors(namespace(), None).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let set = "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'";
        sqlx::raw_sql(set).execute(&mut admin).await.unwrap();
        let error = open(&url).await.unwrap().vectors(namespace(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("ALTER EXTENSION vector UPDATE"), "{error}");
        let set = "UPDATE pg_extension SET extversion = '0.8.0' WHERE extname = 'vector';
             CREATE SCHEMA elsewhere; ALTER EXTENSION vector SET SCHEMA elsewhere";
        let before = open(&url).await.unwrap();
        sqlx::raw_sql(set).execute(&mut admin).await.unwrap();
        let error = before.vectors(namespace(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("open the database again"), "{error}");
        // Its schema need not be in the user's `search_path`.
        open(&url).await.unwrap().vectors(namespace(), None).await.unwrap();
        // History and the other contracts need no pgvector.
        sqlx::raw_sql("DROP EXTENSION vector CASCADE").execute(&mut admin).await.unwrap();
        let thread = Thread::new("a", "s").unwrap();
        let postgres = open(&url).await.unwrap();
        postgres.history(namespace()).append(&thread, ChatMessage::user("Hello")).await.unwrap();
    })
    .await;
}

pub(crate) async fn pgvector_works_in_any_schema_of_the_search_path() {
    with_database("elsewhere", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let database = url.rsplit_once('/').unwrap().1;
        let set = format!(
            "CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere;
             ALTER DATABASE {database} SET search_path = public, elsewhere"
        );
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.unwrap();
        let space = CollectionName::new("space").unwrap();
        let request = SearchRequest::new(Embedding::new(vec![0.6, 0.8]).unwrap()).with_limit(1);
        let filtered = request.clone().with_filter(Filter::eq("number", 7));
        for parameters in ["", "?vector_index=hnsw"] {
            let postgres = open(&format!("{url}{parameters}")).await.unwrap();
            let vectors = postgres.vectors(namespace(), None).await.unwrap();
            let documents = (0_u8..100).map(|number| {
                let embedding = Embedding::new(vec![f32::from(number), 80.0]).unwrap();
                let document = Document::new(DocumentId::new(number.to_string()).unwrap(), "");
                document.with_embedding(embedding).with_metadata(Metadata::new().with("number", number))
            });
            vectors.put(&space, documents.collect(), PutMode::Upsert).await.unwrap();
            assert!(parameters.is_empty() || vectors.build_index(&space).await.unwrap());
            assert_eq!(vectors.search(&space, &request).await.unwrap()[0].id.as_str(), "60");
            assert_eq!(vectors.search(&space, &filtered).await.unwrap()[0].id.as_str(), "7");
        }
    })
    .await;
}

/// Without the permission to read the catalogs in which the driver looks up types, a lookup would fail the
/// call.
pub(crate) async fn a_new_connection_looks_up_no_type() {
    with_database("types", async |url: String| {
        open(&url).await.unwrap().vectors(namespace(), None).await.unwrap();
        let rights = "GRANT USAGE ON SCHEMA larder TO ROLE; GRANT ALL ON ALL TABLES IN SCHEMA larder TO ROLE";
        let user = role(&url, "types", rights).await;
        let vectors = open(&user).await.unwrap().vectors(namespace(), None).await.unwrap();
        let space = CollectionName::new("space").unwrap();
        let embedding = Embedding::new(vec![0.6, 0.8]).unwrap();
        let document = Document::new(DocumentId::new("d").unwrap(), "").with_embedding(embedding.clone());
        let request = SearchRequest::new(embedding);
        vectors.put(&space, vec![document.clone()], PutMode::Upsert).await.unwrap();
        let hits = vectors.search(&space, &request).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let set = "REVOKE SELECT ON pg_catalog.pg_enum, pg_catalog.pg_range FROM PUBLIC;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::raw_sql(set).execute(&mut admin).await.unwrap();
        vectors.put(&space, vec![document], PutMode::Upsert).await.unwrap();
        assert_eq!(vectors.search(&space, &request).await.unwrap(), hits);
        // A control: another program's statement needs the lookup and fails.
        let mut other = PgConnection::connect(&user).await.unwrap();
        let looked_up = sqlx::query("SELECT direction FROM larder.documents").fetch_all(&mut other).await;
        assert!(looked_up.is_err());
        drop_role(&mut admin, "types").await;
    })
    .await;
}

pub(crate) async fn without_pgvector_vectors_are_refused_and_the_rest_works() {
    with_database("no_extension", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        // From version 18 on, which is the version of the service.
        let database = url.rsplit_once('/').unwrap().1;
        let set = format!("ALTER DATABASE {database} SET extension_control_path = '/nonexistent'");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut admin).await.unwrap();
        let postgres = open(&url).await.unwrap();
        let error = postgres.vectors(namespace(), None).await.unwrap_err();
        says(&error, ErrorKind::Unsupported, &["no pgvector", "0.8.0"]);
        let thread = Thread::new("a", "s").unwrap();
        postgres.history(namespace()).append(&thread, ChatMessage::user("Hello")).await.unwrap();
    })
    .await;
}

pub(crate) async fn a_full_pool_and_a_long_lock_end_in_time() {
    with_database("full", async |url: String| {
        let times = "pool_size=1&acquire_timeout_ms=1000&lock_timeout_ms=4000";
        let postgres = open(&format!("{url}?{times}")).await.unwrap();
        let history = postgres.history(namespace());
        let thread = Thread::new("a", "s").unwrap();
        history.append(&thread, ChatMessage::user("Hello")).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let mut locked = admin.begin().await.unwrap();
        sqlx::raw_sql("SELECT 1 FROM larder.threads FOR UPDATE").execute(&mut *locked).await.unwrap();
        let waiting = {
            let (history, thread) = (postgres.history(namespace()), thread.clone());
            tokio::spawn(async move { history.append(&thread, ChatMessage::user(CANARY)).await })
        };
        tokio::time::sleep(Duration::from_millis(200)).await;
        let began = Instant::now();
        let error = history.append(&thread, ChatMessage::user(CANARY)).await.unwrap_err();
        says(&error, ErrorKind::ResourceExhausted, &["raise `pool_size`"]);
        assert!(began.elapsed() < Duration::from_secs(3));
        let error = waiting.await.unwrap().unwrap_err();
        says(&error, ErrorKind::Timeout, &["`lock_timeout_ms`", "try again"]);
        locked.rollback().await.unwrap();
        history.append(&thread, ChatMessage::user("again")).await.unwrap();
        assert_eq!(history.tail(&thread, None, 10).await.unwrap().messages.len(), 2);
    })
    .await;
}

/// The password handshake yields to other tasks about 800 times.
pub(crate) async fn a_login_ends_in_time_however_many_tasks_are_ready() {
    with_database("busy", async |url: String| {
        let mut others = tokio::task::JoinSet::new();
        for _ in 0..100 {
            others.spawn(async {
                loop {
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_millis(1) {
                        std::hint::spin_loop();
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let postgres = tokio::spawn(async move { open(&url).await }).await.unwrap().unwrap();
        others.shutdown().await;
        postgres.close().await;
    })
    .await;
}

/// A foreign transaction that is left open on a connection of the pool loses no write.
#[cfg(feature = "sqlx-interop")]
pub(crate) async fn a_pool_of_the_program_is_used_and_left_open() {
    use larder_capabilities::postgres::sqlx_interop::{config_of, open_with_pool};
    with_database("interop", async |url: String| {
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        let postgres = open_with_pool(pool.clone(), config_of(&pool)).await.unwrap();
        let history = postgres.history(namespace());
        let thread = Thread::new("a", "s").unwrap();
        for _ in 0..5 {
            sqlx::raw_sql("BEGIN").execute(&pool).await.unwrap();
            history.append(&thread, ChatMessage::user("kept")).await.unwrap();
            super::drop_after(3, history.append(&thread, ChatMessage::user("dropped"))).await;
        }
        let other = open(&url).await.unwrap().history(namespace());
        let seen = other.tail(&thread, None, 100).await.unwrap().messages;
        assert_eq!(seen.iter().filter(|stored| stored.message.text == "kept").count(), 5);
        postgres.close().await;
        sqlx::raw_sql("SELECT 1").execute(&pool).await.unwrap();
    })
    .await;
}
