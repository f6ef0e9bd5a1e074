//! The command of this crate, as a user starts it.

use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder-redb")).args(arguments).output().expect("the command starts")
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn url(folder: &Path, name: &str) -> String {
    format!("redb:{}", folder.join(name).display())
}

#[test]
fn the_suite_passes_on_redb() {
    let folder = tempfile::tempdir().unwrap();
    // redb syncs each write to the disk, and some cases write thousands of times.
    let checked = run(&["check", &url(folder.path(), "check.redb"), "--timeout", "300"]);
    let said = shown(&checked);
    assert!(checked.status.success(), "{said}");
    assert!(said.contains(" redb ") && said.contains(" passed"), "{said}");
}

#[test]
fn the_levels_test_redb_as_they_test_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = url(folder.path(), "levels.redb");
    let pressed = run(&["check", &url, "--level", "model,concurrent,durable", "--per-mille", "100"]);
    let said = shown(&pressed);
    // A tenth of the kills proves nothing, and the exit code says so. A lost write would be a counterexample.
    assert_eq!(pressed.status.code(), Some(2), "{said}");
    assert!(said.contains("writers were killed") && !said.contains("COUNTEREXAMPLE"), "{said}");
}

#[tokio::test]
async fn copies_go_to_redb_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let (source, target) = (sqlite("source.db"), sqlite("target.db"));
    {
        let state = larder::open(&source).await.unwrap().key_value().unwrap();
        state.set("counters", "visits", "7").await.unwrap();
        state.set("counters", "errors", "1").await.unwrap();
    }
    let (first, second) = (url(folder.path(), "first.redb"), url(folder.path(), "second.redb"));
    for (from, to) in [(&source, &first), (&first, &second), (&second, &target)] {
        let copied = run(&["copy", from, to]);
        let said = shown(&copied);
        assert!(copied.status.success() && said.contains("2 records, 2 written"), "{said}");
    }
    let state = larder::open(&target).await.unwrap().key_value().unwrap();
    assert_eq!(state.get("counters", "visits").await.unwrap().unwrap(), "7");
}

#[test]
fn a_diagnosis_does_not_create_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = url(folder.path(), "absent.redb");
    let diagnosed = run(&["doctor", &url]);
    assert!(diagnosed.status.success(), "{}", shown(&diagnosed));
    assert!(shown(&diagnosed).contains("it does not exist yet"), "{}", shown(&diagnosed));
    let inspected = run(&["inspect", &url]);
    assert_eq!(inspected.status.code(), Some(2), "{}", shown(&inspected));
    assert!(shown(&inspected).contains("it would make the file"), "{}", shown(&inspected));
    assert!(!folder.path().join("absent.redb").exists());
}

#[test]
fn an_unknown_scheme_lists_the_schemes_of_this_command() {
    let asked = run(&["check", "rocks:./x"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(shown(&asked).contains("`redb:`"), "{}", shown(&asked));
}
