//! Mistakes in a URL, on a server and in its permissions: each is an error of the right kind that says what
//! to do.

use std::process::Command;

use larder::{Backend, Stores};
use larder_kernel::{
    ChatMessage, Entity, EntityId, EntityType, Error, ErrorKind, HistoryProviderExt, Namespace, Outcome,
    Thread,
};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::server::Server;
use super::{AGE, CANARY, GARAGE, OPEN, POSTGRES, REDIS, REDIS_CLUSTER, host, keeps_the_secret, refused};
use crate::trial::plain_redis;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Asserts the kind of an error, and that its message contains each part.
fn says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    keeps_the_secret(error);
}

async fn is_refused(url: &str, kind: ErrorKind, parts: &[&str]) {
    says(&refused(url).await, kind, parts);
}

async fn open(url: &str) -> larder_kernel::Result<(Backend, Stores)> {
    let place = Backend::open(url).await?;
    let stores = place.stores(&Namespace::new("weather-mistakes").unwrap()).await;
    if let Some((_, error)) = stores.errors().first() {
        return Err((*error).clone());
    }
    Ok((place, stores))
}

pub(crate) async fn nobody_at_the_port() {
    for (url, parts) in [
        (format!("redis://user:{CANARY}@127.0.0.1:1"), ["check host and port", "runs"]),
        (format!("redis+cluster://user:{CANARY}@127.0.0.1:1"), ["check host and port", "runs"]),
        (format!("postgres://user:{CANARY}@127.0.0.1:1/x"), ["check host and port", "runs"]),
        (format!("age://user:{CANARY}@127.0.0.1:1/x"), ["check host and port", "runs"]),
        (
            format!("s3://KEY:{CANARY}@bucket?endpoint=http://127.0.0.1:1&region=x"),
            ["check `endpoint=`", "runs"],
        ),
    ] {
        is_refused(&url, ErrorKind::Unavailable, &parts).await;
    }
}

pub(crate) async fn no_such_host() {
    for (url, part) in [
        (format!("redis://user:{CANARY}@larder.invalid"), "check host"),
        (format!("redis+cluster://user:{CANARY}@larder.invalid"), "check host"),
        (format!("postgres://user:{CANARY}@larder.invalid/x?sslmode=disable"), "check host"),
        (format!("age://user:{CANARY}@larder.invalid/x?sslmode=disable"), "check host"),
        (format!("s3://KEY:{CANARY}@bucket?endpoint=https://larder.invalid&region=x"), "check `endpoint=`"),
    ] {
        is_refused(&url, ErrorKind::Unavailable, &[part]).await;
    }
}

/// A listener that speaks another protocol.
pub(crate) async fn a_server_of_another_kind() {
    let (postgres, redis) = (variable(POSTGRES), variable(REDIS));
    let (postgres, redis) = (host(&postgres), host(&redis));
    for (url, parts) in [
        (format!("redis://user:{CANARY}@{postgres}?connect_timeout_ms=2000"), ["check", "host"]),
        (format!("postgres://user:{CANARY}@{redis}/x?acquire_timeout_ms=2000"), ["check", "host"]),
        (format!("s3://KEY:{CANARY}@bucket?endpoint=http://{redis}&region=x"), ["check", "`endpoint=`"]),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
        says(&error, error.kind(), &parts);
    }
}

pub(crate) async fn a_missing_bucket(name: &'static str) {
    let url = variable(name);
    let (location, query) = url.split_once('?').unwrap();
    let (keys, _) = location.split_once('@').unwrap();
    let url = format!("{keys}@no-such-bucket-here?{query}");
    is_refused(&url, ErrorKind::NotFound, &["bucket", "create it", "endpoint"]).await;
}

pub(crate) async fn wrong_keys(name: &'static str) {
    let url = variable(name);
    let (location, query) = url.split_once('?').unwrap();
    let (keys, bucket) = location.split_once('@').unwrap();
    let access_key = keys.strip_prefix("s3://").unwrap().split_once(':').unwrap().0;
    let wrong_secret = format!("s3://{access_key}:{CANARY}@{bucket}?{query}");
    is_refused(&wrong_secret, ErrorKind::PermissionDenied, &["key", "check"]).await;
    let unknown = format!("s3://GK000000000000000000000000:{CANARY}@{bucket}?{query}");
    is_refused(&unknown, ErrorKind::PermissionDenied, &["key", "check"]).await;
}

/// Returns the output of a separate process that opens a URL with its own environment.
fn opened_elsewhere(url: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").env(OPEN, url).envs(environment.iter().copied());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

pub(crate) async fn s3_without_credentials_or_a_region() {
    let url = "s3://bucket?endpoint=http://127.0.0.1:1&region=x";
    let said = opened_elsewhere(url, &[("AWS_EC2_METADATA_DISABLED", "true")]);
    for part in ["PermissionDenied", "`AWS_ACCESS_KEY_ID`", "`s3://ACCESS_KEY:SECRET_KEY@bucket`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let keys = [("AWS_ACCESS_KEY_ID", "KEY"), ("AWS_SECRET_ACCESS_KEY", CANARY)];
    let said = opened_elsewhere("s3://bucket", &keys);
    assert!(said.contains("InvalidInput") && said.contains("add `region=`"), "{said}");
}

/// Neither the error nor the log at any level shows the secret key of the environment.
pub(crate) async fn secrets_of_the_environment_show_nowhere() {
    let url = variable(GARAGE);
    let (location, query) = url.split_once('?').unwrap();
    let bucket = location.split_once('@').unwrap().1;
    let keys = [
        ("AWS_ACCESS_KEY_ID", "GK000000000000000000000000"),
        ("AWS_SECRET_ACCESS_KEY", CANARY),
        ("AWS_SESSION_TOKEN", CANARY),
    ];
    let said = opened_elsewhere(&format!("s3://{bucket}?{query}"), &keys);
    assert!(said.contains("PermissionDenied"), "{said}");
    assert!(said.contains("TRACE"), "nothing was logged");
    assert!(!said.contains(CANARY), "the secret shows");
}

pub(crate) async fn logins_that_redis_refuses() {
    let url = variable(REDIS);
    let at = host(&url);
    for (url, kind, parts) in [
        (format!("redis://{at}/0"), ErrorKind::PermissionDenied, ["password", "redis://user:password@host"]),
        (format!("redis://:{CANARY}@{at}/0"), ErrorKind::PermissionDenied, ["password", "check the URL"]),
        (
            format!("redis://nobody:{CANARY}@{at}/0"),
            ErrorKind::PermissionDenied,
            ["password", "check the URL"],
        ),
        (
            format!("{}/4000000", url.rsplit_once('/').unwrap().0),
            ErrorKind::InvalidInput,
            ["number", "database"],
        ),
        (url.replacen("redis://", "redis+cluster://", 1), ErrorKind::Unsupported, ["cluster", "`redis://`"]),
        (
            format!("rediss://:{CANARY}@{at}/0?connect_timeout_ms=1000"),
            ErrorKind::Timeout,
            ["TLS", "`tls_ca_file`"],
        ),
    ] {
        is_refused(&url, kind, &parts).await;
    }
    let cluster = variable(REDIS_CLUSTER);
    let (login, hosts) = cluster.rsplit_once('@').unwrap();
    let login = login.replacen("redis+cluster://", "redis://", 1);
    let one = format!("{login}@{}", hosts.split(',').next().unwrap());
    is_refused(&one, ErrorKind::Unsupported, &["`redis+cluster://`"]).await;
    let wrong = format!("redis+cluster://:{CANARY}@{hosts}");
    is_refused(&wrong, ErrorKind::PermissionDenied, &["password", "check the URL"]).await;
}

pub(crate) async fn a_user_of_redis_who_may_only_read() {
    let url = variable(REDIS);
    let mut plain = plain_redis(&url).await;
    let user = format!("larder-test-{}", std::process::id());
    let rules = ["on", &format!(">{CANARY}"), "~*", "&*", "+@read", "+@connection"];
    let () =
        redis::cmd("ACL").arg("SETUSER").arg(&user).arg(&rules[..]).query_async(&mut plain).await.unwrap();
    let error = refused(&format!("redis://{user}:{CANARY}@{}/0", host(&url))).await;
    let () = redis::cmd("ACL").arg("DELUSER").arg(&user).query_async(&mut plain).await.unwrap();
    says(&error, ErrorKind::PermissionDenied, &["grant `", "~larder:*", "+info"]);
}

/// An object of the wrong kind at the path of a database or a folder.
pub(crate) async fn files_that_are_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("text"), "no database at all, ".repeat(100)).unwrap();
    // A table in a file without an application id, as SQLite writes it.
    let (newer, other) = (path("newer"), path("other"));
    Backend::open(&format!("sqlite:{newer}")).await.unwrap().close().await;
    std::fs::copy(&newer, &other).unwrap();
    // The file header contains the application id and the version of the schema.
    overwrite(&other, 68, &77_u32.to_be_bytes());
    overwrite(&newer, 60, &1_000_u32.to_be_bytes());
    for (url, kind, parts) in [
        (format!("sqlite:{}", path("text")), ErrorKind::Corrupt, ["not an SQLite database", "name another"]),
        (format!("sqlite:{other}"), ErrorKind::InvalidInput, ["another program", "name another"]),
        (format!("sqlite:{newer}"), ErrorKind::Unsupported, ["has format", "supports up to format"]),
        (format!("sqlite:{}", path("text/x")), ErrorKind::InvalidInput, ["folder", "create it first"]),
        (format!("file:{}", path("text")), ErrorKind::Corrupt, ["is something else", "another folder"]),
    ] {
        is_refused(&url, kind, &parts).await;
    }
}

fn overwrite(path: &str, at: usize, bytes: &[u8]) {
    let mut file = std::fs::read(path).unwrap();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    std::fs::write(path, file).unwrap();
}

/// A server that evicts keys when its memory is full loses acknowledged writes.
pub(crate) async fn a_redis_that_drops_keys() {
    let server = tokio::task::spawn_blocking(|| Server::start("redis", "LARDER_REDIS_PORT")).await.unwrap();
    let mut admin = server.connections().await.remove(0);
    let set = async |admin: &mut redis::aio::MultiplexedConnection, name: &str, value: &str| {
        let () = redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query_async(admin).await.unwrap();
    };
    set(&mut admin, "maxmemory", "100mb").await;
    set(&mut admin, "maxmemory-policy", "allkeys-lru").await;
    let parts = ["`maxmemory-policy`", "`noeviction`"];
    is_refused(&server.url(), ErrorKind::Unsupported, &parts).await;

    // A later change of the policy is noticed with the next new connection.
    set(&mut admin, "maxmemory-policy", "noeviction").await;
    let (_place, stores) = open(&server.url()).await.unwrap();
    let (history, thread) = (stores.set().history().unwrap(), Thread::new("a", "s").unwrap());
    history.append(&thread, ChatMessage::user("kept")).await.unwrap();
    let hang_up = async |admin: &mut redis::aio::MultiplexedConnection| {
        let mut kill = redis::cmd("CLIENT");
        let () = kill
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .query_async(admin)
            .await
            .unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    set(&mut admin, "maxmemory-policy", "volatile-ttl").await;
    hang_up(&mut admin).await;
    let error = history.append(&thread, ChatMessage::user("refused")).await.unwrap_err();
    says(&error, ErrorKind::Unsupported, &parts);
    says(&history.tail(&thread, None, 9).await.unwrap_err(), ErrorKind::Unsupported, &parts);
    set(&mut admin, "maxmemory-policy", "noeviction").await;
    assert_eq!(history.tail(&thread, None, 9).await.unwrap().messages.len(), 1);

    // Without memory a write is refused, and the error names the setting to raise.
    set(&mut admin, "maxmemory", "1").await;
    let error = history.append(&thread, ChatMessage::user("refused")).await.unwrap_err();
    says(&error, ErrorKind::ResourceExhausted, &["`maxmemory`", "raise it"]);
    assert_eq!(history.tail(&thread, None, 9).await.unwrap().messages.len(), 1);
}

pub(crate) async fn logins_that_age_refuses() {
    let url = variable(AGE);
    let at = host(&url);
    let nobody = format!("age://nobody:{CANARY}@{at}/larder");
    let wrong = format!("age://larder:{CANARY}@{at}/larder");
    for url in [nobody, wrong] {
        is_refused(&url, ErrorKind::PermissionDenied, &["user or the password", "check the URL"]).await;
    }
    let absent = format!("{}/absent", url.rsplit_once('/').unwrap().0);
    is_refused(&absent, ErrorKind::NotFound, &["database of the URL", "`CREATE DATABASE`"]).await;
    let postgres = variable(POSTGRES);
    let plain = postgres.replacen("postgres://", "age://", 1);
    is_refused(&plain, ErrorKind::Unsupported, &["Apache AGE", "install"]).await;
    let wrong = format!("age://larder:{CANARY}@{}/larder", host(&postgres));
    is_refused(&wrong, ErrorKind::PermissionDenied, &["user or the password", "check the URL"]).await;
}

fn entity() -> Entity {
    Entity::new(EntityId::new("e").unwrap(), EntityType::new("t").unwrap())
}

/// A connection to a database with AGE, next to the stores.
async fn admin(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.replacen("age://", "postgres://", 1).parse().unwrap();
    options.disable_statement_logging().connect().await.unwrap()
}

/// Runs on a separate server, because it changes the server's roles and its extension.
pub(crate) async fn rights_that_age_needs() {
    let server = tokio::task::spawn_blocking(|| Server::start("age", "LARDER_AGE_PORT")).await.unwrap();
    let url = server.url();
    let mut admin = admin(&url).await;
    let (_place, stores) = open(&url).await.unwrap();
    let graph = stores.set().graph().unwrap();
    graph.upsert_entities(vec![entity()]).await.unwrap();

    full_pool(&url, &mut admin).await;

    // Sessions that only read.
    let careful = role(&url, &mut admin, "careful", "SUPERUSER").await;
    run(&mut admin, "ALTER ROLE careful SET default_transaction_read_only = on").await;
    let (place, stores) = open(&careful).await.unwrap();
    let read_only = stores.set().graph().unwrap();
    let error = read_only.upsert_entities(vec![entity()]).await.unwrap_err();
    says(&error, ErrorKind::PermissionDenied, &["read-only", "primary"]);
    assert_eq!(read_only.count().await.unwrap().entities, 1);
    place.close().await;

    // A user with read permission only.
    let reader = role(&url, &mut admin, "reader", "").await;
    run(&mut admin, "GRANT USAGE ON SCHEMA larder, ag_catalog TO reader").await;
    run(&mut admin, "GRANT SELECT ON ALL TABLES IN SCHEMA larder, ag_catalog TO reader").await;
    let (place, stores) = open(&reader).await.unwrap();
    let error = stores.set().graph().unwrap().upsert_entities(vec![entity()]).await.unwrap_err();
    says(&error, ErrorKind::PermissionDenied, &["grant", "`USAGE`", "`CREATE`"]);
    place.close().await;
    graph.upsert_entities(vec![entity()]).await.unwrap();

    // The extension is too old, or it is missing and the user may not create it.
    run(&mut admin, "UPDATE pg_extension SET extversion = '1.4.0' WHERE extname = 'age'").await;
    is_refused(&url, ErrorKind::Unsupported, &["1.5.0", "`ALTER EXTENSION age UPDATE`"]).await;
    run(&mut admin, "DROP EXTENSION age CASCADE").await;
    is_refused(&format!("{url}?migrate=check"), ErrorKind::Unsupported, &["`migrate=auto`"]).await;
    is_refused(&reader, ErrorKind::PermissionDenied, &["`CREATE EXTENSION age`", "administrator"]).await;
}

async fn run(admin: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(admin).await.unwrap();
}

/// Creates a role that may log in, and returns its URL.
async fn role(url: &str, admin: &mut PgConnection, name: &str, rights: &str) -> String {
    run(admin, &format!("CREATE ROLE {name} LOGIN {rights} PASSWORD '{CANARY}'")).await;
    format!("age://{name}:{CANARY}@{}/larder", host(url))
}

/// One connection, whose write waits for the transaction of another client.
async fn full_pool(url: &str, admin: &mut PgConnection) {
    let (place, stores) = open(&format!("{url}?pool_size=1&acquire_timeout_ms=1000")).await.unwrap();
    let graph = stores.set().graph().unwrap();
    graph.count().await.unwrap();
    let mut transaction = admin.begin().await.unwrap();
    run(&mut transaction, "LOCK TABLE larder.schema_version IN ACCESS EXCLUSIVE MODE").await;
    let waiting = {
        let graph = stores.set().graph().unwrap();
        tokio::spawn(async move { graph.upsert_entities(vec![entity()]).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let begun = std::time::Instant::now();
    let error = graph.count().await.unwrap_err();
    // The time to wait for a connection, and that of the question whether the server responds.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    says(&error, ErrorKind::ResourceExhausted, &["raise `pool_size`"]);
    transaction.rollback().await.unwrap();
    waiting.await.unwrap().unwrap();
    graph.count().await.unwrap();
    place.close().await;
}
