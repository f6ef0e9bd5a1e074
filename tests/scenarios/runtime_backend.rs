//! `RUNTIME_BACKEND` chooses the task store of a process. The next processes see that store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and its child process prints its result"
)]

use std::env;
use std::process::{Command, ExitCode, Output};

use larder::{RuntimeBackend, Stores};
use larder_agents::storage::GlobalTaskStore;
use larder_kernel::{BoardId, Namespace, NewBoard, Result};
use libtest_mimic::{Arguments, Trial};

/// Variables of the processes that a test starts.
const CHILD: &str = "LARDER_TEST_RUNTIME_BACKEND";
const SERVER: &str = "LARDER_POSTGRES_URL";

/// The start of each child: it chooses its store, finds or creates the board, and reports which.
async fn child() -> Result<&'static str> {
    RuntimeBackend::from_env()?.set_global_tasks().await?;
    let board = BoardId::new("conversation", "planner")?;
    if GlobalTaskStore::get().get_board(&board).await?.is_some() {
        return Ok("found");
    }
    GlobalTaskStore::get().create_task_list(&board, NewBoard::default()).await?;
    let late = RuntimeBackend::Postgres.set_global_tasks().await;
    assert!(late.is_err(), "the store is in use");
    Ok("made")
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Starts a process with these variables, and without the other variables that choose stores.
fn start(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    for variable in ["RUNTIME_BACKEND", "LARDER_URL", "LARDER_TASKS_URL", "LARDER_NAMESPACE"] {
        command.env_remove(variable);
    }
    command.env(CHILD, "1").envs(variables.iter().copied()).output().unwrap()
}

#[track_caller]
fn said(variables: &[(&str, &str)]) -> String {
    let output = start(variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Proves: RAVI-17
fn in_memory_each_process_has_its_own_store() {
    for variables in [&[][..], &[("RUNTIME_BACKEND", "memory"), ("LARDER_URL", "postgres://nowhere:1/x")]] {
        for _ in 0..2 {
            assert_eq!(said(variables), "made");
        }
    }
}

/// Proves: RAVI-17
fn another_value_or_no_database_ends_the_process_with_the_variables_name() {
    for variables in [
        &[("RUNTIME_BACKEND", "mysql")][..],
        &[("RUNTIME_BACKEND", "postgres")],
        &[("RUNTIME_BACKEND", "postgres"), ("LARDER_URL", "sqlite:never-made.db")],
    ] {
        let output = start(variables);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("RUNTIME_BACKEND"), "{output:?}");
    }
}

/// Proves: RAVI-17
fn in_postgres_the_next_process_finds_the_tasks_of_the_last_one() {
    let url = env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set"));
    for variable in ["LARDER_TASKS_URL", "LARDER_URL"] {
        let namespace = format!("runtime-backend-{}-{variable}", std::process::id());
        let chosen =
            [("RUNTIME_BACKEND", "postgres"), (variable, url.as_str()), ("LARDER_NAMESPACE", &namespace)];
        assert_eq!(said(&chosen), "made");
        assert_eq!(said(&chosen), "found");
        block_on(async {
            let namespace = Namespace::new(&namespace).unwrap();
            let stores = Stores::builder().namespace(namespace).url(&url).open().await.unwrap();
            let board = BoardId::new("conversation", "planner").unwrap();
            assert!(stores.set().tasks().unwrap().get_board(&board).await.unwrap().is_some());
            stores.erase().await.unwrap();
        });
    }
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// Does the work for which a test started this program.
pub(crate) fn as_child() -> Option<ExitCode> {
    env::var_os(CHILD)?;
    Some(match block_on(child()) {
        Ok(word) => {
            println!("{word}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    })
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let absent = env::var_os(SERVER).is_none() && !required;
    let live = trial(
        "in_postgres_the_next_process_finds_the_tasks_of_the_last_one",
        in_postgres_the_next_process_finds_the_tasks_of_the_last_one,
    );
    let trials = vec![
        trial("in_memory_each_process_has_its_own_store", in_memory_each_process_has_its_own_store),
        trial(
            "another_value_or_no_database_ends_the_process_with_the_variables_name",
            another_value_or_no_database_ends_the_process_with_the_variables_name,
        ),
        live.with_ignored_flag(absent),
    ];
    crate::groups::run("runtime_backend", arguments, trials)
}
