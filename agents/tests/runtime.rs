//! The example runtime is cut off at every kind of step, on every store, and ends as if it had not been.
//!
//! Postgres is shown as an ignored test where `LARDER_POSTGRES_URL` is not set; with `LARDER_SERVICES=required` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "../examples/runtime/parts/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the example uses the rest")]
mod parts;

use std::env;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_capabilities::Stores;
use larder_kernel::{Namespace, Result, SessionId};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

use parts::{Models, Runtime, Steps};

/// Set in the process that a test starts and kills: the store that it works on.
const CHILD: &str = "LARDER_TEST_RUNTIME_STORE";
const LEASE: Duration = Duration::from_millis(100);
/// Far more restarts than the tasks have steps.
const RESTARTS_MAX: usize = 500;

fn main() -> ExitCode {
    if let Ok(url) = env::var(CHILD) {
        let work = async {
            let stores = Stores::connect(&url).await?;
            runtime(stores, |text| println!("{text}")).await?.run(&Steps::all()).await
        };
        block_on(work).expect("the child works to its end").expect("no step ends it");
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        trial("memory_ends_as_if_never_cut_off", || block_on(on_memory())),
        trial("sqlite_ends_as_if_never_cut_off", || block_on(on_sqlite())),
        trial("sqlite_outlives_killed_processes", || block_on(killed())),
        trial("each_turn_tells_what_reached_the_model_and_why", || block_on(told())),
        postgres(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
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

fn postgres() -> Trial {
    let required = env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    match env::var("LARDER_POSTGRES_URL") {
        Ok(url) => trial("postgres_ends_as_if_never_cut_off", move || block_on(on_postgres(&url))),
        Err(_) => Trial::test("postgres::LARDER_POSTGRES_URL is not set", || Err("start it first".into()))
            .with_ignored_flag(!required),
    }
}

async fn runtime(stores: Stores, tell: impl Fn(&str) + Send + Sync + 'static) -> Result<Runtime> {
    let session = SessionId::new("weekend")?;
    Runtime::with_lease(stores, Models::offline().await?, session, &(Arc::new(tell) as _), LEASE)
}

/// Runs to the end in one go and returns what the stores hold.
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
        // Nine steps are more than any turn has, so each round comes further.
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
        assert_eq!(left[part], right[part], "{part}");
    }
}

async fn on_memory() -> Result<()> {
    let whole = in_one_go(Stores::connect("memory:").await?).await?;
    let stores = Stores::connect("memory:").await?;
    same(&whole, &cut_off(|| std::future::ready(Ok(stores.clone()))).await?);
    Ok(())
}

fn file_url(folder: &Path, name: &str) -> String {
    format!("sqlite:{}", folder.join(name).display())
}

async fn on_sqlite() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let whole = in_one_go(Stores::connect("memory:").await?).await?;
    let url = file_url(folder.path(), "cut.db");
    same(&whole, &cut_off(|| Stores::connect(&url)).await?);
    Ok(())
}

async fn on_postgres(url: &str) -> Result<()> {
    let namespace = Namespace::new(format!("runtime-{}", uuid::Uuid::new_v4()))?;
    let open = || Stores::builder().url(url).namespace(namespace.clone()).connect();
    let whole = in_one_go(Stores::connect("memory:").await?).await?;
    same(&whole, &cut_off(open).await?);
    open().await?.erase().await
}

/// Kills processes in the middle of their work, each at another turn.
async fn killed() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let url = file_url(folder.path(), "killed.db");
    for turns in [1, 3, 2] {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(CHILD, &url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test starts itself");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun =
            lines.by_ref().map(|line| line.unwrap()).filter(|line| line.starts_with("== ")).take(turns);
        assert_eq!(begun.count(), turns);
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "it was killed, not done");
    }
    let runtime = runtime(Stores::connect(&url).await?, |_| {}).await?;
    assert!(runtime.run(&Steps::all()).await?.is_some());
    same(&in_one_go(Stores::connect("memory:").await?).await?, &runtime.snapshot().await?);
    Ok(())
}

async fn told() -> Result<()> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let runtime =
        runtime(Stores::connect("memory:").await?, move |text| keep.lock().unwrap().push(text.to_owned()));
    runtime.await?.run(&Steps::all()).await?;
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.starts_with("== ")).count(), 14);
    for why in
        ["summarized 9: #1-#9", "changed #7", "[Notes]", "selective_tool_call", "began with the summary"]
    {
        assert!(told.iter().any(|text| text.contains(why)), "{why}");
    }
    Ok(())
}
