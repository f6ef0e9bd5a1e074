//! `larder doctor` and `larder inspect`: their output, their exit codes, and that they change nothing.
//!
//! The test of a live service that the environment does not name is ignored; with `LARDER_SERVICES=required`
//! it fails.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use std::process::{Command, Output, Stdio};

use larder::Stores;
use larder_cli::service::SERVICES;
use larder_kernel::{
    BlobKey, BlobStoreExt, BoardId, BucketName, ChatMessage, CollectionName, Document, DocumentId, Embedding,
    Entity, EntityId, EntityType, HistoryProviderExt, Key, KeyValueStoreExt, NewBoard, NewTask, PutMode,
    TaskId, Thread,
};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        Trial::test("the_doctor_ends_with_the_worst_that_it_saw", ok(ends_with_the_worst)),
        Trial::test("the_doctor_prints_one_json_document", ok(prints_json)),
        Trial::test("the_doctor_shows_no_secret", ok(shows_no_secret)),
        Trial::test("a_namespace_is_inspected", ok(inspects)),
        Trial::test("inspecting_makes_nothing", ok(makes_nothing)),
    ];
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    for service in &SERVICES {
        let ignored = !cfg!(feature = "full") || (std::env::var_os(service.variable).is_none() && !required);
        let run = ok(move || {
            service_is_inspected(service.scheme, &std::env::var(service.variable).expect(service.variable));
        });
        trials.push(
            Trial::test(format!("{}::is_looked_at_and_left_as_it_is", service.name), run)
                .with_ignored_flag(ignored),
        );
    }
    let ignored = !cfg!(feature = "full") || (std::env::var_os("LARDER_POSTGRES_URL").is_none() && !required);
    let made = Trial::test("postgres::a_new_database_stays_empty", ok(a_new_database_stays_empty));
    trials.push(made.with_ignored_flag(ignored));
    crate::groups::run("doctor", arguments, trials)
}

fn ok(
    test: impl FnOnce() + Send + 'static,
) -> impl FnOnce() -> Result<(), libtest_mimic::Failed> + Send + 'static {
    move || {
        test();
        Ok(())
    }
}

/// The command's output and exit code.
fn larder(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let Output { status, stdout, stderr } = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn json(arguments: &[&str], codes: &[i32]) -> Value {
    let (code, said, trouble) = larder(arguments);
    assert!(codes.contains(&code), "{code}: {said}{trouble}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{trouble}"))
}

/// Returns the check of that name for the first backend.
fn check<'v>(found: &'v Value, name: &str) -> &'v Value {
    let checks = found["places"][0]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {found:#}"))
}

fn ends_with_the_worst() {
    let (code, said, _) = larder(&["doctor", "memory:"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("warn  durability") && said.contains("do   use it for tests"), "{said}");
    assert!(said.contains("1 ok, 1 warnings, 0 failed, in "), "{said}");
    assert_eq!(larder(&["doctor", "memory:", "--strict"]).0, 1);
    assert_eq!(larder(&["doctor", "memory:", "sqlite:/nonexistent/x.db", "--strict"]).0, 2);
    let (code, said, trouble) = larder(&["doctor", "gopher:x"]);
    assert_eq!((code, said.as_str(), trouble.lines().count()), (2, "", 1), "{trouble}");
    assert_eq!(larder(&["doctor"]).0, 2);
}

fn prints_json() {
    let folder = tempfile::tempdir().unwrap();
    let files = format!("file:{}", folder.path().join("blobs").display());
    let found = json(&["doctor", "--json", "memory:", &files], &[0]);
    assert_eq!(found["status"], "warn");
    let places = found["places"].as_array().unwrap();
    assert_eq!(
        (places.len(), &places[0]["backend"], &places[1]["backend"]),
        (2, &"memory".into(), &"file".into())
    );
    for place in places {
        assert!(place["url"].is_string() && place["status"].is_string() && place["elapsed_ms"].is_u64());
        for check in place["checks"].as_array().unwrap() {
            for field in ["name", "status", "seen", "why"] {
                assert!(check[field].is_string(), "{field} of {check}");
            }
            assert_eq!(check["advice"].is_string(), check["status"] != "ok", "{check}");
        }
    }
    assert!(!folder.path().join("blobs").exists());
}

fn shows_no_secret() {
    let urls = [
        "postgres://canary:hunter2@127.0.0.1:1/db",
        "age://canary:hunter2@127.0.0.1:1/db",
        "redis://canary:hunter2@127.0.0.1:1/0",
        "redis+cluster://canary:hunter2@127.0.0.1:1",
        "s3://canary:hunter2@files?endpoint=http://127.0.0.1:1&region=x",
        "postgres://canary:hunter2@127.0.0.1:1/db?sslpassword=hunter2",
        "gopher://canary:hunter2@x",
    ];
    for url in urls {
        for more in [&[][..], &["--json"]] {
            let (code, said, trouble) = larder(&[&["doctor", url, "--timeout", "30"], more].concat());
            assert_eq!(code, 2, "{url}: {said}{trouble}");
            let all = format!("{said}{trouble}");
            assert!(!all.contains("hunter2") && !all.contains("canary"), "{all}");
        }
    }
}

async fn fill(stores: &Stores) {
    for session in ["s-1", "s-2", "s-3"] {
        let thread = Thread::new("assistant", session).unwrap();
        stores.set().history().unwrap().append(&thread, ChatMessage::user("canary")).await.unwrap();
    }
    let (bucket, key) = (BucketName::new("settings").unwrap(), Key::new("theme").unwrap());
    stores.set().key_value().unwrap().set(&bucket, &key, "dark".into()).await.unwrap();
    let blob = BlobKey::new("a/report.txt").unwrap();
    stores.set().blobs().unwrap().put_bytes(&blob, "hello".into()).await.unwrap();
    let tasks = ["one", "two"].map(|id| NewTask::new(TaskId::new(id).unwrap(), "canary"));
    let board = BoardId::new("talk", "assistant").unwrap();
    stores.set().tasks().unwrap().create_task_list(&board, NewBoard::new(tasks.into())).await.unwrap();
    let ada = Entity::new(EntityId::new("ada").unwrap(), EntityType::new("person").unwrap());
    stores.set().graph().unwrap().upsert_entities(vec![ada]).await.unwrap();
    let embedding = Embedding::new(vec![1.0, 0.0, 0.0]).unwrap();
    let document = Document::new(DocumentId::new("d").unwrap(), "canary").with_embedding(embedding);
    let collection = CollectionName::new("notes").unwrap();
    stores.set().vectors().unwrap().put(&collection, vec![document], PutMode::Upsert).await.unwrap();
}

fn inspects() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async { fill(&larder::open(&url).await.unwrap()).await });
    drop(runtime);
    let found = json(&["inspect", &url, "--json"], &[0]);
    assert_eq!((&found["namespace"], &found["limit"]), (&"default".into(), &1000.into()));
    let thread = &found["history"]["items"][0];
    assert_eq!((&thread["agent"], &thread["messages"]), (&"assistant".into(), &1.into()));
    assert!(thread["last_at"].is_string() && found["history"]["cut"] == false);
    assert_eq!(found["vectors"]["items"][0]["dimensions"], 3);
    assert_eq!(found["graph"], serde_json::json!({"entities": 1, "relationships": 0}));
    assert_eq!((&found["blobs"]["count"], &found["blobs"]["bytes"]), (&1.into(), &5.into()));
    assert_eq!(found["tasks"]["items"][0]["tasks"]["planned"], 2);
    let bucket = &found["key_value"]["items"][0];
    assert_eq!((&bucket["keys"], &bucket["bytes"], &bucket["cut"]), (&1.into(), &4.into(), &false.into()));
    assert!(!found.to_string().contains("canary"), "what is stored is not printed");

    let some = json(&["inspect", &url, "--json", "--limit", "2"], &[0]);
    assert_eq!(
        (some["history"]["items"].as_array().unwrap().len(), &some["history"]["cut"]),
        (2, &true.into())
    );
    let (code, said, _) = larder(&["inspect", &url, "--limit", "2"]);
    assert_eq!(code, 0);
    for line in [
        "threads: 2, and more than --limit allows",
        "boards: 1, 2 tasks",
        "2 planned",
        "blobs: 1, 5 B",
        "graph: 1",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let empty = json(&["inspect", &url, "--json", "--namespace", "other"], &[0]);
    assert_eq!(empty["history"]["items"], serde_json::json!([]));
    let (code, _, trouble) = larder(&["inspect", &url, "--browse"]);
    assert_eq!((code, trouble.lines().count()), (2, 1), "{trouble}");
}

fn makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sqlite:a.db", "file:blobs"] {
        let (scheme, name) = name.split_once(':').unwrap();
        let url = format!("{scheme}:{}", folder.path().join(name).display());
        let (code, _, trouble) = larder(&["inspect", &url]);
        assert_eq!(code, 2);
        assert!(trouble.contains("does not exist") && trouble.contains("inspect only reads"), "{trouble}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn service_is_inspected(scheme: &str, url: &str) {
    let found = json(&["doctor", "--json", url], &[0, 2]);
    assert_eq!(check(&found, "reach")["status"], "ok", "{found:#}");
    assert_eq!(check(&found, "login")["status"], "ok", "{found:#}");
    for name in ["latency", "clock", "durability", "tls", "writable"] {
        assert_ne!(check(&found, name)["status"], "fail", "{found:#}");
    }
    let own: &[&str] = match scheme {
        "postgres" => {
            &["server_version", "encoding", "schema", "rights", "pgvector", "checksums", "connections"]
        }
        "age" => &["server_version", "schema", "rights", "age", "graphs"],
        "redis" => &[
            "format",
            "server_version",
            "eviction",
            "files",
            "replicas",
            "rights",
            "connections",
            "topology",
        ],
        "redis+cluster" => &["format", "server_version", "cluster", "replicas", "rights", "topology"],
        _ => &["format", "conditional_writes", "long_keys", "versioning", "uploads"],
    };
    for name in own {
        assert_ne!(check(&found, name)["status"], "fail", "{found:#}");
    }
    let password = url.split('@').next().unwrap().rsplit(':').next().unwrap();
    assert!(password.len() < 6 || !found.to_string().contains(password), "a secret is shown");
    let (code, _, trouble) = larder(&["inspect", url, "--namespace", "larder-doctor-test", "--json"]);
    let unprepared = trouble.contains("migrate=auto");
    assert!(code == 0 || unprepared, "{trouble}");
}

fn psql(url: &str, statement: &str) -> String {
    let mut command = Command::new("psql");
    command.args([
        "--no-psqlrc",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "--dbname",
        url,
        "--command",
        statement,
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{statement}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn a_new_database_stays_empty() {
    let server = std::env::var("LARDER_POSTGRES_URL").expect("LARDER_POSTGRES_URL");
    let name = format!("larder_doctor_{}", std::process::id());
    psql(&server, &format!("CREATE DATABASE {name}"));
    let (place, query) = server.split_once('?').map_or((&*server, ""), |(place, query)| (place, query));
    let url = format!("{}/{name}?{query}", &place[..place.rfind('/').unwrap()]);
    let looked = std::panic::catch_unwind(|| {
        let found = json(&["doctor", "--json", &url], &[0]);
        assert_eq!(check(&found, "schema")["status"], "warn", "{found:#}");
        assert_eq!(check(&found, "rights")["status"], "ok", "{found:#}");
        let checking = format!("{url}&migrate=check").replace("?&", "?");
        assert_eq!(check(&json(&["doctor", "--json", &checking], &[2]), "schema")["status"], "fail");
        assert_eq!(larder(&["inspect", &url]).0, 2);
        assert_eq!(psql(&url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'larder'"), "0");
    });
    psql(&server, &format!("DROP DATABASE {name} WITH (FORCE)"));
    looked.unwrap();
}
