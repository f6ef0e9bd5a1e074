//! The table of promises is complete, and names only proofs that exist.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use larder_conformance::suites;

/// The systems whose promises the workspace keeps, and the number of promises of each.
const PROMISES: [(&str, usize); 5] = [("ATH", 10), ("ALQ", 10), ("PK", 13), ("RAVI", 20), ("AKKA", 9)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn ids() -> Vec<String> {
    PROMISES.iter().flat_map(|(system, last)| (1..=*last).map(move |id| format!("{system}-{id}"))).collect()
}

/// Returns the table's lines: id, promise and proofs.
fn table() -> Vec<(String, String, Vec<String>)> {
    let text = std::fs::read_to_string(root().join("guide/promises.md")).unwrap();
    let (_, text) = text.split_once("<!-- promises -->").unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, promise, proofs] = cells[..] else { unreachable!("not three cells: {line}") };
        let proofs = proofs.split(", ").map(|proof| proof.trim_matches('`').to_owned()).collect();
        (id.to_owned(), promise.to_owned(), proofs)
    })
    .collect()
}

/// Returns all Rust sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_promise_is_in_the_table_once_and_in_order() {
    let listed: Vec<String> = table().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(listed, ids());
    for (id, promise, proofs) in table() {
        assert!(promise.len() > 20, "{id} says nothing");
        assert!(proofs.iter().all(|proof| !proof.is_empty()), "{id} has no proof");
    }
}

#[test]
fn every_proof_exists() {
    let cases: HashSet<String> = suites::all().into_iter().map(|case| case.name).collect();
    for (id, _, proofs) in table() {
        for proof in proofs {
            let Some((file, function)) = proof.split_once("::") else {
                assert!(cases.contains(&proof), "{id}: the suite has no case `{proof}`");
                continue;
            };
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(!source.is_empty(), "{id}: there is no file `{file}`");
            assert!(source.contains(&format!("fn {function}(")), "{id}: `{file}` has no `{function}`");
        }
    }
}

#[test]
fn tests_name_only_existing_promises() {
    let ids: HashSet<String> = ids().into_iter().collect();
    let mut files = Vec::new();
    for layer in ["kernel", "agents", "capabilities", ".", "conformance"] {
        for folder in ["src", "tests"] {
            sources(&root().join(layer).join(folder), &mut files);
        }
    }
    let mut named = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for line in source.lines().filter_map(|line| line.trim().strip_prefix("/// Proves: ")) {
            for id in line.split(", ") {
                assert!(ids.contains(id.trim_end_matches('.')), "{}: `{id}` is no promise", file.display());
                named += 1;
            }
        }
    }
    assert!(named > 100, "only {named} names were found");
}
