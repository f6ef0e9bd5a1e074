//! The commands: their output and their exit codes.

use std::process::{Command, Output, Stdio};

use larder_kernel::{AgentId, ChatMessage, Contract, HistoryProviderExt, NewBoard, PageRequest, Thread};
use libtest_mimic::Trial;

use super::fill::fill;
use super::place::{Backend, Place};
use super::read::{assert_same, everything};
use super::{live, trial};
use crate::operations::Database;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("the_command_copies_and_says_so", copies),
        trial("the_command_dumps_and_loads", dumps_and_loads),
        trial("what_the_target_cannot_hold_is_named_and_counted", lacking),
        live("a_database_that_never_held_vectors_is_dumped_and_copied", &["LARDER_POSTGRES_URL"], bare),
        live("a_database_that_never_held_a_graph_of_age_is_dumped", &["LARDER_POSTGRES_URL"], bare_age),
        trial("an_erasure_leaves_nothing_and_asks_first", erases),
        trial("an_agent_or_a_session_is_erased_alone", erases_some),
    ]
}

pub(crate) fn larder(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = larder(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{stdout}{stderr}");
    (stdout, stderr)
}

async fn copies() {
    let (source, target) = (Place::new(Backend::Sqlite).await, Place::new(Backend::Sqlite).await);
    fill(&source.stores, 4).await;
    let namespace = source.namespace.as_str();
    let copy = ["copy", &source.url, &target.url, "--namespace", namespace];
    let (said, _) = output(&copy, 0);
    for &contract in Contract::ALL {
        let line = said.lines().find(|line| line.starts_with(contract.as_str())).unwrap();
        assert!(line.ends_with("on both sides") && !line.contains(" 0 written"), "{line}");
    }
    let (said, _) = output(&copy, 0);
    assert_eq!(said.matches(" 0 written").count(), 6, "{said}");
    // Under another name in the same backend.
    let to = target.namespace.as_str();
    output(&[&copy[..], &["--to-namespace", to]].concat(), 0);
    let held = everything(&source.stores, Contract::ALL).await;
    assert_same(held, everything(&target.stores, Contract::ALL).await);

    let thread = Thread::new("secret", "secret").unwrap();
    target.stores.set().history().unwrap().append(&thread, ChatMessage::user("secret")).await.unwrap();
    let (_, said) = output(&[&copy[..], &["--to-namespace", to]].concat(), 2);
    assert!(said.contains("history 0 different and 1 only in the target"), "{said}");
    assert!(said.contains("--to-namespace selects an empty namespace, --into-existing keeps"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    output(
        &[&copy[..], &["--to-namespace", to, "--contract", "key-value", "--contract", "graph"]].concat(),
        0,
    );
    let (said, _) = output(&[&copy[..], &["--to-namespace", to, "--into-existing"]].concat(), 0);
    assert!(said.contains("history"), "{said}");
}

async fn dumps_and_loads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive").display().to_string();
    let (source, target) = (Place::new(Backend::Sqlite).await, Place::new(Backend::Sqlite).await);
    fill(&source.stores, 5).await;
    let namespace = source.namespace.as_str();
    let (nothing, _) = output(&["dump", &source.url, &file, "--namespace", namespace], 0);
    assert_eq!(nothing, "");
    let (text, _) = output(&["dump", &source.url, "-", "--namespace", namespace], 0);
    assert_eq!(text, std::fs::read_to_string(&file).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let (said, _) = output(&["load", &file, &target.url, "--namespace", target.namespace.as_str()], 0);
    assert!(said.contains("sha256"), "{said}");
    let held = everything(&source.stores, Contract::ALL).await;
    assert_same(held, everything(&target.stores, Contract::ALL).await);
    let (_, said) = output(&["load", "/nonexistent/archive", &target.url], 2);
    assert!(said.contains("NotFound") && said.contains("nothing was written"), "{said}");
}

async fn lacking() {
    let (source, folder) = (Place::new(Backend::Sqlite).await, tempfile::tempdir().unwrap());
    let namespace = source.namespace.as_str();
    let files = format!("file:{}", folder.path().join("blobs").display());
    let copy = ["copy", &source.url, &files, "--namespace", namespace];
    // The empty source contains nothing that the target could not store.
    output(&copy, 0);
    fill(&source.stores, 6).await;
    let held = everything(&source.stores, Contract::ALL).await;
    let (_, said) = output(&copy, 2);
    assert!(said.contains(&format!("history ({} records)", held.messages.len())), "{said}");
    let (_, said) = output(&[&copy[..], &["--contract", "graph"]].concat(), 2);
    assert!(said.contains("the target has no store for graph"), "{said}");
    output(&[&copy[..], &["--contract", "blobs"]].concat(), 0);
    let (_, said) = output(&[&copy[..], &["--contract", "poems"]].concat(), 2);
    assert!(said.contains("key_value"), "{said}");
    if !cfg!(feature = "full") {
        let (_, said) = output(&["copy", &source.url, "redis://u:hunter2@127.0.0.1:1/0"], 2);
        assert!(said.contains("larder-full") && !said.contains("hunter2"), "{said}");
    }
}

/// Writes one message into a new database, and dumps and copies it.
fn move_bare(url: &str, dumped: &str, line: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("in"), "{\"role\":\"user\",\"content\":\"Hello\"}\n").unwrap();
    output(&["import", &path("in"), "--to", url, "--thread", "a/s"], 0);
    let (_, said) = output(&["dump", dumped, &path("archive")], 0);
    assert!(said.contains(line), "{said}");
    let (said, _) = output(&["copy", dumped, &format!("sqlite:{}", path("larder.db"))], 0);
    assert!(said.contains(line), "{said}");
    let (said, _) = output(&["inspect", dumped], 0);
    assert!(!said.is_empty());
}

async fn bare() {
    let database = Database::new("LARDER_POSTGRES_URL", "bare");
    move_bare(&database.url, &database.url, "vectors    0 records");
}

/// The server need not have AGE.
async fn bare_age() {
    let database = Database::new("LARDER_POSTGRES_URL", "bare_age");
    let (_, rest) = database.url.split_once("://").unwrap();
    move_bare(&database.url, &format!("age://{rest}"), "graph      0 records");
}

async fn erases() {
    let place = Place::new(Backend::Sqlite).await;
    fill(&place.stores, 7).await;
    let erase = ["erase", &place.url, "--namespace", place.namespace.as_str()];
    let before = everything(&place.stores, Contract::ALL).await;
    let (_, said) = output(&erase, 2);
    assert!(said.contains("--yes"), "{said}");
    assert_same(before, everything(&place.stores, Contract::ALL).await);
    let (said, _) = output(&[&erase[..], &["--yes"]].concat(), 0);
    assert_eq!(said.matches(", 0 left").count(), 6, "{said}");
    let left = everything(&place.stores, Contract::ALL).await;
    assert_same(left, super::read::Everything::default());
    output(&["erase", &place.url, "--yes"], 2);
}

async fn erases_some() {
    let place = Place::new(Backend::Sqlite).await;
    let (history, tasks) = (place.stores.set().history().unwrap(), place.stores.set().tasks().unwrap());
    for (agent, session) in [("a", "1"), ("a", "2"), ("b", "1"), ("ab", "1")] {
        let thread = Thread::new(agent, session).unwrap();
        history.append(&thread, ChatMessage::user("x")).await.unwrap();
        let board = larder_kernel::BoardId::new(session, agent).unwrap();
        tasks.create_task_list(&board, NewBoard::default()).await.unwrap();
    }
    let erase = ["erase", &place.url, "--yes", "--namespace", place.namespace.as_str()];
    let (said, _) = output(&[&erase[..], &["--agent", "a"]].concat(), 0);
    assert_eq!(said, "history    2 threads erased, 0 left\ntasks      2 boards erased, 0 left\n");
    assert!(
        history
            .list_threads(Some(&AgentId::new("a").unwrap()), PageRequest::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let (said, _) = output(&[&erase[..], &["--agent", "b", "--session", "2"]].concat(), 0);
    assert!(said.contains("0 threads erased"), "{said}");
    output(&[&erase[..], &["--session", "1"]].concat(), 0);
    assert!(history.list_threads(None, PageRequest::default()).await.unwrap().items.is_empty());
    assert!(tasks.list_boards(None, PageRequest::default()).await.unwrap().items.is_empty());
}
