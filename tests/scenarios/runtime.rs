//! The example runtime is cut off at every kind of step, on every store. The result is the same as without an
//! interruption.
//!
//! Tests of a server whose variable is not set are ignored; with `LARDER_SERVICES=required` they fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "../../examples/runtime/parts/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the example uses the rest")]
mod parts;

use std::env;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder::Stores;
use larder_kernel::{Namespace, Result, SessionId};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use parts::{Models, Runtime, Steps};

/// Variables of the process that a test starts and kills: its store, and the namespace in it.
const CHILD: &str = "LARDER_TEST_RUNTIME_STORE";
const NAMESPACE: &str = "LARDER_TEST_RUNTIME_NAMESPACE";
const LEASE: Duration = Duration::from_millis(100);
/// The turns that the tasks take without an interruption.
const TURNS: usize = 14;
/// A limit far above the number of steps.
const RESTARTS_MAX: usize = 500;

/// Does the work for which a test started this program.
pub(crate) fn as_child() -> Option<ExitCode> {
    let url = env::var(CHILD).ok()?;
    let work = async {
        let namespace = Namespace::new(env::var(NAMESPACE).unwrap())?;
        let stores = Stores::builder().url(url).namespace(namespace).open().await?;
        runtime(stores, |text| println!("{text}")).await?.run(&Steps::all()).await
    };
    block_on(work).expect("the child works to its end").expect("no step ends it");
    Some(ExitCode::SUCCESS)
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = vec![
        trial("memory_ends_as_if_never_cut_off", || block_on(on_memory())),
        trial("sqlite_ends_as_if_never_cut_off", || block_on(on_sqlite())),
        trial("sqlite_outlives_killed_processes", || {
            let folder = tempfile::tempdir().unwrap();
            block_on(killed(&file_url(folder.path(), "killed.db")))
        }),
        trial("each_turn_tells_what_reached_the_model_and_why", || block_on(told())),
    ];
    trials.extend(on_servers());
    crate::groups::run("runtime", arguments, trials)
}

fn trial(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(|error| Failed::from(format!("{error:?}"))))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn on_servers() -> [Trial; 3] {
    const POSTGRES: &str = "LARDER_POSTGRES_URL";
    [
        on_server(POSTGRES, "postgres_ends_as_if_never_cut_off", |url| block_on(on_postgres(url))),
        on_server(POSTGRES, "postgres_outlives_killed_processes", |url| block_on(killed(url))),
        on_server("LARDER_REDIS_URL", "redis_beside_sqlite_ends_as_if_never_cut_off", |url| {
            block_on(on_redis(url))
        }),
    ]
}

fn on_server(variable: &'static str, name: &str, run: fn(&str) -> Result<()>) -> Trial {
    let required = env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    match env::var(variable) {
        Ok(url) => trial(name, move || run(&url)),
        Err(_) => {
            let absent = move || Err(format!("{variable} is not set; start its server first").into());
            Trial::test(name, absent).with_ignored_flag(!required)
        }
    }
}

async fn runtime(stores: Stores, tell: impl Fn(&str) + Send + Sync + 'static) -> Result<Runtime> {
    let session = SessionId::new("weekend")?;
    Runtime::with_lease(stores, Models::offline().await?, session, &(Arc::new(tell) as _), LEASE)
}

/// Runs to the end without an interruption and returns the stored content.
async fn in_one_go(stores: Stores) -> Result<Value> {
    let runtime = runtime(stores, |_| {}).await?;
    assert!(runtime.run(&Steps::all()).await?.is_some());
    assert_eq!(runtime.done().await?, 5);
    runtime.snapshot().await
}

/// Cuts the run off after one step, two, three and so on, each time with new handles, until it is done.
async fn cut_off<F: Future<Output = Result<Stores>>>(open: impl Fn() -> F) -> Result<Value> {
    for restart in 0..RESTARTS_MAX {
        let runtime = runtime(open().await?, |_| {}).await?;
        // No turn has more than nine steps, so each round makes progress.
        let steps = Steps::until(u64::try_from(restart % 9).unwrap() + 1);
        if runtime.run(&steps).await?.is_some() {
            assert!(restart > 10, "cut off {restart} times only");
            return runtime.snapshot().await;
        }
    }
    unreachable!("no end after {RESTARTS_MAX} restarts");
}

fn same(left: &Value, right: &Value) {
    for part in ["messages", "tasks", "notes", "entities", "relationships", "summary"] {
        assert!(!left[part].is_null(), "{part} is missing");
        assert_eq!(without_generations(&left[part]), without_generations(&right[part]), "{part}");
    }
}

/// Positions name the generation of their place, which is random.
fn without_generations(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let number = text.split_once('@').and_then(|(number, _)| number.parse::<i64>().ok());
            number.map_or_else(|| value.clone(), Value::from)
        }
        Value::Array(values) => values.iter().map(without_generations).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), without_generations(value))).collect()
        }
        _ => value.clone(),
    }
}

async fn on_memory() -> Result<()> {
    let whole = in_one_go(larder::open("memory:").await?).await?;
    let stores = larder::open("memory:").await?;
    same(&whole, &cut_off(|| std::future::ready(Ok(stores.clone()))).await?);
    Ok(())
}

fn file_url(folder: &Path, name: &str) -> String {
    format!("sqlite:{}", folder.join(name).display())
}

async fn on_sqlite() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let whole = in_one_go(larder::open("memory:").await?).await?;
    let url = file_url(folder.path(), "cut.db");
    same(&whole, &cut_off(|| larder::open(&url)).await?);
    Ok(())
}

async fn on_postgres(url: &str) -> Result<()> {
    let namespace = Namespace::new(format!("runtime-{}", uuid::Uuid::new_v4()))?;
    let open = || Stores::builder().url(url).namespace(namespace.clone()).open();
    let whole = in_one_go(larder::open("memory:").await?).await?;
    same(&whole, &cut_off(open).await?);
    open().await?.erase().await
}

/// Returns stores with history, tasks and key-value in Redis, and vectors and the graph in a file.
async fn on_redis(url: &str) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let file = file_url(folder.path(), "beside.db");
    let namespace = Namespace::new(format!("runtime-{}", uuid::Uuid::new_v4()))?;
    let open = || Stores::builder().url(url).url(&file).namespace(namespace.clone()).open();
    let whole = in_one_go(larder::open("memory:").await?).await?;
    same(&whole, &cut_off(open).await?);
    open().await?.erase().await
}

/// Kills processes in the middle of their work, each at another turn. The last process resumes the work.
async fn killed(url: &str) -> Result<()> {
    let namespace = Namespace::new(format!("runtime-{}", uuid::Uuid::new_v4()))?;
    let open = || Stores::builder().url(url).namespace(namespace.clone()).open();
    for turns in [1, 3, 2] {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(CHILD, url)
            .env(NAMESPACE, namespace.as_str())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test starts itself");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun =
            lines.by_ref().map(|line| line.unwrap()).filter(|line| line.starts_with("== ")).take(turns);
        assert_eq!(begun.count(), turns);
        // SIGKILL on Unix: no code of the process runs after it.
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "it was killed, not done");
    }
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let tell = move |text: &str| *count.lock().unwrap() += usize::from(text.starts_with("== "));
    let runtime = runtime(open().await?, tell).await?;
    assert!(runtime.run(&Steps::all()).await?.is_some());
    let turns = *told.lock().unwrap();
    assert!(turns < TURNS, "it started over: {turns} turns");
    same(&in_one_go(larder::open("memory:").await?).await?, &runtime.snapshot().await?);
    open().await?.erase().await
}

async fn told() -> Result<()> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let runtime =
        runtime(larder::open("memory:").await?, move |text| keep.lock().unwrap().push(text.to_owned()));
    runtime.await?.run(&Steps::all()).await?;
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.starts_with("== ")).count(), TURNS);
    for why in
        ["summarized 9: #1-#9", "changed #7", "[Notes]", "selective_tool_call", "began with the summary"]
    {
        assert!(told.iter().any(|text| text.contains(why)), "{why}");
    }
    Ok(())
}
